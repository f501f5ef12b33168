"""Drivers and monitors of the interfaces, and the memory model."""

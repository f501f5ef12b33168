"""Testbench of route."""

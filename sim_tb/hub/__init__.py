"""Testbench of the Hub."""

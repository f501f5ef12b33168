"""Testbench of the parser."""

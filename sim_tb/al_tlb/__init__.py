"""Testbench of the AL-TLB."""

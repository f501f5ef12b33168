"""Testbench of the ingress of a port."""

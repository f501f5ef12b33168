"""Synthesis: area in gate equivalents, memories in bits, reports."""

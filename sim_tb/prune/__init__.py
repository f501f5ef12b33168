"""Tests of pruning."""

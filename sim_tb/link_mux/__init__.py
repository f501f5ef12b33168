"""Tests of the mux of two classes on a link."""

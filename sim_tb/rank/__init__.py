"""Tests of what the reduction unit does in order rank beside what it does in every order."""

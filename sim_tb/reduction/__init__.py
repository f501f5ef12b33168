"""Environment and tests of the reduction unit."""

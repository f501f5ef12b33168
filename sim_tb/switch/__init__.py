"""Environment and tests of the whole switch."""

"""The verbs of the command line: each reads its options and calls the package that does it."""

"""The network side of one GPU under test: what its blocks do not show by themselves."""

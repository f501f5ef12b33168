"""The switch's bench: workloads at line rate on the fast player, measured and drawn."""

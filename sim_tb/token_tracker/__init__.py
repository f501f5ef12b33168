"""The token tracker under test: its golden model, its agents, its tests."""

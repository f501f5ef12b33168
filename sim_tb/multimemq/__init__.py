"""The MultimemQ under test: its golden model, its agents, its tests."""

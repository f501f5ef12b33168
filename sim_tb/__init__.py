"""The testbenches: agents, scoreboards and one folder for each block."""

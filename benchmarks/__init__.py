"""Measure the speed of this project's operators and of other implementations: `make bench`."""

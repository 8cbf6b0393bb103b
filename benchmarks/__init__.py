"""Measure the speed of this project's operators beside other implementations: `make bench`."""

# SPDX-License-Identifier: MIT
"""Measure the speed of this project's operators and of other implementations: `make bench`."""

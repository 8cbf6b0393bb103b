# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reports of runs: `record` stores them as JSON, and the other modules show one report or compare several."""

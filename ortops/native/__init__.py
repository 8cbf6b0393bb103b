# SPDX-License-Identifier: MIT
"""What a library contains: structs that Python shares with it, and all functions that are compiled into it."""

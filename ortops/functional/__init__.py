# SPDX-License-Identifier: MIT
"""The operators as functions on NumPy arrays, with the same checks and kernels as in sessions."""

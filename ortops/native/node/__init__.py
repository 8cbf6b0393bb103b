# SPDX-License-Identifier: MIT
"""A node of a model in compiled code: its attributes, the shapes of a call, and the texts of errors."""

# SPDX-License-Identifier: MIT
"""Builds libraries: what they contain, for which platforms, and the linker."""

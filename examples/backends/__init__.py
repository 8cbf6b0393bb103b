# SPDX-License-Identifier: MIT
"""Conformance backends for runtimes without a built-in backend: see docs/conformance.md."""

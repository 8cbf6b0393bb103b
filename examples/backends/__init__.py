"""Backends of the conformance suite for runtimes that it has none for: see docs/conformance.md."""

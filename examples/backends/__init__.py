"""Backends of the conformance suite for runtimes that it does not bring: see docs/conformance.md."""

"""Backends of the conformance suite for further runtimes: see docs/backends.md."""

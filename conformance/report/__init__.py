"""What is printed and written of a run: one file a format. Each is a function of a `Run`."""

from conformance.report.run import Run

__all__ = ["Run"]

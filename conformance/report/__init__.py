"""What is printed and written of a `Run`, and of several side by side in a `matrix.Matrix`: one file a format."""

from conformance.report.run import Run

__all__ = ["Run"]

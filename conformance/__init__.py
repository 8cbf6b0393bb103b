"""The conformance suite: cases as data, the outputs that each operator must give, and the tolerance of each output.

A case is a node with its inputs, a note that says what it checks, and the authority behind it (`case.py`). Its expected
values come from a published source or a closed form, or else from the float64 reference (`expected_values.py`). The
tolerance is computed from the operator, the shapes and the element type (`compare.py`, `families/`), never chosen.
A backend runs the case in a session, once or several times (`backends/`, `run.py`), with one of six outcomes
(`outcome.py`). docs/conformance.md explains how to check a runtime.

The suite does not test what the specifications leave open: an infinite or NaN pixel of weight 0; the sign of a zero; numbers
of samples that depend on how the last bit of a RoI's size is rounded; the words of an error message. For DirectML's
operators it also does not test which of two equally near pixels is the nearest if the coordinates were rounded before, or an
out_of_bounds_input_value of NaN.
"""

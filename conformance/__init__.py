"""The conformance suite: cases as data, what each operator must answer, and how far from it an answer may be.

A case is a node, its inputs, the fact that it discriminates, and whose rule that is (`case.py`). Its expected values come
from a published source or a closed form, or else from the float64 reference (`expect.py`). How much an answer may differ
is computed from the operator, the shapes and the element type (`compare.py`, `families/`), never chosen. A backend runs the
case in a session, once or several times (`backends/`, `run.py`), and one of six outcomes follows, which are never counted
together (`outcome.py`).

Not tested, because the contract leaves it open: a pixel that is infinite or NaN and has the weight 0; the sign of a zero;
numbers of samples that depend on how the last bit of a RoI's size is rounded; the words of an error message.
Of DirectML's operators besides: the nearest of two pixels as far away where coordinates are rounded on the way to it;
an out_of_bounds_input_value that is no number.
"""

"""The conformance suite: cases as data, what each operator must answer, and how far from it an answer may be.

A case is a node, its inputs and the fact that it discriminates (`case.py`). Its expected values come from a published
source or, for the generated families, from the float64 reference (`expect.py`). How much an answer may differ is
computed from the operator, the shapes and the element type (`compare.py`, `bounds/`), never chosen. A backend runs the
case (`backends/`), and one of six outcomes follows, which are never counted together (`outcome.py`).

Not tested, because the contract leaves it open: NaN and infinite elements of the feature map; results beyond the range
of their type; the sign of a zero; RoI gradients where a sample stands on the last pixel, where no interpolation cell
begins; numbers of samples that depend on how the last bit of a RoI's size is rounded; the words of an error message.
Of DirectML's operators besides: the nearest of two pixels as far away where coordinates are rounded on the way to it;
an out_of_bounds_input_value that is no number.
"""

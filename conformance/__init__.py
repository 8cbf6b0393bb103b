# SPDX-License-Identifier: MIT OR Apache-2.0
"""The conformance suite: cases as data, the outputs that each operator must give, and the tolerance of each output.

A case is a node with its inputs, a note that says what it checks, and the authority behind it (`case.py`). Its expected
values come from a published source or a closed form, or else from the float64 reference (`expected_values.py`). The
tolerance is computed from the operator, the shapes and the element type (`compare.py`, `families/`), never chosen.
A backend runs the case in a session, once or several times (`backends/`, `run.py`), with one of six outcomes
(`outcome.py`). docs/conformance.md explains how to check a runtime. Words that the suite uses:

    case            a node with inputs, and the outputs or the error that a conforming runtime gives
    basis           the authority behind a case: the text, published vectors, ONNX's evaluator, or this project's own rule
    twin            the valid case that differs from a case with an error in nothing but the fault
    twin's refusal  a runtime that does not answer the twin either proves nothing, so its refusal is unsupported
    level           whose rules a runtime has to follow to conform: core, standard or strict (`--level`)
    departed        the outcome of a wrong answer to a case whose rule the level does not ask for
    cause           what several failing cases have in common: their message, a diagnosis, or a property of the cases
    family          the versions of an operator and their gradient, which share definitions, bounds and mutants
    mutant          the reference with one deliberate mistake, which at least one case must fail
    formula         a few numbers from which a large case's tensors are computed when they are read

The suite does not test what the specifications leave open: an infinite or NaN pixel of weight 0; the sign of a zero; numbers
of samples that depend on how the last bit of a RoI's size is rounded; the words of an error message. For DirectML's
operators it also does not test which of two equally near pixels is the nearest if the coordinates were rounded before, or an
out_of_bounds_input_value of NaN. For GridSample it does not test integer maps, the reflection of infinity and, with nearest,
of halves beyond the outer edges, or NaN with border and with reflection.
"""

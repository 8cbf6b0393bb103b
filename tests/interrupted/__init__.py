"""Interrupts while ONNX Runtime computes or makes sessions: ``python -m tests.interrupted``.

`subject` makes sessions of each kind, and models. `outcome` has the words for what comes of a call, and says which are
right. `storm` sends signals, `programs` are what a process of its own does, each a command, and `process` starts one and
judges it. `campaign` starts many.

Modules import each other by relative names: here the package is `tests.interrupted`, for the tests beside it,
`interrupted`.
"""

"""Stress tests of signals that arrive while ONNX Runtime computes or makes sessions: ``python -m tests.interrupted``.

`subject` makes sessions and models. `outcome` names the outcomes of a call and says which are right. `storm` sends signals.
`programs` are the programs of the test processes, each a command; `process` starts one and judges its result. `campaign`
starts many.

Modules import each other by relative names, because the package is `tests.interrupted` on the command line and
`interrupted` for the tests beside it.
"""

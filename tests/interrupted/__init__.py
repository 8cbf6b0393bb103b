"""Stress tests that interrupt ONNX Runtime's runs and the creation of sessions: ``python -m tests.interrupted``.

`subject` creates sessions and models. `outcome` classifies the outcome of a call and says which ones are right. `storm`
sends signals. `programs` has the stress programs, each for a process of its own; `process` starts one and judges it, and
`campaign` starts many.

Modules use relative imports, since the package is called `tests.interrupted` here and `interrupted` in the tests beside it.
"""

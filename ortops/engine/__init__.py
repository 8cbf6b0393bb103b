"""The two ways in which ONNX Runtime calls the operators, both through the library of onnxruntime-extensions.

`direct` registers tables of C functions. `pyop` registers Python operators, where the library has no entry for C operators.
"""

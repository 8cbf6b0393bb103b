"""Two engines through which ONNX Runtime calls the operators, both based on onnxruntime-extensions' library.

`direct` registers tables of C functions. `pyop` registers Python operators, for libraries that do not accept C operators.
"""

"""How ONNX Runtime calls the operators: through onnxruntime-extensions, in one of two ways.

`direct` gives it tables of C functions; `pyop` uses its Python operators, where the library exports no such entry.
"""

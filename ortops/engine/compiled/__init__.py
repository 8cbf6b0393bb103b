"""The compiled code between ONNX Runtime and Python. `layout` defines the constants that Python shares with it."""

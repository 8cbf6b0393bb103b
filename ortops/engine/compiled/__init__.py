"""The compiled code between ONNX Runtime and Python; `layout` has what Python shares with it."""

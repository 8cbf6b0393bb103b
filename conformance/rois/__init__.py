"""Operators that sample RoIs on a grid along the axes of the map: what is the same for ONNX's and DirectML's."""

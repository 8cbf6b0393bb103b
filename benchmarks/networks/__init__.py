"""Whole networks in training: a step of ONNX Runtime on our gradient graph beside a step of PyTorch."""

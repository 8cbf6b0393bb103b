"""Training steps of whole networks: ONNX Runtime with our gradient graph, and PyTorch."""

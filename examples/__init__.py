"""Uses of the gradients, run by ONNX Runtime: `make examples`."""

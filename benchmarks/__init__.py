"""Our operators against ONNX Runtime's own kernel, on the shapes of real detectors: `make bench`."""

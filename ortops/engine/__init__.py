"""How ONNX Runtime calls operators: by tables of C functions (`direct`), which `domains` and `extensions` register."""

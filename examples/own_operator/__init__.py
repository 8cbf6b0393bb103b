"""A PyTorch module with an operator of its own, which a host in C runs: docs/custom_operators.md."""

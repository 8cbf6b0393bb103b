"""The operators as functions on NumPy arrays, with the checks and the kernels that sessions use."""

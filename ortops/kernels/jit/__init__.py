"""Kernels compiled by numba: from Python functions to machine code, on disk and in this process."""

LANES = 16
"""Numbers that compiled code handles as one value: one AVX-512 vector of float32."""

CACHE_LINE = 64
"""Bytes of a line of the cache, on all processors that matter."""

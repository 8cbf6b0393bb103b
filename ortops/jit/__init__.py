"""Compile kernels with numba, store their machine code on disk, load it and run it."""

LANES = 16
"""The number of elements in a SIMD value of compiled code: as many as an AVX-512 vector of float32 has."""

CACHE_LINE = 64
"""The size of a cache line in bytes, assumed for every processor."""

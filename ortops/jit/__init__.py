"""Compile kernels with numba, store their machine code on disk, load it and run it."""

LANES = 16
"""The number of elements of a SIMD value in compiled code: those of one AVX-512 vector of float32."""

CACHE_LINE = 64
"""The size of a cache line in bytes, assumed for every processor."""

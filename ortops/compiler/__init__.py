# SPDX-License-Identifier: MIT
"""numba to LLVM: the language in which `native` is written, and its cache. Only builds and users' functions import it."""

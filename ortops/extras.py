# SPDX-License-Identifier: MIT
"""The extra `compile`: numba and llvmlite, without which all works but the compilation of operators and libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

INSTALL_COMPILER = "pip install 'ortops[compile]'"
"""What installs the extra."""


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Name the extra in the error of an import of numba or llvmlite.

    Raises:
        ModuleNotFoundError: one of them is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        raise ModuleNotFoundError(
            f"{error.name}, which compiles it, is not installed: {INSTALL_COMPILER}", name=error.name
        ) from error

"""Refuses numba's options of the environment by which it compiles nothing or ends the process, before it is imported."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

_RULES: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("NUMBA_DISABLE_JIT", lambda value: int(value) == 0, "must be 0 or unset"),
    ("NUMBA_NUM_THREADS", lambda value: int(value) > 0, "must be > 0 or unset"),
    (
        "NUMBA_CPU_FEATURES",
        lambda value: all(feature[:1] in "+-" for feature in value.split(",")),
        "must be features separated by commas, each prefixed by + or -",
    ),
)


def check() -> None:
    """Check the options.

    Raises:
        RuntimeError: one would stop the compilation of kernels.
    """
    for name, is_allowed, rule in _RULES:
        value = os.environ.get(name)
        with contextlib.suppress(ValueError):  # numba ignores a value that is not an integer
            if value is not None and not is_allowed(value):
                raise RuntimeError(f"{name} = {value!r}: {rule}, since numba compiles the kernels")


check()

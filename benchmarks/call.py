"""A call to time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.workloads import Array


@dataclass(frozen=True)
class Call:
    """A computation that is ready to be timed.

    run: performs the computation once.
    arrays: converts the result of `run` to arrays, in the order of the operation's outputs; not timed.
    expected_difference: the reason why the outputs differ from ours; None if they must agree.
    """

    run: Callable[[], Any]
    arrays: Callable[[Any], list[Array]]
    expected_difference: str | None = None

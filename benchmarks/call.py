"""What is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.workloads import Array


@dataclass(frozen=True)
class Call:
    """A computation that is ready to be timed.

    run: does it, once for each call.
    arrays: the outputs of a call as arrays, in the order of the operation's outputs; not timed.
    expected_difference: why the outputs are known to be others than ours; None where they must agree.
    """

    run: Callable[[], Any]
    arrays: Callable[[Any], list[Array]]
    expected_difference: str | None = None

"""Models whose runs are profiled, for the time of RoiAlign inside of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import onnx

from benchmarks.sessions import make
from benchmarks.workloads import Array

_REORDER = "ReorderOutput"
"""The operator by which ONNX Runtime changes a convolution's blocks of channels to ONNX's layout."""


@dataclass(frozen=True)
class NodeSeconds:
    """The seconds of a node in each run: alone, and with the conversions that the runtime adds before and after it."""

    alone: list[float] = field(default_factory=list)
    with_conversions: list[float] = field(default_factory=list)


class Profiled(Protocol):
    """A model on its inputs, whose runs are profiled."""

    def run(self) -> list[Array]:
        """Return new arrays of the outputs."""

    def seconds(self, levels: Sequence[str]) -> list[NodeSeconds]:
        """Return the times of each level's RoiAlign in all runs. No run may follow."""


class ProfiledSession:
    """A session of ONNX Runtime of a class, which writes its profile to a file with the prefix `file`."""

    def __init__(
        self, session: Callable[..., Any], model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int, file: str
    ) -> None:
        self._session = make(session, model, threads, file)
        self._feeds = feeds

    def run(self) -> list[Array]:
        """See `Profiled`."""
        return list(self._session.run(None, self._feeds))

    def seconds(self, levels: Sequence[str]) -> list[NodeSeconds]:
        """See `Profiled`. The levels run one after the other, so a map is reordered right before its own RoiAlign."""
        found = {f"{level}/RoiAlign_kernel_time": NodeSeconds() for level in levels}
        reordering = 0.0
        for event in json.loads(Path(self._session.end_profiling()).read_text("utf-8")):
            if event["name"].startswith(_REORDER) and event["name"].endswith("_kernel_time"):
                reordering += event["dur"] / 1e6
            elif event["name"] in found:
                times = found[event["name"]]
                times.alone.append(event["dur"] / 1e6)
                times.with_conversions.append(event["dur"] / 1e6 + reordering)
                reordering = 0.0
        return list(found.values())

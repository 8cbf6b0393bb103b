"""Measure RoiAlign inside a model, right after a convolution has computed its X, by the runtime's own profile.

Runtimes compute convolutions in layouts of their own. ONNX Runtime's has blocks of channels, which neither our RoiAlign nor
its own reads: a node before it changes X to ONNX's layout. OpenVINO's has the channels last, which its RoiAlign reads and
writes: a node after it changes Y, and one before it converts batch_indices to int32. The node alone leaves out this work,
which only RoiAlign causes here; with it, a runtime is charged for what another model might need anyway (X in ONNX's layout
for another node) or not at all (Y in ONNX's layout). So there are cells of both: `IN_MODEL` and `WITH_CONVERSIONS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime

import onnx_models
import ortops
from benchmarks.bench import FLOAT, OURS, Cell, difference, interleave
from benchmarks.models import session
from benchmarks.workloads import IN_MODEL, OPERATIONS, WITH_CONVERSIONS, Array, Problem, Pyramid, Workload

IMAGE_CHANNELS = 8
"""Few channels make convolutions fast. Their output, which fills the caches, is as large as with more."""

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


def measure(pyramid: Pyramid, threads: int, peers: Container[str], rounds: int | None = None) -> list[Cell]:
    """Return a cell for each level, and one for the sum of several levels, then the same with conversions.

    The model runs with our operator and with those runtimes that are in `peers`, in turn, as by `interleave`.
    """
    standard, arrays = model(pyramid), feeds(pyramid)
    with TemporaryDirectory() as folder:
        models = _profiled(standard, arrays, threads, peers, folder)
        outputs = {name: one.run() for name, one in models.items()}
        refused = {
            (name, level.name): message
            for name, theirs in outputs.items()
            for i, level in enumerate(pyramid.levels)
            if (message := difference([theirs[i]], [outputs[OURS][i]], Problem(OPERATIONS[0], level, FLOAT)))
        }
        del outputs
        interleave({name: one.run for name, one in models.items()}, rounds)
        levels = [level.name for level in pyramid.levels]
        seconds = {name: one.seconds(levels) for name, one in models.items()}
    # The first run was the comparison's, and of two in a row the second one counts.
    timed = slice(2, None, 2)
    alone = {name: [times.alone[timed] for times in found] for name, found in seconds.items()}
    converted = {name: [times.with_conversions[timed] for times in found] for name, found in seconds.items()}
    return [
        cell
        for operation, times in ((IN_MODEL, alone), (WITH_CONVERSIONS, converted))
        for cell in _cells(operation, pyramid, threads, times, refused)
    ]


def _cells(
    operation: str,
    pyramid: Pyramid,
    threads: int,
    times: Mapping[str, Sequence[list[float]]],
    refused: Mapping[tuple[str, str], str],
) -> list[Cell]:
    made = []
    for i, level in enumerate(pyramid.levels):
        own = {name: levels[i] for name, levels in times.items() if (name, level.name) not in refused}
        messages = [f"{name} is not compared: {message}" for (name, of), message in refused.items() if of == level.name]
        made.append(Cell(operation, level, FLOAT, threads, own, messages))
    if len(made) > 1:
        right = [name for name in times if all(name in cell.times for cell in made)]
        sums = {name: [sum(run) for run in zip(*times[name], strict=True)] for name in right}
        made.append(Cell(operation, pyramid, FLOAT, threads, sums))
    return made


def model(pyramid: Pyramid) -> onnx.ModelProto:
    """Return a model of ONNX's RoiAlign for each level, on an image as large as the map after a 3 x 3 convolution and Relu.

    Names are those of RoiAlign's inputs and outputs after the name of the level.
    """
    return reduce(partial(onnx.compose.merge_models, io_map=[]), map(_level, pyramid.levels))


def feeds(pyramid: Pyramid) -> dict[str, Array]:
    """Return the inputs of the model."""
    return {f"{level.name}/{name}": array for level in pyramid.levels for name, array in _image(level).inputs().items()}


def _image(level: Workload) -> Workload:
    images, _, height, width = level.shape
    return replace(level, shape=(images, IMAGE_CHANNELS, height, width))


def _level(level: Workload) -> onnx.ModelProto:
    images, channels, height, width = level.shape
    axes = {"N": images, "C": channels, "H": height, "W": width, "num_rois": level.rois}
    made = onnx_models.roi_align(16, standard=True, axes=axes, **level.attributes)
    graph = made.graph
    graph.input[0].type.tensor_type.shape.dim[1].dim_value = IMAGE_CHANNELS
    (roi_align,) = graph.node
    roi_align.input[0] = "map"
    graph.node.insert(0, onnx.helper.make_node("Conv", ["X", "weights"], ["sums"], "Conv", pads=[1] * 4))
    graph.node.insert(1, onnx.helper.make_node("Relu", ["sums"], ["map"], "Relu"))
    weights = np.random.default_rng(0).standard_normal((channels, IMAGE_CHANNELS, 3, 3), np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(weights, "weights"))
    return onnx.compose.add_prefix(made, f"{level.name}/")


def _profiled(
    standard: onnx.ModelProto, arrays: Mapping[str, Array], threads: int, peers: Container[str], folder: str
) -> dict[str, Profiled]:
    ours = onnx_models.convert(standard)
    found: dict[str, Profiled] = {
        OURS: _ProfiledSession(ortops.InferenceSession, ours, arrays, threads, f"{folder}/ours")
    }
    if "onnxruntime" in peers:
        kind = onnxruntime.InferenceSession
        found["onnxruntime"] = _ProfiledSession(kind, standard, arrays, threads, f"{folder}/peer")
    if "openvino" in peers:
        from benchmarks.peers.openvino import ProfiledModel

        found["openvino"] = ProfiledModel(standard, arrays, threads)
    return found


class _ProfiledSession:
    """A session of ONNX Runtime of a class, which writes its profile to a file with the prefix `file`."""

    def __init__(
        self, kind: Callable[..., Any], model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int, file: str
    ) -> None:
        self._session, self._feeds = session(kind, model, threads, file), feeds

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

"""Measure RoiAlign inside a model, right after a convolution has computed its X.

Its time is the one in the runtime's profile: ONNX Runtime's, for our operator and for its own, and OpenVINO's.

Runtimes compute convolutions in layouts of their own. ONNX Runtime's has blocks of channels, which neither our RoiAlign nor
its own reads: a node before it changes X to ONNX's layout. OpenVINO's has the channels last, which its RoiAlign reads and
writes: a node after it changes Y, and one before it converts batch_indices to int32. The node alone leaves out this work,
which only RoiAlign causes here; with it, a runtime is charged for what another model might need anyway (X in ONNX's layout
for another node) or not at all (Y in ONNX's layout). So there are cells of both: `IN_MODEL` and `WITH_CONVERSIONS`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime

import onnx_models
import ortops
from benchmarks.agreement import Difference, compare
from benchmarks.interleave import interleave
from benchmarks.measure import OURS, Cell
from benchmarks.operations import IN_MODEL, WITH_CONVERSIONS, Operation
from benchmarks.problem import Problem
from benchmarks.profiles import Profiled, ProfiledSession
from benchmarks.workloads import Array, Pyramid, Workload

ELEMENT_TYPE = "float"
"""The only type in which ONNX Runtime has convolutions."""

IMAGE_CHANNELS = 8
"""Few channels make convolutions fast. Their output, which fills the caches, is as large as with more."""


def measure(
    pyramid: Pyramid, threads: int, peers: Container[str], rounds: int | None = None, single: bool = False
) -> list[Cell]:
    """Return a cell for each level, and one for the sum of several levels, then the same with conversions.

    The model runs with our operator and with those runtimes that are in `peers`, in turn, as by `interleave`.
    """
    standard, arrays = model(pyramid), feeds(pyramid)
    with TemporaryDirectory() as folder:
        models = _profiled(standard, arrays, threads, peers, folder)
        outputs = {name: one.run() for name, one in models.items()}
        differences = [
            {
                name: compare([theirs[i]], [outputs[OURS][i]], Problem(IN_MODEL, level, ELEMENT_TYPE), None)
                for name, theirs in outputs.items()
                if name != OURS
            }
            for i, level in enumerate(pyramid.levels)
        ]
        del outputs
        interleave({name: one.run for name, one in models.items()}, rounds, single)
        levels = [level.name for level in pyramid.levels]
        seconds = {name: one.seconds(levels) for name, one in models.items()}
    # The first run was the comparison's.
    timed = slice(1, None) if single else slice(2, None, 2)
    alone = {name: [times.alone[timed] for times in found] for name, found in seconds.items()}
    converted = {name: [times.with_conversions[timed] for times in found] for name, found in seconds.items()}
    return [
        *_cells(IN_MODEL, pyramid, threads, alone, differences),
        *_cells(WITH_CONVERSIONS, pyramid, threads, converted, differences),
    ]


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
        OURS: ProfiledSession(ortops.InferenceSession, ours, arrays, threads, f"{folder}/ours")
    }
    if "onnxruntime" in peers:
        session = onnxruntime.InferenceSession
        found["onnxruntime"] = ProfiledSession(session, standard, arrays, threads, f"{folder}/peer")
    if "openvino" in peers:
        from benchmarks.peers.openvino import ProfiledModel

        found["openvino"] = ProfiledModel(standard, arrays, threads)
    return found


def _cells(
    operation: Operation,
    pyramid: Pyramid,
    threads: int,
    times: Mapping[str, Sequence[list[float]]],
    differences: Sequence[Mapping[str, Difference]],
) -> list[Cell]:
    cells = [
        _cell(operation, level, threads, {name: levels[i] for name, levels in times.items()}, differences[i])
        for i, level in enumerate(pyramid.levels)
    ]
    if len(cells) > 1:
        sums = {name: [sum(run) for run in zip(*levels, strict=True)] for name, levels in times.items()}
        worst = {name: _worst(differences, name) for name in differences[0]}
        cells.append(_cell(operation, pyramid, threads, sums, worst))
    return cells


def _cell(
    operation: Operation,
    workload: Workload | Pyramid,
    threads: int,
    times: Mapping[str, list[float]],
    differences: Mapping[str, Difference],
) -> Cell:
    compared = {
        name: taken for name, taken in times.items() if name not in differences or not differences[name].is_refused
    }
    return Cell(operation.name, workload, ELEMENT_TYPE, threads, compared, differences)


def _worst(differences: Sequence[Mapping[str, Difference]], name: str) -> Difference:
    found = [level[name] for level in differences]
    return max(found, key=lambda one: (one.is_refused, one.relative / one.allowed))

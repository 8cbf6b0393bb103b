"""Measure RoiAlign inside a model, right after a convolution has computed its X.

Its time is that in ONNX Runtime's profile, both for our operator and for ONNX Runtime's own.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime

import onnx_models
import ortops
from benchmarks.agreement import Difference, compare
from benchmarks.interleave import interleave
from benchmarks.measure import OURS, Cell
from benchmarks.operations import IN_MODEL
from benchmarks.problem import Problem
from benchmarks.sessions import make
from benchmarks.workloads import Array, Pyramid, Workload

ELEMENT_TYPE = "float"
"""The only type in which ONNX Runtime has convolutions."""

PEER = "onnxruntime"

IMAGE_CHANNELS = 8
"""Few channels make convolutions fast. Their output, which fills the caches, is as large as with more."""


def measure(pyramid: Pyramid, threads: int, peers: Container[str], rounds: int | None = None) -> list[Cell]:
    """Return a cell for each level, and one for the sum of several levels.

    The model runs with our operator and, if `peers` contains it, with ONNX Runtime's, in turn.
    """
    standard, arrays = model(pyramid), feeds(pyramid)
    with TemporaryDirectory() as folder:
        sessions = {OURS: make(ortops.InferenceSession, onnx_models.convert(standard), threads, f"{folder}/ours")}
        if PEER in peers:
            sessions[PEER] = make(onnxruntime.InferenceSession, standard, threads, f"{folder}/peer")
        outputs = {name: session.run(None, arrays) for name, session in sessions.items()}
        differences = [
            {
                name: compare([theirs[i]], [outputs[OURS][i]], Problem(IN_MODEL, level, ELEMENT_TYPE), None)
                for name, theirs in outputs.items()
                if name != OURS
            }
            for i, level in enumerate(pyramid.levels)
        ]
        del outputs
        interleave({name: partial(session.run, None, arrays) for name, session in sessions.items()}, rounds)
        times = {name: _profiled(session, pyramid) for name, session in sessions.items()}
    cells = [
        _cell(level, threads, {name: levels[i] for name, levels in times.items()}, differences[i])
        for i, level in enumerate(pyramid.levels)
    ]
    if len(cells) > 1:
        sums = {name: [sum(run) for run in zip(*levels, strict=True)] for name, levels in times.items()}
        cells.append(_cell(pyramid, threads, sums, {name: _worst(differences, name) for name in differences[0]}))
    return cells


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


def _profiled(session: Any, pyramid: Pyramid) -> list[list[float]]:
    """Return the seconds of each level's RoiAlign in the runs that `interleave` times: every second one after the first."""
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    names = [f"{level.name}/RoiAlign_kernel_time" for level in pyramid.levels]
    return [[event["dur"] / 1e6 for event in events if event["name"] == name][2::2] for name in names]


def _cell(
    workload: Workload | Pyramid,
    threads: int,
    times: Mapping[str, list[float]],
    differences: Mapping[str, Difference],
) -> Cell:
    compared = {
        name: taken for name, taken in times.items() if name not in differences or not differences[name].is_refused
    }
    return Cell(IN_MODEL.name, workload, ELEMENT_TYPE, threads, compared, differences)


def _worst(differences: Sequence[Mapping[str, Difference]], name: str) -> Difference:
    found = [level[name] for level in differences]
    return max(found, key=lambda one: (one.is_refused, one.relative / one.allowed))

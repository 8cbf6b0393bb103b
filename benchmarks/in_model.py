# SPDX-License-Identifier: MIT
"""Measure RoiAlign inside a model, right after the convolution that computes its X, from the runtime's own profile.

Runtimes compute convolutions in special layouts. ONNX Runtime's has blocks of channels, which neither our RoiAlign nor its
own reads: a node before RoiAlign changes X to ONNX's layout. OpenVINO's has the channels last, which its RoiAlign reads and
writes: a node after it changes Y, and one before it converts batch_indices to int32. The time of the node alone leaves out
these conversions, which only RoiAlign causes here. The time with them includes work that another model might need anyway (X
in ONNX's layout for another node) or not at all (Y in ONNX's layout). So there is a cell for each of the two times.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime

import onnx_models
import ortops
from benchmarks.measure import Call, Cell, difference, interleave
from benchmarks.models import session
from benchmarks.workloads import OPERATIONS, Array, Problem, Workload

IMAGE_CHANNELS = 8
"""Few channels make convolutions fast. Their output, which fills the caches, is as large as with more."""


def measure(workload: Workload, threads: int, peers: Collection[str], rounds: int | None = None) -> Iterator[Cell]:
    """Yield a cell of RoiAlign alone, and one with conversions.

    The model runs with our operator and with those runtimes that are in `peers`, in turn, as by `interleave`.
    """
    with TemporaryDirectory() as folder:
        models = _profiled(workload, threads, peers, folder)
        outputs = {name: model.run() for name, model in models.items()}
        problem = Problem(OPERATIONS[0], workload)
        differences = {name: difference(theirs, outputs["ortops"], problem) for name, theirs in outputs.items()}
        refused = [f"{name} is not compared: {message}" for name, message in differences.items() if message]
        right = {name: model for name, model in models.items() if not differences[name]}
        interleave({name: Call(model.run) for name, model in right.items()}, rounds)
        times = {name: model.seconds() for name, model in right.items()}
    for i, operation in enumerate(("RoiAlign", "with conversions")):
        # The first run was the comparison's, and of two in a row the second one counts.
        timed = {name: seconds[i][2::2] for name, seconds in times.items()}
        yield Cell("in-model", operation, workload.name, threads, timed, refused=refused)


def _model(workload: Workload) -> onnx.ModelProto:
    """Return a model of RoiAlign on an image as large as the map after a 3 x 3 convolution and Relu."""
    images, channels, height, width = workload.shape
    axes = {"N": images, "C": channels, "H": height, "W": width, "num_rois": workload.rois}
    model = onnx_models.roi_align(16, standard=True, axes=axes, **workload.attributes)
    graph = model.graph
    graph.input[0].type.tensor_type.shape.dim[1].dim_value = IMAGE_CHANNELS
    graph.node[0].input[0] = "map"
    graph.node.insert(0, onnx.helper.make_node("Conv", ["X", "weights"], ["sums"], pads=[1] * 4))
    graph.node.insert(1, onnx.helper.make_node("Relu", ["sums"], ["map"]))
    weights = np.random.default_rng(0).standard_normal((channels, IMAGE_CHANNELS, 3, 3), np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(weights, "weights"))
    return model


def _profiled(workload: Workload, threads: int, peers: Collection[str], folder: str) -> dict[str, Any]:
    """Return objects with the methods `run`, which returns new arrays, and `seconds`, as in `_ProfiledSession`."""
    images, _, height, width = workload.shape
    model, feeds = _model(workload), replace(workload, shape=(images, IMAGE_CHANNELS, height, width)).inputs()
    kinds = {"ortops": ortops.InferenceSession, "onnxruntime": onnxruntime.InferenceSession}
    profiled: dict[str, Any] = {}
    for name, kind in kinds.items():
        if name in peers:
            converted = onnx_models.convert(model) if name == "ortops" else model
            options = {"enable_profiling": True, "profile_file_prefix": f"{folder}/{name}"}
            profiled[name] = _ProfiledSession(session(kind, converted, threads, **options), feeds)
    if "openvino" in peers:
        from benchmarks.peers.openvino import ProfiledModel

        profiled["openvino"] = ProfiledModel(model, feeds, threads)
    return profiled


@dataclass(frozen=True)
class _ProfiledSession:
    """A session of ONNX Runtime that writes its profile to a file."""

    session: Any
    feeds: Mapping[str, Array]

    def run(self) -> list[Array]:
        return list(self.session.run(None, self.feeds))

    def seconds(self) -> tuple[list[float], list[float]]:
        """Return the seconds of RoiAlign in each run, alone and with conversions. No run may follow."""
        alone, converted, reordering = list[float](), list[float](), 0.0
        for event in json.loads(Path(self.session.end_profiling()).read_text("utf-8")):
            if event["name"].startswith("ReorderOutput") and event["name"].endswith("_kernel_time"):
                reordering += event["dur"] / 1e6
            elif event["name"] == "RoiAlign_kernel_time":
                alone.append(event["dur"] / 1e6)
                converted.append(event["dur"] / 1e6 + reordering)
                reordering = 0.0
        return alone, converted

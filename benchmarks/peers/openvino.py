"""OpenVINO's RoiAlign, MaxRoiPool and Resize on CPUs, and its profile of RoiAlign inside a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import openvino
from openvino import properties
from openvino.properties import hint, streams

from benchmarks.bench import Call
from benchmarks.in_model import NodeSeconds
from benchmarks.models import standard
from benchmarks.workloads import Array, Problem
from conformance.backends.openvino import PRECISE

_TYPES = ("float", "float16")
"""It computes double in float32, and takes no NumPy arrays of bfloat16."""

_ROI_ALIGN = "ROIAlign"
_CONVERSIONS = ("Reorder", "Convert")
"""OpenVINO's names of layers that change a tensor's layout and its type."""

_MAXIMUM = "its maximum starts at 0, so that it returns 0 where all samples are negative; it does as much work"


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of a compiled model, or None if it computes something else.

    Neither inputs nor outputs are copied: the result is memory of the request, which the next call overwrites. RoiAlign's
    mode max is that of interpolated samples, so it is compared with our max_interpolated.
    """
    operation = problem.operation
    if problem.element_type not in _TYPES or operation.mode == "max":
        return None
    is_max = operation.mode == "max_interpolated"
    model = standard(replace(problem, operation=replace(operation, mode="max")) if is_max else problem)
    if model is None:
        return None
    request = _compile(model, threads).create_infer_request()
    feeds = {value.name: problem.arrays[value.name] for value in model.graph.input}
    return Call(
        lambda: request.infer(feeds, share_inputs=True, share_outputs=True),
        lambda answer: [np.array(answer[value.name]) for value in model.graph.output],
        expected_difference=_MAXIMUM if is_max else "",
    )


class ProfiledModel:
    """A compiled model on its inputs, whose runs are profiled."""

    def __init__(self, model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int) -> None:
        self._compiled = _compile(model, threads, {properties.enable_profiling(): True})
        self._request = self._compiled.create_infer_request()
        self._feeds = feeds
        self._outputs = [value.name for value in model.graph.output]
        self._means: dict[str, list[int]] = {}

    def run(self) -> list[Array]:
        """See `Profiled`."""
        answer = self._request.infer(self._feeds, share_inputs=True)
        for layer in self._request.get_profiling_info():
            # The plug-in reports the same as cpu_time.
            self._means.setdefault(layer.node_name, []).append(layer.real_time // timedelta(microseconds=1))
        return [answer[name] for name in self._outputs]

    def seconds(self, levels: Sequence[str]) -> list[NodeSeconds]:
        """See `Profiled`."""
        conversions = _conversions(self._compiled)
        # The frontend names a layer after its output.
        names = [f"{level}/Y" for level in levels]
        return [NodeSeconds(self._sums([name]), self._sums([name, *conversions[name]])) for name in names]

    def _sums(self, layers: Sequence[str]) -> list[float]:
        """Return the sum of the layers' seconds in each run."""
        return [sum(run) / 1e6 for run in zip(*(_each(self._means[layer]) for layer in layers), strict=True)]


def _each(means: Sequence[int]) -> list[int]:
    """Return a layer's microseconds in each run, from the means over all runs so far that the plug-in reports.

    These are rounded down, so that a time after n runs is off by less than n microseconds.
    """
    totals = [0, *(runs * mean for runs, mean in enumerate(means, 1))]
    return [later - earlier for earlier, later in pairwise(totals)]


def _conversions(compiled: Any) -> dict[str, list[str]]:
    """Return by RoiAlign's name the names of the layers next to it that only convert its inputs or its output."""
    found = {}
    for layer in compiled.get_runtime_model().get_ops():
        if _kind(layer) == _ROI_ALIGN:
            before = [value.get_node() for value in layer.input_values()]
            after = [target.get_node() for target in layer.output(0).get_target_inputs()]
            around = [node for node in (*before, *after) if _kind(node) in _CONVERSIONS]
            found[layer.get_friendly_name()] = [node.get_friendly_name() for node in around]
    return found


def _kind(layer: Any) -> str:
    return str(layer.get_rt_info()["layerType"].astype(str))


def _compile(model: onnx.ModelProto, threads: int, extra: Mapping[str, Any] | None = None) -> Any:
    options = {
        **PRECISE,
        properties.inference_num_threads(): threads,
        streams.num(): 1,
        # Otherwise a processor with two threads a core would get fewer threads than asked for.
        hint.enable_hyper_threading(): True,
        # Neither our threads nor ONNX Runtime's are bound to a core, where they would wait for another process.
        hint.enable_cpu_pinning(): False,
        **(extra or {}),
    }
    core = openvino.Core()
    return core.compile_model(core.read_model(model.SerializeToString()), "CPU", options)

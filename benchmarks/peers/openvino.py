# SPDX-License-Identifier: MIT
"""OpenVINO's RoiAlign, MaxRoiPool and Resize on CPUs, and its profile of RoiAlign inside a model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import openvino
from openvino import properties
from openvino.properties import hint, streams

from benchmarks.measure import Call
from benchmarks.models import feeds, standard
from benchmarks.workloads import Array, Problem
from conformance.backends.openvino import PRECISE

_CONVERSIONS = ("Reorder", "Convert")
"""OpenVINO's names of layers that change a tensor's layout and its type."""


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of a compiled model, or None if it computes something else, such as RoiAlign's maxima.

    Neither inputs nor outputs are copied: the result is memory of the request, which the next call overwrites.
    """
    model = standard(problem)
    if model is None or problem.operation.mode == "max":
        return None
    request, given = _compile(model, threads).create_infer_request(), feeds(model, problem)
    return Call(
        lambda: request.infer(given, share_inputs=True, share_outputs=True),
        lambda answer: [np.array(answer[value.name]) for value in model.graph.output],
    )


class ProfiledModel:
    """A compiled model on its inputs, whose runs are profiled (`benchmarks.in_model`)."""

    def __init__(self, model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int) -> None:
        self._compiled = _compile(model, threads, {properties.enable_profiling(): True})
        self._request, self._feeds = self._compiled.create_infer_request(), feeds
        self._means: dict[str, list[int]] = {}

    def run(self) -> list[Array]:
        """Return new arrays of the outputs."""
        answer = self._request.infer(self._feeds, share_inputs=True)
        for layer in self._request.get_profiling_info():
            # The plug-in reports the same as cpu_time.
            self._means.setdefault(layer.node_name, []).append(layer.real_time // timedelta(microseconds=1))
        return list(answer.values())

    def seconds(self) -> tuple[list[float], list[float]]:
        """Return the seconds of RoiAlign in each run, alone and with the layers next to it that only convert."""
        (roi_align,) = (layer for layer in self._compiled.get_runtime_model().get_ops() if _kind(layer) == "ROIAlign")
        around = [value.get_node() for value in roi_align.input_values()]
        around += [target.get_node() for target in roi_align.output(0).get_target_inputs()]
        converting = [layer for layer in around if _kind(layer) in _CONVERSIONS]
        times = [self._each(layer.get_friendly_name()) for layer in (roi_align, *converting)]
        return times[0], [sum(run) for run in zip(*times, strict=True)]

    def _each(self, layer: str) -> list[float]:
        """Return a layer's seconds in each run, from the means over all runs so far that the plug-in reports.

        These are microseconds, rounded down, so that a time after n runs is off by less than n microseconds.
        """
        totals = [0, *(runs * mean for runs, mean in enumerate(self._means[layer], 1))]
        return [(later - earlier) / 1e6 for earlier, later in pairwise(totals)]


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

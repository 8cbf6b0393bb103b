# SPDX-License-Identifier: MIT
"""The node tests of the installed onnx as cases of gradients, and the runtimes that run them."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

from gradient_checks import Array
from onnx_models.gradient.registry import REAL
from onnx_models.gradient_check import Run
from onnx_models.portable import attach

_IR_VERSION = 11
"""The oldest one with all element types of the cases; runtimes refuse versions newer than they know."""


@dataclass(frozen=True)
class Case:
    """A node test: its name, the operator that it tests, its model, and values of the model's inputs."""

    name: str
    operator: str
    model: onnx.ModelProto
    feeds: dict[str, Array]

    @property
    def wrt(self) -> list[str]:
        """The floating-point inputs that have elements."""
        return [name for name in _reals(self.model.graph.input) if self.feeds[name].size]

    def with_constants(self, names: Collection[str]) -> Case:
        """The case with initializers in place of some inputs."""
        made = copy.deepcopy(self.model)
        for value in [one for one in made.graph.input if one.name in names]:
            made.graph.input.remove(value)
            made.graph.initializer.append(numpy_helper.from_array(self.feeds[value.name], value.name))
        feeds = {name: value for name, value in self.feeds.items() if name not in names}
        return Case(self.name, self.operator, made, feeds)

    def perturbed(self, names: Collection[str], seed: int, factor: float = 1) -> dict[str, Array]:
        """Values near those of some inputs, with their signs, within their range, and without ties."""
        rng = np.random.default_rng(seed)
        return {**self.feeds, **{name: _perturbed(self.feeds[name].astype(np.float64) * factor, rng) for name in names}}


def _reals(values: Collection[onnx.ValueInfoProto]) -> list[str]:
    return [value.name for value in values if value.type.tensor_type.elem_type in REAL]


def _perturbed(values: Array, rng: np.random.Generator) -> Array:
    low, high = values.min(), values.max()
    sign = 1.0 if low >= 0 else -1.0 if high <= 0 else rng.choice([-1.0, 1.0], values.shape)
    size = np.median(np.abs(values[values != 0])) if values.any() else 1.0
    moved = values * rng.uniform(0.9, 1.1, values.shape)
    made = np.where(values == 0, sign * rng.uniform(0.02, 0.1, values.shape) * size, moved)
    if low < high:  # reflect at the ends of the range
        made = np.where(made > high, 2 * high - made, np.where(made < low, 2 * low - made, made))
    return made.astype(np.float32)


@functools.cache
def cases() -> list[Case]:
    """The node tests that have floating-point inputs and outputs, and neither sequences nor optional values."""
    state = np.random.get_state()  # noqa: NPY002  # the tests seed this global generator: restore it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests overflow on purpose
        tests = [
            (one.name, one.model, one.data_sets[0][0]) for one in collect_testcases(None) if one.model and one.data_sets
        ]
    np.random.set_state(state)  # noqa: NPY002
    operators = {name: nodes[0].op_type for name, model, _ in tests if len(nodes := model.graph.node) == 1}
    found = []
    for name, model, inputs in tests:
        graph = model.graph
        ends = [value.type for value in (*graph.input, *graph.output)]
        if all(end.HasField("tensor_type") for end in ends) and _reals(graph.input) and _reals(graph.output):
            # The test of an operator's function body is named after that of the operator.
            operator = operators.get(name.split("_expanded")[0]) or graph.node[-1].op_type
            feeds = {value.name: _array(given) for value, given in zip(graph.input, inputs, strict=True)}
            made = copy.deepcopy(model)
            made.ir_version = min(max(made.ir_version, 8), _IR_VERSION)
            # Sessions take no arrays of ml_dtypes, such as float8; the check converts those that are differentiated.
            ours = {one for one in feeds if feeds[one].dtype.type.__module__ != "numpy"} - {*_reals(graph.input)}
            found.append(Case(name, operator, made, feeds).with_constants(ours))
    return found


def _array(value: object) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def in_session(model: onnx.ModelProto) -> Run:
    """A model in a stock session of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(attach(model).SerializeToString(), options, ["CPUExecutionProvider"])
    names = [value.name for value in model.graph.output]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def in_reference(model: onnx.ModelProto) -> Run:
    """A model in onnx's reference evaluator, for what ONNX Runtime does not run."""
    evaluator = ReferenceEvaluator(attach(model))
    names = [value.name for value in model.graph.output]

    def run(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # NumPy warns of overflow
            return dict(zip(names, evaluator.run(None, dict(feeds)), strict=True))

    return run

"""Runs models in a stock session of ONNX Runtime or in onnx's reference evaluator."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper

from onnx_models.traversal import iter_nodes, normalize_domain

Evaluator = Literal["onnxruntime", "onnx reference"]
Run = Callable[[Mapping[str, Any]], list[Any]]
"""From the inputs' values by name to the outputs' values in the model's order."""

_QUIET = 4
"""ONNX Runtime's severity of fatal messages; its exceptions repeat all others."""


class RunError(Exception):
    """A model cannot be loaded or run; the message gives the reason in one line."""


def loaded(evaluator: Evaluator, model: onnx.ModelProto, *, reload: bool = False) -> Run:
    """A function that runs a model.

    Args:
        evaluator: what runs it.
        model: a model without custom operators.
        reload: True to load the model for each run, so that random generators start from their seeds.

    Raises:
        RunError: the model cannot be loaded. The returned function raises it if the model cannot be run.
    """
    load = _session if evaluator == "onnxruntime" else _reference
    first = load(model)

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        once = load(model) if reload else first
        known = {value.name for value in model.graph.input}
        with warnings.catch_warnings(), _as_run_error(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # NumPy warns of overflow
            return list(once({name: value for name, value in feeds.items() if name in known}))

    return run


@contextlib.contextmanager
def _as_run_error() -> Iterator[None]:
    """Convert any exception to a RunError, since runtimes raise many types."""
    try:
        yield
    except Exception as error:
        raise RunError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def _session(model: onnx.ModelProto) -> Run:
    import onnxruntime  # not at the top, because every command of the command line imports this module

    onnxruntime.set_default_logger_severity(_QUIET)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = 1  # the cases are small
    with _as_run_error():
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: session.run(names, dict(feeds))


def _reference(model: onnx.ModelProto) -> Run:
    from onnx.reference import ReferenceEvaluator

    with _as_run_error():
        onnx.checker.check_model(model)
        evaluator = ReferenceEvaluator(model)
    return lambda feeds: list(evaluator.run(None, dict(feeds)))


@functools.cache
def newest_opset() -> int:
    """The newest opset of ONNX's own domain that the installed ONNX Runtime supports."""
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "newest", [x], [y])
    for version in range(onnx.defs.onnx_opset_version(), 18, -1):
        try:
            _session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10))
        except RunError:
            continue
        return version
    return 18


def random_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes of a model that may draw random numbers: those whose operators have the attribute seed."""
    return [node for node in iter_nodes(model.graph.node) if _seed(node) is not None]


def seeded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which all nodes that draw random numbers have seeds."""
    made = copy.deepcopy(model)
    for node in random_nodes(made):
        if all(attribute.name != "seed" for attribute in node.attribute):
            whole = _seed(node) == onnx.defs.OpSchema.AttrType.INT
            node.attribute.append(helper.make_attribute("seed", 1 if whole else 1.0))
    return made


def _seed(node: onnx.NodeProto) -> onnx.defs.OpSchema.AttrType | None:
    """The type of the attribute seed of a node's operator; None if it has no such attribute."""
    if normalize_domain(node.domain) or not onnx.defs.has(node.op_type):
        return None
    attribute = onnx.defs.get_schema(node.op_type).attributes.get("seed")
    return None if attribute is None else attribute.type


def same(one: Sequence[Any], other: Sequence[Any], tolerance: float) -> bool:
    """Whether two lists of outputs have equal shapes and values, up to a tolerance.

    NaN equals NaN. The tolerance is relative to the largest finite number of an array.
    """
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a is None or b is None or isinstance(a, list) or isinstance(b, list):
            if isinstance(a, list) and isinstance(b, list) and same(a, b, tolerance):
                continue
            if a is None and b is None:
                continue
            return False
        x, y = np.asarray(a), np.asarray(b)
        if x.shape != y.shape:
            return False
        if x.dtype.kind in "OUST" or y.dtype.kind in "OUST":
            if not np.array_equal(x, y):
                return False
            continue
        u, v = x.astype(np.float64), y.astype(np.float64)
        finite = np.abs(v[np.isfinite(v)])
        with np.errstate(all="ignore"):
            if not np.allclose(u, v, rtol=tolerance, atol=tolerance * float(finite.max(initial=0.0)), equal_nan=True):
                return False
    return True

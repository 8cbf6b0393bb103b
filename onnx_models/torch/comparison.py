# SPDX-License-Identifier: MIT
"""Comparison of an exported forward pass with the module's own, since PyTorch's exporter is wrong at times."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import ortops
from onnx_models.gradient.registry import RANDOM
from onnx_models.tools.attributes import CUSTOM
from onnx_models.tools.protos import input_names, iter_nodes
from onnx_models.torch.custom_gradients import needed_nodes
from onnx_models.torch.decompositions import visible_statistics
from ortops.spec import DOMAIN

_POWER = 2 / 3
_FACTOR = 16


class UncheckedWarning(UserWarning):
    """The exported forward pass was not compared with the module's own: ONNX Runtime's CPU has no kernel for it."""


def check_forward(model: onnx.ModelProto, module: Any, inputs: Mapping[str, Any], outputs: Sequence[str]) -> None:
    """Compare outputs of a model with those of its module; outputs that depend on random numbers are not compared.

    An element may differ by eps^(2/3) times the largest element of its output, where eps belongs to the coarsest
    floating-point type in the model: 2.4e-5 in float32. If an output differs more, because it is ill-conditioned, it may
    differ by 16 times the difference between the module's own output and its output in float64. A larger difference, and a
    model that ONNX Runtime does not run, are a ValueError.
    """
    random = _random(model.graph)
    compared = [name for name in outputs if name not in random]
    if not compared:
        return
    try:
        outputs_of_model = _run(_forward(model, compared), compared, inputs)
    except NoKernel as error:
        message = f"the exported forward pass was not compared with the module's: {_line(error)}"
        warnings.warn(message, UncheckedWarning, stacklevel=3)
        return
    except Exception as error:
        raise ValueError(
            f"ONNX Runtime does not run the exported forward pass: {_line(error)}; check=False exports it anyway"
        ) from error
    with visible_statistics():
        _compare(outputs_of_model, module, inputs, _eps(model.graph))


def _compare(outputs: Mapping[str, Any], module: Any, inputs: Mapping[str, Any], eps: float) -> None:
    wanted = _values(module, inputs)
    far = {}
    for name, value in outputs.items():
        if value.shape != wanted[name].shape:
            raise ValueError(f"output {name!r} has shape {value.shape}: the module's has {wanted[name].shape}")
        difference = _difference(value, wanted[name])
        bound = eps**_POWER * np.abs(wanted[name][np.isfinite(wanted[name])]).max(initial=0)
        if difference > bound:
            far[name] = difference, float(bound)
    if not far:
        return
    again = _values(module, inputs)
    try:
        exact = _values(module, inputs, torch.float64)
    except Exception:  # noqa: BLE001 - PyTorch raises many types for a forward pass that mixes element types
        exact = wanted
    for name, (difference, bound) in far.items():
        if _difference(again[name], wanted[name]) > bound:
            raise ValueError(
                f"output {name!r} of the module differs from call to call, and the model repeats that of one call: must "
                "use PyTorch's random numbers only; check=False exports it anyway"
            )
        rounding = _difference(wanted[name], exact[name])
        if difference > (allowed := max(bound, _FACTOR * rounding)):
            raise ValueError(
                f"output {name!r} of the exported model differs from the module's by up to {difference:.3g}, the bound is "
                f"{allowed:.3g}: PyTorch's exporter translates an operator of the module wrongly; check=False exports it "
                "anyway"
            )


def _difference(a: Any, b: Any) -> float:
    """The largest absolute difference of the elements; infinite where only one is NaN, or infinities differ."""
    if a.shape != b.shape:
        return np.inf
    a, b = (np.asarray(array, np.float64) for array in (a, b))
    with np.errstate(invalid="ignore"):
        differences = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
    return float(np.where(np.isnan(differences), np.inf, differences).max(initial=0))


def _values(module: Any, inputs: Mapping[str, Any], dtype: Any = None) -> dict[str, Any]:
    """The outputs of a module that returns a dict, computed in a type; neither module nor inputs are changed."""

    def copied(tensor: Any) -> Any:
        return tensor.detach().to(dtype if tensor.is_floating_point() else None, copy=True)

    named = (*module.named_buffers(), *(module.named_parameters() if dtype else ()))
    state = {name: copied(tensor) for name, tensor in named}
    # With gradients enabled, as at the export: layers may do something else without them.
    with torch.random.fork_rng(range(torch.cuda.device_count())), torch.enable_grad():
        result = torch.func.functional_call(module, state, tuple(map(copied, inputs.values())))
    return {name: _array(value) for name, value in result.items()}


def _array(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.resolve_neg().numpy()


def _random(graph: onnx.GraphProto) -> set[str]:
    """The tensors of a graph that depend on random numbers."""
    random: set[str] = set()
    for node in graph.node:
        if any(inner.op_type in RANDOM for inner in iter_nodes([node])) or not random.isdisjoint(input_names(node)):
            random.update(node.output)
    return random


def _forward(model: onnx.ModelProto, outputs: Collection[str]) -> onnx.ModelProto:
    """The model with no other outputs than these, and no nodes and initializers that they do not need."""
    graph = model.graph
    nodes, needed = needed_nodes(graph, outputs)
    reduced = onnx.helper.make_graph(
        nodes,
        graph.name,
        graph.input,
        [value for value in graph.output if value.name in outputs],
        [tensor for tensor in graph.initializer if tensor.name in needed],
    )
    return onnx.helper.make_model(
        reduced, ir_version=model.ir_version, opset_imports=model.opset_import, functions=model.functions
    )


def _run(model: onnx.ModelProto, outputs: Sequence[str], inputs: Mapping[str, Any]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    used = {(node.domain, node.op_type) for node in iter_nodes(model.graph.node)}
    operators = [operator for identity, operator in CUSTOM.items() if identity in used]
    # Registering this project's operators takes seconds.
    is_ours = operators or any(domain == DOMAIN for domain, _ in used)
    session_of = partial(ortops.InferenceSession, operators=operators) if is_ours else onnxruntime.InferenceSession
    session = session_of(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = {name: _array(tensor) for name, tensor in inputs.items()}
    return dict(zip(outputs, session.run(outputs, arrays), strict=True))


def _eps(graph: onnx.GraphProto) -> float:
    """The distance from 1 to the next number in the coarsest floating-point type of the graph."""
    kinds = {value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input, *graph.output)}
    kinds |= {tensor.data_type for tensor in graph.initializer}
    return max((_EPS[kind] for kind in kinds if kind in _EPS), default=0.0)


_EPS = {
    onnx.TensorProto.BFLOAT16: 2.0**-7,
    onnx.TensorProto.FLOAT16: 2.0**-10,
    onnx.TensorProto.FLOAT: 2.0**-23,
    onnx.TensorProto.DOUBLE: 2.0**-52,
}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]

# SPDX-License-Identifier: MIT
"""The model for inference: the values that training has given to a model's parameters, put into the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from onnx_models.gradient.parameters import constant_types
from onnx_models.tools.protos import accepted, assign, copy_model, meant
from onnx_models.training import NEXT, STATES


def with_state(model: onnx.ModelProto, state: Mapping[str, Any], *, step: str = "step") -> onnx.ModelProto:
    """Return a copy of a model whose parameters have the values in a state of training.

    The state is what a step of `onnx_models.with_optimizer` returns, without the suffix _next. Parameters that it lacks,
    such as untrained ones, keep their values.

    Args:
        model: the model that the loss was added to; not modified. If training separated merged parameters, that is
            ``onnx_models.untie(model)``.
        state: arrays by name: of initializers, of outputs of Constant nodes, and of inputs, which become initializers.
            NAME_momentum, NAME_exp_avg and NAME_exp_avg_sq of such a NAME, and `step`, belong to the optimizer and are
            ignored.
        step: the name of the number of steps, as for `with_optimizer`.

    Raises:
        TypeError: `state` is not a mapping, or one of its values is not an array.
        ValueError: a name in `state` is not a parameter's, `state` has no parameter, or the type or shape of a value is not
            its parameter's.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"state = {type(state).__name__}: must be a mapping from names to arrays")
    trained = copy_model(accepted(model))
    inputs = {value.name: value.type.tensor_type for value in trained.graph.input if value.type.HasField("tensor_type")}
    known = inputs | dict(constant_types(trained.graph))
    of_optimizer = {step, *(f"{name}{end}" for name in known for end in STATES)}
    used = set()
    for name, value in state.items():
        if name in known:
            _set(trained.graph, name, _checked(name, value, known[name]))
            used.add(name)
        elif name not in of_optimizer:
            near = meant(str(name).removesuffix(NEXT), known)
            raise ValueError(
                f"state has {name!r}{near}: must be the name of an initializer, a Constant or an input of the model, one of "
                f"these with {', '.join(STATES)}, or {step!r}"
            )
    if not used:
        raise ValueError(f"state has {', '.join(map(repr, state)) or 'no names'}: must have a parameter of the model")
    return trained


def _checked(name: str, value: Any, kind: onnx.TypeProto.Tensor) -> onnx.TensorProto:
    wanted = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype == object:
        raise TypeError(f"state has {type(value).__name__} for {name!r}: must be an array of {wanted}")
    if array.dtype != wanted:
        raise ValueError(f"state has {name!r} of type {array.dtype}: must be {wanted}, as the model has it")
    if kind.HasField("shape"):
        lengths = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in kind.shape.dim]
        if len(lengths) != array.ndim or any(
            isinstance(length, int) and length != size for length, size in zip(lengths, array.shape, strict=True)
        ):
            shown = ", ".join(map(str, lengths))
            raise ValueError(f"state has {name!r} of shape {list(array.shape)}: must be [{shown}], as the model has it")
    return onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _set(graph: onnx.GraphProto, name: str, value: onnx.TensorProto) -> None:
    """Put a value in place of an initializer, a Constant or an input."""
    for node in graph.node:
        if name in node.output:
            value.name = ""
            node.attribute[0].CopyFrom(onnx.helper.make_attribute("value", value))
            return
    for tensor in graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(value)
            return
    graph.initializer.add().CopyFrom(value)
    assign(graph.input, [value for value in graph.input if value.name != name])

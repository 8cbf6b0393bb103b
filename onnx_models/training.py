"""Training steps as ONNX models: a loss, its gradient (`onnx_models.gradient`) and stochastic gradient descent.

    step = with_loss(model, "cross_entropy", "scores")
    step = with_sgd(gradient(step, "loss", "parameters"), momentum=0.9)

An output NAME_next of a step is the value that its input NAME has in the next one:

    state = {}  # all parameters begin with the values of the model's initializers
    for batch in batches:
        values = session.run(names, {**state, **batch, "learning_rate": rate})
        state = {name.removesuffix("_next"): value for name, value in zip(names, values) if name.endswith("_next")}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import onnx

from onnx_models.large_models import copy_model, strip_weights
from onnx_models.onnx_tools import infer_shapes
from onnx_models.opset_upgrade import upgrade_opset
from onnx_models.traversal import tensor_names

Loss = Literal["binary_cross_entropy_with_logits", "cross_entropy", "mean_absolute_error", "mean_squared_error"]

NEXT = "_next"
"""Ends the name of an output that is fed back, after the name of the input."""

_OPSET = 18
"""The oldest of the nodes that are added."""


def with_loss(
    model: onnx.ModelProto, loss: Loss, output: str, target: str = "target", *, name: str = "loss"
) -> onnx.ModelProto:
    """A copy of a model with a loss as one more output, and what it compares with as one more input.

    Each is the mean over all elements:
    cross_entropy: -log(softmax(output, axis 1)[target]), of scores [N, C, ...] and classes, int64 [N, ...] (0 to C - 1);
    binary_cross_entropy_with_logits: log(1 + exp(output)) - target * output, of logits and targets between 0 and 1;
    mean_squared_error: (output - target)**2; mean_absolute_error: |output - target|.

    Args:
        model: not modified; of an opset before 18, it is converted to 18.
        loss: which one.
        output: name of the tensor that the loss is of, of type float or double.
        target: name of the new input, of type and shape of `output` but for cross_entropy.
        name: of the new output, of rank 0.

    Raises:
        ValueError: there is no such loss or no such tensor, its type or rank is not known or wrong, or a name is taken.

    Source: PyTorch 2.13, CrossEntropyLoss, BCEWithLogitsLoss, MSELoss and L1Loss.
    """
    if loss not in get_args(Loss):
        raise ValueError(f"loss = {loss!r}: must be one of {', '.join(get_args(Loss))}")
    graph = _Graph(upgrade_opset(model, _OPSET), model)
    of = _typed(graph, output)
    kind = onnx.TypeProto.Tensor()
    kind.CopyFrom(of)
    if loss == "cross_entropy":
        if len(of.shape.dim) < 2:
            raise ValueError(
                f"output = {output!r} has rank {len(of.shape.dim)}: must have axes of samples and of classes"
            )
        kind.elem_type = onnx.TensorProto.INT64
        del kind.shape.dim[1]
    graph.input(target, kind)
    if loss == "cross_entropy":
        graph.op("SoftmaxCrossEntropyLoss", [output, target], name, reduction="mean")
    else:
        graph.op("ReduceMean", [_elements(graph, loss, output, target, name, of)], name, keepdims=0)
    graph.output(name, onnx.helper.make_tensor_type_proto(of.elem_type, []).tensor_type)
    return graph.model


def _elements(graph: _Graph, loss: Loss, output: str, target: str, name: str, kind: onnx.TypeProto.Tensor) -> str:
    """Add the nodes of a loss before its mean."""
    if loss == "binary_cross_entropy_with_logits":
        # |x| / 2 + (1/2 - t) x + log(1 + exp(-|x|)): that overflows nowhere, and its derivative at 0 is right. Softplus,
        # which would be shorter, is not there for double in all versions of ONNX Runtime.
        half, one = (graph.number(value, kind, f"{name}_{what}") for value, what in ((0.5, "half"), (1.0, "one")))
        size = graph.op("Abs", [output], f"{name}_size")
        away = graph.op("Sub", [half, target], f"{name}_away")
        parts = [graph.op("Mul", [size, half], f"{name}_bend"), graph.op("Mul", [away, output], f"{name}_slope")]
        small = graph.op("Exp", [graph.op("Neg", [size], f"{name}_negative")], f"{name}_small")
        rest = graph.op("Log", [graph.op("Add", [one, small], f"{name}_sum")], f"{name}_rest")
        return graph.op("Sum", [*parts, rest], f"{name}_elements")
    difference = graph.op("Sub", [output, target], f"{name}_difference")
    if loss == "mean_absolute_error":
        return graph.op("Abs", [difference], f"{name}_elements")
    return graph.op("Mul", [difference, difference], f"{name}_elements")


def with_sgd(
    model: onnx.ModelProto,
    parameters: Sequence[str] | Mapping[str, str] | None = None,
    *,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    learning_rate: str = "learning_rate",
) -> onnx.ModelProto:
    """A copy of a model with gradients that is a step of stochastic gradient descent.

    Of each parameter p with the gradient g, where v is its momentum:

        g' = g + weight_decay * p
        v_next = momentum * v + g'
        p_next = p - learning_rate * v_next                        (nesterov: g' + momentum * v_next for v_next)

    That is PyTorch's SGD, and Momentum of ai.onnx.preview.training with alpha for momentum, beta = 1 and norm_coefficient
    for weight_decay.

    Args:
        model: from `onnx_models.gradient`; not modified.
        parameters: names of the parameters, which are inputs or initializers of the graph; NAME_grad is the output with the
            gradient by NAME. A mapping gives the outputs' names, as for `onnx_models.gradient`. By default all that have
            such an output.
        momentum: 0 or more and less than 1. Without it there is no input and no output for v.
        nesterov: whether the step looks ahead; needs a momentum.
        weight_decay: 0 or more.
        learning_rate: name of the new input, float of rank 0.

    Returns:
        The model. Its outputs for the gradients are gone. For each parameter NAME it has the output NAME_next and the input
        NAME, whose default is the initializer if there was one; with momentum also the output NAME_momentum_next and the
        input NAME_momentum, whose default is zeros where the parameter's shape is known.

    Raises:
        ValueError: an argument is out of range, a parameter is none or has no gradient among the outputs, or a name is
            taken.

    Source: PyTorch 2.13, torch.optim.SGD; ONNX operator specification, ai.onnx.preview.training.Momentum.
    """
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum = {momentum}: must be 0 or more and less than 1")
    if not (weight_decay >= 0 and math.isfinite(weight_decay)):
        raise ValueError(f"weight_decay = {weight_decay}: must be 0 or more")
    if nesterov and not momentum:
        raise ValueError("nesterov = True: must have a momentum of more than 0")
    graph = _Graph(upgrade_opset(model, _OPSET), model)
    gradients = _gradients(graph, parameters)
    graph.input(learning_rate, onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, []).tensor_type)
    for name, gradient in gradients.items():
        kind = graph.tensors[name]
        if name not in graph.inputs:
            graph.model.graph.input.add(name=name).type.tensor_type.CopyFrom(kind)
        step = gradient
        if weight_decay:
            decay = graph.op("Mul", [name, graph.number(weight_decay, kind, f"{name}_weight_decay")], f"{name}_decay")
            step = graph.op("Add", [step, decay], f"{name}_decayed")
        if momentum:
            velocity, factor = f"{name}_momentum", graph.number(momentum, kind, f"{name}_momentum_factor")
            graph.input(velocity, kind)
            graph.zeros(velocity, kind)
            kept = graph.op("Mul", [velocity, factor], f"{velocity}_kept")
            moved = graph.op("Add", [kept, step], velocity + NEXT)
            ahead = [step, graph.op("Mul", [moved, factor], f"{velocity}_ahead")] if nesterov else []
            step = graph.op("Add", ahead, f"{name}_nesterov") if nesterov else moved
            graph.output(velocity + NEXT, kind)
        rate = graph.op("CastLike", [learning_rate, name], f"{name}_{learning_rate}")
        change = graph.op("Mul", [rate, step], f"{name}_change")
        graph.op("Sub", [name, change], name + NEXT)
        graph.output(name + NEXT, kind)
    kept_outputs = [value for value in graph.model.graph.output if value.name not in gradients.values()]
    del graph.model.graph.output[:]
    graph.model.graph.output.extend(kept_outputs)
    return graph.model


def _typed(graph: _Graph, name: str) -> onnx.TypeProto.Tensor:
    """The type of a tensor that a loss is of."""
    found = infer_shapes(strip_weights(graph.model)).graph
    values: dict[str, onnx.TypeProto.Tensor] = {
        value.name: value.type.tensor_type for value in (*found.value_info, *found.input, *found.output)
    }
    if name not in graph.names:
        raise ValueError(f"output has {name!r}: must be the name of a tensor of the graph")
    kind = values.get(name)
    if kind is None or kind.elem_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise ValueError(f"output = {name!r}: must be a tensor of float or double")
    if not kind.HasField("shape"):
        raise ValueError(f"output = {name!r}: its rank must be known, and shape inference does not find it")
    return kind


def _gradients(graph: _Graph, parameters: Sequence[str] | Mapping[str, str] | None) -> Mapping[str, str]:
    """By the name of each parameter that of its gradient."""
    outputs = {value.name for value in graph.model.graph.output}
    if parameters is None:
        parameters = [name for name in graph.tensors if f"{name}_grad" in outputs]
    if isinstance(parameters, str) or not parameters:
        raise ValueError(f"parameters = {parameters!r}: must be one or more names")
    found = parameters if isinstance(parameters, Mapping) else {name: f"{name}_grad" for name in parameters}
    for name, gradient in found.items():
        if name not in graph.tensors:
            raise ValueError(f"parameters has {name!r}: must be an input or an initializer of the graph")
        if gradient not in outputs:
            raise ValueError(f"parameters has {name!r}: must have its gradient among the outputs, {gradient!r} is none")
    return found


class _Graph:
    """The graph of a model that is added to.

    model: a copy.
    names: of all tensors. inputs: names of the inputs. tensors: by name the types of inputs and initializers.
    """

    def __init__(self, model: onnx.ModelProto, given: onnx.ModelProto) -> None:
        self.model = model = copy_model(given) if model is given else model
        self.names = set(tensor_names(model.graph))
        self.inputs = {value.name for value in model.graph.input}
        self.tensors = {value.name: value.type.tensor_type for value in model.graph.input}
        for tensor in model.graph.initializer:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            self.tensors.setdefault(tensor.name, kind.tensor_type)

    def op(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node; the name of its output."""
        self._take(output)
        self.model.graph.node.append(onnx.helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def number(self, value: float, like: onnx.TypeProto.Tensor, name: str) -> str:
        """Add a constant of rank 0."""
        return self.op("Constant", [], name, value=onnx.helper.make_tensor(name, like.elem_type, (), [value]))

    def input(self, name: str, kind: onnx.TypeProto.Tensor) -> None:
        """Add an input."""
        self._take(name)
        self.model.graph.input.add(name=name).type.tensor_type.CopyFrom(kind)

    def zeros(self, name: str, kind: onnx.TypeProto.Tensor) -> None:
        """Give an input zeros for its default, if its shape is known."""
        if kind.HasField("shape") and all(length.HasField("dim_value") for length in kind.shape.dim):
            lengths = [length.dim_value for length in kind.shape.dim]
            zeros = np.zeros(lengths, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
            self.model.graph.initializer.append(onnx.numpy_helper.from_array(zeros, name))

    def output(self, name: str, kind: onnx.TypeProto.Tensor) -> None:
        """Make a tensor an output."""
        self.model.graph.output.add(name=name).type.tensor_type.CopyFrom(kind)

    def _take(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a new tensor has the name {name!r}: must be a str that is not empty")
        if name in self.names:
            raise ValueError(f"the model has a tensor {name!r} already: the name is needed")
        self.names.add(name)

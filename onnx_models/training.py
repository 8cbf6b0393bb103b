# SPDX-License-Identifier: MIT
"""Build training steps as ONNX models: a loss, its gradient (`onnx_models.gradient`) and an optimizer.

    step = with_loss(model, "cross_entropy", "scores")
    step = with_optimizer(gradient(step, "loss", "parameters"), "adamw", clip=1.0)

The output NAME_next of a step is the input NAME of the next step:

    state = {}  # at first, parameters have the values of the model's initializers
    for batch in batches:
        values = session.run(names, {**state, **batch, "learning_rate": rate})
        state = {name.removesuffix("_next"): value for name, value in zip(names, values) if name.endswith("_next")}
    trained = with_state(model, state)
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import onnx

from onnx_models.gradient.parameters import constant_tensor, constant_types, values_of
from onnx_models.gradient.tied import TiedParametersWarning, describe_tied, find_tied
from onnx_models.tools.attributes import unknown_among
from onnx_models.tools.nodes import NodeBuilder, Value
from onnx_models.tools.opset_upgrade import upgrade_opset
from onnx_models.tools.protos import accepted, assign, copy_model, meant, onnx_opset, strip_weights, tensor_names
from onnx_models.tools.schema import schemas_of
from onnx_models.tools.types import infer_shapes
from ortops.spec import Operator

Loss = Literal["binary_cross_entropy_with_logits", "cross_entropy", "mean_absolute_error", "mean_squared_error"]

_APPLIED_TWICE = {("cross_entropy", "Softmax"), ("binary_cross_entropy_with_logits", "Sigmoid")}
"""The losses of scores before a node that they contain."""

NEXT = "_next"
"""Suffix of an output that is fed back to the input of the same name."""

_MOMENTUM, _MEAN, _SQUARE, _MASTER = "_momentum", "_exp_avg", "_exp_avg_sq", "_master"

STATES = (_MOMENTUM, _MEAN, _SQUARE, _MASTER)
"""Suffixes of the optimizers' state of a parameter, as PyTorch calls it, and of its copy in float."""

_OPSET = 18
"""The opset of the added nodes."""


def with_loss(
    model: onnx.ModelProto,
    loss: Loss,
    output: str,
    target: str = "target",
    *,
    name: str = "loss",
    operators: Iterable[Operator] = (),
) -> onnx.ModelProto:
    """Return a copy of a model with a loss as a new output and its target as a new input.

    Each loss is the mean over all elements:
    cross_entropy: -log(softmax(output, axis 1)[target]), of scores [N, C, ...] and classes, int64 [N, ...] (0 to C - 1);
    binary_cross_entropy_with_logits: log(1 + exp(output)) - target * output, of logits and targets between 0 and 1;
    mean_squared_error: (output - target)**2; mean_absolute_error: |output - target|.

    Args:
        model: the model, which is not modified. An opset before 18 is upgraded to 18.
        loss: one of the losses above.
        output: name of the tensor to compare with the target, of type float or double.
        target: name of the new input, of the type and shape of `output` except for cross_entropy.
        name: name of the new output, of rank 0.
        operators: operators of `ortops.operator` in the model, for shape inference.

    Raises:
        ValueError: the loss or the tensor does not exist, its type or rank is unknown or wrong, or a name is in use.

    A UserWarning says that `output` is computed by a Softmax or Sigmoid that the loss contains, too.

    Source: PyTorch 2.13, CrossEntropyLoss, BCEWithLogitsLoss, MSELoss and L1Loss.
    """
    if loss not in get_args(Loss):
        raise ValueError(f"loss = {loss!r}: must be one of {', '.join(get_args(Loss))}")
    model = accepted(model)
    graph = StepGraph(upgrade_opset(model, _OPSET), model)
    with schemas_of(operators):
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
    producer = next((node.op_type for node in graph.model.graph.node if output in node.output), "")
    if (loss, producer) in _APPLIED_TWICE:
        warnings.warn(
            f"{output!r} is the output of {producer}, which {loss} applies itself: name its input", stacklevel=2
        )
    for argument, new in (("target", target), ("name", name)):
        if new in graph.names:
            raise ValueError(f"the model has a tensor {new!r} already: give another name by {argument}= (--{argument})")
    graph.input(target, kind)
    x, t = graph.value(output, of), graph.value(target, of)
    if loss == "cross_entropy":
        mean = x.op("SoftmaxCrossEntropyLoss", t, reduction="mean")
    else:
        mean = _elements(loss, x, t).op("ReduceMean", keepdims=0)
    graph.output(mean, name, onnx.helper.make_tensor_type_proto(of.elem_type, []).tensor_type)
    return graph.build()


def _elements(loss: Loss, x: Value, t: Value) -> Value:
    """A loss before its mean, of the output x and the target t."""
    if loss == "binary_cross_entropy_with_logits":
        # This does not overflow, and its derivative at 0 is right. Softplus would be shorter, but not all versions of ONNX
        # Runtime have it for double.
        size = abs(x)
        return size * 0.5 + (0.5 - t) * x + (1.0 + (-size).op("Exp")).op("Log")
    difference = x - t
    return abs(difference) if loss == "mean_absolute_error" else difference * difference


Optimizer = Literal["adam", "adamw", "sgd"]


def with_optimizer(
    model: onnx.ModelProto,
    optimizer: Optimizer,
    parameters: Sequence[str] | Mapping[str, str] | None = None,
    *,
    clip: float | None = None,
    weight_decay: float | None = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    master_weights: bool = False,
    learning_rate: str = "learning_rate",
    step: str = "step",
) -> onnx.ModelProto:
    """Return a copy of a model with gradients that performs a step of an optimizer; it runs in a plain session.

    For each parameter p with the gradient g, where r is the learning rate and t the number of this step, from 1:

        sgd:    g' = g + weight_decay * p
                v_next = momentum * v + g'
                p_next = p - r * v_next                            (nesterov: g' + momentum * v_next for v_next)
        adam:   g' = g + weight_decay * p
                m_next = betas[0] * m + (1 - betas[0]) * g'
                s_next = betas[1] * s + (1 - betas[1]) * g'**2
                p_next = p - r / (1 - betas[0]**t) * m_next / (sqrt(s_next / (1 - betas[1]**t)) + eps)
        adamw:  as adam with g for g', and p - r * weight_decay * p for p

    These are PyTorch's SGD, Adam and AdamW. The learning rate is an input, so that a schedule is a number for each step.
    Steps of float16 and bfloat16 are computed in float, where squares of small gradients are not 0, and p_next is rounded.

    Args:
        model: a model from `onnx_models.gradient`; not modified.
        optimizer: "sgd", "adam" or "adamw".
        parameters: names of the parameters, which are inputs, initializers or outputs of Constant nodes of the graph; the
            output NAME_grad is the gradient for NAME. A mapping gives other names of outputs, as for
            `onnx_models.gradient`. None for all with such an output, as `gradient` adds for its own "parameters". Gradients
            may be of another floating-point type, such as sums in float for a parameter of float16.
        clip: above 0, or None. If the norm of all gradients together is more, they are multiplied by clip / (norm + 1e-6).
        weight_decay: at least 0; None for 0.01 with adamw, and 0 otherwise.
        momentum: of sgd, at least 0 and less than 1. With 0 there is no input and no output for v.
        nesterov: of sgd, True for Nesterov momentum; needs a momentum above 0.
        betas: of adam and adamw, each at least 0 and less than 1.
        eps: of adam and adamw, at least 0.
        master_weights: True to change a copy in float of each parameter of float16 or bfloat16; the parameter is the rounded
            copy. Otherwise changes of less than half a unit of the parameter's last place are lost.
        learning_rate: name of the new input, float of rank 0.
        step: of adam and adamw, the name of the new input for the number of steps before this one, int64 of rank 0, whose
            default is 0.

    A `TiedParametersWarning` names parameters that an exporter merged: give each layer its own by
    ``onnx_models.gradient(..., untie=True)``.

    Returns:
        The model without the outputs for the gradients. For each parameter NAME it has the output NAME_next and the input
        NAME, with the initializer or the value of the Constant, if there was one, as its default. State of the optimizer is
        an input and an output ending in _next, too: v is NAME_momentum, m is NAME_exp_avg and s is NAME_exp_avg_sq, of the
        shape of NAME, whose default is zeros if the parameter's shape is known; the number of steps is `step`. The copy is
        NAME_master, with the default of NAME. The types are double for parameters of double, and float for all others.

    Raises:
        ValueError: the optimizer is unknown, an argument is out of range or belongs to another optimizer, a parameter does
            not exist or has no gradient among the outputs, or a name is in use.

    Source: PyTorch 2.13, torch.optim.SGD, Adam and AdamW, torch.nn.utils.clip_grad_norm_.
    """
    if optimizer not in get_args(Optimizer):
        raise ValueError(f"optimizer = {optimizer!r}: must be one of {', '.join(get_args(Optimizer))}")
    is_sgd = optimizer == "sgd"
    if weight_decay is None:
        weight_decay = 0.01 if optimizer == "adamw" else 0.0
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum = {momentum}: must be 0 or more and less than 1")
    if not (np.shape(betas) == (2,) and all(0 <= beta < 1 for beta in betas)):
        raise ValueError(f"betas = {betas}: must be two numbers, each 0 or more and less than 1")
    for name, value in (("weight_decay", weight_decay), ("eps", eps)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} = {value}: must be 0 or more")
    if clip is not None and not (clip > 0 and math.isfinite(clip)):
        raise ValueError(f"clip = {clip}: must be more than 0, or left out")
    others: dict[str, object] = {"momentum": momentum, "nesterov": nesterov}
    if is_sgd:
        others = {"betas": tuple(betas), "eps": eps, "step": step}
    for name, given in others.items():
        if given != inspect.signature(with_optimizer).parameters[name].default:
            raise ValueError(f"{name} = {given!r}: must be left out, since optimizer = {optimizer!r} has none")
    if nesterov and not momentum:
        raise ValueError("nesterov = True: must have a momentum of more than 0")
    model = accepted(model)
    graph = StepGraph(upgrade_opset(model, _OPSET), model)
    gradients = _gradients(graph, parameters)
    if ties := find_tied(graph.model.graph, gradients, {}):
        warnings.warn(describe_tied(ties, onnx_opset(graph.model) or _OPSET), TiedParametersWarning, stacklevel=2)
    graph.make_initializers(gradients)
    graph.input(learning_rate, onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, []).tensor_type)
    types = {value.name: value.type.tensor_type for value in graph.model.graph.output}
    kinds = {name: _computed(graph.tensors[name]) for name in gradients}
    casts = {name: graph.cast(graph.value(of, types[of]), kinds[name]) for name, of in gradients.items()}
    factor = None if clip is None else _clipping(casts.values(), clip)
    corrections = [] if is_sgd else _corrections(graph, step, betas)
    for name, kind in kinds.items():
        stored, master = graph.tensors[name], name + _MASTER
        if name not in graph.inputs:
            graph.model.graph.input.add(name=name).type.tensor_type.CopyFrom(stored)
        has_master = master_weights and kind.elem_type != stored.elem_type
        p = graph.state(master, kind, name) if has_master else graph.cast(graph.value(name, stored), kind)
        g = casts[name]
        rate = graph.value(learning_rate, kind).op("CastLike", p)
        if factor is not None:
            g = g * factor.op("CastLike", g, kind=g.kind)
        if weight_decay and optimizer == "adamw":
            p = p - rate * weight_decay * p
        elif weight_decay:
            g = g + p * weight_decay
        if is_sgd:
            moved = g
            if momentum:
                velocity = name + _MOMENTUM
                moved = graph.output(graph.state(velocity, kind) * momentum + g, velocity + NEXT, kind)
            change = rate * (g + moved * momentum if nesterov else moved)
        else:
            first, second = (correction.op("CastLike", p, kind=p.kind) for correction in corrections)
            mean, square = name + _MEAN, name + _SQUARE
            m = graph.output(graph.state(mean, kind) * betas[0] + g * (1 - betas[0]), mean + NEXT, kind)
            s = graph.output(graph.state(square, kind) * betas[1] + g * g * (1 - betas[1]), square + NEXT, kind)
            change = rate / first * m / (s.op("Sqrt") / second.op("Sqrt") + eps)
        changed = graph.output(p - change, master + NEXT, kind) if has_master else p - change
        graph.output(graph.cast(changed, stored), name + NEXT, stored)
    outputs = graph.model.graph.output
    assign(outputs, [value for value in outputs if value.name not in gradients.values()])
    return graph.build()


def _computed(kind: onnx.TypeProto.Tensor) -> onnx.TypeProto.Tensor:
    """Return the type in which the step of a parameter of type `kind` is computed."""
    computed = onnx.TypeProto.Tensor()
    computed.CopyFrom(kind)
    if kind.elem_type != onnx.TensorProto.DOUBLE:
        computed.elem_type = onnx.TensorProto.FLOAT
    return computed


def _clipping(gradients: Iterable[Value], clip: float) -> Value:
    """Return the factor of all gradients that limits their norm, a float of rank 0."""
    norms = [g.op("ReduceL2", keepdims=0).op("Cast", to=onnx.TensorProto.FLOAT, kind="FLOAT") for g in gradients]
    squares = [norm * norm for norm in norms]
    norm = squares[0].op("Sum", *squares[1:]).op("Sqrt")
    return (clip / (norm + 1e-6)).op("Min", 1.0)


def _corrections(graph: StepGraph, step: str, betas: Sequence[float]) -> list[Value]:
    """Return 1 - beta**t for each beta, double of rank 0, where t is the number of this step."""
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.INT64, []).tensor_type
    number = graph.output(graph.state(step, kind) + 1, step + NEXT, kind)
    number = number.op("Cast", to=onnx.TensorProto.DOUBLE, kind="DOUBLE")
    return [1.0 - number.of(beta).op("Pow", number) for beta in betas]


def _typed(graph: StepGraph, name: str) -> onnx.TypeProto.Tensor:
    inferred = infer_shapes(strip_weights(graph.model)).graph
    values: dict[str, onnx.TypeProto.Tensor] = {
        value.name: value.type.tensor_type for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    if name not in graph.names:
        raise ValueError(f"output has {name!r}{meant(name, graph.names)}: must be the name of a tensor of the graph")
    kind = values.get(name)
    if kind is None or not kind.elem_type:
        unknown = unknown_among(graph.model.graph.node)
        raise ValueError(f"output = {name!r}: its type must be known, and shape inference does not find it{unknown}")
    if kind.elem_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise ValueError(f"output = {name!r}: must be a tensor of float or double; add a Cast node and name its output")
    if not kind.HasField("shape"):
        unknown = unknown_among(graph.model.graph.node)
        raise ValueError(f"output = {name!r}: its rank must be known, and shape inference does not find it{unknown}")
    return kind


def _gradients(graph: StepGraph, parameters: Sequence[str] | Mapping[str, str] | None) -> Mapping[str, str]:
    outputs = {value.name for value in graph.model.graph.output}
    if parameters is None:
        parameters = [name for name in graph.tensors if f"{name}_grad" in outputs]
        if not parameters:
            raise ValueError(
                "the model has no output NAME_grad of an input, a dense initializer or a Constant NAME: "
                "must be a model with gradients, as onnx_models.gradient returns it"
            )
    if isinstance(parameters, str) or not parameters:
        raise ValueError(f"parameters = {parameters!r}: must be one or more names")
    gradients = parameters if isinstance(parameters, Mapping) else {name: f"{name}_grad" for name in parameters}
    for name, gradient in gradients.items():
        if name not in graph.tensors:
            raise ValueError(
                f"parameters has {name!r}{meant(name, graph.tensors)}: "
                "must be an input, an initializer or a Constant of the graph"
            )
        if gradient not in outputs:
            raise ValueError(
                f"parameters has {name!r}: must have its gradient among the outputs, "
                f"which lack {gradient!r}{meant(gradient, outputs)}"
            )
    return gradients


class StepGraph(NodeBuilder):
    """Adds nodes, inputs and outputs to a copy of a model.

    model: the copy. inputs: the names of the inputs. tensors: the types of inputs and of constants.
    """

    def __init__(self, model: onnx.ModelProto, source: onnx.ModelProto) -> None:
        self.model = model = copy_model(source) if model is source else model
        super().__init__(set(tensor_names(model.graph)), "_step")
        inputs = {value.name: value.type.tensor_type for value in model.graph.input}
        self.inputs = inputs.keys()
        self.tensors = inputs | dict(constant_types(model.graph)) | inputs

    def make_initializers(self, names: Collection[str]) -> None:
        """Turn those Constant nodes into initializers whose outputs have one of these names."""
        graph = self.model.graph
        constants = [(node, value) for node in graph.node if (value := constant_tensor(node)) is not None]
        for node, value in constants:
            if node.output and node.output[0] in names:
                graph.initializer.add().CopyFrom(value)
                graph.initializer[-1].name = node.output[0]
                graph.node.remove(node)

    def value(self, name: str, kind: onnx.TypeProto.Tensor) -> Value:
        """A tensor in an expression, whose numbers have the element type of `kind`."""
        return Value(self, name, onnx.TensorProto.DataType.Name(kind.elem_type))

    def number(self, value: float, kind: str) -> str:
        """A constant of rank 0, by the name of its element type."""
        return self.op(
            "Constant", value=onnx.helper.make_tensor("", onnx.TensorProto.DataType.Value(kind), (), [value])
        )

    def input(self, name: str, kind: onnx.TypeProto.Tensor) -> None:
        """Add an input."""
        self._take(name)
        self.model.graph.input.add(name=name).type.tensor_type.CopyFrom(kind)

    def cast(self, value: Value, kind: onnx.TypeProto.Tensor) -> Value:
        """A tensor in the element type of `kind`."""
        name = onnx.TensorProto.DataType.Name(kind.elem_type)
        return value if value.kind == name else value.op("Cast", to=kind.elem_type, kind=name)

    def state(self, name: str, kind: onnx.TypeProto.Tensor, source: str | None = None) -> Value:
        """Add an input, whose default is that of the tensor `source`, or zeros if its shape is known."""
        self.input(name, kind)
        default = None
        if source is not None:
            default = next(
                (values_of(tensor) for tensor in self.model.graph.initializer if tensor.name == source), None
            )
        elif kind.HasField("shape") and all(length.HasField("dim_value") for length in kind.shape.dim):
            default = np.zeros([length.dim_value for length in kind.shape.dim])
        if default is not None:
            array = default.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
            self.model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return self.value(name, kind)

    def output(self, value: Value, name: str, kind: onnx.TypeProto.Tensor) -> Value:
        """Make the output of the last node an output of the model, under a new name; returns it under that name."""
        self._take(name)
        self.added[-1].output[0] = name
        self.model.graph.output.add(name=name).type.tensor_type.CopyFrom(kind)
        return Value(self, name, value.kind)

    def build(self) -> onnx.ModelProto:
        """The model with all new nodes."""
        self.model.graph.node.extend(self.added)
        return self.model

    def _take(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a new tensor has the name {name!r}: must be a str that is not empty")
        if name in self.names:
            raise ValueError(
                f"the model has a tensor {name!r} already: must not be in use, since a new tensor gets this name"
            )
        self.names.add(name)

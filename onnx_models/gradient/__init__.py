"""The gradient of an ONNX model as an ONNX model: standard operators plus this project's."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx

from onnx_models.data import with_data
from onnx_models.gradient.backward import Findings, backward
from onnx_models.gradient.bodies import learn_from_bodies
from onnx_models.gradient.coverage import Coverage, coverage
from onnx_models.gradient.graph import Graph
from onnx_models.gradient.prepare import prepared
from onnx_models.gradient.report import Report, operators_between
from onnx_models.walk import label, nodes_of, normal_domain, subgraphs
from ortops.spec import DOMAIN, DOMAIN_VERSION

__all__ = ["PARAMETERS", "Coverage", "Report", "ZeroGradientWarning", "coverage", "gradient", "report"]

PARAMETERS = "parameters"
"""For `wrt`: all parameters of a model."""

_MOST_SHOWN = 10

_STATISTICS = {("", "BatchNormalization"): (3, 4)}
"""Inputs that are no parameters, though they may be initializers: numbers that training measures."""


class ZeroGradientWarning(UserWarning):
    """A gradient is 0 for all inputs, since the loss does not depend on the tensor, or not in a way with a derivative."""


def gradient(
    model: onnx.ModelProto,
    loss: str,
    wrt: Sequence[str] | Mapping[str, str] | str,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> onnx.ModelProto:
    """A copy of `model` with the gradient of one of its tensors: for each name in `wrt` one more output, NAME_grad.

    Reverse-mode differentiation of the graph, written out as nodes: standard operators, and this project's where ONNX has
    none (RoiAlignGrad, DmlRoiAlignGrad, DmlResampleGrad), which ONNX Runtime runs with `ortops.register` or with
    the bodies of `onnx_models.portable.attach`. Shapes that are open stay open. Functions of the model are inlined, and a
    model of an opset before 18 is converted to 18. The nodes of the model stay, and its outputs are the same bit for bit.

    Args:
        model: not modified. External data stays where it is. It may be larger than 2 GiB in memory; then the result is
            too, and `onnx.save` needs ``save_as_external_data=True``.
        loss: name of a tensor of one element, of rank 0 or with axes of length 1.
        wrt: names of inputs, initializers or any other tensors of the graph, of a floating-point type. A mapping gives the
            names of the outputs as well. "parameters" stands for all floating-point initializers by which the loss has a
            derivative, but for the mean and the variance of BatchNormalization.
        stop_at: names of tensors that are taken for constants.
        through_rois: False for RoIs that are taken for constants by RoiAlign, as torchvision takes them. Of a whole
            detector, whose RoIs depend on the image, that is the gradient it is trained with.

    Returns:
        The model. NAME_grad has type and shape of NAME. It is 0 where the loss does not depend on NAME, which a
        `ZeroGradientWarning` tells.

    Raises:
        ValueError: a name is unknown or not of a floating-point type, the loss has not one element, an output's name is
            taken, or a gradient cannot pass operators between `wrt` and `loss`; the message names all of these. Or the
            model is no lawful one: a function calls itself, a node reads a tensor that is not there
            yet, lacks an input or an attribute, or has one of this project's operators with an attribute that breaks its
            rule. Or its opset cannot be converted, or inlining would make the model too large (`onnx_models.functions`).
        TypeError: an attribute of this project's operators is unknown, which a session would not notice, or has a wrong
            type.
    """
    derived = _derived(model, loss, wrt, stop_at, through_rois)
    if derived.refused:
        more = f"; and {len(derived.refused) - _MOST_SHOWN} more" if len(derived.refused) > _MOST_SHOWN else ""
        raise ValueError("; ".join(derived.refused[:_MOST_SHOWN]) + more)
    for name in derived.zeros:
        warnings.warn(_why_zero(name, derived.findings), ZeroGradientWarning, stacklevel=2)
    return _finished(derived, model)


def report(
    model: onnx.ModelProto,
    loss: str,
    wrt: Sequence[str] | Mapping[str, str] | str,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> Report:
    """What `gradient` of the same arguments makes, or why it refuses to.

    Raises:
        ValueError, TypeError: as `gradient`, but for operators that a gradient cannot pass: the report has these.
    """
    derived = _derived(model, loss, wrt, stop_at, through_rois)
    operators = operators_between(derived.graph, list(derived.names), loss, derived.findings)
    before = sum(1 for _ in nodes_of(derived.ready))
    after = None if derived.refused else sum(1 for _ in nodes_of(_finished(derived, model)))
    ends = tuple(dict.fromkeys(derived.findings.zeros))
    zeros = () if derived.refused else tuple(derived.zeros)
    return Report(operators, ends, zeros, tuple(derived.refused), before, after)


@dataclass
class _Derived:
    """A prepared model with the nodes of a gradient beside it.

    names: for each name in wrt that of the output. found: for those of them that have one, the name of the gradient.
    """

    ready: onnx.ModelProto
    graph: Graph
    names: Mapping[str, str]
    found: Mapping[str, str]
    findings: Findings

    @property
    def refused(self) -> list[str]:
        """Operators that the gradient cannot pass, each with the reason."""
        return list(dict.fromkeys(self.findings.errors))

    @property
    def zeros(self) -> list[str]:
        """Names of the tensors by which the gradient is 0."""
        return [name for name in self.names if name not in self.found]


def _derived(
    model: onnx.ModelProto,
    loss: str,
    wrt: Sequence[str] | Mapping[str, str] | str,
    stop_at: Collection[str],
    through_rois: bool,
) -> _Derived:
    ready = prepared(model)
    graph = Graph(ready.graph, {normal_domain(item.domain): item.version for item in ready.opset_import})
    chosen = _parameters(graph) if wrt == PARAMETERS else wrt
    if isinstance(chosen, str):
        raise ValueError(f"wrt = {chosen!r}: must be names, or {PARAMETERS!r}")
    _check(graph, loss, list(chosen), stop_at)
    learn_from_bodies(graph, ready.graph.node)
    findings = Findings(stop_at, through_rois)
    seed = graph.op("Expand", graph.number(1.0, loss), graph.shape(loss))
    found = backward(graph, ready.graph.node, {loss: seed}, list(chosen), findings)
    if wrt == PARAMETERS:
        chosen = [name for name in chosen if name in found]
        if not chosen:
            raise ValueError(f"wrt = {PARAMETERS!r}: the loss has a derivative by none of the model's initializers")
    names = chosen if isinstance(chosen, Mapping) else {name: f"{name}_grad" for name in chosen}
    for name in names.values():
        graph.reserve(name)
    return _Derived(ready, graph, names, found, findings)


def _parameters(graph: Graph) -> list[str]:
    """Names of the initializers that may be parameters."""
    statistics = {
        node.input[i]
        for node in graph.proto.node
        for i in _STATISTICS.get((normal_domain(node.domain), node.op_type), ())
        if i < len(node.input)
    }
    tensors = [tensor for tensor in graph.proto.initializer if tensor.name not in statistics]
    return [tensor.name for tensor in tensors if _is_real(tensor.data_type)]


def _why_zero(name: str, findings: Findings) -> str:
    ends = list(dict.fromkeys(findings.zeros))
    what = f"the gradient by {name!r} is 0: the loss does not depend on it"
    return what + (f", or where it does, a derivative is 0: {'; '.join(ends[:_MOST_SHOWN])}" if ends else "")


def _is_real(kind: int) -> bool:
    return kind == onnx.TensorProto.BFLOAT16 or onnx.helper.tensor_dtype_to_np_dtype(kind).kind == "f"


def _tensors(graph: onnx.GraphProto, outside: Collection[str] = ()) -> set[str]:
    """The names of all tensors that a graph knows, each made once and before it is read: reverse mode goes by that.

    Args:
        graph: of a model, or of a node inside it.
        outside: names that the graph around it knows.

    Raises:
        ValueError: a node reads a tensor that no node before it makes, or makes one that is there already, or an output
            is none of the tensors. That counts for graphs inside too.
    """
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    if shadowed := sorted(known.intersection(outside)):
        raise ValueError(
            f"graph {graph.name!r} has {shadowed[0]!r}: must be named otherwise than a tensor outside of it"
        )
    known.update(outside)
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise ValueError(f"{label(node)} reads {name!r}: must be made by a node before it")
        for inner in subgraphs([node]):
            _tensors(inner, known)
        for name in filter(None, node.output):
            if name in known:
                raise ValueError(f"{label(node)} makes {name!r}: must be made once, and is there already")
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise ValueError(f"graph {graph.name!r} has the output {value.name!r}: must be made by a node in it")
    return known


def _check(graph: Graph, loss: str, wrt: Sequence[str], stop_at: Collection[str]) -> None:
    known = _tensors(graph.proto)
    if not wrt or len(set(wrt)) != len(wrt):
        raise ValueError(f"wrt = {list(wrt)}: must be one or more names, none twice")
    for argument, names in (("loss", [loss]), ("wrt", wrt), ("stop_at", stop_at)):
        for name in names:
            if name not in known:
                raise ValueError(f"{argument} has {name!r}: must be the name of a tensor of the graph")
    for argument, names in (("loss", [loss]), ("wrt", wrt)):
        for name in names:
            kind = graph.element_type(name)
            if kind is None:
                raise ValueError(
                    f"{argument} has {name!r}: its type must be known, and shape inference does not find it"
                )
            if not _is_real(kind):
                raise ValueError(
                    f"{argument} has {name!r} of type {onnx.TensorProto.DataType.Name(kind).lower()}: must be floats"
                )
    lengths = graph.lengths(loss)
    if lengths is not None and any(isinstance(length, int) and length != 1 for length in lengths):
        raise ValueError(f"loss = {loss!r} has shape {lengths}: must have one element")


def _finished(derived: _Derived, model: onnx.ModelProto) -> onnx.ModelProto:
    """The prepared model, which is changed, with those of the added nodes that the outputs need, and the outputs.

    Args:
        derived: the gradient.
        model: the model as it was given, whose outputs are declared as before.
    """
    ready, graph = derived.ready, derived.graph
    values = {name: derived.found.get(name) or graph.zeros(name) for name in derived.names}
    made = ready.graph
    for place, node in graph.replaced.items():
        made.node[place].CopyFrom(node)
    nodes = graph.needed(list(values.values()))
    made.node.extend(nodes)
    del made.output[:]
    made.output.extend(model.graph.output)
    for name, value in values.items():
        output = derived.names[name]
        made.node.append(onnx.helper.make_node("Identity", [value], [output], name=output))
        made.output.add(name=output).type.tensor_type.CopyFrom(graph.type_of(name) or onnx.TypeProto.Tensor())
    if any(node.domain == DOMAIN for node in nodes) and DOMAIN not in graph.opsets:
        ready.opset_import.append(onnx.helper.make_opsetid(DOMAIN, DOMAIN_VERSION))
    return with_data(ready, model)

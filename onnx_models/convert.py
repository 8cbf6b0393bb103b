"""From RoI operators of ONNX, mmcv and caffe2 to this project's of the same meaning, in models of any origin."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat

import onnx

from onnx_models.attribute_checks import check_attributes
from onnx_models.attributes import attribute_proto, operator_of
from onnx_models.large_models import copy_model, strip_weights
from onnx_models.onnx_tools import infer_shapes
from onnx_models.third_party import LEAST_OPSET, THIRD_PARTY, Tensors, ThirdPartyOperator
from onnx_models.traversal import (
    Scope,
    all_nodes,
    label,
    normalize_domain,
    onnx_opset,
    subgraphs,
    tensor_names,
    walk_graphs,
)
from ortops.operators import OPERATORS
from ortops.spec import DOMAIN, DOMAIN_VERSION, Operator

_OURS = {operator.standard: operator for operator in OPERATORS if operator.standard}
_CONVERTIBLE = {name for name, _ in _OURS}
_REQUIRED = {
    ours.name: [name for name, one in onnx.defs.get_schema(*standard).attributes.items() if one.required]
    for standard, ours in _OURS.items()
}

_Source = Callable[[onnx.NodeProto, Scope], Operator | ThirdPartyOperator | None]
"""From a node among those of a model or a function to what is converted: a foreign operator, or this project's operator with
the definition of ONNX's; None where it stays."""


def convert(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` whose RoI nodes are this project's, wherever they are: in If, Loop, Scan and functions too.

    - ONNX's RoiAlign becomes RoiAlign_10 at opsets 10 to 15, RoiAlign_16 at 16 to 21 and RoiAlign_22 from 22 on.
    - ONNX's MaxRoiPool becomes MaxRoiPool_1 at opsets 1 to 21 and MaxRoiPool_22 from 22 on.
    - MMCVRoiAlign of the domains mmcv and mmdeploy, and RoIAlign of caffe2, become RoiAlign_22.
    - MMCVRoIAlignRotated and caffe2's RoIAlignRotated become RoIAlignRotated.

    The nodes of caffe2, in the domain org.pytorch._caffe2 or _caffe2, are those that detectron2's exporter writes. A
    function of the model counts by its own opset. Attributes that a node does not have are written out with their
    defaults; those that a node of ONNX's has are kept as they are. A reference to an attribute of the enclosing function
    stays one.

    mmcv and caffe2 have the index of a RoI's image as the first column of rois. Gather and Cast make an input of it, and
    Mul makes radians of caffe2's degrees, in the RoIs' own element type. caffe2's RoIs may lack that column: all are then
    of the first image. Where ONNX's inference does not tell the number of columns, as after caffe2's own operators and in
    functions, the RoIs have it, as detectron2's exporter always writes it; if they do not, the converted model ends with
    an error of Gather. `onnx_models.third_party` says where results differ at the edges.

    All other nodes stay as they are, also those of mmcv and caffe2; the import of such a domain is removed where no node
    needs it any more. Everything else of the model stays as it is, byte for byte; external data is not read. A node that
    calls a function of the model named as one of these operators stays, too. A converted model converts to itself, and so
    does one without these operators.

    Args:
        model: of any opset, with nodes of mmcv or caffe2 of opset 9 or later; not modified.

    Raises:
        ValueError: an operator has no meaning at the model's opset: the opset is absent or too old, or it defines a newer
            one than this project has; an attribute breaks its rule or is missing (such as the mode "AVG", which onnxruntime
            takes for "avg", or caffe2's order "NHWC"); a node of mmcv or caffe2 does not have two inputs, rois of another
            shape, or a reference in place of a value that changes; a function of the model calls itself.
        TypeError: an attribute is unknown, which a session would not notice, or has a wrong type.

    Source: ONNX operator specification, RoiAlign, versions 10, 16 and 22, and MaxRoiPool, versions 1 and 22; else as of
    `onnx_models.third_party`.
    """
    source = _source_in(model)

    def definition(node: onnx.NodeProto, scope: Scope) -> Operator | None:
        found = operator_of(node) or source(node, scope)
        return found.definition if isinstance(found, ThirdPartyOperator) else found

    check_attributes(model, definition)
    replaced = {
        normalize_domain(node.domain)
        for scope in (model, *model.functions)
        for node in all_nodes(scope)
        if source(node, scope)
    }
    converted = copy_model(model)
    if not replaced:
        return converted
    foreign = replaced - {""}
    for scope in (*converted.functions, converted):
        tensors = _tensors(model) if foreign and scope is converted else ()
        opset = _opset_of(scope, model)
        # Without an opset nothing has been found.
        if opset and _convert_scope(scope, source, tensors):
            _import(scope, "", opset)
            _import(scope, DOMAIN, DOMAIN_VERSION)
        _drop_imports(scope, foreign)
    # The checker wants the domains of a function's body among the model's own.
    _import(converted, DOMAIN, DOMAIN_VERSION)
    return converted


def conversions(model: onnx.ModelProto) -> Counter[tuple[str, str]]:
    """How many nodes `convert` makes this project's, by what they are (``mmcv::MMCVRoiAlign``) and what they become.

    Raises:
        ValueError: an operator has no meaning at the model's opset.
    """
    found: Counter[tuple[str, str]] = Counter()
    source = _source_in(model)
    for scope in (model, *model.functions):
        for node in all_nodes(scope):
            if operator := source(node, scope):
                ours = operator.ours if isinstance(operator, ThirdPartyOperator) else operator
                domain = normalize_domain(node.domain)
                found[f"{domain}::{node.op_type}" if domain else node.op_type, ours.name] += 1
    return found


def _source_in(model: onnx.ModelProto) -> _Source:
    functions = {(normalize_domain(function.domain), function.name) for function in model.functions}

    def source(node: onnx.NodeProto, scope: Scope) -> Operator | ThirdPartyOperator | None:
        identity = domain, name = normalize_domain(node.domain), node.op_type
        foreign = THIRD_PARTY.get(identity)
        is_standard = domain == "" and name in _CONVERTIBLE
        if identity in functions or not (foreign or is_standard):
            return None
        where, opset = label(node), _opset_of(scope, model)
        if opset is None:
            raise ValueError(f"{where}: must have an opset import of ONNX's domain")
        if foreign and opset < LEAST_OPSET:
            raise ValueError(f"{where} at opset {opset}: must be at {LEAST_OPSET} or a later one")
        return foreign or _ours(name, opset, where)

    return source


def _opset_of(scope: Scope, model: onnx.ModelProto) -> int | None:
    """That of a model, or of one of its functions; a function of foreign nodes may go without ONNX's domain."""
    return onnx_opset(scope) or onnx_opset(model)


def _ours(name: str, opset: int, where: str) -> Operator:
    """This project's operator with the meaning of ONNX's at an opset."""
    if not onnx.defs.has(name, opset, ""):
        raise ValueError(f"{where} at opset {opset}: ONNX has no {name} there")
    since = onnx.defs.get_schema(name, opset, "").since_version
    if (name, since) not in _OURS:
        known = ", ".join(str(version) for one, version in _OURS if one == name)
        raise ValueError(f"{where} at opset {opset}: is version {since}, must be one of {known}")
    return _OURS[name, since]


def _convert_scope(scope: Scope, source: _Source, tensors: Iterable[Tensors]) -> bool:
    """Convert the nodes of a model without its functions, or of a function; whether there were any.

    tensors: what each graph of `walk_graphs` knows; of those at the end it may be missing.
    """
    parts = list(walk_graphs(scope))
    taken = {name for part in parts for name in tensor_names(part)}

    def new(wish: str) -> str:
        name, number = wish, 0
        while name in taken:
            number += 1
            name = f"{wish}_{number}"
        taken.add(name)
        return name

    found = False
    for part, known in zip(parts, chain(tensors, repeat({})), strict=False):
        place = 0
        for node in list(part.node):
            operator = source(node, scope)
            found = found or operator is not None
            if isinstance(operator, ThirdPartyOperator):
                for before in operator.convert_node(node, known, new):
                    part.node.insert(place, before)
                    place += 1
            elif operator:
                _convert_node(node, operator)
            place += 1
    return found


def _convert_node(node: onnx.NodeProto, operator: Operator) -> None:
    """Make a node of ONNX's operator this project's."""
    present = {attribute.name for attribute in node.attribute}
    for name in _REQUIRED[operator.name]:
        if name not in present:
            raise ValueError(f"{label(node)}: has no {name}: must have it")
    node.op_type, node.domain = operator.name, DOMAIN
    node.attribute.extend(
        attribute_proto(attribute, attribute.default)
        for attribute in operator.attributes
        if attribute.name not in present
    )


def _tensors(model: onnx.ModelProto) -> Iterator[Tensors]:
    """What ONNX's inference tells of the tensors that a model's graph knows, and those that each graph inside knows."""
    bare = strip_weights(model)
    # PyTorch's exporter has written nodes of domains that the model does not import, which inference refuses.
    for domain in dict.fromkeys(normalize_domain(node.domain) for node in all_nodes(bare)):
        _import(bare, domain, 1)
    return _typed(infer_shapes(bare).graph, ChainMap())


def _typed(graph: onnx.GraphProto, outer: ChainMap[str, onnx.TypeProto.Tensor]) -> Iterator[Tensors]:
    known = outer.new_child()
    for tensor in graph.initializer:
        known[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)).tensor_type
    for value in (*graph.input, *graph.value_info, *graph.output):
        known[value.name] = value.type.tensor_type
    yield known
    for inner in subgraphs(graph.node):
        yield from _typed(inner, known)


def _import(scope: Scope, domain: str, version: int) -> None:
    if all(normalize_domain(item.domain) != domain for item in scope.opset_import):
        scope.opset_import.append(onnx.helper.make_opsetid(domain, version))


def _drop_imports(scope: Scope, domains: set[str]) -> None:
    """Take those of some domains from the imports that nothing needs; of a model after those of its functions."""
    needed = {node.domain for node in all_nodes(scope)}
    if isinstance(scope, onnx.ModelProto):
        for function in scope.functions:
            needed |= {function.domain, *(item.domain for item in function.opset_import)}
    kept = [item for item in scope.opset_import if item.domain not in domains or item.domain in needed]
    if len(kept) < len(scope.opset_import):
        del scope.opset_import[:]
        scope.opset_import.extend(kept)

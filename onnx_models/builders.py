"""Build models of this project's operators: a function for each `Operator.function`, made from the definitions.

All of them take these keyword arguments, and raise what `onnx_models.model` does:

    element_type: the type of all tensors except indices and shapes, "float" by default. Every operator has float16, float
        and double; those that ONNX defines at opset 22, RoIAlignRotated and their gradients have bfloat16 too.
    index_type: the type of BatchIndicesTensor, ``int64`` (the default) or ``uint32`` as in DirectML.
    axes: lengths or other names for the named axes of inputs and outputs; the others keep these names and are of any length.
    outputs: for gradients, the names of the wanted outputs, in any case; all by default. The model has an optional input
        only where the wanted outputs need it.
    standard: True for ONNX's own operator, where there is one. Opset 1 becomes 7, the oldest one that runtimes read.
    portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
    roi_rank, batch_indices_rank: the ranks of ROITensor (2) and of BatchIndicesTensor (1), if more axes of length 1 lead.
    rank: the rank of the tensors of variable rank; by default the number of values of the lists, or 4 without lists.

All other keyword arguments are attributes. The node has all of them except empty lists. The bytes of a model depend on the
arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from textwrap import fill
from typing import Any

import onnx

from onnx_models.build import (
    INDEX_TYPE,
    Lengths,
    axis_lengths,
    make_model,
    model,
    node,
    tensor_ranks,
    type_values,
    value_info,
)
from onnx_models.portable.attach import attach
from onnx_models.resize import resample_attributes
from onnx_models.tools.attributes import attribute_values
from onnx_models.tools.opset_upgrade import DEFAULT_OPSET
from onnx_models.tools.protos import normalize_domain
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import DOMAIN, DOMAIN_VERSION, AttributeValue, Operator, Tensor

Builder = Callable[..., onnx.ModelProto]

_RANK_ARGUMENTS = {"roi_rank": "ROITensor", "batch_indices_rank": "BatchIndicesTensor"}


def build(
    operator: Operator,
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    axes: Lengths | None = None,
    outputs: Collection[str] | None = None,
    standard: bool = False,
    portable: bool = False,
    **others: Any,
) -> onnx.ModelProto:
    """Build a model of one node, as `onnx_models.model` does, with ranks and attributes as keyword arguments."""
    names = {tensor.name for tensor in operator.inputs}
    ranked = {argument: name for argument, name in _RANK_ARGUMENTS.items() if name in names}
    if operator.inputs[0].has_variable_rank:
        ranked["rank"] = operator.inputs[0].name
    ranks = {name: others.pop(argument) for argument, name in ranked.items() if argument in others}
    return model(
        operator,
        element_type=element_type,
        index_type=index_type,
        ranks={name: rank for name, rank in ranks.items() if rank is not None},
        attributes=others,
        axes=axes,
        outputs=outputs,
        standard=standard,
        portable=portable,
    )


def _builder(operators: Sequence[Operator]) -> Builder:
    """Return the function that builds a one-node model of an operator, given all versions of the operator."""
    *_, newest = operators
    versions = {one.standard[1]: one for one in operators if one.standard}
    made: Builder

    def of_opset(opset: int, **options: Any) -> onnx.ModelProto:
        if opset not in versions:
            choices = (
                " or ".join(map(str, versions)) if len(versions) < 3 else f"one of {', '.join(map(str, versions))}"
            )
            raise ValueError(f"opset = {opset!r}: must be {choices}, which define {name}")
        return build(versions[opset], **options)

    def of_one(**options: Any) -> onnx.ModelProto:
        return build(newest, **options)

    name, _ = newest.standard or (newest.name, 0)
    made = of_opset if versions else of_one
    made.__name__ = made.__qualname__ = newest.function
    made.__doc__ = _docstring(name, newest, ", ".join(map(str, versions)))
    return made


def _docstring(name: str, operator: Operator, versions: str) -> str:
    def listed(tensors: Sequence[Tensor]) -> str:
        return ", ".join(f"{tensor.name} [{', '.join(map(str, tensor.shape))}]" for tensor in tensors)

    attributes = ", ".join(f"{one.name} ({one.default})" for one in operator.attributes)
    opset = f"opset: the ONNX opset that defines {name}, one of {versions}." if versions else ""
    options = f"options: see `onnx_models.builders`. The attributes are {attributes}."
    equations = "".join(f", where {equation}" for equation in operator.equations)
    returned = (
        f"A model with the inputs {listed(operator.inputs)} and the outputs {listed(operator.outputs)}{equations}."
    )
    parts = {"Args": [opset, options], "Returns": [returned]}
    lines = [f"Build a model of one {name} node. {operator.doc}", ""]
    for heading, texts in parts.items():
        wrapped = (fill(text, 110, initial_indent="    ", subsequent_indent="        ") for text in texts if text)
        lines += [f"{heading}:", *wrapped, ""]
    return "\n".join([*lines, f"Source: {operator.source}"])


BUILDERS: Mapping[str, Builder] = {
    function: _builder([one for one in OPERATORS if one.function == function])
    for function in dict.fromkeys(operator.function for operator in OPERATORS)
}
"""The functions that build models of one node, by name. `onnx_models` has them all."""


def roi_align_with_grad(
    *, element_type: str = "float", axes: Lengths | None = None, portable: bool = False, **attributes: AttributeValue
) -> onnx.ModelProto:
    """Build a model of RoiAlign of opset 22 and of its gradient: Y, dX and drois from X, rois, batch_indices and dY.

    Args:
        element_type: see above.
        axes: see above.
        portable: see above.
        attributes: those of `roi_align` at opset 22, for both nodes.

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 4], batch_indices [num_rois] (int64) and
        dY [num_rois, C, output_height, output_width], and outputs Y (as dY), dX [N, C, H, W] and drois [num_rois, 4].
    """
    forward, backward = BY_NAME["RoiAlign_22"], BY_NAME["RoiAlignGrad"]
    types = type_values(forward, element_type, INDEX_TYPE)
    checked = attribute_values(forward, attributes)
    ranks = tensor_ranks(forward, {}, checked) | tensor_ranks(backward, {}, {})
    lengths = axis_lengths((forward, backward), ranks, checked, axes or {})
    shared = {a.name: checked[a.name] for a in backward.attributes}
    tensors = {t.name: t for t in (*forward.inputs, *forward.outputs, *backward.inputs, *backward.outputs)}
    x, rois, batch_indices = (tensor.name for tensor in forward.inputs)
    nodes = [
        node(forward, (x, rois, batch_indices), ("Y",), checked),
        onnx.helper.make_node("Shape", (x,), ("x_shape",), name="Shape"),
        node(backward, ("dY", rois, batch_indices, "x_shape", x), ("dX", "drois"), shared),
    ]
    inputs, outputs = (
        [value_info(tensors[name], ranks[name], types, lengths) for name in names]
        for names in ((x, rois, batch_indices, "dY"), ("Y", "dX", "drois"))
    )
    return make_model(
        "RoiAlign with its gradient", nodes, inputs, outputs, {"": DEFAULT_OPSET, DOMAIN: DOMAIN_VERSION}, portable
    )


def resize_grad(
    resize: onnx.NodeProto,
    x_shape: Sequence[int | None],
    *,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    roi: Sequence[float] | None = None,
    opset: int = 19,
    element_type: str = "float",
    portable: bool = False,
) -> onnx.ModelProto:
    """Build a model of one DmlResampleGrad node: the gradient of a Resize node with respect to X.

    Args:
        resize: the Resize node. Its attributes are read; its inputs are the arguments below.
        x_shape: lengths of X. See `resample_attributes` for this argument and the next three.
        scales: values of the node's input scales.
        sizes: values of the node's input sizes.
        roi: values of the node's input roi.
        opset: the ONNX opset of the node, 10 or later.
        element_type: of X: ``float16``, ``float`` or ``double``.
        portable: see above.

    Returns:
        A model with inputs dY, in the shape of the node's Y, and x_shape [rank] (int64), the shape of X, and output dX in
        that shape. Known lengths are declared; the other axes are M0, M1 and so on of dY and N0, N1 and so on of dX.

    Raises:
        ValueError: the node is not a Resize of ONNX's, an attribute refers to one of a function, or
            `resample_attributes` refuses the node.
        TypeError: as in `resample_attributes`.
    """
    if resize.op_type != "Resize" or normalize_domain(resize.domain) != "":
        raise ValueError(f"resize is a node of {resize.op_type} in {resize.domain!r}: must be Resize in ONNX's domain")
    for attribute in resize.attribute:
        if attribute.ref_attr_name:
            raise ValueError(f"{attribute.name} = @{attribute.ref_attr_name}: must be a value, not a reference to one")
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in resize.attribute}
    attributes = resample_attributes(given, x_shape, scales=scales, sizes=sizes, roi=roi, opset=opset)
    y_shape = attributes.pop("output_sizes")
    axes: dict[str, int | str] = {f"N{i}": length for i, length in enumerate(x_shape) if length is not None}
    axes |= {f"M{i}": length for i, length in enumerate(y_shape)}
    made = build(BY_NAME["DmlResampleGrad"], element_type=element_type, axes=axes, **attributes)
    graph = made.graph
    graph.name, graph.input[0].name, graph.output[0].name = "gradient of Resize", "dY", "dX"
    graph.node[0].input[0], graph.node[0].output[0] = "dY", "dX"
    return attach(made) if portable else made

"""RoI operators of other projects, as their exporters write them into models, and this project's nodes in their place.

mmcv and caffe2 have the index of a RoI's image as the first column of the RoIs; here it is an input of its own. caffe2 gives
angles in degrees. Where these operators and this project's differ:

- An empty bin is 0 here. mmcv's maximum of one is -10000 in its kernels for ONNX Runtime and the least float elsewhere, and
  caffe2's mean of one is NaN.
- A RoI of negative size that is aligned has no samples here, or mirrored ones where sampling_ratio is above 0. mmcv on the
  CPU and caffe2 stop there.
- A NaN pixel makes a maximum NaN here. mmcv passes over it.
- RoIs that are not finite and batch indices that are no image are refused here. mmcv and caffe2 read whatever is there.

Source: mmcv 1.2.6 to 2.2 (mmcv/ops/roi_align.py and roi_align_rotated.py, the kernels in mmcv/ops/csrc/onnxruntime of 1.7,
docs/en/deployment/onnxruntime_custom_ops.md); mmdeploy 1.3 (mmdeploy/mmcv/ops); detectron2 0.6 (detectron2/export/c10.py);
PyTorch 1.x (caffe2/operators/roi_align_op.cc and roi_align_rotated_op.cc and their headers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from onnx_models.attributes import attribute_proto, node_attribute_values
from onnx_models.traversal import label
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, Attribute, AttributeValue, Operator

LEAST_OPSET = 9
"""The first that has the operators which take RoIs apart, all in the form that they have had since: detectron2's opset."""

Tensors = Mapping[str, onnx.TypeProto.Tensor]
"""By name, the types of tensors as far as they are known."""


@dataclass(frozen=True, slots=True)
class AttributeMapping:
    """What becomes of an attribute of a foreign operator.

    rule: its name, type, default and rule there.
    name: of the attribute of this project's operator that it becomes; "" where it becomes none.
    change: from its value to that of the other attribute; None where they are equal.
    """

    rule: Attribute
    name: str = ""
    change: Callable[[AttributeValue], AttributeValue] | None = None


@dataclass(frozen=True, slots=True)
class ThirdPartyOperator:
    """An operator of another project with the inputs X and rois, which one of this project's computes.

    ours: the latter.
    coordinates: how many columns of rois follow the index of the image.
    complete: True where a node must have all attributes, since the runtimes of the operator know no defaults.
    single: True where rois may go without the index of the image: that of all is then 0.
    degrees: True where the last coordinate is an angle in degrees.
    """

    name: str
    ours: Operator
    attributes: tuple[AttributeMapping, ...]
    coordinates: int
    complete: bool = False
    single: bool = False
    degrees: bool = False

    @property
    def definition(self) -> Operator:
        """Its name and its attributes with their rules."""
        rules = tuple(carried.rule for carried in self.attributes)
        return Operator(self.name, self.ours.family, self.ours.function, "", rules, (), (), {})

    def convert_node(self, node: onnx.NodeProto, tensors: Tensors, new: Callable[[str], str]) -> list[onnx.NodeProto]:
        """Make a node this project's.

        Args:
            node: of this operator; modified. Its attributes are lawful.
            tensors: what is known of the tensors around it.
            new: a name that no tensor has yet, from the wish for one.

        Returns:
            The nodes that must come before it. Their operators are the same at opset 9 and at all later ones.

        Raises:
            ValueError: the node does not have two inputs or lacks an attribute, one whose value changes refers to an
                attribute of a function, or rois is known to have another shape.
        """
        where = label(node)
        if len(node.input) != 2 or not all(node.input):
            raise ValueError(f"{where}: has the inputs {list(node.input)}: must have X and rois")
        attributes = self._attributes(node, where)
        x, rois = node.input
        before = _NodesBefore(new, node.output[0] if node.output else rois)
        if self._has_index(tensors.get(rois), where):
            index = before.op("Gather", [rois, before.constant(0, "first")], "index", axis=1)
            batch_indices = before.op("Cast", [index], "batch_indices", to=onnx.TensorProto.INT64)
            columns = before.constant(np.arange(1, self.coordinates + 1), "columns")
            boxes = before.op("Gather", [rois, columns], "rois", axis=1)
        else:
            shape = before.op("Shape", [rois], "shape")
            number = before.op("Gather", [shape, before.constant([0], "first")], "number", axis=0)
            zero = onnx.numpy_helper.from_array(np.zeros(1, np.int64))
            batch_indices, boxes = before.op("ConstantOfShape", [number], "batch_indices", value=zero), rois
        if self.degrees:
            kind = tensors[rois].elem_type if rois in tensors else onnx.TensorProto.UNDEFINED
            # caffe2 has this operator for float alone.
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind or onnx.TensorProto.FLOAT)
            units = np.array([1.0] * (self.coordinates - 1) + [math.pi / 180]).astype(dtype)
            boxes = before.op("Mul", [boxes, before.constant(units, "units")], "radians")
        node.op_type, node.domain, node.overload = self.ours.name, DOMAIN, ""
        del node.input[:], node.attribute[:]
        node.input.extend([x, boxes, batch_indices])
        node.attribute.extend(attributes)
        return before.nodes

    def _attributes(self, node: onnx.NodeProto, where: str) -> list[onnx.AttributeProto]:
        """All attributes of this project's operator; references stay where the value does not change."""
        present = {attribute.name: attribute for attribute in node.attribute}
        given = node_attribute_values(self.definition, node)
        rules = {rule.name: rule for rule in self.ours.attributes}
        made = {name: attribute_proto(rule, rule.default) for name, rule in rules.items()}
        for carried in self.attributes:
            rule, there = carried.rule, present.get(carried.rule.name)
            if there is None and self.complete:
                raise ValueError(f"{where}: has no {rule.name}: must have it, since {self.name} knows no defaults")
            if there is not None and there.ref_attr_name:
                if carried.change or not carried.name:
                    raise ValueError(
                        f"{where}: {rule.name} refers to {there.ref_attr_name!r} of the function around it: "
                        f"must be a value, since {self.ours.name} has it otherwise"
                    )
                made[carried.name] = _renamed(there, carried.name)
            elif carried.name:
                value = given.get(rule.name, rule.default)
                value = carried.change(value) if carried.change else value
                made[carried.name] = attribute_proto(rules[carried.name], value)
        return list(made.values())

    def _has_index(self, rois: onnx.TypeProto.Tensor | None, where: str) -> bool:
        """Whether rois has the index of the image; as exporters write it, where its shape is not known."""
        if rois is None or not rois.HasField("shape"):
            return True
        with_index, lengths = self.coordinates + 1, rois.shape.dim
        if len(lengths) != 2:
            raise ValueError(f"{where}: rois has {len(lengths)} axes: must have 2")
        found = lengths[1].dim_value if lengths[1].HasField("dim_value") else with_index
        if found == self.coordinates and self.single:
            return False
        if found != with_index:
            rule = f"{self.coordinates} or {with_index}" if self.single else str(with_index)
            raise ValueError(f"{where}: rois has {found} columns: must have {rule}")
        return True


class _NodesBefore:
    """Nodes that are written before another."""

    def __init__(self, new: Callable[[str], str], prefix: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._new, self._prefix = new, prefix

    def op(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Write a node; the name of its output."""
        name = self._new(f"{self._prefix}_{output}")
        self.nodes.append(onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: npt.ArrayLike, output: str) -> str:
        """Write a constant; its name."""
        return self.op("Constant", [], output, value=onnx.numpy_helper.from_array(np.asarray(value)))


def _renamed(attribute: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    made = onnx.AttributeProto()
    made.CopyFrom(attribute)
    made.name = name
    return made


def _same(ours: Operator, name: str, there: str = "", **changes: Any) -> AttributeMapping:
    """An attribute that has the rule and the value of this project's, under its name or another."""
    rule = next(attribute for attribute in ours.attributes if attribute.name == name)
    return AttributeMapping(replace(rule, name=there or name, **changes), name)


def _sampling_ratio(ours: Operator, default: int) -> AttributeMapping:
    """0 and all below it stand for samples by the size of the RoI; the number has 32 bits there."""
    carried = _same(ours, "sampling_ratio", default=default, minimum=-(2**31))
    return replace(carried, change=lambda value: max(value, 0))


_ROI_ALIGN, _ROTATED = BY_NAME["RoiAlign_22"], BY_NAME["RoIAlignRotated"]

_PIXELS = AttributeMapping(
    Attribute("aligned", "INT", 0, minimum=0, maximum=1),
    "coordinate_transformation_mode",
    ("output_half_pixel", "half_pixel").__getitem__,
)

_MODE = AttributeMapping(
    Attribute("mode", "STRING", "avg", choices=("avg", "max")),
    "mode",
    {"avg": "avg", "max": "max_interpolated"}.__getitem__,
)


def _mmcv(name: str, ours: Operator, *others: AttributeMapping, coordinates: int) -> ThirdPartyOperator:
    shared = (_same(ours, "output_height"), _same(ours, "output_width"), _same(ours, "spatial_scale"))
    return ThirdPartyOperator(name, ours, (*shared, _sampling_ratio(ours, 0), *others), coordinates, complete=True)


def _caffe2(
    name: str, ours: Operator, aligned: AttributeMapping, *, coordinates: int, degrees: bool = False
) -> ThirdPartyOperator:
    attributes = (
        AttributeMapping(Attribute("order", "STRING", "NCHW", choices=("NCHW",))),
        _same(ours, "spatial_scale"),
        _same(ours, "output_height", "pooled_h"),
        _same(ours, "output_width", "pooled_w"),
        _sampling_ratio(ours, -1),
        aligned,
    )
    return ThirdPartyOperator(name, ours, attributes, coordinates, single=True, degrees=degrees)


_MMCV = (
    _mmcv("MMCVRoiAlign", _ROI_ALIGN, _MODE, _PIXELS, coordinates=4),
    _mmcv("MMCVRoIAlignRotated", _ROTATED, _same(_ROTATED, "aligned"), _same(_ROTATED, "clockwise"), coordinates=5),
)
_CAFFE2 = (
    _caffe2("RoIAlign", _ROI_ALIGN, _PIXELS, coordinates=4),
    _caffe2("RoIAlignRotated", _ROTATED, _same(_ROTATED, "aligned", default=0), coordinates=5, degrees=True),
)

THIRD_PARTY = {
    (domain, operator.name): operator
    for domain, operators in (
        ("mmcv", _MMCV),
        ("mmdeploy", _MMCV),
        # PyTorch's exporter writes the first; the second is the namespace of the operators in PyTorch.
        ("org.pytorch._caffe2", _CAFFE2),
        ("_caffe2", _CAFFE2),
    )
    for operator in operators
}
"""The foreign operators, by domain and name."""

"""Convert RoI nodes of mmcv and caffe2, as exporters write them, to this project's nodes.

In mmcv and caffe2 the batch index is the first column of the RoIs; here it is a separate input. Angles of caffe2 are in
degrees. The results of these operators differ from this project's in these cases:

- An empty bin is 0 here. mmcv's maximum is -10000 in its kernels for ONNX Runtime and the lowest float elsewhere, and
  caffe2's mean is NaN.
- An aligned RoI of negative size has no samples here, or mirrored ones if sampling_ratio is above 0. mmcv on the CPU and
  caffe2 abort.
- A NaN pixel makes a maximum NaN here. mmcv ignores it.
- RoIs that are not finite and batch indices out of range are refused here. mmcv and caffe2 read out of bounds.

Source: mmcv 1.2.6 to 2.2 (mmcv/ops/roi_align.py and roi_align_rotated.py, the kernels in mmcv/ops/csrc/onnxruntime of 1.7,
docs/en/deployment/onnxruntime_custom_ops.md); mmdeploy 1.3 (mmdeploy/mmcv/ops); detectron2 0.6 (detectron2/export/c10.py);
PyTorch 1.x (caffe2/operators/roi_align_op.cc and roi_align_rotated_op.cc and their headers).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from onnx_models.attributes import attribute_proto, node_attribute_values
from onnx_models.nodes import NodeBuilder
from onnx_models.onnx_tools import Tensors
from onnx_models.traversal import label
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, Attribute, AttributeValue, Operator

MIN_OPSET = 9
"""The oldest opset with the operators that split RoIs, in a form that is still valid; it is detectron2's."""


@dataclass(frozen=True, slots=True)
class AttributeMapping:
    """How an attribute of a third-party operator is converted.

    rule: its name, type, default and rule in that operator.
    name: the attribute of this project's operator; "" if there is none.
    change: converts the value; None if the values are equal.
    """

    rule: Attribute
    name: str = ""
    change: Callable[[AttributeValue], AttributeValue] | None = None


@dataclass(frozen=True, slots=True)
class ThirdPartyOperator:
    """An operator of another project with the inputs X and rois.

    ours: this project's operator for the same computation.
    coordinates: the number of columns of rois after the batch index.
    complete: True if a node must have all attributes, since the operator's runtimes have no defaults.
    optional_index: True if rois may lack the batch index, which is then 0.
    degrees: True if the last coordinate is an angle in degrees.
    """

    name: str
    ours: Operator
    attributes: tuple[AttributeMapping, ...]
    coordinates: int
    complete: bool = False
    optional_index: bool = False
    degrees: bool = False

    @property
    def definition(self) -> Operator:
        """The operator's name and its attributes with their rules."""
        rules = tuple(carried.rule for carried in self.attributes)
        return Operator(self.name, self.ours.family, self.ours.function, "", rules, (), (), {})

    def convert_node(self, node: onnx.NodeProto, tensors: Tensors, names: set[str]) -> list[onnx.NodeProto]:
        """Change a node of this operator into one of this project's.

        Args:
            node: the node, with valid attributes; modified.
            tensors: the known types of the tensors around it.
            names: the names of all tensors; new ones are added.

        Returns:
            The nodes that must precede it. Their operators are the same at opset 9 and at all later ones.

        Raises:
            ValueError: the node does not have two inputs or lacks an attribute, an attribute that must be converted refers
                to one of a function, or rois is known to have a wrong shape.
        """
        where = label(node)
        if len(node.input) != 2 or not all(node.input):
            raise ValueError(f"{where}: has the inputs {list(node.input)}: must have X and rois")
        attributes = self._attributes(node, where)
        x, rois = node.input
        before = NodeBuilder(names, f"_of_{node.output[0] if node.output else rois}")
        if self._has_index(tensors.get(rois), where):
            index = before.op("Gather", rois, before.tensor(np.array(0)), axis=1)
            batch_indices = before.op("Cast", index, to=onnx.TensorProto.INT64)
            boxes = before.op("Gather", rois, before.tensor(np.arange(1, self.coordinates + 1)), axis=1)
        else:
            number = before.op("Gather", before.op("Shape", rois), before.tensor(np.array([0])), axis=0)
            zero = onnx.numpy_helper.from_array(np.zeros(1, np.int64))
            batch_indices, boxes = before.op("ConstantOfShape", number, value=zero), rois
        if self.degrees:
            kind = tensors[rois].elem_type if rois in tensors else onnx.TensorProto.UNDEFINED
            # caffe2 has this operator in float only.
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind or onnx.TensorProto.FLOAT)
            units = np.array([1.0] * (self.coordinates - 1) + [math.pi / 180]).astype(dtype)
            boxes = before.op("Mul", boxes, before.tensor(units))
        node.op_type, node.domain, node.overload = self.ours.name, DOMAIN, ""
        del node.input[:], node.attribute[:]
        node.input.extend([x, boxes, batch_indices])
        node.attribute.extend(attributes)
        return before.added

    def _attributes(self, node: onnx.NodeProto, where: str) -> list[onnx.AttributeProto]:
        """Return all attributes of this project's node; a reference stays one if its value needs no conversion."""
        present = {attribute.name: attribute for attribute in node.attribute}
        given = node_attribute_values(self.definition, node)
        rules = {rule.name: rule for rule in self.ours.attributes}
        made = {name: attribute_proto(rule, rule.default) for name, rule in rules.items()}
        for carried in self.attributes:
            rule, there = carried.rule, present.get(carried.rule.name)
            if there is None and self.complete:
                raise ValueError(f"{where}: has no {rule.name}: must have it, since {self.name} has no defaults")
            if there is not None and there.ref_attr_name:
                if carried.change or not carried.name:
                    raise ValueError(
                        f"{where}: {rule.name} refers to {there.ref_attr_name!r} of the function around it: "
                        f"must be a value, since {self.ours.name} has it in another form"
                    )
                made[carried.name] = _renamed(there, carried.name)
            elif carried.name:
                value = given.get(rule.name, rule.default)
                value = carried.change(value) if carried.change else value
                made[carried.name] = attribute_proto(rules[carried.name], value)
        return list(made.values())

    def _has_index(self, rois: onnx.TypeProto.Tensor | None, where: str) -> bool:
        """Whether rois has the batch index; assumed, as exporters write it, if the shape is unknown."""
        if rois is None or not rois.HasField("shape"):
            return True
        with_index, lengths = self.coordinates + 1, rois.shape.dim
        if len(lengths) != 2:
            raise ValueError(f"{where}: rois has {len(lengths)} axes: must have 2")
        found = lengths[1].dim_value if lengths[1].HasField("dim_value") else with_index
        if found == self.coordinates and self.optional_index:
            return False
        if found != with_index:
            rule = f"{self.coordinates} or {with_index}" if self.optional_index else str(with_index)
            raise ValueError(f"{where}: rois has {found} columns: must have {rule}")
        return True


def _renamed(attribute: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    made = onnx.AttributeProto()
    made.CopyFrom(attribute)
    made.name = name
    return made


def _same(ours: Operator, name: str, there: str = "", **changes: Any) -> AttributeMapping:
    """Map an attribute with the rule and the value of this project's, under the same name or `there`."""
    rule = next(attribute for attribute in ours.attributes if attribute.name == name)
    return AttributeMapping(replace(rule, name=there or name, **changes), name)


def _sampling_ratio(ours: Operator, default: int) -> AttributeMapping:
    """Map sampling_ratio, an int32 in those projects: there, all values up to 0 mean samples by the size of the RoI."""
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
    return ThirdPartyOperator(name, ours, attributes, coordinates, optional_index=True, degrees=degrees)


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
        # PyTorch's exporter writes the former; the latter is the namespace of the operators in PyTorch.
        ("org.pytorch._caffe2", _CAFFE2),
        ("_caffe2", _CAFFE2),
    )
    for operator in operators
}
"""The third-party operators, by domain and name."""

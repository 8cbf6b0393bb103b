# SPDX-License-Identifier: MIT
"""Operators of mmcv, mmdeploy, caffe2 and TensorRT's plugins: attributes, inputs, and this project's operators for them.

This module also has the table of all third-party operators, including those of `onnx_equivalents`, which ONNX's operators
compute.

In mmcv and caffe2 the batch index is the first column of the RoIs; here it is a separate input. caffe2's angles are in
degrees. The results of these operators differ from this project's in these cases:

- An empty bin is 0 here. mmcv's maximum is -10000 in its kernels for ONNX Runtime and the lowest float elsewhere, and
  caffe2's mean is NaN.
- An aligned RoI with a negative size has no samples here, or mirrored samples if sampling_ratio is above 0. mmcv on the CPU
  and caffe2 abort.
- A NaN pixel makes a maximum NaN here. mmcv ignores it.
- This project refuses RoIs that are not finite and batch indices out of range. mmcv and caffe2 read out of bounds.

Deformable attention's node is MMCVMultiScaleDeformableAttention of mmdeploy, and MultiscaleDeformableAttnPlugin_TRT, in a
domain that exporters choose, and whose output keeps the axis of heads. TensorRT's plugins take shapes in int32 alone.

Source: mmcv 1.2.6 to 2.2 (mmcv/ops/roi_align.py and roi_align_rotated.py, the kernels in mmcv/ops/csrc/onnxruntime of 1.7,
docs/en/deployment/onnxruntime_custom_ops.md); mmdeploy 1.3 (mmdeploy/mmcv/ops); detectron2 0.6 (detectron2/export/c10.py);
PyTorch 1.x (caffe2/operators/roi_align_op.cc and roi_align_rotated_op.cc and their headers); TensorRT 10
(plugin/multiscaleDeformableAttnPlugin).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ortops.compute import Bound
from ortops.foreign.onnx_equivalents import ONNX_EQUIVALENTS, OnnxEquivalent
from ortops.operators import BY_NAME
from ortops.operators.roi_align import AXES
from ortops.spec import Allocate, Attribute, AttributeValue, Compute, Operator, Tensor, flag


@dataclass(frozen=True, slots=True)
class AttributeMapping:
    """How a third-party operator's attribute becomes an attribute of this project's operator.

    rule: the attribute's name, type, default and rule in the third-party operator.
    name: the attribute of this project's operator; "" if it has no such attribute.
    change: converts the value; None if the values are equal.
    """

    rule: Attribute
    name: str = ""
    change: Callable[[AttributeValue], AttributeValue] | None = None

    def value(self, given: Mapping[str, AttributeValue]) -> AttributeValue:
        """The value for this project's operator, from a node's attributes by name."""
        value = given.get(self.rule.name, self.rule.default)
        return self.change(value) if self.change else value


@dataclass(frozen=True, slots=True)
class ThirdPartyOperator:
    """Another project's operator with the inputs X and rois.

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
    domain: str = ""

    @property
    def definition(self) -> Operator:
        """The operator's definition: its attributes with their rules, and rois with the batch index as first column."""
        sizes = {carried.name: carried.rule.name for carried in self.attributes}
        return Operator(
            self.name,
            self.ours.family,
            self.ours.function,
            self.ours.doc,
            tuple(
                replace(carried.rule, default=None, required=True) if self.complete else carried.rule
                for carried in self.attributes
            ),
            (
                Tensor("X", "T1", AXES["X"]),
                # If two numbers of columns are allowed, the check runs when a node is computed.
                Tensor("rois", "T1", ("num_rois", "columns" if self.optional_index else self.coordinates + 1)),
            ),
            (Tensor("Y", "T1", ("num_rois", "C", sizes["output_height"], sizes["output_width"])),),
            self.ours.types,
            gradient=self.ours.gradient,
            domain=self.domain,
        )

    @property
    def numbers_of_columns(self) -> tuple[int, ...]:
        """The numbers of columns that rois may have."""
        return (self.coordinates,) * self.optional_index + (self.coordinates + 1,)

    def units(self, dtype: Any) -> np.ndarray[Any, Any]:
        """The factors for the columns after the batch index if the last column is in degrees."""
        return np.array([1.0] * (self.coordinates - 1) + [math.pi / 180]).astype(dtype)

    def bind(self, _: Operator, attributes: Mapping[str, AttributeValue], __: object = None) -> Compute:
        """Make the function that computes a node: it splits rois and calls this project's operator.

        Args:
            attributes: the node's checked attributes.
        """
        values = {carried.name: carried.value(attributes) for carried in self.attributes if carried.name}
        bound = Bound(self.ours, self.ours.check_attributes(values))

        def run(inputs: Sequence[Any], allocate: Allocate, runner: tuple[int, int] | None) -> None:
            x, rois = inputs
            bound([x, *self._split(rois, *x.shape[:1])], allocate, runner)

        return run

    def _split(self, rois: np.ndarray[Any, Any], images: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The columns after the batch index, with the angle in radians, and the batch indices.

        Raises:
            ValueError: rois has a wrong shape, or a batch index is not a whole number >= 0 and < `images`.
        """
        allowed = self.numbers_of_columns
        if rois.ndim != 2 or rois.shape[1] not in allowed:
            rule = " or ".join(map(str, allowed))
            raise ValueError(f"rois has shape {list(rois.shape)}: must have 2 axes, and {rule} columns")
        first = rois.shape[1] - self.coordinates
        boxes = np.ascontiguousarray(rois[:, first:])
        if self.degrees:
            boxes = boxes * self.units(boxes.dtype)
        if not first:
            return boxes, np.zeros(len(rois), np.int64)
        # A copy, which no other thread changes. Platforms convert NaN and large numbers to different integers.
        indices = rois[:, 0].astype(np.float64)
        for i in np.flatnonzero(~((indices >= 0) & (indices < images) & (indices == np.floor(indices))))[:1]:
            raise ValueError(
                f"rois[{i}, 0] = {indices[i]}: the batch index must be a whole number >= 0 and < {images}, the number of "
                "images"
            )
        return boxes, indices.astype(np.int64)


@dataclass(frozen=True, slots=True)
class AttentionNode:
    """Another project's operator for MSDeformAttn, with its inputs.

    attributes: attributes with their rules, which change no result.
    keeps_heads: whether the output is [N, Q, M, D] instead of [N, Q, M*D].
    """

    name: str
    attributes: tuple[Attribute, ...]
    keeps_heads: bool = False
    domain: str = ""

    @property
    def ours(self) -> Operator:
        """This project's operator."""
        return _ATTENTION

    @property
    def definition(self) -> Operator:
        """The operator's definition: that of MSDeformAttn, with these attributes and lengths in int64 or int32."""
        inputs = tuple(
            replace(tensor, type="T2", optional=False) if tensor.type == "int64" else tensor
            for tensor in _ATTENTION.inputs
        )
        output = replace(
            _ATTENTION.outputs[0], shape=("N", "Q", "M", "D") if self.keeps_heads else ("N", "Q", "channels")
        )
        return replace(
            _ATTENTION,
            name=self.name,
            domain=self.domain,
            attributes=self.attributes,
            inputs=inputs,
            outputs=(output,),
            types={**_ATTENTION.types, "T2": ("int64", "int32")},
        )

    def bind(self, _: Operator, attributes: Mapping[str, AttributeValue], __: object = None) -> Compute:  # noqa: ARG002
        """Make the function that computes a node by MSDeformAttn."""
        bound, keeps_heads = Bound(_ATTENTION, {}), self.keeps_heads

        def run(inputs: Sequence[Any], allocate: Allocate, runner: tuple[int, int] | None) -> None:
            value, shapes, starts, locations, weights = inputs

            def allocate_flat(index: int, shape: tuple[int, ...]) -> Any:
                heads = (*shape[:2], *value.shape[2:])
                return allocate(index, heads).reshape(shape) if keeps_heads else allocate(index, shape)

            lengths = [tensor.astype(np.int64) for tensor in (shapes, starts)]
            bound([value, *lengths, locations, weights], allocate_flat, runner)

        return run


Foreign: TypeAlias = ThirdPartyOperator | OnnxEquivalent | AttentionNode
"""A third-party operator."""


def _same(ours: Operator, name: str, there: str = "", **changes: Any) -> AttributeMapping:
    """Map an attribute that has this project's rule and value, under the same name or `there`."""
    rule = next(attribute for attribute in ours.attributes if attribute.name == name)
    return AttributeMapping(replace(rule, name=there or name, **changes), name)


def _sampling_ratio(ours: Operator, default: int) -> AttributeMapping:
    """Map sampling_ratio, an int32 in those projects, where all values up to 0 mean samples by the RoI's size."""
    carried = _same(ours, "sampling_ratio", default=default, minimum=-(2**31))
    return replace(carried, change=lambda value: max(value, 0))


_ROI_ALIGN, _ROTATED, _ATTENTION = BY_NAME["RoiAlign_22"], BY_NAME["RoIAlignRotated"], BY_NAME["MSDeformAttn"]

_PIXELS = AttributeMapping(
    flag("aligned", 0),
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

_PLUGIN = AttentionNode(
    "MultiscaleDeformableAttnPlugin_TRT",
    tuple(Attribute(name, "STRING", "") for name in ("plugin_version", "plugin_namespace")),
    keeps_heads=True,
)
_OPEN_MMLAB: tuple[Foreign, ...] = (
    *_MMCV,
    *ONNX_EQUIVALENTS,
    AttentionNode("MMCVMultiScaleDeformableAttention", (Attribute("im2col_step", "INT", 64, minimum=1),)),
)

THIRD_PARTY: Mapping[tuple[str, str], Foreign] = {
    (domain, operator.name): replace(operator, domain=domain)
    for domains, operators in (
        (("mmcv", "mmdeploy"), _OPEN_MMLAB),
        # PyTorch's exporter writes the first; the second is the operators' namespace in PyTorch.
        (("org.pytorch._caffe2", "_caffe2"), _CAFFE2),
        # TensorRT's parser looks at the name alone. NVIDIA's TAO writes "nvidia".
        (("", "TRT", "trt", "nvidia"), (_PLUGIN,)),
    )
    for domain in domains
    for operator in operators
}
"""The third-party operators, by domain and name."""

THIRD_PARTY_DEFINITIONS: Mapping[tuple[str, str], Operator] = {
    identity: operator.definition for identity, operator in THIRD_PARTY.items()
}
"""The third-party operators' definitions, by domain and name."""

# SPDX-License-Identifier: MIT
"""Translations to ONNX of PyTorch operators that PyTorch's exporter lacks or translates wrongly.

A translation has the arguments of its operator in order. The exporter passes arguments that are annotated as numbers, or
sequences of numbers, as such. It passes those annotated as Any as values of the graph, or as numbers if they are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnxscript
import torch
from onnxscript import FLOAT, opset19
from onnxscript import opset18 as op
from onnxscript.values import Opset

from onnx_models.tools.schema import register_schemas
from onnx_models.torch import detectors  # noqa: F401 - declares an operator
from ortops.spec import DOMAIN, DOMAIN_VERSION
from ortops.torch.operators import attributes_of_ps_roi_align, attributes_of_roi_align, attributes_of_rotated

_NONE, _MEAN = 0, 1
"""PyTorch's numbers for the reductions of a loss; the third is the sum."""

_MAX = 2**63 - 1
"""The number of boxes that NonMaxSuppression may keep: all of them."""


def translation_table(*, standard: bool = True) -> dict[Any, Callable[..., Any]]:
    """Translations for ``torch.onnx.export(..., dynamo=True, custom_translation_table=translation_table())``.

    They are for modules that call `ortops.torch` and torchvision; `export` does not need them.

    - ``ortops::roi_align``, ``torchvision::roi_align``: ONNX's RoiAlign of opset 16.
    - ``ortops::roi_pool``, ``torchvision::roi_pool``: ONNX's MaxRoiPool. Of the latter only the first output is written.
    - ``ortops::ps_roi_align``, ``torchvision::ps_roi_align``: this project's PSRoIAlign. Of the latter only the first
      output is written.
    - ``ortops::roi_align_rotated``: this project's RoIAlignRotated.
    - ``ortops::ms_deform_attn``: this project's MSDeformAttn.
    - ``torchvision::nms``: ONNX's NonMaxSuppression, in float32.
    - ``torchvision::deform_conv2d``: ONNX's DeformConv, which needs opset 19.
    - ``ortops::heatmaps_to_keypoints``: a Loop over the RoIs of Keypoint R-CNN; see `exportable_detectors`.
    - ``aten::nll_loss_forward`` and ``aten::nll_loss2d_forward`` (of ``cross_entropy``): with the correct total weight. With
      the exporter's own translation, the gradient of a mean over n rows is n times too large, without an error.

    Args:
        standard: False for this project's RoiAlign_16 instead of ONNX's RoiAlign. ONNX Runtime's CPU has no kernel for
            version 22 of the latter, which later opsets convert to.

    Source: PyTorch 2.13, ``torch.onnx.export`` and ``derivatives.yaml``; ONNX operator specification.
    """
    register_schemas()
    roi_align = _roi_align(op.RoiAlign if standard else _ours().RoiAlign_16)
    table: dict[Any, Callable[..., Any]] = {
        torch.ops.ortops.roi_align.default: roi_align,
        torch.ops.ortops.roi_align_rotated.default: _roi_align_rotated,
        torch.ops.ortops.ps_roi_align.default: _ps_roi_align,
        torch.ops.ortops.roi_pool.default: _roi_pool,
        torch.ops.ortops.ms_deform_attn.default: _ms_deform_attn,
        torch.ops.ortops.heatmaps_to_keypoints.default: _heatmaps_to_keypoints,
        torch.ops.aten.nll_loss_forward.default: _nll_loss_forward,
        torch.ops.aten.nll_loss2d_forward.default: _nll_loss_forward,
    }
    of_torchvision: dict[str, Callable[..., Any]] = {
        "roi_align": roi_align,
        "roi_pool": _with_unused(_roi_pool),
        "ps_roi_align": _with_unused(_ps_roi_align),
        "nms": _nms,
        "deform_conv2d": _deform_conv2d,
    }
    for name, translation in of_torchvision.items():  # those that torchvision has declared, if it was imported
        operator = getattr(torch.ops.torchvision, name, None)
        if operator is not None:
            table[operator.default] = translation
    return table


def _ours() -> Any:
    """This project's operators for onnxscript, which requires registered schemas."""
    return Opset(DOMAIN, DOMAIN_VERSION)


def _roi_align(operator: Callable[..., Any]) -> Callable[..., Any]:
    """The translation of roi_align to one of the operators that compute it."""

    def roi_align(
        x: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int = -1, aligned: bool = False
    ) -> Any:
        attributes = attributes_of_roi_align(scale, sampling_ratio, aligned)
        boxes = _boxes_and_images(rois)
        return operator(x, *boxes, mode="avg", output_height=height, output_width=width, **attributes)

    return roi_align


def _roi_align_rotated(
    x: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int, aligned: bool, clockwise: bool
) -> Any:
    attributes = attributes_of_rotated(scale, sampling_ratio, aligned, clockwise)
    boxes = _boxes_and_images(rois)
    return _ours().RoIAlignRotated(x, *boxes, output_height=height, output_width=width, **attributes)


def _ps_roi_align(x: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int) -> Any:
    attributes = attributes_of_ps_roi_align(scale, sampling_ratio)
    return _ours().PSRoIAlign(x, *_boxes_and_images(rois), output_height=height, output_width=width, **attributes)


def _roi_pool(x: Any, rois: Any, scale: float, height: int, width: int) -> Any:
    return op.MaxRoiPool(x, rois, pooled_shape=[height, width], spatial_scale=scale)


def _ms_deform_attn(value: Any, locations: Any, weights: Any, shapes: Any, start: Any = None) -> Any:
    return _ours().MSDeformAttn(value, shapes, start, locations, weights)


def _ms_deform_attn_symbolic(graph: Any, value: Any, locations: Any, weights: Any, shapes: Any, start: Any) -> Any:
    y = graph.op(f"{DOMAIN}::MSDeformAttn", value, shapes, start, locations, weights)
    return y.setType(value.type().with_sizes([None, None, None]))


# The exporter of TorchScript (`dynamo=False`) takes no table.
torch.onnx.register_custom_op_symbolic("ortops::ms_deform_attn", _ms_deform_attn_symbolic, 9)


def _with_unused(translation: Callable[..., Any]) -> Callable[..., Any]:
    """With a second output, which torchvision keeps for the gradient: the exporter requires a value."""

    @functools.wraps(translation)
    def with_unused(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return translation(*args, **kwargs), _ints([])

    return with_unused


def _nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    boxes = op.Unsqueeze(op.Cast(boxes, to=onnx.TensorProto.FLOAT), [0])
    scores = op.Unsqueeze(op.Cast(scores, to=onnx.TensorProto.FLOAT), [0, 1])
    kept = op.NonMaxSuppression(boxes, scores, _ints([_MAX]), op.Constant(value_floats=[iou_threshold]))
    return op.Squeeze(op.Slice(kept, [2], [3], [1]), [1])  # of image, class and box


def _deform_conv2d(
    x: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_height: int,
    stride_width: int,
    pad_height: int,
    pad_width: int,
    dilation_height: int,
    dilation_width: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    return opset19.DeformConv(
        *(x, weight, offset, bias, mask if use_mask else None),
        strides=[stride_height, stride_width],
        pads=[pad_height, pad_width] * 2,
        dilations=[dilation_height, dilation_width],
        group=groups,
        offset_group=offset_groups,
    )


def _heatmaps_to_keypoints(maps: Any, rois: Any) -> tuple[Any, Any]:
    float32 = onnx.TensorProto.FLOAT
    keypoints, scores = _keypoints(op.Cast(maps, to=float32), op.Cast(rois, to=float32))
    return op.CastLike(keypoints, maps), op.CastLike(scores, maps)


@onnxscript.script()  # type: ignore[untyped-decorator]
def _keypoints(maps: FLOAT[...], rois: FLOAT[...]) -> tuple[FLOAT[...], FLOAT[...]]:
    """Places of the maxima of heat maps [K, N, M, M], each resized to its RoI: [K, N, 3], and the maxima [K, N]."""
    first, second = op.Constant(value_ints=[0]), op.Constant(value_ints=[1])
    count = op.Shape(maps, start=1, end=2)
    lows = op.Slice(rois, first, op.Constant(value_ints=[2]), second)
    sizes = op.Max(op.Sub(op.Slice(rois, op.Constant(value_ints=[2]), op.Constant(value_ints=[4]), second), lows), 1.0)
    found = op.ConstantOfShape(op.Concat(first, count, op.Constant(value_ints=[3]), axis=0))
    scores = op.ConstantOfShape(op.Concat(first, count, axis=0))
    for i in range(op.Squeeze(op.Shape(rois, start=0, end=1))):
        size = op.Gather(sizes, i)
        pixels = op.Ceil(size)
        height_and_width = op.Cast(op.Gather(pixels, op.Constant(value_ints=[1, 0])), to=7)
        shape = op.Concat(second, count, height_and_width, axis=0)
        one_map = op.Unsqueeze(op.Gather(maps, i), first)
        resized = op.Resize(one_map, None, None, shape, mode="cubic", cubic_coeff_a=-0.75)
        flat = op.Reshape(resized, op.Concat(count, op.Constant(value_ints=[-1]), axis=0))
        place = op.ArgMax(flat, axis=1, keepdims=1)
        width = op.Gather(height_and_width, second)
        places = op.Cast(op.Concat(op.Mod(place, width), op.Div(place, width), axis=1), to=1)
        centers = op.Mul(op.Add(places, 0.5), op.Div(size, pixels))
        points = op.Pad(op.Add(centers, op.Gather(lows, i)), op.Constant(value_ints=[0, 0, 0, 1]), 1.0)
        found = op.Concat(found, op.Unsqueeze(points, first), axis=0)
        scores = op.Concat(scores, op.Transpose(op.GatherElements(flat, place, axis=1), perm=[1, 0]), axis=0)
    return found, scores


def _boxes_and_images(rois: Any) -> tuple[Any, Any]:
    """The numbers [K, n] and the indices of images [K] of RoIs [K, 1 + n]."""
    images = op.Squeeze(op.Slice(rois, [0], [1], [1]), [1])
    return op.Slice(rois, [1], [6], [1]), op.Cast(images, to=onnx.TensorProto.INT64)


def _ints(values: Sequence[int]) -> Any:
    return op.Constant(value_ints=list(values))


def _nll_loss_forward(scores: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> tuple[Any, Any]:
    """The loss, and the total weight of all targets, which a mean and its gradient are divided by.

    Composed of Gather instead of NegativeLogLikelihoodLoss, so that every runtime with a gradient of Gather has one.
    """
    classes = min(len(scores.shape) - 1, 1)  # the axis: scores [N, C, ...] and target [N, ...], or [C] and []
    counts = op.Not(op.Equal(target, op.Constant(value_int=ignore_index)))
    index = op.Where(counts, target, op.Constant(value_int=0))
    axis = _ints([classes])
    picked = op.Squeeze(op.GatherElements(scores, op.Unsqueeze(index, axis), axis=classes), axis)
    weights = op.CastLike(counts, scores)
    if weight is not None:
        weights = op.Mul(weights, op.Gather(weight, index))
    losses = op.Where(counts, op.Neg(op.Mul(picked, weights)), op.CastLike(op.Constant(value_float=0.0), scores))
    total = op.ReduceSum(weights, keepdims=0)
    if reduction == _NONE:
        return losses, total
    loss = op.ReduceSum(losses, keepdims=0)
    return (op.Div(loss, total) if reduction == _MEAN else loss), total

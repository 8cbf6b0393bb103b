# SPDX-License-Identifier: MIT
"""Functions of torchvision's detectors in a form that torch.export can capture.

Each replacement has the signature of the function that it replaces, and its results where that has any. It also works
without boxes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch.nn import functional


@contextlib.contextmanager
def exportable_detectors() -> Iterator[None]:
    """While the context is open, torchvision's detectors lack the data-dependent branches that torch.export refuses.

        detector(images)  # once, so that Faster, Mask and Keypoint R-CNN know the scales of their feature maps
        with onnx_models.torch.exportable_detectors():
            torch.onnx.export(detector, ..., dynamo=True, custom_translation_table=onnx_models.torch.translation_table())

    Without it, ``torch.onnx.export(dynamo=True)`` stops at "Could not guard on data-dependent expression", whatever the
    translations. For inference: losses stay as they are. The whole process sees the replacements, but only exports use them.

    Raises:
        ImportError: there is no torchvision.

    Source: torchvision 0.28; https://github.com/pytorch/vision/issues/9306, https://github.com/pytorch/vision/pull/9395.
    """
    with contextlib.ExitStack() as stack:
        for path, replacement in _replacements().items():
            module, _, name = path.partition(":")
            owner: Any = importlib.import_module(f"torchvision.{module}")
            *parents, name = name.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            stack.enter_context(mock.patch.object(owner, name, _in_exports(replacement, getattr(owner, name))))
        yield


def _in_exports(replacement: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def one_of_both(*args: Any, **kwargs: Any) -> Any:
        return (replacement if torch.compiler.is_exporting() else theirs)(*args, **kwargs)

    return one_of_both


def _replacements() -> Mapping[str, Callable[..., Any]]:
    """The replacements, by torchvision module and name."""
    return {
        "ops.boxes:batched_nms": _batched_nms,
        "ops.poolers:_setup_scales": _setup_scales,
        "ops.poolers:_multiscale_roi_align": _multiscale_roi_align,
        "models.detection.transform:_resize_image_and_masks": _resize_image,
        "models.detection.transform:GeneralizedRCNNTransform.batch_images": _batch_images,
        "models.detection._utils:BoxCoder.decode": _decode,
        "models.detection.transform:paste_masks_in_image": _paste_masks_in_image,
        "models.detection.roi_heads:heatmaps_to_keypoints": torch.ops.ortops.heatmaps_to_keypoints,
    }


def _batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
    """Non-maximum suppression within each class: each class's boxes are first moved away from the others."""
    nms = importlib.import_module("torchvision.ops.boxes").nms
    reach = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max() + 1
    return nms(boxes + (idxs.to(boxes.dtype) * reach)[:, None], scores, iou_threshold)


def _setup_scales(*args: Any) -> Any:  # noqa: ARG001
    raise ValueError("MultiScaleRoIAlign has no scales: the detector must have run once before it is exported")


def _multiscale_roi_align(
    x_filtered: Sequence[Any],
    boxes: Sequence[Any],
    output_size: Sequence[int],
    sampling_ratio: int,
    scales: Sequence[float],
    mapper: Callable[[Sequence[Any]], Any],
) -> Any:
    """RoiAlign of each RoI at its level of the feature pyramid."""
    poolers: Any = importlib.import_module("torchvision.ops.poolers")
    rois = torch.cat([functional.pad(regions, (1, 0), value=image) for image, regions in enumerate(boxes)])
    if len(x_filtered) == 1:
        return poolers.roi_align(x_filtered[0], rois, output_size, scales[0], sampling_ratio)
    levels = mapper(boxes)
    pooled = x_filtered[0].new_zeros(rois.shape[0], x_filtered[0].shape[1], *output_size)
    for level, (x, scale) in enumerate(zip(x_filtered, scales, strict=False)):
        (places,) = torch.where(levels == level)
        pooled = pooled.index_copy(0, places, poolers.roi_align(x, rois[places], output_size, scale, sampling_ratio))
    return pooled


def _resize_image(
    image: Any,
    self_min_size: int,
    self_max_size: int,
    target: None = None,
    fixed_size: Sequence[int] | None = None,
) -> tuple[Any, None]:
    """The image, resized, without targets. Quotients are of floats: PyTorch cannot write a check of integers' quotients."""
    height, width = image.shape[-2:]
    if fixed_size is not None:
        size = [fixed_size[1], fixed_size[0]]
    else:
        shorter, longer = torch.sym_min(height, width), torch.sym_max(height, width)
        scale = torch.sym_min(self_min_size / torch.sym_float(shorter), self_max_size / torch.sym_float(longer))
        size = [math.floor(torch.sym_float(length) * scale) for length in (height, width)]
    resized = functional.interpolate(image[None], size, mode="bilinear", align_corners=False)
    return resized[0], target


def _batch_images(transform: Any, images: Sequence[Any], size_divisible: int = 32) -> Any:  # noqa: ARG001
    """Images of any sizes as one tensor, with zeros to the right and below up to a multiple."""
    height, width = (
        (functools.reduce(torch.sym_max, sizes) + size_divisible - 1) // size_divisible * size_divisible
        for sizes in zip(*(image.shape[-2:] for image in images), strict=True)
    )
    padded = [functional.pad(one, (0, width - one.shape[-1], 0, height - one.shape[-2])) for one in images]
    return torch.stack(padded)


def _decode(coder: Any, rel_codes: Any, boxes: Sequence[Any]) -> Any:
    """Boxes [K, classes, 4]."""
    decoded = coder.decode_single(rel_codes, torch.cat(list(boxes)))
    return decoded.reshape(decoded.shape[0], decoded.shape[1] // 4, 4)


def _paste_masks_in_image(masks: Any, boxes: Any, img_shape: Sequence[Any], padding: int = 1) -> Any:
    """Masks [K, 1, M, M], each resized to its box, in images of zeros [K, 1, H, W]: one bilinear sample for each pixel."""
    roi_heads: Any = importlib.import_module("torchvision.models.detection.roi_heads")
    padded, scale = roi_heads.expand_masks(masks, padding)
    boxes = roi_heads.expand_boxes(boxes, scale).to(torch.int64)
    places, inside = zip(
        *(_places(length, boxes[:, i], boxes[:, i + 2]) for i, length in enumerate(reversed(img_shape))), strict=True
    )
    height, width = img_shape
    x, y = places[0][:, None, :].expand(-1, height, -1), places[1][:, :, None].expand(-1, -1, width)
    values = functional.grid_sample(padded, torch.stack([x, y], 3), padding_mode="border", align_corners=False)
    return values * (inside[0][:, None, :] & inside[1][:, :, None])[:, None].to(values.dtype)


def _places(length: Any, first: Any, last: Any) -> tuple[Any, Any]:
    """The places of pixels in the masks, from -1 to 1 [K, length], and whether each pixel is in the box."""
    pixels = torch.arange(length)
    sizes = (last - first + 1).clamp(min=1)
    places = ((pixels - first[:, None]).to(torch.float32) + 0.5) / sizes[:, None] * 2 - 1
    return places, (pixels >= first[:, None]) & (pixels <= last[:, None])


_library = torch.library.Library("ortops", "FRAGMENT")
"""Kept alive, since PyTorch removes the operators of a library that is garbage-collected."""

_library.define("heatmaps_to_keypoints(Tensor maps, Tensor rois) -> (Tensor, Tensor)")


def _heatmaps_to_keypoints(maps: Any, rois: Any) -> tuple[Any, Any]:
    """Empty results of the operator's shapes: keypoints [K, N, 3] and scores [K, N], from maps [K, N, M, M], RoIs [K, 4].

    The operator resizes each map to its RoI, so an export needs a loop whose body has sizes that depend on data, which
    PyTorch's own loops must not have. It exists only for exports.
    """
    return maps.new_empty(rois.shape[0], maps.shape[1], 3), maps.new_empty(rois.shape[0], maps.shape[1])


torch.library.register_fake("ortops::heatmaps_to_keypoints", _heatmaps_to_keypoints, lib=_library)

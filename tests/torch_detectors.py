"""torchvision's detectors, small and with random weights.

Importing it skips the test module where torchvision is missing.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torchvision_operators", reason="needs torchvision")

import torch
from torchvision import ops
from torchvision.models import detection, resnet
from torchvision.models.detection import anchor_utils, backbone_utils, faster_rcnn, keypoint_rcnn, mask_rcnn

CLASSES, KEYPOINTS = 4, 5
LEVELS = ("0", "1", "2")
HEIGHT, WIDTH = 64, 96
"""What images are resized to, about; each side is a multiple of 32."""


def backbone(channels: int = 16) -> Any:
    """A residual network of one block a stage and its feature pyramid: maps of a quarter, an eighth, ... of the image."""
    body = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], norm_layer=ops.FrozenBatchNorm2d)
    stages = {"layer1": "0", "layer2": "1", "layer3": "2"}
    return backbone_utils.BackboneWithFPN(body, stages, [64, 128, 256], channels)


def pooler(size: int, canonical_scale: int = 18) -> Any:
    """RoiAlign of three levels: RoIs of the canonical scale and larger are on the coarsest, of under half on the finest."""
    return ops.MultiScaleRoIAlign(LEVELS, size, 2, canonical_scale=canonical_scale)


def detector() -> Any:
    """Mask R-CNN with keypoints, in evaluation mode, with weights that make scores differ and boxes of several sizes."""
    torch.manual_seed(0)
    anchors = anchor_utils.AnchorGenerator(((8,), (16,), (32,), (64,)), ((0.5, 1.0, 2.0),) * 4)
    proposals = {
        f"rpn_{when}_nms_top_n_{mode}": n for mode in ("train", "test") for when, n in (("pre", 20), ("post", 20))
    }
    module = detection.MaskRCNN(
        backbone(),
        min_size=HEIGHT,
        max_size=WIDTH,
        rpn_anchor_generator=anchors,
        box_roi_pool=pooler(7),
        # With torchvision's own canonical scale all RoIs are on the finest level, and the other RoiAligns have none.
        mask_roi_pool=pooler(14, canonical_scale=224),
        box_detections_per_img=6,
        **proposals,
        **parts("box"),
        **parts("mask"),
    )
    for part, value in {"keypoint_roi_pool": pooler(14), **parts("keypoint")}.items():
        setattr(module.roi_heads, part, value)
    with torch.no_grad():
        module.rpn.head.cls_logits.weight *= 100
        module.rpn.head.bbox_pred.weight *= 100
        _balance(module.eval(), module.roi_heads.box_predictor.cls_score)
    return module


def _balance(module: Any, layer: Any) -> None:
    """Let the scores of each class have the same mean and deviation over the RoIs of some images."""
    found: list[Any] = []
    hook = layer.register_forward_hook(lambda _, args, scores: found.append(scores))  # noqa: ARG005
    module([image(HEIGHT, WIDTH) for _ in range(4)])
    hook.remove()
    deviation, mean = torch.std_mean(found[0], 0)
    layer.weight /= deviation.unsqueeze(1)
    layer.bias -= mean
    layer.bias /= deviation


def parts(name: str, channels: int = 16) -> dict[str, Any]:
    """Head and predictor of boxes, masks or keypoints, by the names of their arguments."""
    if name == "box":
        made = faster_rcnn.TwoMLPHead(channels * 7 * 7, 32), faster_rcnn.FastRCNNPredictor(32, CLASSES)
    elif name == "mask":
        made = mask_rcnn.MaskRCNNHeads(channels, (8, 8), 1), mask_rcnn.MaskRCNNPredictor(8, 8, CLASSES)
    else:
        made = keypoint_rcnn.KeypointRCNNHeads(channels, (8, 8)), keypoint_rcnn.KeypointRCNNPredictor(8, KEYPOINTS)
    return {f"{name}_head": made[0], f"{name}_predictor": made[1]}


def image(height: int, width: int) -> Any:
    """Random areas of some pixels."""
    coarse = torch.rand(1, 3, height // 8, width // 8)
    return torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]

# SPDX-License-Identifier: MIT
"""torchvision's detectors, exported by both of PyTorch's exporters, converted and differentiated.

What is converted is compared with stock ONNX Runtime on the model as it was exported, gradients with PyTorch's autograd. See
`torchvision_operators` for what computes PyTorch's side where torchvision's compiled operators are missing.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
import onnx
import onnxruntime
import pytest

pytest.importorskip("torchvision_operators", reason="needs torchvision")

import torch
from torch.nn import functional
from torch.utils import _pytree as pytree
from torchvision import ops
from torchvision.models import detection, resnet
from torchvision.models.detection import (
    anchor_utils,
    backbone_utils,
    faster_rcnn,
    keypoint_rcnn,
    mask_rcnn,
    ssd,
)

import ortops
from onnx_models import convert, gradient
from onnx_models.torch import exportable_detectors, translation_table
from torch_checks import QUIET
from torchvision_operators import compiled_or_not

pytestmark = QUIET

Problem: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
"""Inputs and PyTorch's outputs."""


CLASSES, KEYPOINTS = 4, 5
LEVELS = ("0", "1", "2")
HEIGHT, WIDTH = 64, 96
"""What images are resized to, about; each side is a multiple of 32."""


def backbone() -> Any:
    """A residual network of one block a stage and its feature pyramid: maps of a quarter, an eighth, ... of the image."""
    body = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], norm_layer=ops.FrozenBatchNorm2d)
    stages = {"layer1": "0", "layer2": "1", "layer3": "2"}
    return backbone_utils.BackboneWithFPN(body, stages, [64, 128, 256], 16)


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
    actual: list[Any] = []
    hook = layer.register_forward_hook(lambda _, args, scores: actual.append(scores))  # noqa: ARG005
    module([image(HEIGHT, WIDTH) for _ in range(4)])
    hook.remove()
    deviation, mean = torch.std_mean(actual[0], 0)
    layer.weight /= deviation.unsqueeze(1)
    layer.bias -= mean
    layer.bias /= deviation


def parts(name: str) -> dict[str, Any]:
    """Head and predictor of boxes, masks or keypoints, by the names of their arguments."""
    if name == "box":
        layers = faster_rcnn.TwoMLPHead(16 * 7 * 7, 32), faster_rcnn.FastRCNNPredictor(32, CLASSES)
    elif name == "mask":
        layers = mask_rcnn.MaskRCNNHeads(16, (8, 8), 1), mask_rcnn.MaskRCNNPredictor(8, 8, CLASSES)
    else:
        layers = keypoint_rcnn.KeypointRCNNHeads(16, (8, 8)), keypoint_rcnn.KeypointRCNNPredictor(8, KEYPOINTS)
    return {f"{name}_head": layers[0], f"{name}_predictor": layers[1]}


def image(height: int, width: int) -> Any:
    """Random areas of some pixels."""
    coarse = torch.rand(1, 3, height // 8, width // 8)
    return torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]


@pytest.fixture(autouse=True, scope="module")
def _operators() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other where tests run side by side
    with compiled_or_not():
        yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def smooth_l1(x: Any, y: Any, beta: float, reduction: str) -> Any:
    """PyTorch's loss, which the older exporter does not know."""
    assert reduction == "sum"
    distance = (x - y).abs()
    return torch.where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta).sum()


IN_TRAINING = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
"""With which parameters stay as they are, with their names."""


def by_torchscript(
    module: Any, args: Sequence[Any], opset: int, inputs: Sequence[str], outputs: Sequence[str], **options: Any
) -> onnx.ModelProto:
    """The model that the older exporter writes, which warns of all that it takes for constants."""
    file = io.BytesIO()
    with warnings.catch_warnings(), mock.patch.object(functional, "smooth_l1_loss", smooth_l1):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(args),
            file,
            dynamo=False,
            opset_version=opset,
            input_names=list(inputs),
            output_names=list(outputs),
            **options,
        )
    return onnx.load_from_string(file.getvalue())


def with_pooled(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    """A copy of the model with what each RoiAlign gives as further outputs, and their names."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    names = [node.output[0] for node in model.graph.node if node.op_type == "RoiAlign"]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * 4) for name in names
    )
    return model, names


def session(runtime: Any, model: onnx.ModelProto) -> Any:
    """Of ortops or of onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def assert_runs_as_stock(model: onnx.ModelProto, problems: Sequence[Problem]) -> Any:
    """Converted, the model gives what stock ONNX Runtime gives of it as it is, and both what PyTorch gives.

    Args:
        model: as exported.
        problems: each the inputs and PyTorch's outputs, in the model's order.

    Returns:
        How many RoIs each RoiAlign had, for each problem.
    """
    model, pooled = with_pooled(model)
    ours, theirs = session(ortops, convert(model)), session(onnxruntime, model)
    names = [value.name for value in model.graph.output]
    counts = []
    for inputs, expected in problems:
        feeds = {value.name: tensor.numpy() for value, tensor in zip(model.graph.input, inputs, strict=True)}
        actual, wanted = (dict(zip(names, runner.run(names, feeds), strict=True)) for runner in (ours, theirs))
        for name in names:
            assert_near(actual[name], wanted[name], f"{name}, converted against stock")
        for name, (key, tensor) in zip(names[: len(expected)], expected.items(), strict=True):
            assert_near(actual[name], tensor.numpy(), f"{key}, against PyTorch")
        counts.append([len(wanted[name]) for name in pooled])
    return counts


def assert_near(actual: Any, wanted: Any, name: str) -> None:
    """Of coordinates up to 100 and values of at most about 1, in float32."""
    assert actual.shape == wanted.shape, name
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4, err_msg=name)


def test_a_detector_of_the_torchscript_exporter_runs_converted() -> None:
    module = detector()
    torch.manual_seed(1)
    problems: list[Problem] = []
    for size in ((60, 80), (50, 75)):  # heights and widths are open
        args = [image(*size)]
        with torch.no_grad():
            (actual,) = module(args)
        assert len(actual["boxes"])
        problems.append((args, actual))
    axes = {"image": {1: "height", 2: "width"}}
    model = by_torchscript(module, [list(args)], 16, ["image"], list(actual), dynamic_axes=axes)
    kinds = [node.op_type for node in convert(model).graph.node if "RoiAlign" in node.op_type]
    assert kinds == ["RoiAlign_16"] * len(LEVELS) * 3
    boxes, masks, keypoints = np.split(np.sum(assert_runs_as_stock(model, problems), 0), 3)
    assert boxes.all()
    assert (masks > 0).tolist() == [True, False, False]
    assert keypoints.any()


def boxes_in(count: int) -> Any:
    """Boxes [count, 4] in an image, in turn of each level's size."""
    sides = torch.tensor([5.0, 11.0, 22.0])[torch.arange(count) % 3, None] * (0.8 + 0.4 * torch.rand(count, 2))
    low = torch.rand(count, 2) * (torch.tensor([WIDTH, HEIGHT]) - sides)
    return torch.cat([low, low + sides], 1)


def keypoints_in(boxes: Any) -> Any:
    """Visible ones [count, KEYPOINTS, 3], most of them inside the boxes."""
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    places = low + 1.1 * torch.rand(len(boxes), KEYPOINTS, 2) * (high - low)
    return torch.cat([places, torch.ones(len(boxes), KEYPOINTS, 1)], 2)


def assert_gradients(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Those that PyTorch has are not 0, but that of a bias that moves the scores of all places: it is rounding."""
    for name, tensor in expected.items():
        wanted = tensor.grad.numpy()
        scale = np.abs(wanted).max()
        error = np.abs(actual[f"{name}_grad"] - wanted).max()
        if name.endswith("kps_score_lowres.bias"):
            assert max(scale, error) < 1e-5
        else:
            assert scale > 0, name
            assert error <= 1e-4 * scale, f"{name}: {error} of {scale}"


def run(model: onnx.ModelProto, args: Any) -> dict[str, Any]:
    """All outputs by name, of all tensors among the arguments."""
    names = [value.name for value in model.graph.output]
    return dict(zip(names, session(ortops, model).run(names, feeds_of(model, args)), strict=True))


def feeds_of(model: onnx.ModelProto, args: Any) -> dict[str, Any]:
    tensors = pytree.tree_leaves(args)
    return {value.name: tensor.detach().numpy() for value, tensor in zip(model.graph.input, tensors, strict=True)}


class AllSampled:
    """In place of `BalancedPositiveNegativeSampler`, whose draw cannot be exported: every positive and every negative."""

    def __call__(self, labels: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        return [numbers >= 1 for numbers in labels], [numbers == 0 for numbers in labels]


class Training(torch.nn.Module):  # type: ignore[misc]
    """A detector's losses of two images, and the proposals, which torchvision takes for constants."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.detector = detector.train()
        detector.rpn.fg_bg_sampler = detector.roi_heads.fg_bg_sampler = AllSampled()
        self.proposals: list[Any] = []
        detector.rpn.register_forward_hook(self.keep)

    def keep(self, rpn: Any, args: Any, output: Any) -> None:  # noqa: ARG002
        self.proposals = output[0]

    def forward(self, images: Sequence[Any], targets: Sequence[Mapping[str, Any]]) -> Any:
        losses = self.detector(list(images), [dict(target) for target in targets])
        return *losses.values(), sum(losses.values()), *self.proposals


def test_a_detector_in_training_has_the_gradients_of_pytorch() -> None:
    module = Training(detector())
    images, targets = [], []
    for count in (3, 2):
        boxes = boxes_in(count)
        images.append(image(HEIGHT, WIDTH))
        masks = (torch.rand(count, HEIGHT, WIDTH) > 0.5).to(torch.uint8)
        labels = torch.randint(1, CLASSES, (count,))
        targets.append({"boxes": boxes, "labels": labels, "masks": masks, "keypoints": keypoints_in(boxes)})
    *losses, loss, first, second = module(images, targets)
    loss.backward()
    inputs = [f"input_{i}" for i in range(len(pytree.tree_leaves((images, targets))))]
    outputs = [*(f"loss_{i}" for i in range(len(losses))), "loss", "proposals_0", "proposals_1"]
    exported = by_torchscript(module, (images, targets), 18, inputs, outputs, **IN_TRAINING)
    parameters = dict(module.named_parameters())
    # torchvision detaches the proposals, of which the exporter leaves no trace.
    model = gradient(convert(exported), "loss", list(parameters), stop_at=["proposals_0", "proposals_1"])
    actual = run(model, (images, targets))
    for name, wanted in zip(outputs, (*losses, loss, first, second), strict=True):
        assert_near(actual[name], wanted.detach().numpy(), name)
    assert_gradients(actual, parameters)


class Found(torch.nn.Module):  # type: ignore[misc]
    """What a detector finds in one image."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, image: Any) -> Any:
        return self.detector([image])[0]


def by_dynamo(module: Any, args: Sequence[Any], dynamic_shapes: Any = None, opset: int = 18) -> onnx.ModelProto:
    """The model that the newer exporter writes with this project's translations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(args),
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=dynamic_shapes,
            custom_translation_table=translation_table(),
            verbose=False,
        )
    return program.model_proto  # type: ignore[no-any-return]


def single_shot() -> Any:
    """A detector that classifies anchors, in evaluation mode, with weights that make scores differ."""
    torch.manual_seed(0)
    boxes, maps = anchor_utils.DefaultBoxGenerator([[2, 3]] * 4, min_ratio=20, max_ratio=90), backbone()
    maps.out_channels = [maps.out_channels] * 4
    module = ssd.SSD(maps, boxes, (WIDTH, HEIGHT), CLASSES, score_thresh=0.0, detections_per_img=12, topk_candidates=30)
    with torch.no_grad():
        for name, layer in module.named_modules():
            if isinstance(layer, torch.nn.Conv2d) and "head" in name:
                torch.nn.init.normal_(layer.weight, std=2 / layer.weight[0].numel() ** 0.5)
    return module.eval()


def assert_exported_by_dynamo(module: Any) -> onnx.ModelProto:
    """Of two sizes of images, the model finds what the module finds, in a session of the model as it is."""
    torch.manual_seed(1)
    images = [image(56, 80), image(48, 96)]
    with torch.no_grad():
        expected = [module([picture])[0] for picture in images]
    dynamic = torch.export.Dim.DYNAMIC
    with exportable_detectors():
        model = by_dynamo(Found(module), images[:1], {"image": {1: dynamic, 2: dynamic}}, opset=22)
    runner = session(ortops, model)
    for picture, wanted in zip(images, expected, strict=True):
        assert len(wanted["scores"].unique()) > 3
        actual = runner.run(None, {model.graph.input[0].name: picture.numpy()})
        for (name, value), tensor in zip(wanted.items(), actual, strict=True):
            assert_near(tensor, value.numpy(), name)
    return model


@pytest.mark.slow
def test_a_detector_of_the_dynamo_exporter_finds_what_pytorch_finds() -> None:
    model = assert_exported_by_dynamo(detector())
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("RoiAlign") == 3 * len(LEVELS)
    assert kinds.count("NonMaxSuppression") == 2


def test_a_single_shot_detector_of_the_dynamo_exporter_finds_what_pytorch_finds() -> None:
    assert_exported_by_dynamo(single_shot())


class Call(torch.nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def computed(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """What a session computes of a function of tensors, exported by the newer exporter."""
    model = by_dynamo(Call(function), args, opset=19)
    names = [value.name for value in model.graph.input]
    return session(ortops, model).run(None, dict(zip(names, map(np.asarray, args), strict=True)))  # type: ignore[no-any-return]


def test_suppression_and_poolings_of_torchvision_have_translations() -> None:
    def every(x: Any, rois: Any, scores: Any) -> Any:
        return (
            ops.nms(rois[:, 1:], scores, 0.3),
            ops.roi_align(x, rois, (2, 3), 0.5, aligned=True),
            ops.roi_pool(x, rois, (2, 3), 0.5),
            ops.ps_roi_align(x, rois, (2, 3), 0.5, 2),
        )

    corners = 12 * torch.rand(9, 2)
    rois = torch.cat([torch.arange(9.0)[:, None] % 2, corners, corners + 2 + 6 * torch.rand(9, 2)], 1)
    args = torch.randn(2, 12, 11, 9), rois, torch.rand(9)
    expected = every(*args)
    assert 1 < len(expected[0]) < 9
    for wanted, value in zip(expected, computed(every, args), strict=True):
        assert_near(value, wanted.numpy(), "")


def test_the_deformable_convolution_of_torchvision_has_a_translation() -> None:
    steps = {"stride": (2, 1), "dilation": (1, 2)}

    def both(x: Any, weight: Any, offset: Any, mask: Any) -> Any:
        masked = ops.deform_conv2d(x, offset, weight, padding=(1, 2), mask=mask, **steps)
        return masked, ops.deform_conv2d(x, offset, weight, torch.ones(4), padding=(1, 2), **steps)

    x, weight = torch.randn(2, 12, 11, 9), torch.randn(4, 6, 3, 2)  # two groups
    # Offsets of one pixel down and one to the left are a convolution of the map with other pads.
    offset = torch.tensor([1.0, -1.0]).repeat(2, 3 * 3 * 2)[:, :, None, None].repeat(1, 1, 6, 11)
    moved = functional.conv2d(functional.pad(x, (3, 1, 0, 2)), weight, groups=2, **steps)
    masked, plain = computed(both, (x, weight, offset, torch.full((2, 3 * 3 * 2, 6, 11), 0.25)))
    assert_near(masked, moved.numpy() / 4, "with a mask")
    assert_near(plain, moved.numpy() + 1, "with a bias")

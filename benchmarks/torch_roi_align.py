"""`ortops.torch.roi_align` against torchvision's: `python -m benchmarks.torch_roi_align` prints the tables of the document.

It times RoIAlign and its gradient on the workloads of the other tables, and training steps of a Mask R-CNN with random
weights. Needs torchvision with its compiled operators.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torchvision
from torchvision.models import detection

import ortops.torch
from benchmarks.workloads import WORKLOADS, Workload

THREADS, ROUNDS, STEPS = (1, 2), 3, 20
SIDE, CLASSES, BOXES = 128, 5, 6
"""Pixels of an image along each side, and how many classes and boxes there are."""


def main() -> None:
    """Measure and print."""
    if not torchvision.extension._has_ops():  # noqa: SLF001
        raise SystemExit("torchvision has no compiled operators: must have them")
    print("| workload | threads | forward | torchvision | backward | torchvision |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for workload in WORKLOADS:
        for threads in THREADS:
            torch.set_num_threads(threads)
            cells = [f"{ms(ours)} | {ms(theirs)} ({theirs / ours:.1f})" for ours, theirs in times(workload)]
            print(f"| {workload.name if threads == THREADS[0] else ''} | {threads} | {' | '.join(cells)} |", flush=True)
    print("\n| type | threads | step | torchvision | last loss | torchvision | largest difference of a loss |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for dtype in (torch.float32, torch.float64):
        for threads in THREADS:
            torch.set_num_threads(threads)
            print(training(dtype), flush=True)


def ms(seconds: float) -> str:
    """Milliseconds with two digits or more."""
    return f"{seconds * 1e3:.0f}" if seconds >= 0.01 else f"{seconds * 1e3:.2g}"


def times(workload: Workload) -> list[tuple[float, float]]:
    """The median seconds, ours and torchvision's, of a forward and of a backward pass; both must give the same."""
    inputs = {name: torch.from_numpy(array) for name, array in workload.inputs().items()}
    x, dy = inputs["X"].requires_grad_(), torch.from_numpy(workload.gradient())
    rois = torch.cat([inputs["batch_indices"].float().unsqueeze(1), inputs["rois"]], 1)
    options = (workload.bins, workload.spatial_scale, workload.sampling_ratio, True)
    ours, theirs = (roi_align(x, rois, *options) for roi_align in ROI_ALIGNS)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)

    def forward(roi_align: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: roi_align(x.detach(), rois, *options)

    def backward(y: Any) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(y, x, dy, retain_graph=True)

    return [in_turn(*map(forward, ROI_ALIGNS)), in_turn(backward(ours), backward(theirs))]


ROI_ALIGNS: tuple[Callable[..., Any], Callable[..., Any]] = (ortops.torch.roi_align, torchvision.ops.roi_align)


def in_turn(*calls: Callable[[], Any]) -> Any:
    """The median seconds of each call. Of each two calls in a row the second counts, since the first finds cold caches."""
    found: list[list[float]] = [[] for _ in calls]
    for i in range(ROUNDS):
        for j in range(len(calls)) if i % 2 else reversed(range(len(calls))):
            calls[j]()
            began = time.perf_counter()
            calls[j]()
            found[j].append(time.perf_counter() - began)
    return tuple(map(median, found))


def training(dtype: Any) -> str:
    """A row of training steps of two equal detectors in turn, one of them patched.

    In float32, rounding sooner or later changes which of two proposals of almost equal scores is kept, and with it the loss.
    """
    torch.manual_seed(0)
    backbone = detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    detector = detection.MaskRCNN(backbone, CLASSES, min_size=SIDE, max_size=SIDE, box_batch_size_per_image=64)
    detector.to(dtype).train()
    contexts = (ortops.torch.patch_torchvision, contextlib.nullcontext)
    learners = [(copy.deepcopy(detector), context) for context in contexts]
    optimizers = [torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9) for module, _ in learners]
    found: list[list[tuple[float, float]]] = [[], []]
    for i in range(STEPS):
        images, targets = batch(i, dtype)
        for j in (0, 1) if i % 2 else (1, 0):
            module, context = learners[j]
            torch.manual_seed(i)  # of the sampled proposals
            began = time.perf_counter()
            with context():
                loss = sum(module(images, copy.deepcopy(targets)).values())
            optimizers[j].zero_grad()
            loss.backward()
            optimizers[j].step()
            found[j].append((time.perf_counter() - began, float(loss.detach())))
    (ours, ours_loss), (theirs, theirs_loss) = ((median(t for t, _ in one), one[-1][1]) for one in found)
    largest = max(abs(a - b) / b for (_, a), (_, b) in zip(*found, strict=True))
    steps = f"{ms(ours)} | {ms(theirs)} ({theirs / ours:.2f})"
    kind = str(dtype).removeprefix("torch.")
    return f"| {kind} | {torch.get_num_threads()} | {steps} | {ours_loss:.6f} | {theirs_loss:.6f} | {largest:.0e} |"


def batch(seed: int, dtype: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Two images with boxes, labels and masks."""
    torch.manual_seed(seed)
    targets = []
    for _ in range(2):
        low = torch.rand(BOXES, 2) * SIDE * 0.6
        boxes = torch.cat([low, low + SIDE * (0.05 + 0.3 * torch.rand(BOXES, 2))], 1)
        masks = (torch.rand(BOXES, SIDE, SIDE) > 0.5).to(torch.uint8)
        targets.append({"boxes": boxes.to(dtype), "labels": torch.randint(1, CLASSES, (BOXES,)), "masks": masks})
    return list(torch.rand(2, 3, SIDE, SIDE).to(dtype)), targets


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""Rules of convolutions, and the sliding windows that Conv, ConvTranspose and AveragePool share.

The image is the tensor that the windows slide over: X of Conv, Y of ConvTranspose. The grid is the tensor with an element
for each window. The gradient with respect to the kernel is computed by the faster of two methods; the thresholds were
measured with ONNX Runtime 1.31 on one core of an x86 processor with AVX-512.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.registry import Gradients, rule
from onnx_models.tools.nodes import Length

_SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Windows:
    """The layout of windows.

    strides, dilations: for each spatial axis.
    pads: at the start of each spatial axis, then at the end of each; zeros if `open_pads` is not None.
    open_pads: names of the two int64 tensors of pads if these are known at run time only, else None.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    open_pads: tuple[str, str] | None

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.strides)

    @property
    def axes(self) -> range:
        """The spatial axes, which follow those of samples and channels."""
        return range(2, 2 + self.rank)


def windows(graph: GradientGraph, node: Node, rank: int, image: str, grid: str, kernel: str) -> Windows:
    """The windows of a node with `rank` spatial axes; `kernel` is the int64 tensor of a window's lengths."""
    if rank < 1:
        raise ValueError(f"{node}: {image!r} has no spatial axes: must have one or more after samples and channels")
    strides = tuple(node.attribute("strides") or [1] * rank)
    dilations = tuple(node.attribute("dilations") or [1] * rank)
    automatic = node.attribute("auto_pad", "NOTSET")
    pads = tuple(node.attribute("pads") or [0] * 2 * rank) if automatic == "NOTSET" else (0,) * 2 * rank
    if min(pads) < 0:
        raise ValueError(f"{node}: pads = {list(pads)}: must be >= 0 for its gradient")
    open_pads = None
    if automatic in _SAME or node.attribute("output_shape"):
        total = _all_pads(graph, node, (strides, dilations), image, grid, kernel)
        half = graph.op("Div", total, graph.ints([2]))
        rest = graph.op("Sub", total, half)
        # Only SAME_UPPER puts the odd pixel at the end.
        open_pads = (half, rest) if automatic == "SAME_UPPER" else (rest, half)
    return Windows(strides, dilations, (0,) * 2 * rank if open_pads else pads, open_pads)


def _all_pads(
    graph: GradientGraph, node: Node, steps: tuple[Sequence[int], Sequence[int]], image: str, grid: str, kernel: str
) -> str:
    """The total of the pads on both sides of each axis: how far the windows extend beyond the image."""
    strides, dilations = steps
    extra = node.attribute("output_padding") or [0] * len(strides)
    one = graph.ints([1])
    moves = graph.op("Mul", graph.op("Sub", graph.op("Shape", grid, start=2), one), graph.ints(strides))
    reach = graph.op("Mul", graph.op("Sub", kernel, one), graph.ints(dilations))
    covered = graph.op("Add", graph.op("Add", moves, reach), graph.ints([1 + more for more in extra]))
    return graph.op("Max", graph.op("Sub", covered, graph.op("Shape", image, start=2)), graph.ints([0]))


def image_gradient(graph: GradientGraph, by_grid: str, kernel: str, image: str, layout: Windows, group: int) -> str:
    """The gradient of the image: each element of the grid's gradient times the kernel, added up at its window.

    This is a transposed convolution, sliced to the shape of the image. With strides of 1 it is also a convolution with the
    flipped kernel. That takes ONNX Runtime half of the time or less if the kernel is a constant, which the session
    flips once; flipping it in each run costs more than it saves.
    """
    if all(stride == 1 for stride in layout.strides) and graph.is_constant(kernel):
        begins_and_ends = _flipped_pads(graph, kernel, layout)
        if begins_and_ends is not None:
            full = graph.op(
                "Conv", by_grid, _flipped(graph, kernel, layout, group),
                group=group, dilations=layout.dilations, pads=begins_and_ends,
            )  # fmt: skip
            return _without_pads(graph, full, image, layout) if layout.open_pads else full
    more = [stride - 1 for stride in layout.strides]
    full = graph.op(
        "ConvTranspose", by_grid, kernel, group=group, strides=layout.strides, dilations=layout.dilations, pads=layout.pads,
        output_padding=more,
    )  # fmt: skip
    return _without_pads(graph, full, image, layout) if any(more) or layout.open_pads else full


def _without_pads(graph: GradientGraph, full: str, image: str, layout: Windows) -> str:
    """The part of `full`, a gradient over the whole reach of the windows, that lies in the image."""
    lengths = graph.op("Shape", image, start=2)
    if not layout.open_pads:
        return sliced(graph, full, graph.ints([0] * layout.rank), lengths, layout.axes)
    begins = layout.open_pads[0]
    return sliced(graph, full, begins, graph.op("Add", begins, lengths), layout.axes)


def _flipped_pads(graph: GradientGraph, kernel: str, layout: Windows) -> list[int] | None:
    """The pads of the convolution with the flipped kernel; None if the kernel is one pixel or a pad would be negative."""
    reach = [
        (length - 1) * dilation
        for length, dilation in zip(graph.numbers(kernel, 2) or [], layout.dilations, strict=True)
    ]
    pads = [whole - pad for whole, pad in zip(reach * 2, layout.pads, strict=True)]
    return pads if any(reach) and min(pads) >= 0 else None


def _flipped(graph: GradientGraph, kernel: str, layout: Windows, group: int) -> str:
    """A kernel [group * n, m, ...] as [group * m, n, ...], flipped along all spatial axes."""
    lengths = graph.numbers(kernel) or []
    ends = graph.ints([-1] * layout.rank)
    # The symbolic shape inference of ONNX Runtime (1.32 at least) takes -length - 1 for 0, but not this.
    before_all = graph.ints([np.iinfo(np.int64).min] * layout.rank)
    backwards = graph.op("Slice", kernel, ends, before_all, graph.ints(layout.axes), ends)
    if group == 1:
        return graph.op("Transpose", backwards, perm=[1, 0, *layout.axes])
    n, m, rest = lengths[0] // group, lengths[1], lengths[2:]
    parted = graph.op("Reshape", backwards, graph.ints([group, n, m, *rest]))
    swapped = graph.op("Transpose", parted, perm=[0, 2, 1, *range(3, 3 + layout.rank)])
    return graph.op("Reshape", swapped, graph.ints([group * m, n, *rest]))


def sliced(graph: GradientGraph, name: str, starts: str, ends: str, axes: Sequence[int]) -> str:
    """A Slice of a tensor along some axes."""
    return graph.op("Slice", name, starts, ends, graph.ints(axes))


def padded(graph: GradientGraph, image: str, layout: Windows) -> str:
    """The image padded with zeros if the pads are known at run time only, else the image itself."""
    if not layout.open_pads:
        return image
    zeros = graph.ints([0, 0])
    return graph.op("Pad", image, graph.op("Concat", zeros, layout.open_pads[0], zeros, layout.open_pads[1], axis=0))


@rule("Conv")
def conv(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """A convolution: the image is X, and the grid is Y (see `windows`)."""
    x, kernel = node.inputs[:2]
    layout, group = _windows(graph, node, x, node.outputs[0]), node.attribute("group", 1)
    return [
        image_gradient(graph, dy, kernel, x, layout, group) if node.wants(0) else None,
        weight_gradient(graph, x, dy, kernel, layout, group) if node.wants(1) else None,
        _by_bias(graph, dy, layout) if node.wants(2) else None,
    ]


@rule("ConvTranspose")
def conv_transpose(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """A transposed convolution: the image is Y, and the grid is X (see `windows`)."""
    x, kernel = node.inputs[:2]
    layout, group = _windows(graph, node, node.outputs[0], x), node.attribute("group", 1)
    return [
        _by_grid(graph, node, dy, layout, group) if node.wants(0) else None,
        weight_gradient(graph, dy, x, kernel, layout, group) if node.wants(1) else None,
        _by_bias(graph, dy, layout) if node.wants(2) else None,
    ]


def _windows(graph: GradientGraph, node: Node, image: str, grid: str) -> Windows:
    x, kernel = node.inputs[:2]
    known = next((name for name in (kernel, x) if graph.lengths(name) is not None), x)
    lengths = graph.op("Shape", kernel, start=2)
    return windows(graph, node, graph.rank(known, node) - 2, image, grid, lengths)


def _by_grid(graph: GradientGraph, node: Node, dy: str, layout: Windows, group: int) -> str:
    """The convolution of dY, sliced to the shape of X if an output_padding of a stride or more makes it longer."""
    x, kernel = node.inputs[:2]
    by_grid = graph.op(
        "Conv", padded(graph, dy, layout), kernel,
        group=group, strides=layout.strides, dilations=layout.dilations, pads=layout.pads,
    )  # fmt: skip
    if not node.attribute("output_padding") and not layout.open_pads:
        return by_grid
    return sliced(graph, by_grid, graph.ints([0] * layout.rank), graph.op("Shape", x, start=2), layout.axes)


def _by_bias(graph: GradientGraph, dy: str, layout: Windows) -> str:
    return graph.op("ReduceSum", dy, graph.ints([0, *layout.axes]), keepdims=0)


_MAX_POSITIONS = 32
"""The largest kernel, in pixels, for which each pixel gets a separate matrix product."""

_MIN_CHANNELS = 4
"""With fewer image channels in a group, one matrix product for each pixel is slower than a convolution."""

_FEW_POSITIONS = 9
"""The largest kernel of one channel, in pixels, for which products of vectors are faster than a convolution."""

_LONG_ROW = 28
"""With rows of the grid of this length and more, and strides of 1, products of vectors are faster for any kernel."""


def weight_gradient(graph: GradientGraph, image: str, grid: str, kernel: str, layout: Windows, group: int) -> str:
    """The gradient with respect to the kernel [grid channels, image channels of a group, ...]; only its shape is read."""
    lengths = graph.numbers(kernel) or []
    if 0 in lengths:
        return graph.zeros(kernel)
    image = padded(graph, image, layout)
    if lengths and _is_by_positions(lengths, (graph.lengths(grid) or [None])[-1], layout, group):
        return _by_positions(graph, image, grid, kernel, layout, group)
    if not _has_samples(graph, image, grid):
        image, grid = (_or_zeros(graph, name, layout) for name in (image, grid))
    return _by_correlation(graph, image, grid, kernel, layout, group)


def _or_zeros(graph: GradientGraph, name: str, layout: Windows) -> str:
    """A tensor [samples, ...], or one sample of zeros if it has no samples.

    In ONNX Runtime a convolution of 0 channels never ends if it has pads or dilations, and else leaves its result
    uninitialized.
    """
    missing = graph.op("Sub", graph.ints([1]), graph.op("Min", graph.shape(name, 0, 1), graph.ints([1])))
    zeros = graph.ints((2 * layout.rank + 3) * [0])
    return graph.op("Pad", name, graph.op("Concat", missing, zeros, axis=0))


def _is_by_positions(lengths: Sequence[int], row: Length, layout: Windows, group: int) -> bool:
    """Whether products are faster for a kernel of this shape; `row` is the last length of the grid."""
    positions = math.prod(lengths[2:])
    if lengths[1] > 1 or group == 1:
        return positions <= (_MAX_POSITIONS if lengths[1] >= _MIN_CHANNELS else 1)
    is_long = isinstance(row, int) and row >= _LONG_ROW and max(layout.strides) == 1
    return positions <= _FEW_POSITIONS or is_long


def _has_samples(graph: GradientGraph, *names: str) -> bool:
    """Whether tensors with the same number of samples are known to have at least one; one known length is enough."""
    first = ((graph.lengths(name) or [None])[0] for name in names)
    return any(isinstance(length, int) and length > 0 for length in first)


def _by_positions(graph: GradientGraph, image: str, grid: str, kernel: str, layout: Windows, group: int) -> str:
    """A matrix product for each pixel of the kernel: of the grid with the pixels of the image under that kernel pixel."""
    lengths, pixels = graph.numbers(kernel) or [], graph.numbers(grid, 2)
    samples = (graph.lengths(grid) or [None])[0]
    count = samples * math.prod(pixels) if isinstance(samples, int) and pixels is not None else -1
    if any(layout.pads):
        begins, ends = layout.pads[: layout.rank], layout.pads[layout.rank :]
        image = graph.op("Pad", image, graph.ints([0, 0, *begins, 0, 0, *ends]))
    whole, windows = (
        # A single sample is the same with its channels first.
        name if (graph.lengths(name) or [None])[0] == 1 else graph.op("Transpose", name, perm=[1, 0, *layout.axes])
        for name in (image, grid)
    )
    left = _matrices(graph, windows, group, lengths[0] // group, count)
    is_partial = math.prod(lengths[2:]) > 1 or max(layout.strides) > 1 or bool(layout.open_pads)
    products = []
    for offsets in itertools.product(*map(range, lengths[2:])):
        part = _covered(graph, whole, grid, layout, offsets) if is_partial else whole
        right = _matrices(graph, part, group, lengths[1], count)
        if group == 1:
            products.append(graph.op("Gemm", left, right, transB=1))
        else:
            products.append(graph.op("MatMul", left, graph.op("Transpose", right, perm=[0, 2, 1])))
    if len(products) > 1:
        rank = 2 if group == 1 else 3
        stack = graph.op("Concat", *(graph.op("Unsqueeze", product, graph.ints([0])) for product in products), axis=0)
        products = [graph.op("Transpose", stack, perm=[*range(1, rank + 1), 0])]
    kernel_gradient = products[0] if group == 1 else _or_zero(graph, products[0], image, grid)
    return graph.op("Reshape", kernel_gradient, graph.ints(lengths))


def _or_zero(graph: GradientGraph, product: str, image: str, grid: str) -> str:
    """A product of stacked matrices, flattened, and 0 if there are no samples.

    ONNX Runtime 1.20 leaves MatMul's result uninitialized if the inner length is 0, but not Gemm's. Flattened, because
    Where broadcasts a condition of one element over one line of the last axis at a time: if that axis is short, this took
    up to 19 times as long as the product, and over the vector at most a quarter of it.
    """
    if _has_samples(graph, image, grid):
        return product
    flat = graph.flat(product)
    return graph.masked(graph.op("Greater", graph.shape(grid, 0, 1), graph.ints([0])), flat, grid)


def _covered(graph: GradientGraph, whole: str, grid: str, layout: Windows, offsets: Sequence[int]) -> str:
    """The pixels of an image under a pixel of the kernel."""
    starts = [offset * dilation for offset, dilation in zip(offsets, layout.dilations, strict=True)]
    lengths = (graph.lengths(grid) or [None])[2:]
    reach = [
        length * stride for length, stride in zip(lengths, layout.strides, strict=False) if isinstance(length, int)
    ]
    if len(reach) == layout.rank:
        ends = graph.ints(start + more for start, more in zip(starts, reach, strict=True))
    else:
        reach_of_grid = graph.op("Mul", graph.shape(grid, 2), graph.ints(layout.strides))
        ends = graph.op("Add", reach_of_grid, graph.ints(starts))
    return graph.op("Slice", whole, graph.ints(starts), ends, graph.ints(layout.axes), graph.ints(layout.strides))


def _matrices(graph: GradientGraph, name: str, group: int, channels: int, count: int) -> str:
    """A tensor [channels, samples, ...] as matrices [groups, channels of a group, samples * pixels]."""
    groups = [group] if group > 1 else []
    # ONNX does not allow allowzero together with -1, which stands for a count of 0 as well.
    return graph.op("Reshape", name, graph.ints([*groups, channels, count]), allowzero=int(count == 0))


def _by_correlation(graph: GradientGraph, image: str, grid: str, kernel: str, layout: Windows, group: int) -> str:
    """A convolution of the image with the grid, with samples and channels swapped, and strides and dilations too."""
    swapped = [1, 0, *layout.axes]
    correlation = graph.op(
        "Conv", _samples_last(graph, image, kernel, layout, group), graph.op("Transpose", grid, perm=swapped),
        group=group, strides=layout.dilations, dilations=layout.strides, pads=layout.pads,
    )  # fmt: skip
    if any(stride > 1 for stride in layout.strides):
        lengths = graph.op("Shape", kernel, start=2)
        correlation = sliced(graph, correlation, graph.ints([0] * layout.rank), lengths, layout.axes)
    return graph.op("Transpose", correlation, perm=swapped)


def _samples_last(graph: GradientGraph, image: str, kernel: str, layout: Windows, group: int) -> str:
    """Rearrange [samples, group * channels, ...] to [channels, group * samples, ...]."""
    swapped = [1, 0, *layout.axes]
    if group == 1:
        return graph.op("Transpose", image, perm=swapped)
    samples, groups = graph.op("Shape", image, end=1), graph.ints([group])
    channels, lengths = graph.op("Shape", kernel, start=1, end=2), graph.op("Shape", image, start=2)
    parted = graph.in_shape(image, samples, groups, channels, lengths)
    transposed = graph.op("Transpose", parted, perm=[2, 1, 0, *range(3, 3 + layout.rank)])
    return graph.in_shape(transposed, channels, graph.op("Mul", samples, groups), lengths)

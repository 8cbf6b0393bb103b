"""The gradient with respect to the kernel of a convolution, by the faster of two methods.

The thresholds were measured with ONNX Runtime 1.31 on one core of an x86 processor with AVX-512.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from onnx_models.gradient.graph import Graph
from onnx_models.gradient.rules.windows import Windows, known_lengths, padded, sliced
from onnx_models.tools.nodes import Length

_MAX_POSITIONS = 32
"""The largest kernel, in pixels, for which each pixel gets a separate matrix product."""

_MIN_CHANNELS = 4
"""With fewer image channels in a group, one matrix product for each pixel is slower than a convolution."""

_FEW_POSITIONS = 9
"""The largest kernel of one channel, in pixels, for which products of vectors are faster than a convolution."""

_LONG_ROW = 28
"""With rows of the grid of this length and more, and strides of 1, products of vectors are faster for any kernel."""


def weight_gradient(graph: Graph, image: str, grid: str, kernel: str, layout: Windows, group: int) -> str:
    """The gradient with respect to the kernel [grid channels, image channels of a group, ...].

    Args:
        graph: the graph to add nodes to.
        image: name of a tensor [samples, image channels, ...], or of its gradient.
        grid: name of a tensor [samples, grid channels, ...], or of its gradient.
        kernel: name of the kernel; only its shape is read.
        layout: strides, dilations and pads of the windows.
        group: number of groups of channels.
    """
    lengths = known_lengths(graph, kernel)
    if 0 in lengths:
        return graph.zeros(kernel)
    image = padded(graph, image, layout)
    if lengths and _is_by_positions(lengths, (graph.lengths(grid) or [None])[-1], layout, group):
        return _by_positions(graph, image, grid, kernel, layout, group)
    if not _has_samples(graph, image, grid):
        image, grid = (_or_zeros(graph, name, layout) for name in (image, grid))
    return _by_correlation(graph, image, grid, kernel, layout, group)


def _or_zeros(graph: Graph, name: str, layout: Windows) -> str:
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


def _has_samples(graph: Graph, *names: str) -> bool:
    """Whether tensors with the same number of samples are known to have at least one; one known length is enough."""
    first = ((graph.lengths(name) or [None])[0] for name in names)
    return any(isinstance(length, int) and length > 0 for length in first)


def _by_positions(graph: Graph, image: str, grid: str, kernel: str, layout: Windows, group: int) -> str:
    """A matrix product for each pixel of the kernel: of the grid with the pixels of the image under that kernel pixel."""
    lengths, samples_and_pixels = known_lengths(graph, kernel), list(graph.lengths(grid) or [None])
    del samples_and_pixels[1:2]
    known = [length for length in samples_and_pixels if isinstance(length, int)]
    count = math.prod(known) if len(known) == len(samples_and_pixels) else -1
    whole, windows = (_channels_first(graph, name, layout) for name in (_all_pads(graph, image, layout), grid))
    left = _matrices(graph, windows, group, lengths[0] // group, count)
    products = []
    for offsets in itertools.product(*map(range, lengths[2:])):
        part = _covered(graph, whole, grid, layout, offsets) if _is_partial(lengths, layout) else whole
        right = _matrices(graph, part, group, lengths[1], count)
        if group == 1:
            products.append(graph.op("Gemm", left, right, transB=1))
        else:
            products.append(graph.op("MatMul", left, graph.op("Transpose", right, perm=[0, 2, 1])))
    if len(products) > 1:
        rank = 2 if group == 1 else 3
        stack = graph.op("Concat", *(graph.op("Unsqueeze", one, graph.ints([0])) for one in products), axis=0)
        products = [graph.op("Transpose", stack, perm=[*range(1, rank + 1), 0])]
    found = products[0] if group == 1 else _or_zero(graph, products[0], image, grid)
    return graph.op("Reshape", found, graph.ints(lengths))


def _or_zero(graph: Graph, product: str, image: str, grid: str) -> str:
    """A product of stacked matrices, flattened, and 0 if there are no samples.

    ONNX Runtime 1.20 leaves MatMul's result uninitialized if the inner length is 0, but not Gemm's. Flattened, because
    Where broadcasts a condition of one element over one line of the last axis at a time: if that axis is short, this took
    up to 19 times as long as the product, and over the vector at most a quarter of it.
    """
    if _has_samples(graph, image, grid):
        return product
    flat = graph.op("Reshape", product, graph.ints([-1]))
    return graph.masked(graph.op("Greater", graph.shape(grid, 0, 1), graph.ints([0])), flat, grid)


def _all_pads(graph: Graph, image: str, layout: Windows) -> str:
    """The image padded with zeros."""
    if not any(layout.pads):
        return image
    begins, ends = layout.pads[: layout.rank], layout.pads[layout.rank :]
    return graph.op("Pad", image, graph.ints([0, 0, *begins, 0, 0, *ends]))


def _channels_first(graph: Graph, name: str, layout: Windows) -> str:
    """From [samples, channels, ...] to [channels, samples, ...]; unchanged for a single sample."""
    is_one = (graph.lengths(name) or [None])[0] == 1
    return name if is_one else graph.op("Transpose", name, perm=[1, 0, *layout.axes])


def _is_partial(lengths: Sequence[int], layout: Windows) -> bool:
    """Whether a pixel of the kernel covers only a part of the image."""
    return math.prod(lengths[2:]) > 1 or max(layout.strides) > 1 or bool(layout.found)


def _covered(graph: Graph, whole: str, grid: str, layout: Windows, offsets: Sequence[int]) -> str:
    """The pixels of an image under a pixel of the kernel."""
    starts = [offset * dilation for offset, dilation in zip(offsets, layout.dilations, strict=True)]
    lengths = (graph.lengths(grid) or [None])[2:]
    reach = [
        length * stride for length, stride in zip(lengths, layout.strides, strict=False) if isinstance(length, int)
    ]
    if len(reach) == layout.rank:
        ends = graph.ints(start + more for start, more in zip(starts, reach, strict=True))
    else:
        found = graph.op("Mul", graph.shape(grid, 2), graph.ints(layout.strides))
        ends = graph.op("Add", found, graph.ints(starts))
    return graph.op("Slice", whole, graph.ints(starts), ends, graph.ints(layout.axes), graph.ints(layout.strides))


def _matrices(graph: Graph, name: str, group: int, channels: int, count: int) -> str:
    """A tensor [channels, samples, ...] as matrices [groups, channels of a group, samples * pixels]."""
    groups = [group] if group > 1 else []
    # ONNX does not allow allowzero together with -1, which stands for a count of 0 as well.
    return graph.op("Reshape", name, graph.ints([*groups, channels, count]), allowzero=int(count == 0))


def _by_correlation(graph: Graph, image: str, grid: str, kernel: str, layout: Windows, group: int) -> str:
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


def _samples_last(graph: Graph, image: str, kernel: str, layout: Windows, group: int) -> str:
    """Rearrange [samples, group * channels, ...] to [channels, group * samples, ...]."""
    swapped = [1, 0, *layout.axes]
    if group == 1:
        return graph.op("Transpose", image, perm=swapped)
    samples, groups = graph.op("Shape", image, end=1), graph.ints([group])
    channels, lengths = graph.op("Shape", kernel, start=1, end=2), graph.op("Shape", image, start=2)
    parted = graph.in_shape(image, samples, groups, channels, lengths)
    transposed = graph.op("Transpose", parted, perm=[2, 1, 0, *range(3, 3 + layout.rank)])
    return graph.in_shape(transposed, channels, graph.op("Mul", samples, groups), lengths)

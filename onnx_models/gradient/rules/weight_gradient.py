"""The gradient with respect to the kernel of a convolution, by the fastest of three methods.

The thresholds were measured with ONNX Runtime 1.31 on one core of an x86 processor with AVX-512.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from onnx_models.gradient.graph import Graph, Length
from onnx_models.gradient.rules.windows import Windows, known_lengths, padded, sliced

_MAX_POSITIONS = 32
"""The largest kernel, in pixels, for which each pixel gets a matrix product of its own."""

_MIN_CHANNELS = 4
"""With fewer image channels in a group, one matrix product for each pixel is slower than a convolution."""

_FEW_POSITIONS = 9
"""For a kernel of one channel with more pixels, products of rows are faster than one product for each pixel."""

_LONGEST_ROW = 64
"""For longer rows of the grid, products of rows are slower: they compute all pairs of pixels of two rows."""


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
    method = _method(lengths, (graph.lengths(grid) or [None])[-1], layout, group) if lengths else _by_correlation
    image = padded(graph, image, layout)
    if method is _by_correlation and not _has_samples(graph, image, grid):
        image, grid = (_or_zeros(graph, name, layout) for name in (image, grid))
    return method(graph, image, grid, kernel, layout, group)


def _or_zeros(graph: Graph, name: str, layout: Windows) -> str:
    """A tensor [samples, ...], or one sample of zeros if it has no samples.

    In ONNX Runtime a convolution of 0 channels never ends if it has pads or dilations, and else leaves its result
    uninitialized.
    """
    missing = graph.op("Sub", graph.ints([1]), graph.op("Min", graph.shape(name, 0, 1), graph.ints([1])))
    zeros = graph.ints((2 * layout.rank + 3) * [0])
    return graph.op("Pad", name, graph.op("Concat", missing, zeros, axis=0))


Method = Callable[[Graph, str, str, str, Windows, int], str]
"""As `weight_gradient`; pads that are known at run time only have been applied to the image."""


def _method(lengths: Sequence[int], row: Length, layout: Windows, group: int) -> Method:
    """The fastest method for a kernel of this shape; `row` is the last length of the grid."""
    positions = math.prod(lengths[2:])
    if lengths[1] > 1 or group == 1:
        few = _MAX_POSITIONS if lengths[1] >= _MIN_CHANNELS else 1
        return _by_positions if positions <= few else _by_correlation
    if positions <= _FEW_POSITIONS and max(layout.strides) == 1:
        return _by_positions
    return _by_rows if lengths[0] == group and isinstance(row, int) and row <= _LONGEST_ROW else _by_correlation


def _has_samples(graph: Graph, *names: str) -> bool:
    """Whether one of some tensors with the same samples is known to have any."""
    first = ((graph.lengths(name) or [None])[0] for name in names)
    return any(isinstance(length, int) and length > 0 for length in first)


def _by_positions(graph: Graph, image: str, grid: str, kernel: str, layout: Windows, group: int) -> str:
    """A matrix product for each pixel of the kernel: of the grid with the pixels of the image under that kernel pixel."""
    lengths = known_lengths(graph, kernel)
    whole, windows = (_channels_first(graph, name, layout) for name in (_all_pads(graph, image, layout), grid))
    count = _count(graph, grid, None)
    left = _matrices(graph, windows, group, [lengths[0] // group], count)
    products = []
    for offsets in itertools.product(*map(range, lengths[2:])):
        part = _covered(graph, whole, grid, layout, offsets) if _is_partial(lengths, layout) else whole
        right = _matrices(graph, part, group, lengths[1:2], count)
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


def _by_rows(graph: Graph, image: str, grid: str, kernel: str, layout: Windows, group: int) -> str:
    """For depthwise kernels: a matrix product for each kernel row, of the rows of the grid with those of the image under it.

    The product has the sums over all rows of each pair of a grid column and an image column; the gradient adds those pairs
    whose distance is that of a kernel pixel.
    """
    lengths, (row,) = known_lengths(graph, kernel), _numbers((graph.lengths(grid) or [])[-1:])
    stride, dilation = layout.strides[-1], layout.dilations[-1]
    width = max(row - 1, 0) * stride + (lengths[-1] - 1) * dilation + 1
    whole, windows = (_channels_first(graph, name, layout) for name in (_all_pads(graph, image, layout), grid))
    count = _count(graph, grid, -1)
    left = graph.op("Transpose", _matrices(graph, windows, group, [], count, [row]), perm=[0, 2, 1])
    places = np.arange(row)[:, None, None] * stride + np.arange(lengths[-1]) * dilation == np.arange(width)[:, None]
    distances = graph.op("CastLike", graph.tensor(places.reshape(row * width, lengths[-1]).astype(np.float32)), image)
    sums = []
    for offsets in itertools.product(*map(range, lengths[2:-1])):
        part = _covered(graph, whole, grid, layout, offsets, width)
        pairs = graph.op("MatMul", left, _matrices(graph, part, group, [], count, [width]))
        flat = graph.op("Reshape", pairs, graph.ints([group, row * width]), allowzero=1)
        sums.append(graph.op("MatMul", flat, distances))
    joined = sums[0] if len(sums) == 1 else graph.op("Concat", *sums, axis=1)
    return graph.op("Reshape", _or_zero(graph, joined, image, grid), graph.ints(lengths))


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


def _covered(
    graph: Graph, whole: str, grid: str, layout: Windows, offsets: Sequence[int], width: int | None = None
) -> str:
    """The pixels of an image under a pixel of the kernel; along the last axis the first `width` pixels if that is given."""
    rank = len(offsets)
    starts = [offset * dilation for offset, dilation in zip(offsets, layout.dilations, strict=False)]
    strides = list(layout.strides[:rank])
    lengths = _numbers((graph.lengths(grid) or [None])[2 : 2 + rank])
    more = [] if width is None else [width]
    if len(lengths) == rank:
        sums = (start + length * stride for start, length, stride in zip(starts, lengths, strides, strict=True))
        ends = graph.ints([*sums, *more])
    else:
        reach = graph.op("Mul", graph.shape(grid, 2, 2 + rank), graph.ints(strides))
        ends = graph.op("Add", reach, graph.ints(starts))
        ends = graph.op("Concat", ends, graph.ints(more), axis=0) if more else ends
    starts, strides = [*starts, *(0 for _ in more)], [*strides, *(1 for _ in more)]
    return graph.op("Slice", whole, graph.ints(starts), ends, graph.ints(layout.axes), graph.ints(strides))


def _count(graph: Graph, grid: str, end: int | None) -> int:
    """Samples times pixels along the spatial axes before `end`; -1 if that is known at run time only."""
    lengths = graph.lengths(grid) or [None]
    kept = [lengths[0], *lengths[2:end]]
    numbers = _numbers(kept)
    return math.prod(numbers) if len(numbers) == len(kept) else -1


def _numbers(lengths: Sequence[Length]) -> list[int]:
    return [length for length in lengths if isinstance(length, int)]


def _matrices(
    graph: Graph,
    name: str,
    group: int,
    channels: Sequence[int],
    count: int,
    last: Sequence[int] = (),
) -> str:
    """A tensor [channels, samples, ...] as matrices [groups, channels of a group, samples * pixels]."""
    before = [group] if group > 1 or not channels else []
    # ONNX does not allow allowzero together with -1, which stands for a count of 0 as well.
    return graph.op("Reshape", name, graph.ints([*before, *channels, count, *last]), allowzero=int(count == 0))


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
    """From [samples, group * channels, ...] to [channels, group * samples, ...]."""
    swapped = [1, 0, *layout.axes]
    if group == 1:
        return graph.op("Transpose", image, perm=swapped)
    samples, groups = graph.op("Shape", image, end=1), graph.ints([group])
    channels, lengths = graph.op("Shape", kernel, start=1, end=2), graph.op("Shape", image, start=2)
    parted = graph.in_shape(image, samples, groups, channels, lengths)
    transposed = graph.op("Transpose", parted, perm=[2, 1, 0, *range(3, 3 + layout.rank)])
    return graph.in_shape(transposed, channels, graph.op("Mul", samples, groups), lengths)

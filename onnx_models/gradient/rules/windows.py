"""Sliding windows, which Conv, ConvTranspose and AveragePool share.

The image is the tensor that the windows slide over: X of Conv, Y of ConvTranspose. The grid is the tensor with an element
for each window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx_models.gradient.graph import Graph, Node

_SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Windows:
    """The layout of windows.

    strides, dilations: for each spatial axis.
    pads: at the start of each spatial axis, then at the end of each; zeros if `found` is not None.
    found: names of the two int64 tensors of pads if these are known at run time only, else None.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    found: tuple[str, str] | None

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.strides)

    @property
    def axes(self) -> range:
        """The spatial axes, which follow those of samples and channels."""
        return range(2, 2 + self.rank)


def windows(graph: Graph, node: Node, rank: int, image: str, grid: str, kernel: str) -> Windows:
    """The windows of a node.

    Args:
        graph: the graph to add nodes to, for pads that are known at run time only.
        node: a Conv, ConvTranspose or AveragePool.
        rank: number of spatial axes.
        image: name of the tensor that the windows slide over.
        grid: name of the tensor with an element for each window.
        kernel: name of the int64 tensor of a window's lengths.

    Raises:
        ValueError: there are no spatial axes, or pads are negative.
    """
    if rank < 1:
        raise ValueError(f"{node}: {image!r} has no spatial axes: must have one or more after samples and channels")
    strides = tuple(node.attribute("strides") or [1] * rank)
    dilations = tuple(node.attribute("dilations") or [1] * rank)
    automatic = node.attribute("auto_pad", "NOTSET")
    pads = tuple(node.attribute("pads") or [0] * 2 * rank) if automatic == "NOTSET" else (0,) * 2 * rank
    if min(pads) < 0:
        raise ValueError(f"{node}: pads = {list(pads)}: must be >= 0 for its gradient")
    found = None
    if automatic in _SAME or node.attribute("output_shape"):
        total = _all_pads(graph, node, (strides, dilations), image, grid, kernel)
        half = graph.op("Div", total, graph.ints([2]))
        rest = graph.op("Sub", total, half)
        # Only SAME_UPPER puts the odd pixel at the end.
        found = (half, rest) if automatic == "SAME_UPPER" else (rest, half)
    return Windows(strides, dilations, (0,) * 2 * rank if found else pads, found)


def _all_pads(
    graph: Graph, node: Node, steps: tuple[Sequence[int], Sequence[int]], image: str, grid: str, kernel: str
) -> str:
    """The total of the pads on both sides of each axis: how far the windows extend beyond the image."""
    strides, dilations = steps
    extra = node.attribute("output_padding") or [0] * len(strides)
    one = graph.ints([1])
    moves = graph.op("Mul", graph.op("Sub", graph.op("Shape", grid, start=2), one), graph.ints(strides))
    reach = graph.op("Mul", graph.op("Sub", kernel, one), graph.ints(dilations))
    covered = graph.op("Add", graph.op("Add", moves, reach), graph.ints([1 + more for more in extra]))
    return graph.op("Max", graph.op("Sub", covered, graph.op("Shape", image, start=2)), graph.ints([0]))


def image_gradient(graph: Graph, by_grid: str, kernel: str, image: str, layout: Windows, group: int) -> str:
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
            return _without_pads(graph, full, image, layout) if layout.found else full
    more = [stride - 1 for stride in layout.strides]
    full = graph.op(
        "ConvTranspose", by_grid, kernel, group=group, strides=layout.strides, dilations=layout.dilations, pads=layout.pads,
        output_padding=more,
    )  # fmt: skip
    return _without_pads(graph, full, image, layout) if any(more) or layout.found else full


def _without_pads(graph: Graph, full: str, image: str, layout: Windows) -> str:
    """The part of `full`, a gradient over the whole reach of the windows, that lies in the image."""
    lengths = graph.op("Shape", image, start=2)
    if not layout.found:
        return sliced(graph, full, graph.ints([0] * layout.rank), lengths, layout.axes)
    begins = layout.found[0]
    return sliced(graph, full, begins, graph.op("Add", begins, lengths), layout.axes)


def _flipped_pads(graph: Graph, kernel: str, layout: Windows) -> list[int] | None:
    """The pads of the convolution with the flipped kernel; None if the kernel is one pixel or a pad would be negative."""
    reach = [
        (length - 1) * dilation
        for length, dilation in zip(known_lengths(graph, kernel)[2:], layout.dilations, strict=True)
    ]
    pads = [whole - pad for whole, pad in zip(reach * 2, layout.pads, strict=True)]
    return pads if any(reach) and min(pads) >= 0 else None


def _flipped(graph: Graph, kernel: str, layout: Windows, group: int) -> str:
    """A kernel [group * n, m, ...] as [group * m, n, ...], flipped along all spatial axes."""
    lengths = known_lengths(graph, kernel)
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


def known_lengths(graph: Graph, name: str) -> list[int]:
    """The shape of a tensor if all of it is known, else []."""
    lengths = graph.lengths(name) or []
    numbers = [length for length in lengths if isinstance(length, int)]
    return numbers if len(numbers) == len(lengths) else []


def sliced(graph: Graph, name: str, starts: str, ends: str, axes: Sequence[int]) -> str:
    """A Slice of a tensor along some axes."""
    return graph.op("Slice", name, starts, ends, graph.ints(axes))


def padded(graph: Graph, image: str, layout: Windows) -> str:
    """The image padded with zeros if the pads are known at run time only, else the image itself."""
    if not layout.found:
        return image
    zeros = graph.ints([0, 0])
    return graph.op("Pad", image, graph.op("Concat", zeros, layout.found[0], zeros, layout.found[1], axis=0))

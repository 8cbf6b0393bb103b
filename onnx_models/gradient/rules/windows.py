"""Windows that move over a tensor: what Conv, ConvTranspose and AveragePool share.

Of the two tensors that such an operator joins, the image is the one that windows are laid on (X of Conv, Y of
ConvTranspose), the grid the one with an element for each window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_models.gradient.graph import Graph, Node

_SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Windows:
    """Where windows lie.

    strides, dilations: for each spatial axis.
    pads: at the begin of each spatial axis, then at its end; zeros where only the run time can tell.
    found: names of the begins and of the ends (int64) that only the run time can tell, or None.
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
        """The spatial axes, after those of the samples and the channels."""
        return range(2, 2 + self.rank)


def windows(graph: Graph, node: Node, rank: int, image: str, grid: str, kernel: str) -> Windows:
    """The windows of a node.

    Args:
        graph: where nodes are added for pads that follow from lengths.
        node: of Conv, ConvTranspose or AveragePool.
        rank: number of spatial axes.
        image: name of the tensor that windows are laid on.
        grid: name of the tensor with an element for each window.
        kernel: name of the lengths of a window, an int64 tensor.

    Raises:
        ValueError: there are no spatial axes, or pads are negative.
    """
    if rank < 1:
        raise ValueError(f"{node}: {image!r} has no axes beside samples and channels: must have one or more")
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
        # The odd pixel goes to the end with SAME_UPPER alone.
        found = (half, rest) if automatic == "SAME_UPPER" else (rest, half)
    return Windows(strides, dilations, (0,) * 2 * rank if found else pads, found)


def _all_pads(
    graph: Graph, node: Node, steps: tuple[Sequence[int], Sequence[int]], image: str, grid: str, kernel: str
) -> str:
    """For each axis the pads on both sides: what the windows cover beyond the image."""
    strides, dilations = steps
    extra = node.attribute("output_padding") or [0] * len(strides)
    one = graph.ints([1])
    moves = graph.op("Mul", graph.op("Sub", graph.op("Shape", grid, start=2), one), graph.ints(strides))
    reach = graph.op("Mul", graph.op("Sub", kernel, one), graph.ints(dilations))
    covered = graph.op("Add", graph.op("Add", moves, reach), graph.ints([1 + more for more in extra]))
    return graph.op("Max", graph.op("Sub", covered, graph.op("Shape", image, start=2)), graph.ints([0]))


def by_image(graph: Graph, by_grid: str, kernel: str, image: str, laid: Windows, group: int) -> str:
    """The gradient by the image: each element of the grid's gradient times the kernel, added up where its window lies.

    A transposed convolution that is at least as long as the image, as it ends with the last stride: cut.
    """
    more = [stride - 1 for stride in laid.strides]
    full = graph.op(
        "ConvTranspose", by_grid, kernel, group=group, strides=laid.strides, dilations=laid.dilations, pads=laid.pads,
        output_padding=more,
    )  # fmt: skip
    if not any(more) and not laid.found:
        return full
    lengths = graph.op("Shape", image, start=2)
    if not laid.found:
        return cut(graph, full, graph.ints([0] * laid.rank), lengths, laid.axes)
    begins = laid.found[0]
    return cut(graph, full, begins, graph.op("Add", begins, lengths), laid.axes)


def cut(graph: Graph, name: str, starts: str, ends: str, axes: Sequence[int]) -> str:
    """A part of a tensor along some of its axes."""
    return graph.op("Slice", name, starts, ends, graph.ints(axes))


def padded(graph: Graph, image: str, laid: Windows) -> str:
    """The image with zeros around it where only the run time can tell how many."""
    if not laid.found:
        return image
    zeros = graph.ints([0, 0])
    return graph.op("Pad", image, graph.op("Concat", zeros, laid.found[0], zeros, laid.found[1], axis=0))


def by_kernel(graph: Graph, image: str, grid: str, kernel: str, laid: Windows, group: int) -> str:
    """The gradient by the kernel [grid's channels, image's channels of a group, ...].

    A convolution of the image with the grid, in which samples and channels, strides and dilations change places.

    Args:
        graph: where the nodes are added.
        image: name of a tensor [samples, image's channels, ...], or the gradient by it.
        grid: name of a tensor [samples, grid's channels, ...], or the gradient by it.
        kernel: name of the kernel, of which the shape is read.
        laid: where the windows lie.
        group: number of groups of channels.
    """
    swapped = [1, 0, *laid.axes]
    correlation = graph.op(
        "Conv", _samples_last(graph, padded(graph, image, laid), kernel, laid, group),
        graph.op("Transpose", grid, perm=swapped),
        group=group, strides=laid.dilations, dilations=laid.strides, pads=laid.pads,
    )  # fmt: skip
    if any(stride > 1 for stride in laid.strides):
        lengths = graph.op("Shape", kernel, start=2)
        correlation = cut(graph, correlation, graph.ints([0] * laid.rank), lengths, laid.axes)
    turned = graph.op("Transpose", correlation, perm=swapped)
    if any(_has_samples(graph, name) for name in (image, grid)):
        return turned
    # ONNX Runtime leaves as it was in memory what a convolution of no channels should fill with zeros.
    samples = graph.op("Greater", graph.op("Shape", image, end=1), graph.ints([0]))
    return graph.masked(samples, turned, kernel)


def _has_samples(graph: Graph, name: str) -> bool:
    """Whether that is known of a tensor."""
    lengths = graph.lengths(name)
    return bool(lengths and isinstance(lengths[0], int) and lengths[0] > 0)


def _samples_last(graph: Graph, image: str, kernel: str, laid: Windows, group: int) -> str:
    """From [samples, group * channels, ...] to [channels, group * samples, ...]."""
    swapped = [1, 0, *laid.axes]
    if group == 1:
        return graph.op("Transpose", image, perm=swapped)
    samples, groups = graph.op("Shape", image, end=1), graph.ints([group])
    channels, lengths = graph.op("Shape", kernel, start=1, end=2), graph.op("Shape", image, start=2)
    parted = graph.op("Reshape", image, graph.op("Concat", samples, groups, channels, lengths, axis=0), allowzero=1)
    turned = graph.op("Transpose", parted, perm=[2, 1, 0, *range(3, 3 + laid.rank)])
    merged = graph.op("Concat", channels, graph.op("Mul", samples, groups), lengths, axis=0)
    return graph.op("Reshape", turned, merged, allowzero=1)

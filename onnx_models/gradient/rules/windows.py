"""Windows that move over a tensor: what Conv, ConvTranspose and AveragePool share.

Of the two tensors that such an operator joins, the image is the one that windows are layout on (X of Conv, Y of
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
        image: name of the tensor that windows are layout on.
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


def by_image(graph: Graph, by_grid: str, kernel: str, image: str, layout: Windows, group: int) -> str:
    """The gradient by the image: each element of the grid's gradient times the kernel, added up where its window lies.

    A transposed convolution that is at least as long as the image, as it ends with the last stride: cut. With strides of 1
    it also is a convolution with the kernel turned round, which ONNX Runtime computes in half the time and less where it
    can turn the kernel when the session is made. Else to turn it costs more than that saves.
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
    """What lies in the image, of a gradient by it that is as long as the windows reach, or without the pads at its begin."""
    lengths = graph.op("Shape", image, start=2)
    if not layout.found:
        return sliced(graph, full, graph.ints([0] * layout.rank), lengths, layout.axes)
    begins = layout.found[0]
    return sliced(graph, full, begins, graph.op("Add", begins, lengths), layout.axes)


def _flipped_pads(graph: Graph, kernel: str, layout: Windows) -> list[int] | None:
    """Those of the convolution with the kernel turned round; None where it is one pixel or its pads are negative."""
    reach = [
        (length - 1) * dilation
        for length, dilation in zip(known_lengths(graph, kernel)[2:], layout.dilations, strict=True)
    ]
    pads = [whole - pad for whole, pad in zip(reach * 2, layout.pads, strict=True)]
    return pads if any(reach) and min(pads) >= 0 else None


def _flipped(graph: Graph, kernel: str, layout: Windows, group: int) -> str:
    """A kernel [group * n, m, ...] as [group * m, n, ...], backwards along all spatial axes."""
    lengths = known_lengths(graph, kernel)
    ends = graph.ints([-1] * layout.rank)
    backwards = graph.op(
        "Slice", kernel, ends, graph.ints([-length - 1 for length in lengths[2:]]), graph.ints(layout.axes), ends
    )
    if group == 1:
        return graph.op("Transpose", backwards, perm=[1, 0, *layout.axes])
    n, m, rest = lengths[0] // group, lengths[1], lengths[2:]
    parted = graph.op("Reshape", backwards, graph.ints([group, n, m, *rest]))
    swapped = graph.op("Transpose", parted, perm=[0, 2, 1, *range(3, 3 + layout.rank)])
    return graph.op("Reshape", swapped, graph.ints([group * m, n, *rest]))


def known_lengths(graph: Graph, name: str) -> list[int]:
    """The shape of a tensor if all of it is known, else nothing."""
    lengths = graph.lengths(name) or []
    numbers = [length for length in lengths if isinstance(length, int)]
    return numbers if len(numbers) == len(lengths) else []


def sliced(graph: Graph, name: str, starts: str, ends: str, axes: Sequence[int]) -> str:
    """A part of a tensor along some of its axes."""
    return graph.op("Slice", name, starts, ends, graph.ints(axes))


def padded(graph: Graph, image: str, layout: Windows) -> str:
    """The image with zeros around it where only the run time can tell how many."""
    if not layout.found:
        return image
    zeros = graph.ints([0, 0])
    return graph.op("Pad", image, graph.op("Concat", zeros, layout.found[0], zeros, layout.found[1], axis=0))

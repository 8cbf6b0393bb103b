"""Cases of large sizes and unusual values, one of each: a fault beyond small sizes fails one of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.case import Array, Case, Source

BOX = (1.25, 0.75, 5.5, 4.25)
OF_ONNX = ("X", "rois", "batch_indices", "Y", "dY", "dX", "drois")
NAMES = {
    "roi_align": ("RoiAlign_16", "RoiAlignGrad", *OF_ONNX),
    "roi_align_rotated": ("RoIAlignRotated", "RoIAlignRotatedGrad", *OF_ONNX),
    "dml_roi_align": (
        *("DmlRoiAlign", "DmlRoiAlignGrad", "InputTensor", "ROITensor", "BatchIndicesTensor", "OutputTensor"),
        *("InputGradientTensor", "OutputGradientTensor", "OutputROIGradientTensor"),
    ),
}


class Maker:
    """Makes the cases of one dialect."""

    def __init__(self, operators: str) -> None:
        self.operators = operators
        self.names = NAMES[operators]
        self.random = np.random.default_rng(7)

    def settings(
        self, is_gradient: bool, bins: tuple[int, int], ratio: int, scale: float, is_max: bool
    ) -> dict[str, Any]:
        sizes = {} if is_gradient else {"output_height": bins[0], "output_width": bins[1]}
        if self.operators == "roi_align_rotated":
            return {"sampling_ratio": ratio, "spatial_scale": scale} | sizes
        if self.operators == "roi_align":
            return {"sampling_ratio": ratio, "spatial_scale": scale, "mode": "max" if is_max else "avg"} | sizes
        samples = {"minimum_samples_per_output": ratio, "maximum_samples_per_output": ratio} if ratio else {}
        reduction = {"reduction_function": "max"} if is_max else {}
        return {"spatial_scale_x": scale, "spatial_scale_y": scale} | samples | reduction | sizes

    def __call__(
        self,
        name: str,
        shape: tuple[int, ...],
        rois: Any = (BOX,),
        images: Any = None,
        bins: tuple[int, int] = (1, 1),
        ratio: int = 1,
        scale: float = 1.0,
        is_max: bool = False,
        x: Array | None = None,
        dtype: npt.DTypeLike = np.float32,
        has_gradient: bool = True,
    ) -> Iterator[Case]:
        if is_max and self.operators == "roi_align_rotated":
            return
        forward, gradient, of_map, of_rois, of_images, y, of_dy, dx, drois = self.names
        x = (self.random.permutation(int(np.prod(shape))) % 251 + 1).reshape(shape) / 16 if x is None else x
        boxes = self.boxes(np.array(rois)).astype(dtype)
        inputs = {
            of_map: x.astype(dtype),
            of_rois: boxes,
            of_images: np.zeros(len(boxes), np.int64) if images is None else np.array(images, np.int64),
        }
        source, of_bins = Source("a test", "1", name), (len(boxes), shape[1], *bins)
        attributes = self.settings(False, bins, ratio, scale, is_max)
        yield Case(f"f/large/{name}/{dtype}", source, forward, attributes, inputs, (y,), name)
        if has_gradient:
            dy = self.random.integers(1, 9, of_bins).astype(dtype)
            given = {of_dy: dy, **inputs, "x_shape": np.array(shape), of_map: inputs[of_map]}
            attributes = self.settings(True, bins, ratio, scale, is_max)
            yield Case(f"g/large/{name}/{dtype}", source, gradient, attributes, given, (dx, drois), name)

    def boxes(self, corners: Array) -> Array:
        """RoIs x1 y1 x2 y2 as the operators have them."""
        if self.operators != "roi_align_rotated":
            return corners
        first, last = corners[:, :2], corners[:, 2:]
        return np.concatenate([(first + last) / 2, last - first, np.zeros((len(corners), 1))], axis=1)

    def all(self) -> Iterator[Case]:
        """Every case."""
        moved = [np.array(BOX) + r / 256 for r in range(270)]
        yield from self("channels", (1, 299, 7, 7))
        yield from self("channels", (1, 287, 7, 7))
        yield from self("rois", (1, 1, 7, 7), moved)
        yield from self("images", (270, 1, 6, 6), [BOX] * 3, [3, 269, 130])
        yield from self("rows", (1, 1, 277, 3), [(0, 0, 3, 277)], bins=(139, 1))
        yield from self("columns", (1, 1, 3, 277), [(0, 0, 277, 3)], bins=(1, 139))
        yield from self("pixels", (1, 1, 270, 270), [(200, 262, 268, 268)], bins=(2, 2))
        yield from self("bins", (1, 1, 20, 20), [(0, 0, 19, 19)], bins=(33, 33))
        yield from self("ratio", (1, 1, 40, 40), [(0, 0, 99, 96)], ratio=33, has_gradient=False)
        yield from self("scale", (1, 1, 30, 30), [(0, 0, 4, 4)], scale=6.5, bins=(2, 2))
        yield from self("count", (1, 1, 9, 9), [(0.5, 0.5, 3.5078125, 3.5078125)], ratio=0)
        yield from self("left", (7, 1, 5, 5), [(1, 1, 3, 3)] * 2, [2, 4])
        for at in (0.5, 3.5, 6.5):
            yield from self(
                "on_a_pixel", (1, 1, 7, 7), [(at, at, at + 2, at + 2)], ratio=1, bins=(2, 2), x=self.curved()
            )
            yield from self("pixel", (1, 1, 7, 7), [(at - 1, at - 1, at + 1, at + 1)], x=self.curved())
        yield from self.values()

    def curved(self) -> Array:
        return np.arange(49.0).reshape(1, 1, 7, 7) ** 2 / 16

    def values(self) -> Iterator[Case]:
        for value, is_max in ((np.nan, False), (np.inf, False), (np.nan, True)):
            for place in ((6, 6), (3, 3), (2, 2), (1, 1)):
                x = np.arange(49.0).reshape(1, 1, 7, 7)
                x[0, 0, place[0], place[1]] = value
                yield from self(
                    f"{value}", (1, 1, 7, 7), [(1.25, 1.25, 3.5, 3.5)], x=x, ratio=2, is_max=is_max, has_gradient=False
                )
        infinite = np.full((1, 1, 7, 7), -np.inf)
        yield from self("infinite", (1, 1, 7, 7), x=infinite, ratio=2, is_max=True, has_gradient=False)
        for value, dtype in ((3e38, np.float32), (60000, np.float16), (1e-40, np.float32), (3e-7, np.float16)):
            x = np.full((1, 1, 7, 7), value)
            yield from self(f"{value}", (1, 1, 7, 7), x=x, ratio=2, dtype=dtype, has_gradient=False)
        yield from self("sum", (1, 1, 7, 7), [(1, 1, 3, 3)] * 9, x=np.zeros((1, 1, 7, 7)), dtype=np.float16)
        (gradient,) = list(self("beyond", (1, 1, 7, 7), [(1, 1, 3, 3)] * 9, dtype=np.float16))[1:]
        gradient.inputs[self.names[6]][:] = 30000
        yield gradient


@functools.cache
def large_cases(operators: str) -> tuple[Case, ...]:
    """The cases of one dialect."""
    return tuple(Maker(operators).all())

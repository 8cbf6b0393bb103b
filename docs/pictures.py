# SPDX-License-Identifier: MIT
"""The pictures of the documents: small cases that show what is particular about an operator, drawn by the suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from conformance.case import Array, Case, Source
from conformance.explain import explain
from conformance.explain.drawing import Theme, picture
from ortops.operators import BY_NAME


class Picture(NamedTuple):
    """One picture.

    title, detail: the lines above the drawings.
    alt: what the picture shows, for those who do not see it.
    drawings: for each drawing the case, its heading and the line below that.
    """

    title: str
    detail: str
    alt: str
    drawings: tuple[tuple[Case, str, str], ...]


def drawn(shown: Picture) -> dict[Theme, str]:
    """A picture as an SVG file for each theme."""
    drawings = []
    for case, name, detail in shown.drawings:
        drawing = explain(case).drawing
        if drawing is not None:
            drawings.append(replace(drawing, name=name, detail=detail))
    themes: tuple[Theme, ...] = get_args(Theme)
    return {theme: picture(shown.title, shown.detail, drawings, theme) for theme in themes}


def _case(operator: str, attributes: dict[str, Any], *inputs: npt.ArrayLike) -> Case:
    """A case of an operator with one output, its inputs in order."""
    definition = BY_NAME[operator]
    dtypes = {"T2": np.int64, "I": np.int64}
    arrays: dict[str, Array] = {
        tensor.name: np.asarray(values, dtypes.get(tensor.type, np.float32))
        for tensor, values in zip(definition.inputs, inputs, strict=True)
    }
    source = Source("this project", "1", "docs/pictures.py")
    return Case("docs/picture", source, operator, attributes, arrays, (definition.outputs[0].name,), "a picture")


def _ramp(height: int, width: int) -> Array:
    """[1, 1, height, width]: 1, 2, 3 and so on."""
    return np.arange(1, height * width + 1, dtype=np.float32).reshape(1, 1, height, width)


_POOLED = ["3141592", "6535897", "9323846", "2643383", "2765028", "8412716", "9399375"]

_TWO_BY_TWO = {"output_height": 2, "output_width": 2}
_OPSET_10, _OPSET_16 = (
    _case(operator, {"sampling_ratio": 2}, _ramp(5, 5), [[1, 1, 3, 3]], [0])
    for operator in ("RoiAlign_10", "RoiAlign_16")
)
_PARTLY_OFF_10, _PARTLY_OFF_16 = (
    _case(operator, {**_TWO_BY_TWO, "sampling_ratio": 2}, _ramp(5, 6), [[-2, 1, 4, 5]], [0])
    for operator in ("RoiAlign_10", "RoiAlign_16")
)
_COUNTER_CLOCKWISE, _CLOCKWISE = (
    _case(
        "RoIAlignRotated",
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "clockwise": clockwise},
        _ramp(7, 7),
        [[3.5, 3.5, 5, 3, np.pi / 6]],
        [0],
    )
    for clockwise in (0, 1)
)
_STEPS, _CORNERS = (
    _case(
        "DmlRoiAlign",
        {**_TWO_BY_TWO, "minimum_samples_per_output": 2, "maximum_samples_per_output": 2, **aligned},
        _ramp(4, 4),
        [[0.5, 0.5, 3.5, 3.5]],
        [0],
    )
    for aligned in ({}, {"align_regions_to_corners": 1, "output_pixel_offset": 0.0})
)
_RESAMPLED, _RESAMPLED_CORNERS = (
    _case(
        "DmlResample",
        {
            "output_sizes": (8, 8),
            "scales": scales,
            "input_pixel_offsets": (before, before),
            "output_pixel_offsets": (-before, -before),
        },
        _ramp(5, 5)[0, 0],
    )
    for scales, before in (((1.6, 1.6), 0.5), ((1.75, 1.75), 0.0))
)

PICTURES = {
    "opset-10-and-16": Picture(
        "One RoI, two answers: RoiAlign at opset 10 and at opset 16",
        "RoI from x1 = 1, y1 = 1 to x2 = 3, y2 = 3 on a 5 x 5 map. Output 1 x 1, mode avg, sampling_ratio 2.",
        "The same RoI on a 5 x 5 map by both conventions. At opset 10 its four samples lie between pixels, and their "
        "mean is 13. At opset 16 the RoI is half a pixel further up and left, and the mean is 10.",
        (
            (_OPSET_10, "Opset 10", "output_half_pixel: the RoI is at 1 to 3"),
            (_OPSET_16, "Opset 16 and 22", "half_pixel: the RoI is at 0.5 to 2.5"),
        ),
    ),
    "roi-align": Picture(
        "RoiAlign: the mean of bilinear samples in each bin",
        "RoI from x1 = -2, y1 = 1 to x2 = 4, y2 = 5 on a 5 x 6 map. Output 2 x 2, mode avg, sampling_ratio 2.",
        "A RoI that is partly off the map by both conventions. Samples further than one pixel off the map count as 0.",
        (
            (_PARTLY_OFF_10, "RoiAlign_10", "output_half_pixel (torchvision: aligned=False)"),
            (_PARTLY_OFF_16, "RoiAlign_16, RoiAlign_22", "half_pixel (torchvision: aligned=True)"),
        ),
    ),
    "roi-align-rotated": Picture(
        "RoIAlignRotated: the grid of samples turns with the RoI",
        "RoI with centre (3.5, 3.5), width 5, height 3 and angle pi/6 (30 degrees). Output 2 x 3, sampling_ratio 2.",
        "The same rotated RoI, with a positive angle that turns counter-clockwise and one that turns clockwise.",
        (
            (_COUNTER_CLOCKWISE, "clockwise = 0, the default", "a positive angle turns the RoI counter-clockwise"),
            (_CLOCKWISE, "clockwise = 1", "a positive angle turns the RoI clockwise"),
        ),
    ),
    "dml-roi-align": Picture(
        "DmlRoiAlign: two ways to place the samples",
        "Region from x1 = 0.5, y1 = 0.5 to x2 = 3.5, y2 = 3.5 on a 4 x 4 map. Output 2 x 2, 2 x 2 samples each.",
        "The same region with samples in the middle of their steps, as RoiAlign_16 has them, and with the outermost "
        "samples on the corners of the region.",
        (
            (_STEPS, "The defaults of DmlRoiAlign", "samples in the middle of their steps, as RoiAlign_16"),
            (_CORNERS, "align_regions_to_corners = 1", "and output_pixel_offset = 0: samples on the corners"),
        ),
    ),
    "dml-resample": Picture(
        "DmlResample: where each output reads the input",
        "5 x 5 pixels become 8 x 8 outputs, interpolation_mode linear. In brackets: the mode of ONNX's Resize.",
        "A map of 5 x 5 pixels with the 64 points that the outputs read: with the default offsets, where the outermost "
        "points are off the map, and with aligned corners, where they are the corner pixels.",
        (
            (_RESAMPLED, "The defaults", "offsets 0.5 and -0.5, scale 8/5 (half_pixel)"),
            (_RESAMPLED_CORNERS, "Aligned corners", "offsets 0 and 0, scale 7/4 (align_corners)"),
        ),
    ),
    "max-roi-pool": Picture(
        "MaxRoiPool: the largest pixel of each bin",
        "RoI from x1 = 0.8, y1 = 1.2 to x2 = 5.4, y2 = 5.3: pixels 1 to 5 of both axes. pooled_shape [2, 2].",
        "A RoI on a map of digits. It is rounded to whole pixels and cut into four bins that share a row and a column. The "
        "largest pixel of each bin is circled.",
        (
            (
                _case(
                    "MaxRoiPool_22",
                    {"pooled_shape": (2, 2)},
                    np.array([[[[float(digit) for digit in row] for row in _POOLED]]]),
                    [[0, 0.8, 1.2, 5.4, 5.3]],
                ),
                "Four bins of 3 x 3 pixels",
                "neighbouring bins share row 3 or column 3",
            ),
        ),
    ),
}
"""The pictures by the name of their files, images/NAME-light.svg and images/NAME-dark.svg."""

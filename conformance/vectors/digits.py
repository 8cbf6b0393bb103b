"""Attributes with more than six digits, which %g and other short formats drop.

Each case is far from 0, so that the seventh digit moves its samples by more than the rounding of float32 coordinates does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import ortops
from conformance.case import Basis, Case, Source
from conformance.vectors.dialects import BOTH, NONE, RESAMPLE, ROTATED, Attributes, Rule, make_cases, of_rule, pooled
from conformance.vectors.scenes import scatter

SCALE, OFFSET = float(np.float32(1.0000048)), float(np.float32(100.00048))
"""With six digits, these are 1 and 100."""

TYPES = ("float", "double")
FAR, NEAR = (1000.3125, 1009.6875), (1.3125, 4.1875)
SOURCE = Source("conformance/vectors/digits.py", f"ortops {ortops.__version__}", "rounded to the nearest pixel")


def cases() -> Iterator[Case]:
    """The cases of this module."""
    note = "spatial_scale has more than six digits, which move samples by 0.005 pixels"
    for variant, (x, y), (height, width) in (("along_x", (FAR, NEAR), (6, 1030)), ("along_y", (NEAR, FAR), (1030, 6))):
        yield from _on_a_map(
            (height, width), [[x[0], y[0], x[1], y[1]]], Rule(None, None, SCALE, 2), note, variant=variant
        )
        centre = [sum(x) / 2, sum(y) / 2, 5.25, 3.0625, 0.5]
        yield from _on_a_map((height, width), [centre], Rule(None, None, SCALE, 2), note, [ROTATED], variant)
    of_directml: tuple[tuple[str, Attributes, float], ...] = (
        ("input_pixel_offset", {"input_pixel_offset": OFFSET}, 100.0),
        ("out_of_bounds_input_value", {"out_of_bounds_input_value": SCALE}, -30.0),
    )
    for name, attributes, moved in of_directml:
        roi = [[moved + NEAR[0], moved + NEAR[0], moved + 5.3125, moved + 5.3125]]
        note = f"{name} has more than six digits"
        yield from _on_a_map((6, 7), roi, Rule(ratio=2), note, [BOTH[1]], name, attributes)
    # The end is pixel 1041 at a scale of 0.01, and 1042 at this one.
    pixels = np.arange(1050.0)
    yield from pooled(
        "digits/spatial_scale",
        pixels.reshape(1, 1, 1, -1),
        [[0, 0, 0, 104149.75, 0]],
        np.ones((1, 1, 1, 1)),
        spatial_scale=0.010000048,
        expected={"y": np.full((1, 1, 1, 1), 1042.0), "dx": (pixels == 1042).astype(np.float64).reshape(1, 1, 1, -1)},
        types=TYPES,
        note="spatial_scale has more than six digits, which make an end another pixel",
        source=SOURCE,
        basis=Basis.VECTORS,
    )
    of_resample: dict[str, Attributes] = {
        "scales": {"scales": (SCALE,)},
        "input_pixel_offsets": {"scales": (1.0,), "input_pixel_offsets": (OFFSET,), "output_pixel_offsets": (-100.25,)},
        "output_pixel_offsets": {
            "scales": (1.0,),
            "input_pixel_offsets": (-100.25,),
            "output_pixel_offsets": (OFFSET,),
        },
    }
    for name, attributes in of_resample.items():
        length = 1030 if name == "scales" else 12
        values, x_shape = scatter((length,), seed=50), np.array([length])
        yield from make_cases(
            f"digits/{name}",
            RESAMPLE,
            attributes,
            {"x": values, "dy": values, "x_shape": x_shape},
            ["y", "dx"],
            note=f"{name} has more than six digits",
            types=TYPES,
        )


def _on_a_map(
    lengths: tuple[int, int],
    rois: list[list[float]],
    rule: Rule,
    note: str,
    dialects: tuple[str, ...] | list[str] = BOTH,
    variant: str = "",
    attributes: Attributes = NONE,
) -> Iterator[Case]:
    """The cases of a RoI on a map of these lengths."""
    yield from of_rule(
        f"digits/{variant if attributes else 'spatial_scale'}",
        rule,
        {
            "x": np.add.outer(*((np.arange(n) + 8.0) % 32 for n in lengths)).reshape(1, 1, *lengths),
            "rois": np.array(rois),
            "indices": np.array([0]),
            "dy": scatter((1, 1, 2, 2), seed=52),
            "x_shape": np.array((1, 1, *lengths)),
        },
        ["y"] if variant.startswith("out_of") else ["y", "dx", "drois"],
        bins=(2, 2),
        more=attributes,
        dialects=dialects,
        variant="" if attributes else variant,
        note=note,
        types=TYPES,
    )

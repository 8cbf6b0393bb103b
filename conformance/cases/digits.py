# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attributes with more than six digits, which %g and other short formats drop.

Each case is far from 0, so that the seventh digit moves its samples by more than the rounding of float32 coordinates does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import ortops
from conformance.case import Basis, Case, Source
from conformance.cases.make import BOTH, POOL, RESAMPLE, ROTATED, Attributes, Rule, make, of_scene
from conformance.cases.scenes import Scene, scatter

SCALE, OFFSET = float(np.float32(1.0000048)), float(np.float32(100.00048))
"""With six digits, these are 1 and 100."""

TYPES = ("float", "double")
FAR, NEAR = (1000.3125, 1009.6875), (1.3125, 4.1875)
SOURCE = Source("conformance/cases/digits.py", f"ortops {ortops.__version__}", "rounded to the nearest pixel")


def cases() -> Iterator[Case]:
    """The cases of this module."""
    note = "spatial_scale has more than six digits, which move samples by 0.005 pixels"
    for variant, (x, y), lengths in (("along_x", (FAR, NEAR), (6, 1030)), ("along_y", (NEAR, FAR), (1030, 6))):
        box, rotated = (x[0], y[0], x[1], y[1], 0), (sum(x) / 2, sum(y) / 2, 5.25, 3.0625, 0.5, 0)
        for roi, operators in ((box, BOTH), (rotated, [ROTATED])):
            scene = Scene("spatial_scale", 0, note, (1, 1, *lengths), (roi,), (2, 2), 2, SCALE)
            yield from _on_ramps(scene, ["y", "dx", "drois"], operators=operators, variant=variant)
    of_directml: tuple[tuple[str, float, float, list[str]], ...] = (
        ("input_pixel_offset", OFFSET, 100.0, ["y", "dx", "drois"]),
        ("out_of_bounds_input_value", SCALE, -30.0, ["y"]),
    )
    for name, value, moved, outputs in of_directml:
        start, end = moved + NEAR[0], moved + 5.3125
        note = f"{name} has more than six digits"
        scene = Scene(name, 0, note, (1, 1, 6, 7), ((start, start, end, end, 0),), (2, 2), 2)
        yield from _on_ramps(scene, outputs, operators=BOTH[1], more={name: value}, variant="")
    # The end is pixel 1041 at a scale of 0.01, and 1042 at this one.
    pixels = np.arange(1050.0).reshape(1, 1, 1, -1)
    tensors = {"x": pixels, "rois": np.array([[0.0, 0, 0, 104149.75, 0]]), "dy": np.ones((1, 1, 1, 1))}
    yield from make(
        "digits/spatial_scale",
        POOL,
        Rule(scale=0.010000048),
        tensors,
        expected={"y": np.full((1, 1, 1, 1), 1042.0), "dx": (pixels == 1042).astype(np.float64)},
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
        yield from make(
            f"digits/{name}",
            RESAMPLE,
            attributes,
            {"x": values, "dy": values, "x_shape": x_shape},
            ["y", "dx"],
            note=f"{name} has more than six digits",
            types=TYPES,
        )


def _on_ramps(scene: Scene, outputs: list[str], **rest: Any) -> Iterator[Case]:
    """The cases of a scene on a map that rises by 1 per pixel along either axis and starts anew after 32."""
    x = np.add.outer(*((np.arange(n) + 8.0) % 32 for n in scene.x_shape[2:])).reshape(scene.x_shape)
    tensors = {"x": x, "dy": scatter((1, 1, 2, 2), seed=52)}
    yield from of_scene("digits", scene, outputs, tensors=tensors, types=TYPES, **rest)

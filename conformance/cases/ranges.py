# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scales, coordinates, RoIs and numbers of bins and samples far beyond the usual ones, up to where types of integers end.

Also calls after others in which every tensor had other lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Basis, Case, weakest
from conformance.cases import exact_rois
from conformance.cases.every_attribute import OF_MODE, basis_of
from conformance.cases.exact_rois import ExactRois
from conformance.cases.make import BOTH, ROTATED, Rule, make, of_scene
from conformance.cases.pool import of_crop as pooled_crop
from conformance.cases.rotated import SMALL, of_rotated
from conformance.cases.scenes import Scene
from conformance.cases.sessions import CROP, in_one_session

SCALES = (-24, 14)
"""The exponents of powers of two: about 6e-8 and 16384."""

TINY = 2.0**-20
"""The size of a RoI, in pixels: about 1e-6."""

FAR = (2.0**31, 2.0**32, 2.0**40)

MAX_WIDTH = 1024
"""Columns of the largest map on which the middle of such a RoI may lie."""

LENGTHS = (255, 256, 257, 300)
RATIOS = (255, 256, 257, 300)

BY_ROTATED: dict[str, Any] = {"types": ["float", "double"], "variant": ""}

OTHER_LENGTHS = ExactRois((3, 5, 8, 9), ((2, 4, 3), (0, 1, 4), (1, 0, 0)), (3, 4))
"""A call of a gradient in which each tensor has other lengths than that of `CROP`."""


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for turn, exponent in enumerate(SCALES):
        yield from _scaled(f"scale_2_to_{'minus_' * (exponent < 0)}{abs(exponent)}", 2.0**exponent, list(OF_MODE)[turn])
    yield from _tiny()
    for far in FAR:
        yield from _far(far)
    for n in LENGTHS:
        for scenario, crop in (
            (f"bins_2x{n}", ExactRois((1, 2, 4, n + 2), ((0, 0, 1), (0, 1, 0)), (2, n))),
            (f"bins_{n}x2", ExactRois((1, 2, n + 2, 4), ((0, 1, 0), (0, 0, 1)), (n, 2))),
        ):
            note = f"{2 * n} bins of a RoI, {n} of them along one axis"
            yield from exact_rois.cases(f"ranges/{scenario}", note, crop, types=["float", "float16"])
            yield from pooled_crop(f"ranges/{scenario}", note, crop, types=["float", "float16"])
    for turn, ratio in enumerate(RATIOS):
        yield from _of_ratio(ratio, list(OF_MODE)[turn % len(OF_MODE)])
    yield from _other_lengths()


def _scaled(scenario: str, scale: float, mode: str) -> Iterator[Case]:
    """A scale far from 1, and RoIs whose coordinates are as large or as small."""
    note = f"a spatial_scale of {scale:g}"
    crop = replace(CROP, scale=scale, mode=mode)
    yield from exact_rois.cases(f"ranges/{scenario}", note, crop)
    yield from pooled_crop(f"ranges/{scenario}", note, crop)
    rois = tuple((*(number / scale for number in roi[:4]), *roi[4:]) for roi in SMALL.rois)
    scene = replace(SMALL, name=scenario, note=note, rois=rois, spatial_scale=scale)
    yield from of_rotated("ranges", scene, 1, 0, **BY_ROTATED)


def _tiny() -> Iterator[Case]:
    """RoIs of a millionth of a pixel, which lie on the map like any others."""
    note = "a RoI of 2^-20 pixels: its samples lie where it is"
    sides = ((TINY, TINY), (TINY, 2.125), (1.625, TINY))
    rois = tuple((2.3125, 1.1875, 2.3125 + w, 1.1875 + h, 0.0) for w, h in sides)
    for ratio in (0, 2):
        scene = Scene(f"tiny_ratio_{ratio}", 331, note, (1, 2, 6, 7), rois, (2, 3), ratio)
        for mode in ("avg", "max"):
            for operator in BOTH:
                yield from of_scene(
                    "ranges",
                    scene,
                    # Rounding decides which of samples so near is the largest, and so where drois has its slope from.
                    ["y", "dx", "drois"] if mode == "avg" else ["y", "dx"],
                    mode,
                    "half_pixel",
                    operators=operator,
                    basis=basis_of(mode, operator),
                    types=["float", "double"],
                )
    turned = tuple((2.3125, 2.1875, w, h, 0.5, 0) for w, h in sides)
    tiny = replace(SMALL, name="tiny_ratio_2", note=note, x_shape=(1, 2, 6, 7), rois=turned, sampling_ratio=2)
    yield from of_rotated("ranges", tiny, 1, 0, **BY_ROTATED)


def _far(far: float) -> Iterator[Case]:
    """Ends of RoIs beyond the integers of 32 bits. The pixels of an image are equal, since coordinates are inexact there."""
    exponent = int(np.log2(far))
    # The least even multiple of the distance of two float32 numbers there; half of it is the middle of the first RoI.
    step = 2.0 ** (exponent - 22)
    rois = np.array([(-far, 0.5, far + step, 2.5), (far, 0.5, far + step, 2.5), (-far - step, 0.5, -far, 2.5)])
    reaches = step <= MAX_WIDTH
    rois = rois if reaches else rois[1:]
    shape = (1, 2, 4, int(step) if reaches else 5)
    x = np.broadcast_to(np.array([3.0, -2.0]).reshape(1, 2, 1, 1), shape)
    y = np.zeros((len(rois), 2, 1, 1))
    if reaches:
        y[0] = x[0, :, :1, :1]
    tensors = {"x": x, "rois": rois, "indices": np.zeros(len(rois), np.int64)}
    note = f"RoIs with ends {far:g} pixels from the map: 0, unless their only sample is in the middle of the map"
    rest: dict[str, Any] = {"note": note, "types": ["float", "double"], "expected": {"y": y}}
    scenario = f"ranges/ends_2_to_{exponent}"
    yield from make(scenario, BOTH, Rule("avg", "half_pixel", 1.0, 1), tensors, **rest)
    x1, y1, x2, y2 = rois.T
    turned = np.column_stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, 0 * x1])
    yield from make(scenario, ROTATED, Rule(ratio=1), {**tensors, "rois": turned}, **rest)


def _of_ratio(ratio: int, mode: str) -> Iterator[Case]:
    """More samples of a bin along an axis than a byte can count; a rotated RoI has at most 64."""
    # All samples along y are at one place, which the reference visits once.
    box = ((0.25, 1.1875, 2.5625, 1.1875, 0),)
    note = f"{ratio * ratio} samples of a bin, in a RoI without height"
    for operator in BOTH:
        yield from of_scene(
            "ranges",
            Scene(f"ratio_{ratio}", 340 + ratio % 7, note, (1, 1, 3, 4), box, (1, 1), ratio),
            ["y", "dx"],
            mode if operator == BOTH[0] or mode == "avg" else "max_interpolated",
            "half_pixel",
            operators=operator,
            basis=weakest(Basis.REFERENCE, basis_of(mode, operator)),
            types=["float", "double"],
        )


def _other_lengths() -> Iterator[Case]:
    """Gradients after calls of the same session in which every tensor had other lengths, bins included."""
    words = (
        "session/after_other_lengths",
        "the third call of a session; every tensor had other lengths in the calls before",
    )
    outputs = ("dx", "drois")
    smaller = ExactRois((1, 2, 5, 6), ((0, 1, 2),), (1, 1))
    calls = (CROP, smaller, OTHER_LENGTHS)
    asked, *before = (list(exact_rois.cases(*words, crop, types=["float"], outputs=outputs)) for crop in calls)
    yield from in_one_session(asked, before)
    asked, *before = (list(pooled_crop(*words, crop, types=["float"], outputs=["dx"])) for crop in calls)
    yield from in_one_session(asked, before)
    scenes = [
        SMALL,
        replace(SMALL, x_shape=(1, 2, 5, 6), rois=SMALL.rois[1:], bins=(1, 1)),
        replace(
            SMALL,
            x_shape=(3, 5, 8, 9),
            rois=(*SMALL.rois, SMALL.rois[0]),
            bins=(3, 4),
            shifts=((1, 0, 1, 1 / 16, 0.0),),
        ),
    ]
    named = [replace(scene, name="after_other_lengths", note=words[1], outputs=outputs) for scene in scenes]
    asked, *before = (list(of_rotated("session", scene, 1, 0, types=["float"], variant="")) for scene in named)
    yield from in_one_session(asked, before)

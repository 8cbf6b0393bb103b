# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sizes as in practice: around the powers of two at which blocked, vectorised and threaded code branches, and beyond.

Nearly all are exact RoIs or repetitions, whose results have a closed form (`exact_rois.py`). Modes, coordinate modes, scales
and element types alternate.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import ortops
from conformance.case import Basis, Case, Source, weakest
from conformance.cases import exact_rois
from conformance.cases.every_attribute import OF_MODE, basis_of
from conformance.cases.exact_rois import ExactRois, sixteenths
from conformance.cases.make import BOTH, RESAMPLE, make, of_scene
from conformance.cases.scenes import Scene

MODES = tuple(OF_MODE)
COORDINATES = ("output_half_pixel", "half_pixel")
SCALES = (1.0, 0.25, 8.0)

CHANNELS = (9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300)
ROIS = (15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300)
LENGTHS = (15, 16, 17, 18, 23, 31, 32, 33, 63, 64, 65, 127, 129, 255, 256, 257, 511, 513, 1025)
BINS = (8, 9, 14, 15, 16, 17, 28, 31, 33, 63, 64, 65, 70)
PLANES = ((64, 64), (63, 65), (65, 65), (255, 257), (256, 256), (257, 257))
"""Heights and widths of maps with about 2^12 and 2^16 pixels."""
BINS_OF_A_ROI = ((16, 16), (16, 17), (31, 33), (33, 32), (64, 65))
IMAGES = (9, 16, 17, 64, 127, 128, 129, 255, 256, 257, 300)
RATIOS = (3, 5, 7, 9, 15, 16, 17, 31, 33, 65, 129)

IMAGES_WITHOUT_ROIS = (
    ("no_rois_on_the_first_images", "the first images have no RoIs: their dX is 0", (3, 2, 3)),
    ("no_rois_on_images_within", "images between those with RoIs have none: their dX is 0", (4, 0, 0, 4)),
    ("no_rois_on_the_last_images", "the last images have no RoIs: their dX is 0", (1, 0, 1, 0)),
    ("one_box_on_every_image", "the same box on several images, and twice on one", (4, 1, 0, 3, 2, 1)),
)
MANY_PAIRS = (
    "rois_1025_channels_65",
    "1025 RoIs of 65 channels: more than 2^16 pairs",
    ExactRois((3, 65, 4, 5), tuple(((5 * r + r // 7) % 3, (r + r // 11) % 3, 3 * r % 4) for r in range(1025)), (1, 1)),
)


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for turn, (scenario, note, crop) in enumerate(each_size()):
        types = ["float", other_type(turn)]
        taking_turns = replace(
            crop,
            mode=MODES[turn % len(MODES)],
            coordinates=COORDINATES[turn // 3 % len(COORDINATES)],
            scale=SCALES[turn % 5 % len(SCALES)],
        )
        yield from _of_crop(scenario, note, taking_turns, types=types)
    scenario, note, crop = MANY_PAIRS
    for mode in MODES[:2]:
        yield from _of_crop(scenario, note, replace(crop, mode=mode), types=["float"], outputs=["y", "dx"])
    yield from _images_without_rois()
    yield from _ratios()
    yield from _adaptive_counts()
    yield from _narrow()
    yield from _resamples()


def other_type(turn: int) -> str:
    """The second type of a size: each type meets each of three modes or scales that take turns."""
    return ("double", "float16", "bfloat16")[(turn + turn // 3) % 3]


def _of_crop(scenario: str, note: str, crop: ExactRois, **rest: Any) -> Iterator[Case]:
    """The cases of a crop; DirectML, which does not have the maximum of weighted pixels, gets that of samples."""
    yield from exact_rois.cases(f"sizes/{scenario}", note, crop, **rest)
    if crop.mode == "max":
        instead = replace(crop, mode="max_interpolated")
        yield from exact_rois.cases(f"sizes/{scenario}", note, instead, operators=["dml_roi_align"], **rest)


def each_size() -> Iterator[tuple[str, str, ExactRois]]:
    """Yield the scenario, note and crop of each size; one length is large and the others are small."""
    for n in CHANNELS:
        yield f"channels_{n}", f"{n} channels", ExactRois((2, n, 4, 5), ((1, 0, 1), (0, 1, 2)))
    for n in ROIS:
        windows = tuple(((5 * r + r // 7) % 3, (r + r // 11) % 4, 3 * r % 5) for r in range(n))
        yield f"rois_{n}", f"{n} RoIs in any order of three images", ExactRois((3, 2, 6, 7), windows)
    for n in LENGTHS:
        ends = tuple(dict.fromkeys((0, n // 2, n - 3)))
        yield f"width_{n}", f"a map {n} columns wide", ExactRois((2, 2, 4, n), tuple((1, 1, w) for w in ends))
        yield f"height_{n}", f"a map {n} rows high", ExactRois((2, 2, n, 4), tuple((1, h, 1) for h in ends))
    for height, width in PLANES:
        windows = ((1, height - 3, width - 3), (0, height - 3, 0), (1, 0, width - 3), (0, height // 2, width // 2))
        scenario, note = f"map_{height}x{width}", f"images of {height} x {width} = {height * width} pixels"
        yield scenario, note, ExactRois((2, 1, height, width), windows)
    for n in BINS:
        yield f"bins_1x{n}", f"{n} bins side by side", ExactRois((1, 2, 3, n + 2), ((0, 0, 1), (0, 1, 0)), (1, n))
        yield f"bins_{n}x1", f"{n} bins one below another", ExactRois((1, 2, n + 2, 3), ((0, 1, 0), (0, 0, 1)), (n, 1))
    for height, width in BINS_OF_A_ROI:
        scenario, note = f"bins_{height}x{width}", f"{height * width} bins in a RoI"
        yield scenario, note, ExactRois((1, 2, height + 2, width + 2), ((0, 0, 1), (0, 1, 0)), (height, width))
    for n in IMAGES:
        windows = tuple((image, image % 2, image // 2 % 2) for image in (n - 1, 0, n // 2, n - 2, n - 1))
        yield f"images_{n}", f"{n} images, RoIs on few of them", ExactRois((n, 2, 4, 4), windows)
    for height, width in ((71, 73), (1, 131), (131, 1)):
        scenario, note = f"bins_{height}x{width}", f"{height * width} bins in a RoI"
        yield scenario, note, ExactRois((1, 2, height + 2, width + 2), ((0, 0, 1), (0, 1, 0)), (height, width))


def _images_without_rois() -> Iterator[Case]:
    """Images without RoIs, whose dX is 0, and the same box on several images."""
    alone = ("a_roi_on_one_image_alone", "only one image has a RoI", (2,))
    rows = (*IMAGES_WITHOUT_ROIS[:3], alone, *IMAGES_WITHOUT_ROIS[3:])
    for (turn, (scenario, note, images)), mode in itertools.product(enumerate(rows), MODES):
        windows = tuple((image, 2, 3) for image in images)
        crop = ExactRois((5, 3, 6, 7), windows, (2, 3), mode, COORDINATES[turn % 2])
        yield from exact_rois.cases(f"sizes/{scenario}", note, crop, types=["float", "double"])


def _ratios() -> Iterator[Case]:
    """Many samples per bin, including odd numbers of them."""
    box = ((0.25, 0.3125, 1.5625, 1.1875, 0),)
    for (turn, ratio), operator in itertools.product(enumerate(RATIOS), BOTH):
        mode, note = MODES[turn % len(MODES)], f"{ratio * ratio} samples of a bin"
        yield from of_scene(
            "sizes",
            Scene(f"ratio_{ratio}", ratio, note, (1, 1, 7, 9), box, (1, 2), ratio, 4.5),
            ["y", "dx"] if mode == "avg" else ["y"],  # rounding may choose another one of so many samples
            mode,
            operators=operator,
            basis=basis_of(mode, operator),
            types=["float", "double"] if ratio <= 65 else ["float"],
        )


def _adaptive_counts() -> Iterator[Case]:
    """Bins of a whole number of pixels, or slightly more, for which adaptive sampling takes one more sample."""
    for turn, whole in enumerate((1, 2, 3, 4, 7, 8, 66)):
        shape = (1, 2, 17, 18) if whole <= 8 else (1, 1, 2 * whole + 1, 2 * whole + 2)
        for scenario, more in (("is", 0.0), ("just_above", 2.0**-8)):
            size = 2 * (whole + more)
            box = ((0.75, 0.5, 0.75 + size, 0.5 + size, 0),)
            note = f"adaptive: bins of {whole + more} pixels have {whole + (more > 0)} samples on each axis"
            scene = Scene(f"adaptive_{scenario}_{whole}", 300 + turn, note, shape, box, (2, 2))
            yield from of_scene("sizes", scene, ["y"], variant="", types=["float", "double"])


def _narrow() -> Iterator[Case]:
    """Adaptive sampling of RoIs that are narrower than a pixel, which have one sample across."""
    x1, y1 = 2.3125, 1.1875
    widths = enumerate((0.75, 0.25, 1 / 16, 1 / 64))
    for (turn, width), mode, operator in itertools.product(widths, ("avg", "max"), BOTH):
        sides = ((width, 3.125), (3.125, width), (width, width))
        rois = tuple((x1, y1, x1 + w, y1 + h, 0) for w, h in sides)
        name, note = (
            f"narrow_{int(64 * width)}_of_64",
            f"adaptive: RoIs of {width:g} of a pixel along either axis or both",
        )
        coordinates = COORDINATES[turn % 2]
        is_raised = operator == "roi_align" and coordinates == "output_half_pixel"
        yield from of_scene(
            "sizes",
            Scene(name, 320 + turn, note, (1, 2, 6, 7), rois, (2, 3)),
            ["y", "dx", "drois"],
            mode,
            coordinates,
            operators=operator,
            basis=weakest(Basis.REFERENCE if is_raised else Basis.TEXT, basis_of(mode, operator)),
            types=["float", "double"],
        )


def _resamples() -> Iterator[Case]:
    """Upsampling by repetition, downsampling by averages of two, and their gradients."""
    source = Source("conformance/cases/sizes.py", f"ortops {ortops.__version__}", "repetitions, and means of two")
    for turn, (axis, n) in enumerate(itertools.product(range(4), (n for n in LENGTHS if n <= 257))):
        shape = tuple(2 * n if i == axis else 2 for i in range(4))
        x = sixteenths(shape)
        for interpolation, scale, y in (
            ("nearest_neighbor", 2.0, x.repeat(2, axis)),
            ("linear", 0.5, (x.take(range(0, 2 * n, 2), axis) + x.take(range(1, 2 * n, 2), axis)) / 2),
        ):
            # Interpolation, direction and the second type alternate from length to length.
            is_forward, is_chosen = turn % 2 == 0, (turn // 2 + axis) % 2 == (interpolation == "linear")
            if not is_chosen:
                continue
            scales = tuple(scale if i == axis else 1.0 for i in range(4))
            dy = sixteenths(y.shape, 3)
            pairs = dy.reshape(*shape[: axis + 1], 2, *shape[axis + 1 :]).sum(axis + 1) if scale == 2 else None
            dx = dy.repeat(2, axis) / 2 if pairs is None else pairs
            yield from make(
                f"sizes/axis_{axis}_{2 * n}",
                RESAMPLE,
                {"interpolation_mode": interpolation, "scales": scales},
                {"x": x, "dy": dy, "x_shape": np.array(shape)},
                expected={"y": y} if is_forward else {"dx": dx},
                variant=interpolation,
                source=source,
                note=f"{2 * n} elements along axis {axis}",
                types=["float", ("double", "float16")[turn % 2]],
            )

# SPDX-License-Identifier: MIT OR Apache-2.0
"""MaxRoiPool and its gradient on scenes, with exact bin bounds, sizes as in practice and unusual values, and in sessions.

The reference computes the expected values of scenes. Tests verify it with ONNX Runtime's kernel, and its gradient by finite
differences.

If a RoI of P + 1 pixels has P bins, each bin has two pixels and shares one with the next. So a bin consists of the four
pixels around the sample of a `ExactRois`, and the sizes are those of `sizes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import ortops
from conformance.case import Array, Basis, Case, Source
from conformance.cases.exact_rois import ExactRois, Inputs, by_precision, filled, reversed_channels
from conformance.cases.make import FLOATS, POOL, Rule, make
from conformance.cases.scenes import Scene, load, scatter
from conformance.cases.sessions import CROP, in_one_session, several_calls, single_calls
from conformance.cases.sessions import OTHERS as OTHER_CROPS
from conformance.cases.sizes import IMAGES_WITHOUT_ROIS, LENGTHS, MANY_PAIRS, SCALES, each_size, other_type
from conformance.cases.values import CROP as WINDOWS
from conformance.cases.values import NAN, ODD, beyond_float16, ends, outside_windows
from ortops.spec import ELEMENT_DTYPES

SOURCE = Source("conformance/cases/pool.py", f"ortops {ortops.__version__}", "the largest of four pixels")

BY_HAND = Source("ortops/operators/max_roi_pool.py", "definition", "exact bounds, in whole numbers")

INEXACT = {
    **dict.fromkeys(((7, 57), (11, 29), (13, 14), (14, 62), (20, 84), (21, 93)), FLOATS),
    **dict.fromkeys(((7, 29), (14, 58), (22, 30), (28, 29)), ("double",)),
}
"""Numbers of bins and pixels of a RoI for which float32, or float64 for doubles, gives a bin a pixel too many; and types."""

SCENES = load("pool.json", Scene)


def _pooled(
    scenario: str,
    x: Array,
    rois: Array | Sequence[Sequence[float]],
    dy: Array,
    outputs: Sequence[str] = (),
    spatial_scale: float = 1.0,
    **rest: Any,
) -> Iterator[Case]:
    """The cases of a map, RoIs with their images, and a gradient, whose shape is also that of Y."""
    tensors = {"x": x, "rois": np.array(rois, np.float64).reshape(-1, 5), "dy": dy}
    yield from make(scenario, POOL, Rule(scale=spatial_scale), tensors, outputs, **rest)


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for scene in SCENES:
        tensors = scene.tensors
        cases_of_scene = _pooled(
            f"matrix/{scene.name}",
            tensors["x"],
            np.column_stack([tensors["indices"], tensors["rois"]]),
            tensors["dy"],
            spatial_scale=scene.spatial_scale,
            outputs=["y", "dx"],
            note=scene.note,
            basis=scene.basis,
        )
        yield from with_ties(cases_of_scene) if scene.levels else cases_of_scene
    yield from _exact_bounds()
    yield from _coordinates()
    for turn, (scenario, note, crop) in enumerate(each_size()):
        if any((bins, bins + 1) in INEXACT for bins in crop.bins):
            continue  # floating point makes a bin wider, which is a scenario of its own
        scaled = replace(crop, scale=SCALES[turn % len(SCALES)])
        yield from of_crop(f"sizes/{scenario}", note, scaled, types=["float", other_type(turn)])
    scenario, note, crop = MANY_PAIRS
    yield from of_crop(f"sizes/{scenario}", note, crop, types=["float"])
    for scenario, note, images in IMAGES_WITHOUT_ROIS:
        crop = ExactRois((5, 3, 6, 7), tuple((image, 2, 3) for image in images), (2, 3))
        yield from of_crop(f"sizes/{scenario}", note, crop, types=["float", "double"])
    yield from _long_bins()
    yield from _odd_pixels()
    yield from _large_and_tiny()
    yield from beyond_float16(of_crop, "one pixel", 1)
    yield from _sessions()


def with_ties(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases of bins with several largest pixels: which one gets the gradient is this project's rule."""
    for case in cases:
        yield replace(case, basis=Basis.OURS) if case.definition.is_gradient else case


def _exact_bounds() -> Iterator[Case]:
    """Bins that floating-point bounds would make a pixel wider, along either axis, with pixels around the RoI."""
    for ((bins, size), types), along_x in ((row, along) for row in INEXACT.items() for along in (True, False)):
        first = np.array([p * size // bins for p in range(bins)])
        last = np.array([-(-(p + 1) * size // bins) - 1 for p in range(bins)])
        line = np.arange(size + 2.0)
        dx = np.zeros((2, size + 2))
        np.add.at(dx[0], 1 + last, 1.0)
        np.add.at(dx[1], 1 + first, 1.0)
        # In one channel pixels ascend, so the last one of a bin is the maximum; in the other they descend.
        lines = {"x": np.stack([line, -line]), "y": np.stack([1.0 + last, -1.0 - first]), "dx": dx}
        x, y, dx = (line[None, :, None, :] if along_x else line[None, :, :, None] for line in lines.values())
        ends = [1.0, 0.0, size, 0.0] if along_x else [0.0, 1.0, 0.0, size]
        yield from _pooled(
            f"matrix/{bins}_bins_of_{size}_pixels",
            x,
            [[0.0, *ends]],
            np.ones_like(y),
            expected={"y": y, "dx": dx},
            types=types,
            variant="along_x" if along_x else "along_y",
            note=f"{bins} bins of a RoI of {size} pixels have exact bounds; floating point would add a pixel to one",
            source=BY_HAND,
            basis=Basis.OURS,
        )


def _coordinates() -> Iterator[Case]:
    """Scaled ends that float16 cannot represent, from RoIs that it can; each pixel is its index modulo 8."""
    x = np.mod(np.arange(320.0), 8.0).reshape(1, 1, 1, 320)
    yield from _pooled(
        "matrix/coordinates_are_not_half",
        x,
        [[0, 1001.5, 0, 1001.5, 0], [0, 998.5, 0, 1001.5, 0]],
        np.array([[[[1.0]]], [[[2.0]]]]),
        spatial_scale=0.3,
        expected={"y": np.array([4.0, 4.0]).reshape(2, 1, 1, 1)},
        note="1001.5 at scale 0.3 is below 300.5 and so pixel 300, but float16 would make it 301",
        source=BY_HAND,
        basis=Basis.VECTORS,
    )


def of_crop(
    scenario: str,
    note: str,
    crop: ExactRois,
    change: Callable[[Inputs], Inputs] = dict,
    *,
    types: Sequence[str] = FLOATS,
    **rest: Any,
) -> Iterator[Case]:
    """The cases of a crop; `change` changes x and dy before the expected values are computed."""
    height, width = crop.bins
    ends = np.array([(n, w, h, w + width, h + height) for n, h, w in crop.windows], np.float64).reshape(-1, 5)
    rois = ends / np.array([1.0, *[crop.scale] * 4])
    fixed: dict[str, Any] = {"spatial_scale": crop.scale, "basis": Basis.VECTORS, "note": note, "source": SOURCE}
    for alike, factor in by_precision(types):
        inputs = change({"x": factor * crop.x, "dy": factor * crop.dy})
        x, dy = inputs["x"], inputs["dy"]
        pixels = crop.pixels(x)
        is_largest = np.arange(4)[:, None, None, None] == pixels.argmax(axis=1)[:, None]
        y, dx = pixels.max(axis=1), crop.scattered(np.where(is_largest, dy[:, None], 0.0), x.shape)
        yield from _pooled(scenario, x, rois, dy, expected={"y": y, "dx": dx}, types=alike, **fixed, **rest)


def _long_bins() -> Iterator[Case]:
    """One bin of all pixels of the map, with the maximum at another place in each channel."""
    for turn, n in enumerate(LENGTHS):
        for along_x in (True, False):
            x = np.zeros((1, 4, 2, n) if along_x else (1, 4, n, 2))
            lines = x if along_x else x.swapaxes(2, 3)
            for c, place in enumerate((0, n // 2, n - 2, n - 1)):
                lines[0, c, c % 2, place] = c + 1
            corner = (n - 1, 1) if along_x else (1, n - 1)
            yield from _pooled(
                f"sizes/bin_of_{n}_pixels",
                x,
                [[0, 0, 0, *corner]],
                np.ones((1, 4, 1, 1)),
                expected={"y": np.arange(1.0, 5.0).reshape(1, 4, 1, 1), "dx": np.sign(x)},
                types=["float", other_type(turn)],
                variant="along_x" if along_x else "along_y",
                note=f"a bin of {n} pixels along one axis, any of which may be the largest",
                source=SOURCE,
                basis=Basis.VECTORS,
            )


def _odd_pixels() -> Iterator[Case]:
    """NaN and infinite pixels outside of all bins, infinite pixels everywhere, and one NaN in a bin."""
    for scenario, value in ODD.items():
        words = scenario.replace("_", " ")
        note = f"pixels outside of all bins are {words}, and change nothing"
        beside = partial(outside_windows, value=value)
        yield from of_crop(f"values/{scenario}_beside_the_bins", note, WINDOWS, beside)
        if scenario != "nan":
            note = f"all pixels are {words}, and so are the outputs; the first of a bin gets the gradient"
            everywhere = partial(filled, role="x", value=value)
            yield from with_ties(of_crop(f"values/{scenario}_everywhere", note, WINDOWS, everywhere))
    # Each channel has NaN at other places of the bin, which are the bits of a number; the first one gets the gradient.
    one_place = {f"nan_at_{bit // 2}_{bit % 2}": [1 << bit] for bit in range(4)}
    for scenario, places in {"several_nan": [i for i in range(16) if i.bit_count() > 1], **one_place}.items():
        shape = 1, len(places), 2, 2
        x = np.array([NAN if i >> bit & 1 else 1.0 for i in places for bit in range(4)]).reshape(shape)
        first = np.array([np.arange(4) == (i & -i).bit_length() - 1 for i in places]).reshape(shape)
        several = "the maximum of a bin with several NaN is NaN, and the first NaN gets the gradient"
        yield from _pooled(
            f"values/{scenario}",
            x,
            [[0, 0, 0, 1, 1]],
            np.full((1, len(places), 1, 1), 2.0),
            expected={"y": np.full((1, len(places), 1, 1), NAN), "dx": 2.0 * first},
            note=several if len(places) > 1 else "the maximum of a bin with a NaN is NaN, wherever in the bin it is",
            source=SOURCE,
            basis=Basis.OURS,
        )


def _large_and_tiny() -> Iterator[Case]:
    """Numbers at either end of a type's range, which must be returned unchanged, as must gradients."""
    for element_type in FLOATS:
        large, tiny, least = ends(ELEMENT_DTYPES[element_type])
        for scenario, value, note in (
            ("large", large, "numbers near the largest of the type do not overflow"),
            (
                "large_negative",
                -large,
                "a maximum of numbers near the lowest of the type: it does not start above them",
            ),
            ("tiny", tiny, "the smallest normal numbers are not flushed to 0"),
            ("subnormal", 8 * least, "subnormal numbers are not flushed to 0"),
            ("negative_subnormal", -8 * least, "negative subnormal numbers are not flushed to 0"),
        ):
            y = np.full((1, 1, 1, 2), value)
            dx = np.zeros((1, 1, 3, 4))
            dx[0, 0, 0, [0, 2]] = value
            cases_of_value = _pooled(
                f"values/{scenario}",
                np.full(dx.shape, value),
                [[0, 0, 0, 3, 2]],
                y,
                expected={"y": y, "dx": dx},
                types=[element_type],
                note=note,
                source=SOURCE,
                basis=Basis.VECTORS,
            )
            yield from with_ties(cases_of_value)


def _sessions() -> Iterator[Case]:
    """A call of a session after earlier calls with other data, with the same sizes, other sizes, or both."""
    others = {name: (crop, dict) for name, crop in OTHER_CROPS} | {"another_map": (CROP, reversed_channels)}
    for scenario, names in (*((name, [name]) for name in others), ("all_of_these", list(others))):
        words = f"session/after_{scenario}", "a later call of a session, after calls with other data"
        calls = (of_crop(*words, *others[name], types=["float"]) for name in names)
        yield from in_one_session(of_crop(*words, CROP, types=["float"]), calls)
    yield from several_calls(partial(of_crop, types=["float"]))
    yield from single_calls(_of_fine_ends, "{} given as a constant of the model")


def _of_fine_ends(scenario: str, note: str) -> Iterator[Case]:
    """The cases of RoIs of which an end is below the middle of two pixels, and would be above it in float16."""
    yield from _pooled(
        f"session/{scenario}",
        scatter((2, 3, 6, 7), seed=61),
        [[1, 8 + 341 / 1024, 3.5625, 18.15625, 15.1875], [0, 4.1875, 8 + 341 / 1024, 11.59375, 18.8125]],
        scatter((2, 3, 2, 2), seed=161),
        ["y", "dx"],
        spatial_scale=0.3,
        note=note,
        types=["float"],
        basis=Basis.VECTORS,
    )

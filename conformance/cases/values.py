# SPDX-License-Identifier: MIT OR Apache-2.0
"""Unusual values: NaN and infinite pixels, sums beyond the range of a type, subnormal results.

The rules follow from the text: a pixel that no sample reads has no influence, the average of finite numbers lies between
them, and ONNX's types are formats of IEEE 754 (onnx.proto), whose arithmetic has NaN, infinities and subnormal numbers. Only
the rule that a maximum over NaN is NaN is this project's own, because IEEE 754 has several maxima.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import ortops
from conformance.case import Basis, Case, Source
from conformance.cases import exact_rois
from conformance.cases.every_attribute import OF_MODE, basis_of
from conformance.cases.exact_rois import ExactRois, Inputs, sixteenths
from conformance.cases.make import FLOATS, RESAMPLE, ROTATED, Rule, make, of_scene
from conformance.cases.scenes import OF_30, OF_135, Scene
from ortops.spec import ELEMENT_DTYPES

MODES = tuple(OF_MODE)
MANY = 4096
"""The number of RoIs at one place. A float16 sum of so many ones stops at 2048, a bfloat16 one at 256."""

NAN = float("nan")
FLT_MAX = float(np.finfo(np.float32).max)
ODD = {"nan": NAN, "infinity": float("inf"), "minus_infinity": -float("inf")}
SOURCE = Source("conformance/cases/values.py", f"ortops {ortops.__version__}", "closed forms")

CROP = ExactRois((2, 3, 7, 19), ((1, 1, 2), (0, 3, 15), (1, 2, 8)), (2, 3))
"""Windows with pixels before, between and after them that no sample reads."""


def cases() -> Iterator[Case]:
    """The cases of this module."""
    yield from _odd_pixels()
    yield from _large_and_tiny()
    yield from beyond_float16(exact_rois.cases, "four pixels", 4)
    yield from _on_pixels()
    yield from _among_samples()


def _odd_pixels() -> Iterator[Case]:
    """Pixels and gradients that are NaN or infinite, outside of all samples, in one, or everywhere."""
    for scenario, value in ODD.items():
        words = scenario.replace("_", " ")
        for mode in MODES:
            crop = replace(CROP, mode=mode)
            if scenario != "minus_infinity":
                yield from exact_rois.cases(
                    f"values/{scenario}_beside_the_samples",
                    f"pixels that no sample reads are {scenario}, and change nothing",
                    crop,
                    change=partial(outside_windows, value=value),
                )
            else:
                yield from exact_rois.cases(
                    f"values/{scenario}_everywhere",
                    "a map of minus infinity: a maximum does not start at the lowest finite number",
                    crop,
                    outputs=["y"],
                    change=partial(exact_rois.filled, role="x", value=value),
                )
            is_open = scenario == "nan" and mode != "avg"
            yield from exact_rois.cases(
                f"values/{scenario}_in_a_sample",
                f"a pixel that is {words} affects only the bins that read it",
                crop,
                outputs=["y"],
                change=partial(exact_rois.with_element, role="x", place=(1, 1, 2, 4), value=value),
                **({"basis": Basis.OURS} if is_open else {}),
            )
        yield from exact_rois.cases(
            f"values/{scenario}_gradient",
            f"a gradient is {words}, and goes to the four pixels that its bin reads and to no other",
            CROP,
            outputs=["dx"],
            change=partial(exact_rois.with_element, role="dy", place=(0, 1, 1, 1), value=value),
        )


def outside_windows(inputs: Inputs, value: float) -> Inputs:
    """Set the map of `CROP` to this value outside of all windows."""
    x = inputs["x"]
    changed = np.full(x.shape, value)
    height, width = CROP.bins
    for image, row, column in CROP.windows:
        window = np.s_[image, :, row : row + height + 1, column : column + width + 1]
        changed[window] = x[window]
    return {**inputs, "x": changed}


def _large_and_tiny() -> Iterator[Case]:
    """Constant maps: their average is the constant, although the sum of a bin's samples may overflow the type."""
    overflow = "the sum of 64 samples is beyond the type's range, but their average is not"
    of_rotated = "a constant map: the sum of a bin's samples may be beyond the type's range, but the average is not"
    either = "the smallest normal and subnormal numbers are not flushed to 0"
    for element_type in FLOATS:
        large, tiny, least = ends(ELEMENT_DTYPES[element_type])
        if element_type != "double":  # there is no wider type for sums of double
            for scenario, value in (("sum_overflows", large), ("negative_sum_overflows", -large)):
                yield from _constant(scenario, overflow, of_rotated, value, element_type)
        of_tiny = "the smallest normal numbers are not flushed to 0"
        yield from _constant("tiny", of_tiny, either, tiny, element_type)
        yield from _constant("subnormal", "subnormal numbers are not flushed to 0", either, 8 * least, element_type)


def ends(dtype: np.dtype[Any]) -> tuple[float, float, float]:
    """A number near the largest of a type, its smallest normal and its smallest subnormal number, all exact."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return 1.5 * 2.0 ** (info.maxexp - 1), float(info.smallest_normal), float(info.smallest_subnormal)


def _constant(scenario: str, note: str, note_of_rotated: str, value: float, element_type: str) -> Iterator[Case]:
    boxes = np.array([[1.5, 1.25, 9.5, 5.25], [2.0, 1.0, 4.0, 5.0]])
    rotated = np.array([[5.5, 3.5, 4.5, 3.0, OF_30], [5.25, 3.5, 2.0, 4.0, OF_135]])
    common: dict[str, Any] = {"source": SOURCE, "types": [element_type]}
    if 64 * abs(value) > FLT_MAX and element_type != "double":
        common["basis"] = Basis.OURS  # sums are float32 at least, so a runtime may add before it divides
    for operator, mode, rois in (
        ("roi_align", "avg", boxes),
        ("roi_align", "max_interpolated", boxes),
        ("dml_roi_align", "", boxes),
        (ROTATED, "", rotated),
    ):
        yield from make(
            f"values/{scenario}",
            operator,
            Rule(mode or None, ratio=8),
            {"x": np.full((1, 2, 8, 11), value), "rois": rois, "indices": np.array([0, 0])},
            expected={"y": np.full((2, 2, 1, 2), value)},
            variant=mode,
            note=note_of_rotated if operator == ROTATED else note,
            **{"basis": basis_of(mode or "avg", operator), **common},
        )
    yield from make(
        f"values/{scenario}",
        RESAMPLE,
        {"scales": (0.5, 0.5)},
        {"x": np.full((6, 8), value)},
        expected={"y": np.full((3, 4), value)},
        note=note,
        **common,
    )


def beyond_float16(make_cases: Callable[..., Iterator[Case]], pixels: str, count: int) -> Iterator[Case]:
    """A result of 65520 or more rounds to infinity in float16, not to the largest number.

    Args:
        make_cases: makes the cases of a scenario, given its name, a note, RoIs and a change of the tensors.
        pixels: the pixels to which a RoI passes its gradient, in words.
        count: the number of these pixels, which share the gradient.
    """
    rois = ExactRois((1, 1, 3, 3), ((0, 0, 0),) * MANY, (1, 1))
    for scenario, each in (("beyond_float16", 20.0), ("up_to_float16", 15.984375)):
        yield from make_cases(
            f"values/dX_{scenario}",
            f"{MANY} RoIs pass {each} each to {pixels}, {MANY * each:g} together",
            rois,
            change=partial(exact_rois.filled, role="dy", value=count * each),
            outputs=["dx"],
            types=["float16", "float"],
        )


OF_A_KINK = {
    "at_the_first_pixel": Basis.OURS,
    "on_a_pixel": Basis.REFERENCE,
    "on_the_last_pixel": Basis.REFERENCE,
}
"""The basis of the slope at a sample on a pixel, where the derivatives from both sides differ."""


def _on_pixels() -> Iterator[Case]:
    """The gradient by a RoI whose only sample lies exactly on a pixel along one axis.

    ONNX's reference evaluator interpolates in the cell that starts at the pixel, and holds coordinates at the first and
    at the last pixel; whether it holds one that lies on the first is open.
    """
    row = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    places: Mapping[str, tuple[float, float]] = {
        "at_the_first_pixel": (0.0, 1.0),
        "on_a_pixel": (2.0, 4.0),
        "on_the_last_pixel": (4.0, 0.0),
    }
    of_onnx = "drois of a sample on a pixel has the slope of the cell that starts there, or 0 if none does"
    of_directml = (
        "drois of a sample on a pixel along one axis: the slope along this axis is 0, along the other one it is not"
    )
    for (scenario, (c, slope)), along_x in itertools.product(places.items(), (True, False)):
        # Along the other axis, the map is constant for ONNX and rises by 1 per pixel for DirectML.
        for operator, note, on_axis, on_other in (
            ("roi_align", of_onnx, slope, 0.0),
            ("dml_roi_align", of_directml, 0.0, 1.0),
        ):
            pixels = np.tile(row, (5, 1)) + on_other * np.arange(5.0)[:, None]
            ends, droi = [[c - 1, 1.0], [c + 1, 2.0]], [on_axis / 2, on_other / 2]
            step = 1 if along_x else -1
            roi = (*ends[0][::step], *ends[1][::step], 0)
            scene = Scene(f"sample_{scenario}", 0, note, (1, 1, 5, 5), (roi,), (1, 1), 1)
            x = (pixels if along_x else pixels.T)[None, None]
            yield from of_scene(
                "values",
                scene,
                ["drois"],
                coordinates="output_half_pixel",
                tensors={"x": x, "dy": np.ones((1, 1, 1, 1))},
                expected={"drois": np.array([droi[::step] * 2])},
                operators=operator,
                variant="along_x" if along_x else "along_y",
                source=SOURCE,
                basis=Basis.TEXT if operator == "dml_roi_align" else OF_A_KINK[scenario],
            )


def _among_samples() -> Iterator[Case]:
    """A maximum over several samples is NaN if any of them is; the first NaN gets the gradient."""
    x = sixteenths((1, 4, 5, 9))
    for channel, (row, column) in enumerate(((1, 1), (1, 3), (3, 2), (4, 8))):
        x[0, channel, row, column] = NAN
    several = sixteenths((1, 4, 5, 9))
    for channel, places in enumerate(
        (((1, 1), (1, 3)), ((1, 3), (3, 1)), ((1, 2), (1, 4), (4, 4)), ((1, 1), (2, 3), (3, 2), (4, 3)))
    ):
        for row, column in places:
            several[0, channel, row, column] = NAN
    yield from exact_rois.cases(
        "values/several_nan",
        "a maximum over several NaN is NaN, and the first NaN gets the gradient",
        ExactRois((1, 4, 5, 9), ((0, 1, 1), (0, 2, 2)), mode="max"),
        outputs=["y", "dx"],
        change=lambda inputs: {**inputs, "x": several},
        basis=Basis.OURS,
    )
    scene = Scene("", 0, "", (1, 4, 5, 9), ((0.5, 0.5, 8.5, 4.5, 0),), (1, 2), 2, basis=Basis.OURS)
    note = "a maximum over four samples is NaN if several of them are, and the first one gets the gradient"
    yield from of_scene(
        "values",
        replace(scene, name="several_nan_among_samples", note=note),
        ["y", "dx"],
        "max_interpolated",
        "output_half_pixel",
        {"x": several, "dy": sixteenths((1, 4, 1, 2), 5)},
    )
    # Each sample lies in the middle between four pixels that no other sample reads.
    samples = x[..., 1:, 1:].reshape(1, 4, 2, 2, 4, 2).mean(axis=(3, 5))
    yield from of_scene(
        "values",
        replace(scene, name="nan_among_samples", note="a maximum over four samples is NaN if any of them is"),
        ["y"],
        "max_interpolated",
        "output_half_pixel",
        {"x": x},
        expected={"y": samples.reshape(1, 4, 2, 2, 2).max(axis=(2, 4))[:, :, None]},
        source=SOURCE,
    )

"""RoIAlignRotated and its gradient: scenes of rotated RoIs, sizes as in practice, unusual values, and sessions.

The reference computes the expected values. The numbers of RoIs are short binary fractions, which are exact in every element
type. If necessary, the centre of a RoI is shifted until its samples keep away from where rounding of a coordinate decides:
borders, pixels, whole numbers of samples, and the minimum size. Sizes are beyond the powers of two at which blocked,
vectorised and threaded code branches, and mostly prime or odd, so that no block divides them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Array, Case
from conformance.geometry.rotated import Sampling, coordinates, samples_of
from conformance.vectors.dialects import ROTATED, of_scene
from conformance.vectors.matrix import WANTED
from conformance.vectors.scenes import (
    MORE_THAN_A_TURN,
    OF_30,
    OF_45,
    OF_90,
    OF_135,
    Scene,
    clearance,
    is_nearly_whole,
    load,
)
from conformance.vectors.sessions import in_one_session, single_calls
from conformance.vectors.values import OF_A_KINK

MARGIN = 1e-3
"""In pixels. Rounding of float32 coordinates moves a sample of the scenes by less than a twentieth of this."""

SHIFTS = tuple(itertools.product((0, 1, -1, 2, -2, 3, -3), repeat=2))
"""The shifts of a centre that are tried, in steps of the scene."""


@dataclass(frozen=True, slots=True)
class RotatedScene(Scene):
    """A scene with rotated RoIs: cx, cy, w, h, angle, and the index of the image.

    variants: the values of aligned and clockwise.
    step: the step by which centres may be shifted, in units of the stored coordinates.
    types: element types; if empty, float, double and one of the 16-bit types.
    outputs: the roles of the outputs; if empty, y and alternating outputs of the gradient.
    """

    variants: tuple[tuple[int, int], ...] = ((1, 0), (0, 1))
    step: float = 1 / 16
    types: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def sampling(self, aligned: int, clockwise: int) -> Sampling:
        """The sampling of one of the variants."""
        lengths, scale = (self.x_shape[2], self.x_shape[3]), float(np.float32(self.spatial_scale))
        return Sampling(self.bins, lengths, aligned, clockwise, self.sampling_ratio, scale)

    def tensors_of(self, aligned: int, clockwise: int) -> dict[str, Array]:
        """The tensors by role, with the centres of the RoIs shifted for one of the variants."""
        sampling, tensors = self.sampling(aligned, clockwise), self.tensors
        has_slopes = not self.outputs or "drois" in self.outputs
        rois = [self._shifted(roi, sampling, has_slopes) for roi in tensors["rois"].tolist()]
        return {**tensors, "rois": np.array(rois, np.float64).reshape(-1, 5)}

    def _shifted(self, roi: Sequence[float], sampling: Sampling, has_slopes: bool) -> list[float]:
        """The RoI with its centre shifted by the first of `SHIFTS` that keeps it away from where rounding decides."""
        cx, cy, *rest = roi
        for right, down in SHIFTS:
            moved = [cx + right * self.step, cy + down * self.step, *rest]
            if is_clear(moved, sampling, has_slopes):
                return moved
        raise ValueError(f"scene {self.name}: no centre near {cx}, {cy} keeps samples away from where rounding decides")


def is_clear(roi: Sequence[float], sampling: Sampling, has_slopes: bool) -> bool:
    """Whether rounding decides neither the number of samples, nor which pixels they read, nor their slopes if these matter.

    A region with too many samples to list is not checked further.
    """
    region = sampling.region(roi)
    for stored, side in ((roi[2], region.width), (roi[3], region.height)):
        size, wanted = stored * sampling.scale, side.size / side.bins
        is_open = sampling.ratio == 0 and wanted > 0 and is_nearly_whole(wanted, MARGIN)
        if is_open or (not sampling.aligned and abs(size - 1) < MARGIN):
            return False
    if region.total * region.height.bins * region.width.bins > 10**6:
        return True
    along_axes = zip(coordinates(region), sampling.lengths, strict=True)
    return all(clearance(c, length, MARGIN, has_slopes=has_slopes) >= MARGIN for c, length in along_axes)


def of_rotated(family: str, scene: RotatedScene, aligned: int, clockwise: int, **rest: Any) -> Iterator[Case]:
    """The cases of one variant of a scene; `rest` has further arguments of `of_rule`."""
    words = f"{'aligned' if aligned else 'not_aligned'}/{'clockwise' if clockwise else 'counter_clockwise'}"
    yield from of_scene(
        family,
        scene,
        scene.outputs,
        tensors=scene.tensors_of(aligned, clockwise),
        more={"aligned": aligned, "clockwise": clockwise},
        dialects=[ROTATED],
        **{"types": scene.types, "variant": words, **rest},
    )


SCENES = load("roi_align_rotated.json", RotatedScene)

ANGLES = (OF_30, -OF_45, OF_90, OF_135, 0.0, MORE_THAN_A_TURN)

SMALL = RotatedScene(
    "small",
    23,
    "two RoIs on two images of three channels",
    (2, 3, 6, 7),
    ((2.625, 3.1875, 3.375, 2.25, OF_30, 1), (3.6875, 2.625, 2.125, 3.5, -OF_45, 0)),
    (2, 2),
    1,
    types=("float",),
    outputs=("y", "dx", "drois"),
)


OF_SMALL: dict[str, Any] = {"dialects": [ROTATED], "types": ["float"], "variant": ""}


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for turn, (scene, variant) in enumerate((one, variant) for one in SCENES for variant in one.variants):
        types = scene.types or ("float", "double", ("float16", "bfloat16")[turn % 2])
        outputs = scene.outputs or ("y", *WANTED[turn % len(WANTED)])
        yield from of_rotated("matrix", replace(scene, types=types, outputs=outputs), *variant)
    for turn, scene in enumerate(_sizes()):
        given = replace(scene, outputs=scene.outputs or SMALL.outputs, types=scene.types or SMALL.types)
        yield from of_rotated("sizes", given, 1 - turn % 2, turn // 2 % 2, variant="")
    yield from _odd_values()
    yield from _on_pixels()
    yield from _sessions()


def _around(count: int, cx: float, cy: float, images: Sequence[int] = (0,)) -> tuple[tuple[float, ...], ...]:
    """Distinct RoIs of a few pixels around a point."""
    return tuple(
        (
            cx + (r % 7 - 3) / 16,
            cy + (r // 7 % 5 - 2) / 16,
            2.125 + r % 11 / 16,
            1.625 + r % 13 / 16,
            ANGLES[r % len(ANGLES)],
            images[r % len(images)],
        )
        for r in range(count)
    )


def _sizes() -> Iterator[RotatedScene]:
    """The scenes in which one length is large and the others are small."""
    for n in (17, 299):
        yield RotatedScene(f"channels_{n}", n, f"{n} channels", (2, n, 4, 5), _around(2, 2.5, 2.0, (1, 0)), (2, 2), 1)
    of_three = _around(299, 3.25, 2.75, (2, 0, 1))
    yield RotatedScene("rois_299", 31, "299 RoIs on three images", (3, 2, 6, 7), of_three, (1, 2), 1)
    for n in (23, 263):
        places = [(float(place), ANGLES[place % 4]) for place in (2, n // 2, n - 3)]
        along_x: tuple[tuple[float, ...], ...] = tuple((place, 1.75, 3.375, 2.125, angle, 1) for place, angle in places)
        along_y: tuple[tuple[float, ...], ...] = tuple((1.75, place, 3.375, 2.125, angle, 1) for place, angle in places)
        yield RotatedScene(f"width_{n}", n, f"a map {n} columns wide", (2, 2, 4, n), along_x, (2, 2), 1)
        yield RotatedScene(f"height_{n}", n, f"a map {n} rows high", (2, 2, n, 4), along_y, (2, 2), 1)
    in_corners = ((254.5, 255.25, 4.25, 3.125, OF_45, 0), (3.25, 255.0, 3.125, 4.25, OF_30, 1))
    yield RotatedScene("map_259x257", 32, "images of 259 x 257 = 66563 pixels", (2, 1, 259, 257), in_corners, (2, 2), 1)
    one = _around(1, 3.125, 2.25)
    yield RotatedScene("bins_1x29", 33, "29 bins side by side", (1, 2, 5, 6), one, (1, 29), 1)
    yield RotatedScene("bins_29x1", 34, "29 bins one below another", (1, 2, 5, 6), one, (29, 1), 1)
    yield RotatedScene("bins_15x14", 35, "210 bins in a RoI", (1, 2, 5, 6), one, (15, 14), 1, outputs=("y", "dx"))
    on_few = _around(3, 2.25, 2.0, (293, 7, 131))
    yield RotatedScene("images_299", 36, "299 images, RoIs on few of them", (299, 1, 4, 5), on_few, (2, 2), 1)
    every = tuple((2.625, 3.1875, 3.375, 2.25, OF_30, image) for image in (4, 1, 0, 3, 2, 1))
    note = "the same box on several images, and twice on one"
    yield RotatedScene("one_box_on_every_image", 37, note, (5, 2, 6, 7), every, (2, 2), 1)
    box = ((4.25, 3.125, 5.875, 4.625, OF_30, 0),)
    for ratio in (9, 17, 33, 64):
        note = f"{ratio * ratio} samples of a bin"
        yield RotatedScene(f"ratio_{ratio}", 38, note, (1, 1, 7, 9), box, (1, 2), ratio, outputs=("y", "dx"))
    wide = ((4.25, 3.125, 250.0, 125.0, OF_30, 0),)
    note = "adaptive: bins of 125 pixels have 15625 samples, most of them off the map"
    # In float the sum of so many samples may round too far to tell.
    yield RotatedScene("adaptive_125", 44, note, (1, 1, 7, 9), wide, (1, 2), 0, outputs=("y", "dx"), types=("double",))
    many = tuple((3.25, 2.75, 2.125 + r % 16 / 16, 1.625, 0.0, r % 2) for r in range(1025))
    yield RotatedScene(
        "rois_1025_channels_65", 41, "1025 RoIs of 65 channels", (2, 65, 6, 7), many, (1, 1), 1, outputs=("y", "dx")
    )
    yield RotatedScene("bins_1x129", 42, "129 bins side by side", (1, 2, 5, 6), one, (1, 129), 1)
    narrow = tuple((2.6875, 2.3125, w, h, OF_30, 0) for w, h in ((0.25, 3.125), (3.125, 1 / 16), (1 / 64, 1 / 64)))
    note = "adaptive: RoIs of a quarter, a 16th and a 64th of a pixel have one sample across"
    yield RotatedScene("narrower_than_a_pixel", 43, note, (1, 2, 6, 6), narrow, (2, 3), 0)
    for scenario, more in (("is", 0.0), ("just_above", 2.0**-8)):
        for whole in (2, 7):
            size, side = 2 * (whole + more), whole + (more > 0)
            note = f"adaptive: bins of {whole + more} pixels have {side} samples on each axis"
            square = ((8.25, 7.5, size, size, OF_30, 0),)
            yield RotatedScene(
                f"adaptive_{scenario}_{whole}", 39, note, (1, 2, 17, 18), square, (2, 2), 0, outputs=("y",)
            )


def _odd_values() -> Iterator[Case]:
    """NaN and infinite pixels and gradients, which change only the results that read them."""
    tensors, sampling = SMALL.tensors_of(1, 0), SMALL.sampling(1, 0)
    first = samples_of(sampling.region(tensors["rois"][0].tolist()))
    pixel = np.unravel_index(int(first.taps[first.bins == 3][0, 0]), sampling.lengths)
    unread = np.ones(SMALL.x_shape, bool)
    for roi, n in zip(tensors["rois"].tolist(), tensors["indices"], strict=True):
        taps = samples_of(sampling.region(roi)).taps
        unread[n].reshape(SMALL.x_shape[1], -1)[:, taps[taps >= 0]] = False
    for scenario, value in (("nan", np.nan), ("infinity", np.inf)):
        changed = {**tensors, "x": np.where(unread, value, tensors["x"])}
        note = f"pixels that no sample reads are {scenario}, and change nothing"
        beside = replace(SMALL, name=f"{scenario}_beside_the_samples", note=note)
        yield from of_scene("values", beside, SMALL.outputs, tensors=changed, **OF_SMALL)
        for role, outputs, place in (("x", ["y"], (1, 1, *pixel)), ("dy", ["dx"], (0, 1, 1, 1))):
            odd = tensors[role].copy()
            odd[place] = value
            where = "in a sample" if role == "x" else "in a gradient"
            note = f"{scenario} {where} changes only the results that depend on it"
            within = replace(SMALL, name=f"{scenario}_{where.replace(' ', '_')}", note=note)
            yield from of_scene("values", within, outputs, tensors={**tensors, role: odd}, **OF_SMALL)


def _on_pixels() -> Iterator[Case]:
    """The gradient by a RoI whose only sample lies exactly on a pixel: the slope of the cell that starts there."""
    note = "drois of a sample on a pixel has the slope of the cell that starts there, or 0 if none does"
    for scenario, c in (("at_the_first_pixel", 0.0), ("on_a_pixel", 2.0), ("on_the_last_pixel", 4.0)):
        for along, centre in (("x", (c, 1.5)), ("y", (1.5, c))):
            scene = Scene(f"sample_{scenario}", 40, note, (1, 1, 5, 5), ((*centre, 2, 2, 0, 0),), (1, 1), 1)
            yield from of_scene(
                "values",
                scene,
                ["drois"],
                tensors={**scene.tensors, "dy": np.ones((1, 1, 1, 1))},
                more={"aligned": 0},
                dialects=[ROTATED],
                variant=f"along_{along}",
                types=("float", "double"),
                basis=OF_A_KINK[scenario],
            )


SAME_SIZES = {
    "of_the_same_sizes": replace(SMALL, rois=SMALL.rois[::-1]),
    "another_map": replace(SMALL, seed=24),
}
OTHERS = {
    "smaller": replace(SMALL, x_shape=(1, 2, 4, 5), rois=_around(1, 2.25, 2.0)),
    "larger": replace(SMALL, x_shape=(3, 40, 9, 20), rois=_around(5, 4.25, 4.0, (2, 0, 1))),
    "no_rois": replace(SMALL, x_shape=(1, 3, 6, 7), rois=()),
}


def _sessions() -> Iterator[Case]:
    """How a session is created and run: several times, with symbolic dimensions, and with constant inputs."""
    alone = {f"after_{scenario}": (other,) for scenario, other in {**OTHERS, **SAME_SIZES}.items()}
    for scenario, others in {**alone, "again": (SMALL, *OTHERS.values())}.items():
        sizes = "the same" if scenario.removeprefix("after_") in SAME_SIZES else "other"
        note = f"a later call of a session, after calls with tensors of {sizes} sizes"
        yield from in_one_session(_small(scenario, note), (_small(scenario, note, other) for other in others))
    yield from single_calls(_small, "inputs that are constants of the model")


def _small(scenario: str, note: str, scene: RotatedScene = SMALL, **rest: Any) -> Iterator[Case]:
    return of_rotated("session", replace(scene, name=scenario), 1, 0, note=note, variant="", **rest)

"""Mutants with the faults of blocked, vectorised and threaded code: wrong for large sizes or unusual values.

The size from which on a mutant is wrong is drawn from a seed, so cases cannot be fitted to it.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, MutantFactory

HALF_MAX, FLT_MAX = float(np.finfo(np.float16).max), float(np.finfo(np.float32).max)
TINY = "Subnormal results are flushed to 0."
GARBAGE = 7.5
"""The content of memory that was not initialised."""


class Thresholds:
    """Random thresholds of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, name: str, low: int, high: int) -> int:
        """The threshold of this name: log-uniform from low to high."""
        where = random.Random(f"{self._seed} {name}").uniform(math.log(low), math.log(high))  # noqa: S311
        return round(math.exp(where))


def cleared(part: Any) -> dict[str, Any]:
    """Replacements that clear some results, or their gradients; `part` maps an array to the index of these."""

    def without(values: Array) -> Any:
        made = values.copy()
        made[part(made)] = 0
        return made

    return {
        "forward": lambda s, up, *a: without(up(*a)),
        "gradient": lambda s, up, dy, *a: up(without(dy) if dy.ndim == 4 else dy, *a),
    }


def unread(is_unread: Any) -> dict[str, Any]:
    """Replacements by which pixels are not read and get no gradient; `is_unread` is asked of rows, columns, H and W."""

    def kept(image: Array) -> Array:
        (rows, columns), lengths = np.ogrid[: image.shape[1], : image.shape[2]], image.shape[1:]
        return np.asarray(np.where(is_unread(rows, columns, *lengths), 0, image))

    return {
        "image": lambda s, up, *a: kept(up(*a)),
        "add": lambda s, up, dx, n, part: up(dx, n, kept(part)),
    }


def wrapped(bits: int) -> dict[str, Any]:
    """A replacement of `image` whose pixel index wraps around at so many bits."""

    def image(s: Any, up: Any, *a: Any) -> Array:
        given = up(*a)
        if not given.size:
            return np.asarray(given)
        flat = given.reshape(len(given), -1)
        return np.asarray(flat[:, np.arange(flat.shape[1]) % 2**bits].reshape(given.shape))

    return {"image": image}


def by_box(s: Any, up: Any, x: Array, rois: Array, images: Array) -> Array:
    """A replacement of `forward` that computes each box once, whatever its image."""
    _, first, which = np.unique(rois, axis=0, return_index=True, return_inverse=True)
    return np.asarray(up(x, rois[first], images[first])[which.ravel()]) if len(rois) else up(x, rois, images)


def uncleared(is_meant: Any) -> dict[str, Any]:
    """A replacement of `gradient` with garbage in images without RoIs, where `is_meant(n, first used, last used)`."""

    def gradient(s: Any, up: Any, dy: Array, rois: Array, images: Array, x_shape: Array, *a: Any) -> list[Array]:
        made = up(dy, rois, images, x_shape, *a)
        used = set(images.ravel().tolist())
        for n in range(int(x_shape[0]) if s.outputs[0] and used else 0):
            if n not in used and is_meant(n, min(used), max(used)):
                made[0][n] = GARBAGE
        return list(made)

    return {"gradient": gradient}


def other_slope(is_meant: Any, is_before: bool) -> dict[str, Any]:
    """Replacements that give samples on some pixels the slope of the wrong cell, or one where there should be none."""

    def met(s: Any, c: Array, n: int) -> Any:
        is_linear = s.is_gradient and not getattr(s, "is_nearest", False)
        return np.asarray((c == np.floor(c)) & is_meant(c, n) & is_linear)

    def taps(s: Any, up: Any, c: Array, n: int) -> Any:
        cells = np.stack([c - is_before, c + (not is_before)], -1)
        return np.where(met(s, c, n)[..., None], cells, up(c, n))

    def weights(s: Any, up: Any, c: Array, n: int) -> Any:
        return np.where(met(s, c, n)[..., None], [float(not is_before), float(is_before)], up(c, n))

    def has_slope(s: Any, up: Any, c: Array, inside: Array, n: int) -> Any:
        return np.where(met(s, c, n), is_before | ~up(c, inside, n), up(c, inside, n))

    return {"taps": taps, "weights": weights, "has_slope": has_slope}


def overflowing(largest: float, itemsize: int) -> dict[str, Any]:
    """A replacement of `partial` that overflows beyond `largest`."""
    return {
        "partial": lambda s, up, v: (
            np.where(np.abs(v) > largest, np.copysign(np.inf, v), v) if s.dtype.itemsize <= itemsize else v
        )
    }


def flushed(s: Any, up: Any, values: Array) -> Array:
    """A replacement of `rounded` that flushes subnormal results to 0."""
    least = 2.0**-1022 if s.dtype == np.float64 else 2.0**-14 if s.dtype == np.float16 else 2.0**-126
    return np.asarray(up(np.where(np.abs(values) < least, 0.0, values)))


def clipped(s: Any, up: Any, values: Array) -> Array:
    """A replacement of `rounded` that clips float16 results."""
    is_met = (s.dtype == np.float16) & np.isfinite(values)
    return np.asarray(up(np.where(is_met, np.clip(values, -HALF_MAX, HALF_MAX), values)))


def nan_if_first(s: Any, up: Any, v: Array) -> Any:
    """A replacement of `maximum` that keeps NaN only as the first candidate, like a loop with `>`."""
    return np.where(np.isnan(v[..., 0]), np.nan, np.fmax.reduce(v, axis=-1)) if v.shape[-1] else up(v)


def add_lengths(mutant: MutantFactory, threshold: Thresholds) -> MutantFactory:
    """Make the mutants of any operator on RoIs that are wrong from some length on."""
    mutant.begin_category(Category.SIZES)
    n = threshold("channels", 16, 256)
    mutant("ChannelsDropped", f"Channels beyond {n} stay 0.")(**cleared(lambda y, n=n: np.s_[:, n:]))
    n = threshold("block", 16, 256)
    mutant("ChannelsOfAnotherBlock", f"Channels beyond {n} repeat those {n} earlier.")(
        image=lambda s, up, *a, n=n: (x := up(*a))[(c := np.arange(len(x))) - n * (c >= n)]
    )
    n = threshold("tail", 4, 64)
    mutant("ChannelTailDropped", f"Channels beyond the last whole block of {n} stay 0.")(
        **cleared(lambda y, n=n: np.s_[:, max(y.shape[1] // n * n, min(y.shape[1], n)) :])
    )
    n = threshold("rois", 16, 256)
    mutant("RoisDropped", f"Results of RoIs beyond {n} stay 0.")(**cleared(lambda y, n=n: np.s_[n:]))
    n = threshold("boxes", 16, 256)
    mutant("RoisOfAnotherBlock", f"RoIs beyond {n} use the coordinates of the RoI {n} earlier.")(
        regions=lambda s, up, *a, n=n: ((b := up(*a))[0][(r := np.arange(len(b[0]))) - n * (r >= n)], b[1])
    )
    n = threshold("height", 16, 256)
    mutant("RowsUnread", f"Rows of the map beyond {n} are not read.")(**unread(lambda h, w, *_, n=n: h + 0 * w >= n))
    n = threshold("width", 16, 256)
    mutant("ColumnsUnread", f"Columns of the map beyond {n} are not read.")(
        **unread(lambda h, w, *_, n=n: w + 0 * h >= n)
    )
    n = threshold("line", 4, 64)
    mutant("ColumnTailUnread", f"Columns beyond the last whole block of {n} are not read.")(
        **unread(lambda h, w, _, width, n=n: w + 0 * h >= max(width // n * n, min(width, n)))
    )
    for bits in (12, 16):
        mutant(f"PixelsIn{bits}Bits", f"The index of a pixel in its channel wraps around at {bits} bits.")(
            **wrapped(bits)
        )
    for name, words, axis in (("Rows", "along y", 2), ("Columns", "along x", 3)):
        n = threshold(name, 8, 24)
        mutant(f"{name}OfBinsDropped", f"Bins {words} beyond {n} stay 0.")(
            **cleared(lambda y, n=n, axis=axis: (*[slice(None)] * axis, slice(n, None)))
        )
    n = threshold("bins", 64, 192)
    mutant("BinsDropped", f"Bins of a RoI beyond {n} stay 0.")(
        **cleared(lambda y, n=n: (..., np.arange(y[0, 0].size).reshape(y.shape[2:]) >= n) if y.size else ...)
    )
    n = threshold("images", 16, 256)
    mutant("ImagesWrap", f"Batch indices are taken modulo {n}.")(image_of=lambda s, up, *a, n=n: up(*a) % n)
    mutant("BoxesAnsweredOnce", "RoIs with equal coordinates all get the result of the first, whatever their image.")(
        forward=by_box
    )
    for place, is_meant in (
        ("before", lambda n, first, last: n < first),
        ("between", lambda n, first, last: first < n < last),
        ("after", lambda n, first, last: n > last),
    ):
        mutant(
            f"ImagesLeft{place.capitalize()}",
            f"dX of images without RoIs {place} those with RoIs is not set to 0.",
            gradient_only=True,
        )(**uncleared(is_meant))
    return mutant


def add_sizes(mutant: MutantFactory, seed: int = 0, *, has_maxima: bool = True) -> MutantFactory:
    """Make the mutants of an operator that samples RoIs; `has_maxima` is whether it has a max mode."""
    threshold = Thresholds(seed)
    add_lengths(mutant, threshold)
    n = threshold("ratio", 8, 32)
    mutant("SamplesCapped", f"A bin has at most {n} samples along an axis.")(
        count=lambda s, up, *a, n=n: min(up(*a), n)
    )
    n = threshold("odd", 4, 16)
    mutant("OddCountsRounded", f"An odd number of samples above {n} is reduced by one.")(
        count=lambda s, up, *a, n=n: k - (k % 2) * (k > n) if (k := up(*a)) else k
    )
    mutant("ScaleAtMost4", "spatial_scale is limited to 4.")(scales=lambda s, up: tuple(min(one, 4.0) for one in up()))
    mutant("CountsJustAboveRounded", "An adaptive number of samples just above a whole number is rounded down.")(
        adaptive_count=lambda s, up, size, bins: int(np.floor(size / bins + 0.99))
    )
    mutant(
        "SlopeOfTheCellBefore",
        "In drois, a sample on a pixel uses the slope of the cell before it instead of after it.",
        gradient_only=True,
    )(**other_slope(lambda c, n: (c > 0) & (c < n - 1), True))
    mutant(
        "SlopeAt0Wrong",
        "In drois, a sample on the first pixel has a slope where it should have none, or the other way round.",
        gradient_only=True,
    )(**other_slope(lambda c, n: (c == 0) & (n > 1), False))
    mutant(
        "SlopeOnTheLastPixel",
        "In drois, a sample on the last pixel has the slope of the last cell instead of none.",
        gradient_only=True,
    )(**other_slope(lambda c, n: (c == n - 1) & (n > 1), True))
    mutant(
        "UnreadPixelsMultiplied",
        "Pixels that no sample reads are multiplied by 0 and added, so NaN and infinity spread.",
    )(is_dense=lambda s, up, *a: True)
    mutant("NaNReadAs0", "NaN counts as 0 in an average.")(
        image=lambda s, up, *a: np.where(np.isnan(x := up(*a)), 0, x) if s.mode == "avg" else up(*a)
    )
    if has_maxima:
        _add_maxima(mutant)
    mutant("SumsOverflowFloat", "Sums beyond FLT_MAX overflow to infinity even if the average is in range.")(
        **overflowing(FLT_MAX, 4)
    )
    mutant(
        "SumsOverflowHalf", "Sums of 16-bit tensors beyond 65504 overflow to infinity even if the average is in range."
    )(**overflowing(HALF_MAX, 2))
    mutant("TinyResultsFlushed", TINY)(rounded=flushed)
    mutant("HalfClipped", "float16 results beyond 65504 are clipped to 65504 instead of infinite.")(rounded=clipped)
    return mutant


def _add_maxima(mutant: MutantFactory) -> None:
    """Make the mutants whose maxima are wrong for unusual values."""
    mutant("NaNLoses", "NaN is left out of a maximum.")(
        maximum=lambda s, up, v: np.fmax.reduce(v, axis=-1) if v.shape[-1] else up(v)
    )
    mutant("NaNWinsIfFirst", "A maximum is NaN only if the first candidate is.")(maximum=nan_if_first)
    mutant("MaxFromMinusFltMax", "A maximum starts at -FLT_MAX, so -inf is lost.")(
        maximum=lambda s, up, v: np.maximum(up(v), -FLT_MAX)
    )


def of_the_last_call(*names: str) -> dict[str, Any]:
    """A replacement of `run` that takes these inputs from the call before if all inputs had the same sizes."""

    def run(s: Any, up: Any, inputs: list[Array]) -> Any:
        last, s.last = getattr(s, "last", inputs), inputs
        fits = [one.shape for one in last] == [one.shape for one in inputs]
        pairs = zip(s.given, last, inputs, strict=True)
        return up([old if fits and name in names else new for name, old, new in pairs])

    return {"run": run}


def uncleared_dx(s: Any, up: Any, inputs: list[Array]) -> Any:
    """A replacement of `run` that adds the gradient of the call before, if it had the same sizes."""
    made = up(inputs)
    if not (s.is_gradient and s.outputs[0]):
        return made
    last, s.last = getattr(s, "last", None), made[0]
    return [made[0] + last if last is not None and last.shape == made[0].shape else made[0], *made[1:]]


def six_digits(s: Any, up: Any, attributes: dict[str, Any]) -> Any:
    """A replacement of `meaning` that rounds floating-point attributes to six digits."""

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(one) for one in value]
        return float(f"{value:g}") if isinstance(value, float) else value

    return up({name: rounded(value) for name, value in attributes.items()})


def add_calls(mutant: MutantFactory) -> None:
    """Make the mutants of any operator that keep something of the last call, or drop digits of attributes."""
    mutant.begin_category(Category.SIZES)
    mutant("MapOfTheLastCall", "A call with the sizes of the last one reads that one's map and gradient.")(
        **of_the_last_call("X", "dY", "InputTensor", "InputGradientTensor")
    )
    mutant(
        "DxOfTheLastCallLeft", "dX of the last call is not cleared by a call with the same sizes.", gradient_only=True
    )(run=uncleared_dx)
    mutant("SixDigits", "Attributes have six digits, as printed by %g.")(meaning=six_digits)


def add_beyond(mutant: MutantFactory, seed: int = 0) -> MutantFactory:
    """Make the mutants of any operator on RoIs with faults beyond the sizes of `add_lengths`."""
    threshold = Thresholds(seed)
    add_calls(mutant)
    mutant("RoisOfTheLastCall", "A call with the sizes of the last one uses that one's RoIs.")(
        **of_the_last_call("rois", "ROITensor")
    )
    n = threshold("pairs", 2**15, 2**16)
    mutant("PairsDropped", f"Pairs of a RoI and a channel beyond {n} stay 0.")(
        **cleared(lambda y, n=n: np.arange(y.shape[0] * y.shape[1]).reshape(y.shape[:2]) >= n)
    )
    n = threshold("many rois", 300, 1024)
    mutant("ManyRoisDropped", f"Results of RoIs beyond {n} stay 0.")(**cleared(lambda y, n=n: np.s_[n:]))
    n = threshold("many bins", 71, 128)
    mutant("ManyBinsDropped", f"Bins along x beyond {n} stay 0.")(**cleared(lambda y, n=n: np.s_[..., n:]))
    return mutant


def add_samples_beyond(mutant: MutantFactory, size: str, seed: int = 0, *, has_maxima: bool = True) -> None:
    """Make those of an operator that samples RoIs; `size` is its step for the size of a RoI on the map."""
    n = add_beyond(mutant, seed) and Thresholds(seed)("many samples", 65, 120)
    mutant("ManySamplesCapped", f"A bin has at most {n} samples along an axis.")(
        count=lambda s, up, *a, n=n: min(up(*a), n)
    )
    mutant("NarrowRoisEmptied", "A RoI narrower than an eighth of a pixel counts as empty.")(
        **{size: lambda s, up, *a: found if abs(found := up(*a)) >= 1 / 8 else 0.0}
    )
    if not has_maxima:
        return
    mutant("SeveralNaNLose", "Several NaN are left out of a maximum, but not a single one.")(
        maximum=lambda s, up, v: np.where(np.isnan(v).sum(-1) > 1, np.fmax.reduce(v, -1, initial=-np.inf), up(v))
    )
    mutant("LastNaNWins", "The last of several NaN gets the gradient of a maximum.", gradient_only=True)(
        winner=lambda s, up, v: np.where(
            np.isnan(v).any(-1), v.shape[-1] - 1 - np.isnan(v)[..., ::-1].argmax(-1), up(v)
        )
    )


def add_resample_sizes(mutant: MutantFactory, seed: int = 0) -> MutantFactory:
    """Make the mutants of a resampling operator, with thresholds of a seed."""
    threshold = Thresholds(seed)
    mutant.begin_category(Category.SIZES)
    for name, low, high in (("LastAxisDropped", 16, 256), ("LastAxisTailDropped", 4, 64)):
        n, is_tail = threshold(name, low, high), "Tail" in name
        words = f"the last whole block of {n}" if is_tail else str(n)
        mutant(name, f"Results along the last axis beyond {words} stay 0.")(
            rounded=lambda s, up, y, n=n, is_tail=is_tail: up(
                np.where(
                    np.arange(y.shape[-1]) < (max(y.shape[-1] // n * n, min(y.shape[-1], n)) if is_tail else n), y, 0
                )
            )
        )
    mutant("TinyResultsFlushed", TINY)(rounded=flushed)
    return mutant

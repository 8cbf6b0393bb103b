# SPDX-License-Identifier: MIT
"""Right implementations whose results differ from the reference's by roundings alone, by family.

Each is made of steps like a mutant's (`conformance.mutants.base`). The arithmetic of sums is float32, or double for double.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.mutants.base import Steps, call, edit, rounded
from ortops.reference import evaluate, grid_sample, ms_deform_attn, roi_align, sampling
from ortops.reference.dml_roi_align import RegionAxis


def dtype_of_sums() -> Any:
    """The type of the call's sums."""
    return np.float64 if call().dtype == np.float64 else np.float32


def values_of(sample: sampling.Sample, channel: roi_align.Channel, dtype: Any) -> Iterator[Any]:
    """The products of the pixels that a sample reads and their weights."""
    for corner in sample.corners:
        if corner.pixel is not None:
            yield dtype(corner.weight) * dtype(channel[corner.pixel[0]][corner.pixel[1]])


def averaged(total_of: Callable[[list[list[Any]], Any], Any], *, is_divided_first: bool = False) -> Steps:
    """Averages are these totals of the products of all samples, divided by their number; or each product is divided."""

    def average(bin_: sampling.Bin, channel: roi_align.Channel, outside_value: float) -> float:
        dtype = dtype_of_sums()
        count = dtype(roi_align.divisor_of(bin_))
        with np.errstate(all="ignore"):
            samples = [[*values_of(sample, channel, dtype)] for sample in bin_.inside for _ in range(sample.repeats)]
            outside = dtype(bin_.total - len(samples))
            samples += [[outside * dtype(outside_value)]] if outside else []
            if is_divided_first:
                return float(total_of([[product / count for product in products] for products in samples], dtype))
            return float(total_of(samples, dtype) / count)

    return {roi_align.average: average}


def in_order(numbers: Sequence[Any], dtype: Any) -> Any:
    """The sum of numbers, one after another."""
    total = dtype(0)
    for number in numbers:
        total += number
    return total


def compensated(numbers: Sequence[Any], dtype: Any) -> Any:
    """Kahan's sum of numbers; NaN and infinities are added without compensation."""
    total = lost = dtype(0)
    for number in numbers:
        due = number - lost
        new = total + due
        lost = (new - total) - due if np.isfinite(new) else dtype(0)
        total = new
    return total


def in_pairs(numbers: Sequence[Any], dtype: Any) -> Any:
    """The sum of the sums of both halves."""
    if len(numbers) < 2:
        return numbers[0] if len(numbers) else dtype(0)
    half = len(numbers) // 2
    return in_pairs(numbers[:half], dtype) + in_pairs(numbers[half:], dtype)


def flat(samples: list[list[Any]]) -> list[Any]:
    """The products of all samples."""
    return [product for sample in samples for product in sample]


def fused(bin_: sampling.Bin, channel: roi_align.Channel, outside_value: float) -> float:
    """The average by multiplications and additions that round once."""
    dtype, total = dtype_of_sums(), 0.0
    for sample in bin_.inside:
        for corner in sample.corners * sample.repeats:
            if corner.pixel is not None:
                exact = float(dtype(corner.weight)) * channel[corner.pixel[0]][corner.pixel[1]] + float(total)
                total = dtype(exact)
    outside = bin_.total - sum(sample.repeats for sample in bin_.inside)
    return float(dtype(total + outside * outside_value if outside else total) / dtype(roi_align.divisor_of(bin_)))


def of_coordinates(formula: Callable[[Any, Any, Any, Any], Any]) -> Steps:
    """Coordinates are this formula of start, size, the number of a sample and the number of steps."""

    def on_axis(axis: sampling.OnnxAxis, p: int, i: int) -> float:
        return float(formula(axis.start, axis.size, p * axis.per_bin + i + 0.5, axis.bins * axis.per_bin))

    def in_region(axis: RegionAxis, p: int, i: int) -> float:
        share, first = axis.share(p, i), axis.first - axis.input_pixel_offset
        return float(formula(first, axis.last - axis.first, share, 1.0))

    return {sampling.coordinate: on_axis, RegionAxis.coordinate: in_region}


def away_from_zero(y: Any, dtype: Any) -> Any:
    """A result in which 16 bits take the larger one of two equally near numbers."""
    return rounded(y * (1 + 2.0**-40) if dtype.itemsize == 2 else y, dtype)


MINUS_ZERO: Steps = {rounded: lambda y, dtype: rounded(np.where(y == 0, -0.0, y), dtype)}

ROI_ALIGNS: dict[str, Steps] = {
    "sums_then_divided": averaged(lambda samples, dtype: in_order(flat(samples), dtype))
    | edit(
        roi_align.add_to_dx,
        "corner.weight",
        "corner.weight; dx[h][w] = narrowed(dx[h][w], None if call().dtype == np.float64 else np.float32)",
    ),
    "divided_first": averaged(lambda samples, dtype: in_order(flat(samples), dtype), is_divided_first=True),
    "reversed": averaged(lambda samples, dtype: in_order(flat(samples)[::-1], dtype))
    | edit(roi_align.pool_grad, "for bin_ in bins_of(*axes):", "for bin_ in [*bins_of(*axes)][::-1]:"),
    "kahan": averaged(lambda samples, dtype: compensated(flat(samples), dtype)),
    "pairwise": averaged(lambda samples, dtype: in_pairs(flat(samples), dtype)),
    "sample_by_sample": averaged(
        lambda samples, dtype: in_order([in_order(sample, dtype) for sample in samples], dtype)
    ),
    "columns_then_rows": averaged(
        lambda samples, dtype: in_order([in_order(flat([s])[k::4], dtype) for k in range(4) for s in samples], dtype)
    ),
    "fused": {roi_align.average: fused},
    "lerped_ends": of_coordinates(lambda start, size, k, n: start * (1 - k / n) + (start + size) * (k / n)),
    "steps_from_the_start": of_coordinates(lambda start, size, k, n: start + k * (size / n)),
    "ties_away_from_zero": {rounded: away_from_zero},
    "minus_zero": MINUS_ZERO,
}


# The other families compute in the type of sums: NumPy rounds each step to the type of the arrays.

ARRAYS = edit(
    evaluate, "array.astype(np.float64)", "array.astype(np.float64 if call().dtype == np.float64 else np.float32)"
)


def by_steps(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula of which each step is rounded to the type of sums."""

    def rounding(*numbers: Any) -> Any:
        results = formula(*(n if isinstance(n, bool) else dtype_of_sums()(n) for n in numbers))
        return tuple(map(float, results)) if isinstance(results, tuple) else float(results)

    return rounding


def at_once(formula: Callable[..., float]) -> Callable[..., float]:
    """A formula whose result alone is rounded, as by a fused multiplication and addition."""
    return lambda *numbers: float(dtype_of_sums()(formula(*numbers)))


# Deformable attention.

ATTEND, ATTEND_GRAD = ms_deform_attn.ms_deform_attn, ms_deform_attn.ms_deform_attn_grad
SAMPLE, SAMPLED = "sample = np.zeros(channels, value.dtype)", "sample += corner.weight * value[n, corner.pixel, m]"
WEIGHTED, RETURNED = "attention_weights[n, q, m, level, p] * sample", "return y.reshape"
POINTS = "np.ndindex(attention_weights.shape)"

SUMS = (
    ARRAYS,
    edit(ATTEND, "np.zeros(channels)", "np.zeros(channels, value.dtype)", "channels))", "channels), value.dtype)"),
    edit(
        ATTEND_GRAD,
        *("np.zeros((3, channels))", "np.zeros((3, channels), value.dtype)"),
        *("np.zeros(value.shape)", "np.zeros(value.shape, value.dtype)"),
    ),
)
LAST_POINTS_FIRST = edit(ATTEND, POINTS, f"[*{POINTS}][::-1]") | edit(ATTEND_GRAD, POINTS, f"[*{POINTS}][::-1]")
ROWS_FIRST = edit(
    ATTEND,
    *(SAMPLE, "rows, shares = np.zeros((2, channels), value.dtype), np.zeros((2, 1), value.dtype)"),
    *(SAMPLED, f"row = int(math.copysign(1, corner.along_y) > 0); shares[row] = abs(corner.along_x); {SAMPLED}"),
    *("sample += corner.weight", "rows[row] += abs(corner.along_y)"),
    *(WEIGHTED, WEIGHTED.replace("sample", "(shares * rows).sum(0)")),
)
WEIGHTS_FIRST = edit(
    ATTEND,
    *("corner.weight *", "attention_weights[n, q, m, level, p] * corner.weight *"),
    *(WEIGHTED, "sample"),
) | edit(
    ATTEND_GRAD,
    *("weight * corner.weight * g", "weight * g * corner.weight"),
    *("(g * along_x)", "(weight * g * along_x)", "(g * along_y)", "(weight * g * along_y)"),
    *("weight * np.array(slopes)", "np.array(slopes)"),
)


def by_points(total: str) -> Steps:
    """The sum is this expression of the points' terms `y` [L, P, N, Q, M, D]."""
    terms = (
        "np.zeros((images",
        "np.zeros((*attention_weights.shape[3:], images",
        "y[n, q, m] +=",
        "y[level, p, n, q, m] =",
    )
    return edit(ATTEND, *terms, RETURNED, f"y = {total}\n    {RETURNED}")


def of_fractions(formula: Callable[..., Any]) -> Steps:
    """Coordinates are this formula of a fraction and a length."""
    return {ms_deform_attn.coordinate: formula}


def of_the_grid(fraction: Any, length: Any) -> Any:
    """The coordinate by GridSample of the number of its grid."""
    return ((2 * fraction - 1 + 1) * length - 1) / 2


IN_STEPS = of_fractions(by_steps(lambda fraction, length: fraction * length - 0.5))
GRID_HALVED = of_fractions(by_steps(lambda fraction, length: (2 * fraction - 1) * length / 2 + (length - 1) / 2))

ATTENTIONS: dict[str, tuple[Steps, ...]] = {
    "coordinates_in_steps": (IN_STEPS,),
    "as_grid_sample": (*SUMS, of_fractions(by_steps(of_the_grid))),
    "last_points_first": (*SUMS, GRID_HALVED, LAST_POINTS_FIRST),
    "fused_coordinates": (*SUMS, of_fractions(at_once(lambda fraction, length: fraction * length - 0.5))),
    "level_by_level": (*SUMS, IN_STEPS, by_points("y.sum(1).sum(0)")),
    "even_points_first": (*SUMS, GRID_HALVED, by_points("y[:, ::2].sum((0, 1)) + y[:, 1::2].sum((0, 1))")),
    "rows_first": (*SUMS, of_fractions(by_steps(of_the_grid)), ROWS_FIRST),
    "weights_first": (*SUMS, IN_STEPS, WEIGHTS_FIRST),
    "minus_zero": (*SUMS, MINUS_ZERO),
}


# GridSample.


def of_grids(between_edges: Callable[..., Any], between_centres: Callable[..., Any], form: Any = by_steps) -> Steps:
    """Coordinates are these formulas of a number of the grid and a length."""

    def formula(g: Any, length: Any, align_corners: bool) -> Any:
        return between_centres(g, length) if align_corners else between_edges(g, length)

    return {grid_sample.coordinate: form(formula)}


HALVED = of_grids(lambda g, length: ((g + 1) * length - 1) / 2, lambda g, length: (g + 1) / 2 * (length - 1))
SCALED = (
    lambda g, length: g * length / 2 + (length - 1) / 2,
    lambda g, length: g * ((length - 1) / 2) + (length - 1) / 2,
)
FROM_THE_EDGE = of_grids(lambda g, length: (g + 1) * (length / 2) - 0.5, lambda g, length: (g + 1) * ((length - 1) / 2))


def summed(total_of: Callable[[Sequence[Any], Any], Any]) -> Steps:
    """A sum adds its products of pixels and weights with this function."""

    def interpolated(channel: Any, axes: Sequence[Sequence[grid_sample.Tap]]) -> float:
        dtype, products = dtype_of_sums(), []
        for taps in itertools.product(*axes):
            pixel = tuple(tap.pixel for tap in taps if tap.pixel is not None)
            if len(pixel) == len(taps):
                products.append((math.prod(dtype(tap.weight) for tap in taps), channel[pixel]))
        return float(total_of(products, dtype))

    return {grid_sample.interpolated: interpolated}


def multiplied(products: Sequence[Any]) -> list[Any]:
    """The products, each rounded."""
    return [weight * pixel for weight, pixel in products]


def fused_sum(products: Sequence[Any], dtype: Any) -> Any:
    """The sum of products by multiplications and additions that round once."""
    total = dtype(0)
    for weight, pixel in products:
        total = dtype(float(weight) * float(pixel) + float(total))
    return total


def along_axes(order: int) -> Steps:
    """Pixels are interpolated along one axis after the other, from the last one on, or from the first if `order` is -1."""

    def along(pixels: Any, axes: Sequence[Sequence[grid_sample.Tap]]) -> Any:
        if not axes:
            return pixels
        kept = [tap for tap in axes[0] if tap.pixel is not None]
        dtype = dtype_of_sums()
        return in_order([dtype(tap.weight) * along(pixels[tap.pixel], axes[1:]) for tap in kept], dtype)

    return {
        grid_sample.interpolated: lambda channel, axes: float(along(channel.T if order < 0 else channel, axes[::order]))
    }


KEYS = by_steps(
    lambda t: (
        -0.75 * t**3 + 1.5 * t**2 - 0.75 * t,
        1.25 * t**3 - 2.25 * t**2 + 1,
        -1.25 * t**3 + 1.5 * t**2 + 0.75 * t,
        0.75 * t**3 - 0.75 * t**2,
    )
)
HORNER = by_steps(
    lambda t: (
        ((-0.75 * t + 1.5) * t - 0.75) * t,
        (1.25 * t - 2.25) * t * t + 1,
        ((-1.25 * t + 1.5) * t + 0.75) * t,
        0.75 * (t - 1) * t * t,
    )
)


def with_the_rest(t: float) -> tuple[float, ...]:
    """Cubic weights of which the last one is what the others leave of 1."""
    weights = HORNER(t)[:3]
    return (*weights, float(dtype_of_sums()(1 - sum(weights))))


def by_flips(c: Any, low: Any, high: Any) -> Any:
    """The reflected coordinate, as PyTorch computes it: by the number of flips."""
    distance, span = abs(c - low), high - low
    if span == 0:
        return low
    rest = np.fmod(distance, span)
    return low + rest if np.floor(distance / span) % 2 == 0 else high - rest


def by_turns(c: Any, low: Any, high: Any) -> Any:
    """The reflected coordinate, reflected about one bound after the other."""
    while low < high and not low <= c <= high:
        c = 2 * low - c if c < low else 2 * high - c
    return c if low < high else low


IN_ORDER = summed(lambda products, dtype: in_order(multiplied(products), dtype))
GRIDS: dict[str, tuple[Steps, ...]] = {
    "coordinates_in_steps": (HALVED,),
    "in_order": (ARRAYS, HALVED, IN_ORDER, {grid_sample.reflected: by_steps(by_flips)}),
    "last_pixels_first": (
        *(ARRAYS, of_grids(*SCALED), {grid_sample.cubic: KEYS}),
        summed(lambda products, dtype: in_order(multiplied(products)[::-1], dtype)),
    ),
    "pairwise": (
        *(ARRAYS, FROM_THE_EDGE, {grid_sample.cubic: HORNER}),
        summed(lambda products, dtype: in_pairs(multiplied(products), dtype)),
    ),
    "fused": (ARRAYS, of_grids(*SCALED, at_once), summed(fused_sum)),
    "rows_first": (ARRAYS, HALVED, along_axes(1), {grid_sample.cubic: with_the_rest}),
    "columns_first": (ARRAYS, of_grids(*SCALED), along_axes(-1), {grid_sample.reflected: by_steps(by_turns)}),
    "minus_zero": (ARRAYS, MINUS_ZERO),
}

ENGINES: dict[str, dict[str, tuple[Steps, ...]]] = {
    "roi_align": {name: (steps,) for name, steps in ROI_ALIGNS.items()},
    "dml_roi_align": {name: (steps,) for name, steps in ROI_ALIGNS.items()},
    "ms_deform_attn": ATTENTIONS,
    "grid_sample": GRIDS,
}
"""The steps of each, by family and name."""

BY_DEFAULT = {
    *((family, name) for family in ("roi_align", "dml_roi_align") for name in ROI_ALIGNS),
    ("ms_deform_attn", "weights_first"),
}
"""Those that fail rules of this project alone: of sums beyond float32, and of weights that are infinite or NaN."""

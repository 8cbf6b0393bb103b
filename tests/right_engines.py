"""Right implementations of RoiAlign and DmlRoiAlign whose results differ from the reference's by roundings alone.

Each is a set of steps like a mutant's (`conformance.mutants.base`). The arithmetic of sums is float32, or double for double.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.mutants.base import Steps, call, edit, rounded
from ortops.reference import roi_align, sampling
from ortops.reference.dml_roi_align import RegionAxis

Sum = Callable[[list[Any]], Any]
"""A function that adds numbers of one type."""


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


ENGINES: dict[str, Steps] = {
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
    "minus_zero": {rounded: lambda y, dtype: rounded(np.where(y == 0, -0.0, y), dtype)},
}
"""The steps by name."""

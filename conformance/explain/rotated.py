"""The explanation of a case with rotated RoIs: one RoI by each convention for its angle and its centre."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats, reference
from conformance.explain.conventions import MOST_SAMPLES as MOST_COMPUTED
from conformance.explain.draw import (
    MOST_SAMPLES,
    Drawing,
    Frame,
    cells,
    covers,
    dot,
    heat_scale,
    left_out,
    line,
    numbers,
    reading_text,
    result_of,
    window_of,
)
from conformance.explain.explanation import Comparison, ConventionDrawing, Explanation
from conformance.explain.rois import focus_of, value_table
from conformance.explain.tables import MOST_ROWS, Row, Table, number, table
from conformance.geometry.rotated import NUMBERS, Geometry, Sampling, geometry_of, work_of
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD
from ortops.reference.roi_align_rotated import Region, Side
from ortops.reference.sampling import is_inside, taps
from ortops.spec import AttributeValue

OTHER_LIBRARIES = (
    "mmcv has the angle in radians, and aligned and clockwise as they are here. detectron2's ROIAlignRotated is aligned "
    "and counter-clockwise, with the angle in degrees."
)
ROLES = {"Y": "y", "dX": "dx", "drois": "drois"}

_MOST_LISTED = 1000
_MOST_LINES = 2000

Point = tuple[float, float]
"""The coordinates x and y on the map."""


class Sample(NamedTuple):
    """Sample (iy, ix) of bin (p, q), at y and x on the map."""

    p: int
    q: int
    iy: int
    ix: int
    y: float
    x: float


@dataclass(frozen=True, slots=True)
class RotatedConvention:
    """One convention: the attributes of a case, perhaps with one of them changed, and the unit of its angles.

    in_degrees: whether the stored angles are taken as degrees.
    is_own: whether the case itself uses this convention.
    """

    geometry: Geometry
    sampling: Sampling
    in_degrees: bool
    is_own: bool
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name that headings show."""
        words = f"aligned {self.sampling.aligned}, clockwise {self.sampling.clockwise}"
        return "angle in degrees" if self.in_degrees else words

    @property
    def short(self) -> str:
        """The short name that columns of tables show."""
        return self.name

    @property
    def detail(self) -> str:
        """A line that describes it."""
        centre = "half a pixel is subtracted from the centre" if self.sampling.aligned else "sizes are at least 1 pixel"
        direction = "clockwise" if self.sampling.clockwise else "counter-clockwise"
        return f"{centre}; positive angles turn {direction}{', and are degrees' if self.in_degrees else ''}"

    @property
    def rois(self) -> Floats:
        """[R, 5]: the RoIs with their angles in radians."""
        factors = np.array([1.0, 1.0, 1.0, 1.0, math.pi / 180 if self.in_degrees else 1.0])
        return np.asarray(self.geometry.rois * factors)

    def region(self, r: int) -> Region:
        """The region of RoI `r` on the map."""
        return self.sampling.region(self.rois[r].tolist())

    def output(self, r: int, c: int) -> Floats | None:
        """The bins [rows, columns] of RoI `r` and channel `c`; None without a feature map, or if samples are too many."""
        geometry = self.geometry
        if geometry.x is None or self._exceeds_limit(geometry.rois[r : r + 1]):
            return None
        n = int(geometry.indices[r])
        inputs = {
            "X": geometry.x[n : n + 1, c : c + 1],
            "rois": self.rois[r : r + 1],
            "batch_indices": np.zeros(1, np.int64),
        }
        sizes = dict(zip(("output_height", "output_width"), self.sampling.bins, strict=True))
        values = reference(ROI_ALIGN_ROTATED, {**self._attributes, **sizes}, inputs, ["Y"])
        return np.asarray(values["Y"][0, 0])

    def gradients(self, wanted: Sequence[str]) -> dict[str, Floats]:
        """The wanted gradients among dX and drois by these names; empty if there are too many samples."""
        geometry = self.geometry
        if geometry.dy is None or self._exceeds_limit(geometry.rois):
            return {}
        inputs = {
            "dY": geometry.dy,
            "rois": self.rois,
            "batch_indices": geometry.indices,
            "x_shape": np.array(geometry.x_shape, np.int64),
        }
        inputs |= {} if geometry.x is None else {"X": geometry.x}
        return reference(ROI_ALIGN_ROTATED_GRAD, self._attributes, inputs, wanted)

    def _exceeds_limit(self, rois: Floats) -> bool:
        return work_of(replace(self.geometry, sampling=self.sampling, rois=rois)) > MOST_COMPUTED

    @property
    def _attributes(self) -> dict[str, AttributeValue]:
        sampling = self.sampling
        return {
            "aligned": sampling.aligned,
            "clockwise": sampling.clockwise,
            "sampling_ratio": sampling.ratio,
            "spatial_scale": sampling.scale,
        }


def conventions_of(geometry: Geometry) -> tuple[RotatedConvention, ...]:
    """The convention of the case, and three that are easily confused with it: aligned, clockwise or the unit differs."""
    own = geometry.sampling
    return (
        RotatedConvention(geometry, own, in_degrees=False, is_own=True),
        RotatedConvention(geometry, replace(own, aligned=1 - own.aligned), in_degrees=False, is_own=False),
        RotatedConvention(geometry, replace(own, clockwise=1 - own.clockwise), in_degrees=False, is_own=False),
        RotatedConvention(geometry, own, in_degrees=True, is_own=False),
    )


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The drawings and tables that explain a valid case; see `conformance.explain.explain`."""
    geometry = geometry_of(case)
    count = len(geometry.rois)
    if roi is not None and not 0 <= roi < count:
        raise ValueError(f"RoI {roi}: the case has {count}")
    if count == 0 or 0 in geometry.x_shape:
        note = f"The case has {'no RoIs' if count == 0 else 'no pixels'} to draw."
        return Explanation(case, facts, outputs=compared.slices({}), notes=(note,))
    found = focus_of(compared, roi, ROLES.__getitem__, functools.partial(_roi_near, geometry))
    return _explain_roi(geometry, facts, compared, *found)


def _roi_near(geometry: Geometry, index: tuple[int, ...]) -> int:
    """The first RoI that may contribute to the gradient of a pixel, else a RoI of the pixel's image, else RoI 0."""
    of_image = [r for r, n in enumerate(geometry.indices.tolist()) if n == index[0]]
    regions = geometry.regions()

    def is_near(r: int) -> bool:
        spans = zip(_spans(regions[r]), index[2:], strict=True)
        return all(low - 2 <= i <= high + 2 for (low, high), i in spans)

    return next(filter(is_near, of_image), (of_image or [0])[0])


def _explain_roi(
    geometry: Geometry, facts: Mapping[str, str], compared: Comparison, r: int, c: int, focus: tuple[int, int] | None
) -> Explanation:
    """Explain RoI `r` and channel `c` by each convention, with bin `focus` in the middle of the drawings."""
    n, worst, wanted = int(geometry.indices[r]), compared.worst, list(compared.expected)
    leads = {name: lead for name, lead in (("Y", (r, c)), ("dX", (n, c))) if name in wanted}
    if worst and worst.at[:-2] != leads.get(worst.output, worst.at[:-2]):
        compared = replace(compared, worst=compared.worst_within(worst.output, leads[worst.output]))
    conventions = conventions_of(geometry)
    regions = [convention.region(r) for convention in conventions]
    frame = _frame(regions, focus)
    data = None if geometry.x is None else geometry.x[n, c]
    seen, what, values = [data] * len(conventions), "X", None
    results = [""] * len(conventions)
    if "Y" in wanted:
        answers = [convention.output(r, c) for convention in conventions]
        bins = [(f"({p}, {q})", (p, q)) for p, q in np.ndindex(*geometry.sampling.bins)]
        pair = compared.of("Y", lambda y: y[r, c])
        values = value_table("Values of the bins", "bin", conventions, answers, bins, pair, focus)
        results = [result_of("Y", output) for output in answers]
    else:
        gradients = [convention.gradients(wanted) for convention in conventions]
        if "dX" in wanted:
            seen, what = [g["dX"][n, c] if "dX" in g else data for g in gradients], "dX"
        if "drois" in wanted:
            given = [g["drois"][r] if "drois" in g else None for g in gradients]
            labels = [(name, (k,)) for k, name in enumerate(NUMBERS)]
            title, pair = "drois: derivatives by the RoI", compared.of("drois", lambda drois: drois[r])
            values = value_table(title, "by", conventions, given, labels, pair)
    pictures = [
        _picture(convention, region, frame, focus, data, pixels, what)
        for convention, region, pixels in zip(conventions, regions, seen, strict=True)
    ]
    numbers = ", ".join(
        f"{name} {number(value)}" for name, value in zip(NUMBERS, geometry.rois[r].tolist(), strict=True)
    )
    degrees = number(math.degrees(float(geometry.rois[r, 4])))
    return Explanation(
        geometry.case,
        facts,
        f"RoI {r} of {len(geometry.rois)}: {numbers} ({degrees} degrees); image {n}, channel {c}",
        tuple(map(ConventionDrawing, conventions, pictures, results)),
        coordinates=(_coordinates(conventions, regions, focus),),
        values=values,
        outputs=tuple(replace(part, is_tabled=part.title.split("[")[0] != "dX") for part in compared.slices(leads)),
        notes=(OTHER_LIBRARIES,),
    )


def _to_map(region: Region, u: float, v: float) -> Point:
    """The map coordinates of a point that is given in the region's own axes, from its centre."""
    x, y = u * region.cos + v * region.sin, v * region.cos - u * region.sin
    return region.center_x + x, region.center_y + y


def _from_map(region: Region, x: float, y: float) -> Point:
    """The coordinates of a point of the map in the region's own axes, from its centre: u along the width, v the height."""
    x, y = x - region.center_x, y - region.center_y
    return x * region.cos - y * region.sin, x * region.sin + y * region.cos


def _spans(region: Region) -> tuple[Point, Point]:
    """The bounding box of a region: its first and last coordinate along y and along x."""
    corners = [
        _to_map(region, u * region.width.size, v * region.height.size)
        for u, v in itertools.product((-0.5, 0.5), repeat=2)
    ]
    (xs, ys) = ([corner[k] for corner in corners] for k in (0, 1))
    return (min(ys), max(ys)), (min(xs), max(xs))


def _frame(regions: Sequence[Region], focus: tuple[int, int] | None) -> Frame:
    """The pixels that show a RoI by every convention, or its part around bin `focus` of the first region."""
    own = regions[0]
    x, y = _to_map(own, 0.0, 0.0) if focus is None else _to_map(own, *_middle(own, focus))
    spans = [_spans(region) for region in regions]
    rows, columns = (
        window_of([end for span in spans for end in span[k]], own.map_size[k], centre) for k, centre in ((0, y), (1, x))
    )
    return Frame(rows, columns)


def _edge(side: Side, p: int) -> float:
    """The start of bin `p` along a side of the region, from its middle."""
    return side.size * (p / side.bins - 0.5)


def _middle(region: Region, at: tuple[int, int]) -> Point:
    """The middle of a bin, in the region's own axes."""
    v, u = (
        (_edge(side, p) + _edge(side, p + 1)) / 2 for side, p in zip((region.height, region.width), at, strict=True)
    )
    return u, v


def _picture(
    convention: RotatedConvention,
    region: Region,
    frame: Frame,
    focus: tuple[int, int] | None,
    data: Floats | None,
    pixels: Floats | None,
    what: str,
) -> Drawing:
    """Draw a region over `pixels` [H, W], which may be None, of the tensor `what`; `data` is the feature map, or None."""
    rows, columns = (
        range(max(view.start, 0), min(view.stop, length))
        for view, length in zip((frame.rows, frame.columns), region.map_size, strict=True)
    )
    values = {(h, w): math.nan if pixels is None else float(pixels[h, w]) for h in rows for w in columns}
    heat = heat_scale(values.values(), signed=what.startswith("d"))
    parts = cells(frame, values, heat, None if pixels is None else f"{what} ")
    parts += _lines(region, frame, "bin", _bin_edges(region))
    parts += _lines(region, frame, "roi", _outline(region, (0, region.height.bins), (0, region.width.bins)))
    if focus:
        parts += _lines(region, frame, "worst", _outline(region, *((p, p + 1) for p in focus)))
    samples = list(itertools.islice(_visible_samples(region, frame, focus), MOST_SAMPLES))
    parts += [_dot(region, frame, sample, focus, data) for sample in samples]
    if pixels is not None:
        parts += numbers(frame, values, lambda i, j: any(covers(s.y, s.x, i, j) for s in samples))
    total = region.total * region.height.bins * region.width.bins
    words = left_out(frame, _spans(region), region.map_size, len(samples), total)
    return Drawing(convention.name, frame.image(parts), words)


def _outline(region: Region, rows: tuple[int, int], columns: tuple[int, int]) -> Iterator[tuple[Point, Point]]:
    """The four sides of a block of bins, in the region's own axes."""
    (top, bottom), (left, right) = (
        [_edge(side, p) for p in ends] for side, ends in ((region.height, rows), (region.width, columns))
    )
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return zip(corners, corners[1:] + corners[:1], strict=True)


def _bin_edges(region: Region) -> Iterator[tuple[Point, Point]]:
    """The edges between bins, in the region's own axes."""
    for p in range(1, min(region.height.bins, _MOST_LINES)):
        v = _edge(region.height, p)
        yield (-region.width.size / 2, v), (region.width.size / 2, v)
    for q in range(1, min(region.width.bins, _MOST_LINES)):
        u = _edge(region.width, q)
        yield (u, -region.height.size / 2), (u, region.height.size / 2)


def _lines(region: Region, frame: Frame, kind: str, lines: Iterator[tuple[Point, Point]]) -> list[str]:
    """The visible parts of lines that are given in the region's own axes."""
    cut = (_clipped(_to_map(region, *first), _to_map(region, *last), frame) for first, last in lines)
    return [line(frame, kind, *ends) for ends in cut if ends is not None]


def _clipped(first: Point, last: Point, frame: Frame) -> tuple[Point, Point] | None:
    """The part of a line of the map that is in the frame, or None."""
    begin, end = 0.0, 1.0
    for a, b, view in zip(first, last, (frame.columns, frame.rows), strict=True):
        if not (math.isfinite(a) and math.isfinite(b)):
            return None
        low, high = view.start - 0.5, view.stop - 0.5
        if a == b:
            if not low <= a <= high:
                return None
            continue
        enters, leaves = sorted(((low - a) / (b - a), (high - a) / (b - a)))
        begin, end = max(begin, enters), min(end, leaves)
    if begin > end:
        return None
    cut = [tuple(a + (b - a) * part for a, b in zip(first, last, strict=True)) for part in (begin, end)]
    return (cut[0][0], cut[0][1]), (cut[1][0], cut[1][1])


def _visible_samples(region: Region, frame: Frame, focus: tuple[int, int] | None) -> Iterator[Sample]:
    """The samples in the frame; those of bin `focus` come first."""
    low_x, high_x = frame.columns.start - 0.5, frame.columns.stop - 0.5
    low_y, high_y = frame.rows.start - 0.5, frame.rows.stop - 0.5
    numbers = region.center_x, region.center_y, region.width.size, region.height.size
    if region.total == 0 or not all(map(math.isfinite, numbers)):
        return
    corners = [_from_map(region, x, y) for x, y in itertools.product((low_x, high_x), (low_y, high_y))]
    us, vs = ([corner[k] for corner in corners] for k in (0, 1))
    shape = region.height.bins, region.width.bins
    for p, q in itertools.chain([focus] if focus else [], (at for at in np.ndindex(shape) if at != focus)):
        columns = region.width.between(q, min(us), max(us))
        for ky, kx in itertools.product(region.height.between(p, min(vs), max(vs)), columns):
            u, v = region.width.size * region.width.along(kx), region.height.size * region.height.along(ky)
            x, y = _to_map(region, u, v)
            if low_x <= x <= high_x and low_y <= y <= high_y:
                yield Sample(p, q, ky - p * region.height.per_bin, kx - q * region.width.per_bin, y, x)


def _dot(region: Region, frame: Frame, sample: Sample, focus: tuple[int, int] | None, data: Floats | None) -> str:
    p, q, iy, ix, y, x = sample
    height, width = region.map_size
    inside = is_inside(y, height) and is_inside(x, width)
    title = f"bin ({p}, {q}) sample ({iy}, {ix}) at y {number(y)}, x {number(x)}"
    tail = "off the map: 0"
    if inside:
        pairs = itertools.product(taps(y, height), taps(x, width))
        corners = [
            (a.pixel, b.pixel, a.weight * b.weight) for a, b in pairs if a.pixel is not None and b.pixel is not None
        ]
        tail = reading_text(corners, data)
    kind = f"dot{'' if inside else ' outside'}{' marked' if (p, q) == focus else ''}"
    return dot(frame, kind, f"{title}; {tail}", y, x)


def _coordinates(
    conventions: Sequence[RotatedConvention], regions: Sequence[Region], focus: tuple[int, int] | None
) -> Table:
    """A table of the samples: of all samples, or for a large RoI of those near the map."""
    totals = [region.total * region.height.bins * region.width.bins for region in regions]
    found = [_samples_to_list(region, total) for region, total in zip(regions, totals, strict=True)]
    rows = [
        Row(
            (
                f"({p}, {q})",
                f"({iy}, {ix})",
                *(
                    f"{number(each[p, q, iy, ix].x)}, {number(each[p, q, iy, ix].y)}" if (p, q, iy, ix) in each else ""
                    for each in found
                ),
            ),
            (p, q) == focus,
        )
        for p, q, iy, ix in sorted(set().union(*found))
    ]
    columns = ("bin", "sample", *(convention.short for convention in conventions))
    return table("Coordinates of the samples, x and y", columns, rows, max(totals))


def _samples_to_list(region: Region, total: int) -> dict[tuple[int, int, int, int], Sample]:
    if total <= MOST_ROWS:
        frame = Frame(*(range(-(10**9), 10**9) for _ in range(2)))
    else:
        frame = Frame(*(range(-1, length + 1) for length in region.map_size))
    located = itertools.islice(_visible_samples(region, frame, None), _MOST_LISTED)
    return {(s.p, s.q, s.iy, s.ix): s for s in located}

"""Kernels that give tests the tables of weights of a RoI, and the choices that follow from all RoIs."""

from __future__ import annotations

from typing import Any

from ortops.kernels.axis import axis_of
from ortops.kernels.jit.compile import compiled
from ortops.kernels.layout import FLOAT, WEIGHTS, Form, PlacedRois, Planning
from ortops.kernels.roi_tables import fits_in_shared_tables
from ortops.kernels.schedule import covered_pixels, should_pack_maps
from ortops.kernels.sliding import panel_lines
from ortops.kernels.tables import Table, fill_ranges, fill_weights


@compiled
def fill(
    placed: PlacedRois,
    r: int,
    k: int,
    bins: int,
    length: int,
    start: Any,
    inside: Any,
    pixel: Any,
    weight: Any,
    ranges: Any,
) -> int:
    """Fill the table of RoI r along y for k = 0 or along x for k = 1."""
    table = Table(bins, start, inside, pixel, weight, weight, weight, ranges)
    fill_weights(axis_of(placed.axes, r, k, bins), length, False, 0, table)
    fill_ranges(table)
    return 0


@compiled
def choose(placed: PlacedRois, like: Any, choices: Any) -> int:
    """Set the choices: whether maps are packed, whether tables are shared, the lines of a panel, the covered pixels."""
    form = Form(WEIGHTS, False, FLOAT, Planning(0, 0, 0))
    choices[0] = 1 if should_pack_maps(placed) else 0
    choices[1] = 1 if fits_in_shared_tables(placed, form) else 0
    choices[2] = panel_lines(placed, True, like, form)
    choices[3] = int(covered_pixels(placed, 0))
    return 0

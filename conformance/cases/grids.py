# SPDX-License-Identifier: MIT OR Apache-2.0
"""GridSample: every attribute, types, sizes as in practice, unusual values and sessions.

Locations of the matrix lie at odd eighths of a pixel, in numbers that every type has: no rounding decides what they read.
Sizes of users have a closed form: locations in the middle of pixels give their mean.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import ortops
from conformance.case import Array, Basis, Case, Source
from conformance.cases.make import FLOATS, expand
from conformance.cases.scenes import scatter
from conformance.cases.sessions import TWO_THREADS, in_one_session
from conformance.cases.values import ends
from conformance.error_terms import ErrorTerms
from conformance.formula import Computed, Formula, TensorType
from conformance.model import with_named_axes
from ortops.operators.grid_sample import GRID_SAMPLES
from ortops.spec import ELEMENT_DTYPES

FUNCTIONS = {"grid_sample": 2, "grid_sample_5d": 3}
"""The number of spatial axes of each function."""

SOURCE = Source("conformance/cases/grids.py", f"ortops {ortops.__version__}", "closed forms")
MODES, PADDINGS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
LENGTHS = ((2, 4, 8), (3, 5, 9))
"""Lengths of the map without and with align_corners, for which eighths of pixels are short numbers of the grid."""

FINE = 1 + 0.37 * 2.0**-10
"""A factor that gives numbers of the grid more digits than 16 bits have, and more than float32 has."""

Lengths = Sequence[int]

SIZES: Mapping[str, tuple[Lengths, Lengths]] = {
    "channels_300": ((1, 300, 3, 4), (1, 2)),
    "images_300": ((300, 1, 2, 3), (1, 2)),
    "rows_300": ((1, 1, 300, 3), (5, 7)),
    "columns_300": ((1, 1, 3, 300), (5, 7)),
    "pixels_300x300": ((1, 1, 300, 300), (6, 7)),
    "rows_of_the_grid_300": ((1, 2, 4, 5), (300, 1)),
    "columns_of_the_grid_300": ((1, 2, 4, 5), (1, 300)),
    "locations_65x63": ((1, 1, 7, 6), (65, 63)),
    "depth_300": ((1, 1, 300, 2, 3), (3, 3, 4)),
    "layers_of_the_grid_300": ((1, 1, 3, 4, 2), (300, 1, 1)),
}
"""The shapes of a map, and of the grid without its first and its last axis."""


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for function, rank in FUNCTIONS.items():
        yield from _matrix(function, rank)
        yield from _types(function, rank)
        yield from _large_and_tiny(function, rank)
        yield from _sessions(function, rank)
        yield from _empty(function, rank)
    for turn, (name, (x_shape, places)) in enumerate(SIZES.items()):
        function = list(FUNCTIONS)[len(places) - 2]
        attributes = {"mode": MODES[turn % 3], "padding_mode": PADDINGS[turn // 3 % 3], "align_corners": turn % 2}
        note = f"{name.replace('_', ' ')}, at locations all over the map"
        sized = _sampled(f"sizes/{name}", function, x_shape, places, attributes, note=note, types=["float", "double"])
        yield from (replace(case, basis=Basis.VECTORS) for case in sized)
    yield from _users()


def grid_at(coordinates: Sequence[Array], lengths: Lengths, align_corners: int) -> Array:
    """The grid of coordinates in pixels along each axis of the map."""
    numbers = [
        2 * c / (length - 1) - 1 if align_corners else (2 * c + 1) / length - 1
        for c, length in zip(coordinates, lengths, strict=True)
    ]
    return np.stack(numbers[::-1], axis=-1)


def _sampled(
    scenario: str,
    function: str,
    x_shape: Lengths,
    places: Lengths,
    attributes: Mapping[str, Any],
    *,
    seed: int = 1,
    around: float = 0.0,
    **rest: Any,
) -> Iterator[Case]:
    """The cases of a map and a grid whose locations are at odd eighths of pixels, up to `around` lengths off the map."""
    lengths, shape, rng = x_shape[2:], (x_shape[0], *places), np.random.default_rng(seed)
    align_corners = attributes.get("align_corners", 0)
    spans = [(-round(around * length), round((1 + around) * length) - align_corners) for length in lengths]
    low = 0 if align_corners else 0.5
    coordinates = [(2 * rng.integers(4 * first, 4 * end, shape) + 1) / 8 - low for first, end in spans]
    grid = grid_at(coordinates, lengths, align_corners)
    inputs = {"X": scatter(tuple(x_shape), seed=seed), "grid": grid}
    yield from expand(scenario, function=function, attributes=attributes, inputs=inputs, outputs=["Y"], **rest)


def _matrix(function: str, rank: int) -> Iterator[Case]:
    """Every value of every attribute, with locations on the map and off it, and each attribute by default."""
    for (mode, padding), align_corners in itertools.product(itertools.product(MODES, PADDINGS), (0, 1)):
        # The parameter of cubic interpolation follows from ONNX's vectors, and how border moves it from no text.
        basis = {"linear": Basis.TEXT, "nearest": Basis.TEXT, "cubic": Basis.VECTORS}[mode]
        yield from _sampled(
            f"matrix/{mode}_{padding}",
            function,
            (2, 3, *LENGTHS[align_corners][3 - rank :]),
            (3, 5, 4)[3 - rank :],
            {"mode": mode, "padding_mode": padding, "align_corners": align_corners},
            around=1.25,
            note=f"{mode} with {padding}, where -1 and 1 are the {'centres' if align_corners else 'edges'} of pixels",
            variant="centres" if align_corners else "edges",
            basis=Basis.OURS if (mode, padding) == ("cubic", "border") else basis,
        )
    for name, value in {"mode": "nearest", "padding_mode": "border", "align_corners": 1}.items():
        yield from _sampled(
            f"defaults/{name}_alone",
            function,
            (2, 3, *LENGTHS[name == "align_corners"][3 - rank :]),
            (2, 3, 2)[3 - rank :],
            {name: value},
            around=0.5,
            write_defaults=False,
            note=f"a node with {name} alone: the other attributes have their defaults",
        )


def _types(function: str, rank: int) -> Iterator[Case]:
    """A grid of any type for a map of any type, which the text allows, with numbers that not every type has."""
    lengths = (2, 3, *LENGTHS[0][3 - rank :])
    for case in _sampled("types/grid", function, lengths, (2, 3, 2)[3 - rank :], {}, note="", around=0.5):
        for kind in case.definition.element_types(case.definition.inputs[1]):
            grid = case.inputs["grid"].astype(np.float64) * FINE
            yield replace(
                case,
                id=case.id.replace("types/grid", f"types/grid_{kind}"),
                note=f"a grid of {kind} with a map of {case.element_type}",
                inputs={**case.inputs, "grid": grid.astype(ELEMENT_DTYPES[kind])},
            )


def _large_and_tiny(function: str, rank: int) -> Iterator[Case]:
    """Numbers at either end of a type's range, which are the mean of equal numbers."""
    grid = np.zeros((1, *(1,) * rank, rank))
    for element_type in FLOATS:
        large, tiny, least = ends(ELEMENT_DTYPES[element_type])
        for name, value in {"large": large, "tiny": tiny, "subnormal": 8 * least}.items():
            yield from expand(
                f"values/{name}",
                function=function,
                note=f"the mean of {name} numbers, all equal: no sum overflows, and no result is flushed to 0",
                attributes={"mode": "linear"},
                inputs={"X": np.full((1, 1, *(2,) * rank), value), "grid": grid},
                outputs=["Y"],
                expected={"Y": np.full((1, 1, *(1,) * rank), value)},
                source=SOURCE,
                types=[element_type],
            )


def _empty(function: str, rank: int) -> Iterator[Case]:
    """No images, no channels and no locations: the result has no elements, but a shape."""
    for what, shape in {"images": (0, 3), "channels": (2, 0), "locations": (2, 3)}.items():
        places = (0 if what == "locations" else 2, *(3,) * (rank - 1))
        yield from expand(
            f"empty/no_{what}",
            function=function,
            note=f"a call without {what} has a result without elements",
            attributes={},
            inputs={"X": np.zeros((*shape, *(4,) * rank)), "grid": np.zeros((shape[0], *places, rank))},
            outputs=["Y"],
        )


def _sessions(function: str, rank: int) -> Iterator[Case]:
    """A call of a session after other calls, in two threads, and with constant inputs or symbolic lengths."""
    ours, places = (2, 3, 3, 4, 5)[: 2 + rank], (2, 3, 2)[:rank]
    sampled = functools.partial(_sampled, function=function, attributes={}, types=["float"], around=0.3)

    def call(scenario: str, note: str, x_shape: Lengths = ours, seed: int = 1, count: Lengths = places) -> list[Case]:
        return list(sampled(f"session/{scenario}", x_shape=x_shape, places=count, seed=seed, note=note))

    others = {
        "of_the_same_sizes": call("of_the_same_sizes", "", seed=2),
        "of_more_images": call("of_more_images", "", (4, *ours[1:])),
        "smaller": call("smaller", "", (1, 2, *(2,) * rank), 3),
        "larger": call("larger", "", (4, 5, *(7,) * rank), 4, (5,) * rank),
    }
    for scenario, other in others.items():
        note = f"the second call of a session; the tensors of the first were {scenario.replace('_', ' ')}"
        yield from in_one_session(call(f"after_{scenario}", note), [other])
    repeated = [call("four_of_the_same_sizes", "four calls with the same sizes", seed=seed) for seed in (2, 3, 4, 1)]
    yield from in_one_session(repeated[-1], repeated[:-1])
    threads = [call(TWO_THREADS, "two threads run one session at the same time", seed=seed) for seed in range(8)]
    yield from in_one_session(threads[-1], threads[:-1])
    yield from map(with_named_axes, call("named_lengths", "a model with symbolic dimensions"))
    for name in ("X", "grid"):
        for case in call(f"constant_{name}", f"{name} is a constant of the model", seed=5):
            yield replace(case, initializers=(name,))


@dataclass(frozen=True)
class Means(Formula):
    """Locations in the middle of pixels, some at the edges of the map, whose other pixels are 0.

    operator: the name of the definition.
    x_shape: [N, C, D1, ..., Dr].
    places: [D1_out, ..., Dr_out].
    """

    operator: str
    x_shape: Lengths
    places: Lengths
    element_type: str = "float"

    @property
    def _dtype(self) -> np.dtype[Any]:
        return ELEMENT_DTYPES[self.element_type]

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """See `Formula`."""
        grid = (self.x_shape[0], *self.places, len(self.places))
        return {"X": TensorType(self._dtype, tuple(self.x_shape)), "grid": TensorType(self._dtype, grid)}

    @property
    def outputs(self) -> Mapping[str, TensorType]:
        """See `Formula`."""
        return {"Y": TensorType(self._dtype, (*self.x_shape[:2], *self.places))}

    @property
    def work(self) -> float:
        """See `Formula`: the number of samples in all channels."""
        return float(math.prod(self.outputs["Y"].shape))

    @property
    def in_float(self) -> Means:
        """See `Formula`."""
        return replace(self, operator="", element_type="float")

    def smaller(self) -> Means:
        """See `Formula`."""
        lengths, left = [self.x_shape[0], *self.places], 100.0
        for k, length in enumerate(lengths):
            part = min(left, length)
            lengths[k], left = max(round(length / part), 1), left / part
        return replace(self, x_shape=(lengths[0], *self.x_shape[1:]), places=tuple(lengths[1:]))

    def _cells(self) -> list[Array]:
        """The pixel before each location along each axis, from -1 on."""
        k = np.arange(math.prod((self.x_shape[0], *self.places))).reshape(self.x_shape[0], *self.places)
        return [(k * step + k // 11) % (n + 1) - 1 for step, n in zip((7, 5, 3), self.x_shape[2:], strict=False)]

    def tensor(self, name: str) -> Array:
        """See `Formula`."""
        if name == "grid":
            return grid_at([cell + 0.5 for cell in self._cells()], self.x_shape[2:], 0).astype(np.float32)
        rank, k = len(self.places), np.arange(math.prod(self.x_shape), dtype=np.int64)
        x = ((k * 7 + k // 13 * 5) % 61 - 30).astype(np.float32).reshape(self.x_shape)
        if name == "X":
            return x
        around, images = np.pad(x, [(0, 0), (0, 0), *[(1, 1)] * rank]), np.arange(len(x)).reshape(-1, *[1] * rank)
        y = np.zeros((self.x_shape[0], *self.places, self.x_shape[1]), np.float32)
        for corner in itertools.product((1, 2), repeat=rank):
            cells: Any = (cell + step for cell, step in zip(self._cells(), corner, strict=True))
            y += around[(images, slice(None), *cells)]
        return np.ascontiguousarray(np.moveaxis(y / 2**rank, -1, 1))

    def recipe(self, name: str) -> dict[str, Any] | None:
        """See `Formula`."""
        return {"kind": "saw"} if name == "X" else None

    def error_terms(self, name: str, rounding: float) -> ErrorTerms:
        """See `Formula`: pixels are at most 30, and a coordinate has a few roundings."""
        del name
        moved = 8 * rounding * 2 * 30 * sum(length + 1 for length in self.x_shape[2:])
        return ErrorTerms(np.array(30.0), 2.0 ** len(self.places), np.array(moved), np.array(1.0))


USERS: Mapping[str, tuple[str, Lengths, Lengths]] = {
    "decoder": ("300 queries of 8 heads with 4 points on 80 x 80 pixels, as in RT-DETR", (8, 32, 80, 80), (300, 4)),
    "encoder": ("5000 queries of 8 heads with 4 points on 50 x 76 pixels", (8, 32, 50, 76), (5000, 4)),
    "lines": ("45056 lines of 256 pixels with 9 points, as in TensorRT#4646", (45056, 1, 1, 256), (1, 9)),
    "image": ("an image of 240 x 320 pixels, warped", (1, 3, 240, 320), (240, 320)),
    "volume": ("a volume of 48 x 64 x 80 voxels, warped", (1, 4, 48, 64, 80), (24, 64, 80)),
}
"""A note, the shape of the map, and the shape of the grid without its first and its last axis."""


def _users() -> Iterator[Case]:
    """Sizes of users, in closed form."""
    for definition in GRID_SAMPLES:
        for name, (note, x_shape, places) in USERS.items():
            if len(places) == FUNCTIONS[definition.function]:
                formula = Means(definition.name, x_shape, places)
                yield Case(
                    id=f"{definition.function}/users/{name}/v{(definition.standard or ('', 0))[1]}/float",
                    source=SOURCE,
                    operator=definition.name,
                    attributes={},
                    inputs=Computed(formula),
                    outputs=("Y",),
                    note=f"{note}: locations in the middle of pixels give their mean",
                    expected=Computed(formula, are_inputs=False),
                )

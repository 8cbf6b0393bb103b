"""Problems with a detector's sizes: channels, rows, columns, RoIs and bins are large together.

Runtimes cut large problems into tiles, bands, panels of channels and chunks of RoIs. Mistakes at their seams do not show in
problems that are large along only one axis. Here all results have closed forms (`windows.py`, `planes.py`,
`repetitions.py`), and inputs and expected outputs are computed when a case runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import ortops
from conformance.case import Basis, Case, Source
from conformance.cases.every_attribute import basis_of
from conformance.cases.large.by_role import ByRole, channels_of_bins
from conformance.cases.large.planes import Planes
from conformance.cases.large.repetitions import Repetitions
from conformance.cases.large.windows import Windows
from conformance.cases.make import BOTH, POOL, RESAMPLE, ROTATED
from conformance.formula import Computed
from conformance.model import with_named_axes
from ortops.operators import OPERATORS
from ortops.spec import Operator

SOURCE = Source("conformance/cases/large/windows.py", f"ortops {ortops.__version__}", "closed forms")
TYPES = ("float", "float16")
COORDINATES = ("half_pixel", "output_half_pixel")
MAX_OF_BINS = 256
"""The most channels of the map that a channel of the result reads. With more, maps would take 140 MB."""

TERMS_OF_DROIS = 25
"""About how many elements of a RoI's gradient are not 0 in cases with drois."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A scenario for all operators with RoIs.

    gradients: the outputs of the gradient's cases.
    rest: further fields of `Windows`.
    """

    name: str
    note: str
    x_shape: tuple[int, int, int, int]
    count: int
    bins: tuple[int, int]
    samples: tuple[tuple[int, int], ...]
    scale: float
    ratio: int = 0
    mode: str = "avg"
    gradients: tuple[tuple[str, ...], ...] = (("dx",),)


SCENARIOS = (
    Sizes(
        "map_200x304",
        "the first level of a pyramid, as for an image of 800 x 1216 pixels: 1000 RoIs of 7 x 7 bins",
        (1, 256, 200, 304),
        1000,
        (7, 7),
        ((2, 2),),
        0.25,
        ratio=2,
        gradients=(("dx",), ("drois",)),
    ),
    Sizes(
        "map_50x76_adaptive",
        "the third level of a pyramid, adaptive: 512 RoIs with up to 15 samples in a bin",
        (1, 256, 50, 76),
        512,
        (7, 7),
        ((1, 1), (2, 3), (4, 2), (3, 5), (7, 1), (1, 10)),
        1 / 16,
        gradients=(("dx",), ("drois",)),
    ),
    Sizes(
        "masks_14x14", "100 masks of 14 x 14 bins", (1, 256, 100, 152), 100, (14, 14), ((2, 2), (1, 1), (2, 4)), 0.125
    ),
    Sizes(
        "images_8",
        "400 RoIs on eight images",
        (8, 64, 50, 76),
        400,
        (7, 7),
        ((1, 1), (2, 2), (2, 1)),
        1 / 16,
        gradients=(("dx", "drois"),),
    ),
    Sizes(
        "map_131x203",
        "a map of odd sizes with 33 channels, and maxima",
        (3, 33, 131, 203),
        331,
        (5, 9),
        ((2, 2), (1, 2), (1, 1)),
        0.25,
        mode="max",
    ),
    Sizes("bins_33x70", "20 RoIs with 2310 bins", (1, 40, 100, 152), 20, (33, 70), ((1, 1),), 0.125),
)

MANY_ROIS = (
    Sizes("rois_2100", "2100 RoIs, more than 2^11", (2, 3, 33, 65), 2100, (1, 2), ((1, 1), (2, 1)), 1.0),
    Sizes("rois_66000", "66000 RoIs, more than 2^16", (1, 1, 33, 65), 66000, (1, 1), ((1, 1),), 1.0),
)

OTHER_TYPES = Sizes(
    "map_61x63_of_other_types",
    "130 RoIs of 48 channels in double, with numbers that float32 does not hold, and in bfloat16",
    (2, 48, 61, 63),  # RoIs on a longer one need more than the 8 bits of bfloat16
    130,
    (7, 7),
    ((1, 1), (2, 1)),
    0.125,
)

BEYOND_24_BITS = (
    Sizes("map_of_17_million", "a map with more than 2^24 elements", (2, 132, 256, 257), 16, (1, 1), ((2, 2),), 0.25),
    Sizes(
        "17_million_outputs",
        "an output with more than 2^24 elements",
        (1, 64, 33, 65),
        16500,
        (4, 4),
        ((1, 1),),
        0.25,
        gradients=(),
    ),
)
"""Offsets of 24 bits, and float32 numbers that count elements, end at 2^24. An image of 800 x 1333 has larger maps."""

AFTER_OTHERS = tuple(
    Sizes(
        "after_other_sizes",
        "a later call of a session, after calls with more and with fewer images, channels, rows, columns and RoIs",
        x_shape,
        count,
        (7, 7),
        ((1, 1), (2, 1)),
        0.125,
    )
    for x_shape, count in (((2, 33, 65, 76), 130), ((8, 64, 100, 152), 300), ((1, 17, 50, 50), 33))
)
"""The call that is judged, and those before it."""

PLANES = Sizes(
    "planes_50x76",
    "adaptive: 512 RoIs of any size on planes",
    (2, 256, 50, 76),
    512,
    (7, 7),
    (),
    1 / 16,
)

RESAMPLED = {
    "rows_and_columns_doubled": ((2, 65, 100, 152), (1.0, 1.0, 2.0, 2.0)),
    "rows_and_columns_halved": ((1, 129, 200, 304), (1.0, 1.0, 0.5, 0.5)),
    "channels_and_rows_doubled": ((3, 33, 65, 203), (1.0, 2.0, 2.0, 1.0)),
}
RESAMPLED_BEYOND_24_BITS = {
    "17_million_doubled": ((1, 33, 360, 361), (1.0, 1.0, 2.0, 2.0)),
    "17_million_halved": ((1, 33, 720, 722), (1.0, 1.0, 0.5, 0.5)),
}
"""The shape of the tensor, and the scales."""


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for turn, sizes in enumerate(SCENARIOS):
        for operator in with_rois():
            yield from _of_windows("users", sizes, operator, COORDINATES[turn % 2], TYPES)
    for sizes in MANY_ROIS:
        for operator in with_rois():
            yield from _of_windows("sizes", sizes, operator, COORDINATES[0], TYPES[:1])
    for operator in with_rois():
        types = next(types for types in operator.types.values() if "float" in types)
        # Several pixels of a bin may be equally large in bfloat16: whose gradient that is, is another question.
        is_exact = operator.family != POOL or not operator.is_gradient
        others = [kind for kind in ("double", *["bfloat16"] * is_exact) if kind in types]
        yield from _of_windows("users", OTHER_TYPES, operator, COORDINATES[0], others)
    for operator in {operator.function: operator for operator in reversed(with_rois())}.values():
        for sizes in BEYOND_24_BITS:
            images, channels, height, width = sizes.x_shape
            x_shape = images, channels * channels_of_bins(operator, sizes.bins), height, width
            yield from _of_windows("sizes", replace(sizes, x_shape=x_shape), operator, COORDINATES[0], TYPES[1:])
    for operator in with_rois():
        asked, *before = (
            next(_of_windows("users", sizes, operator, COORDINATES[0], TYPES[:1])) for sizes in AFTER_OTHERS
        )
        yield replace(with_named_axes(asked), before=tuple(before))
    for operator in with_rois():
        if not operator.is_gradient and operator.family != POOL:
            yield from _of_planes(operator)
    for operator in OPERATORS:
        if operator.family == RESAMPLE:
            for scenario, (x_shape, scales) in (RESAMPLED | RESAMPLED_BEYOND_24_BITS).items():
                words = scenario.replace("_", " ")
                is_beyond = scenario in RESAMPLED_BEYOND_24_BITS
                for element_type in TYPES[1:] if is_beyond else (*TYPES, "double"):
                    role = "dx" if operator.is_gradient else "y"
                    formula = Repetitions(operator.name, element_type, (role,), x_shape, scales)
                    yield _case(f"users/{scenario}", f"a large tensor whose {words[:-1]}d", formula, ())


def with_rois() -> list[Operator]:
    """The operators with RoIs."""
    return [operator for operator in OPERATORS if operator.family != RESAMPLE]


def _of_windows(
    family: str, sizes: Sizes, operator: Operator, coordinates: str, types: Iterable[str]
) -> Iterator[Case]:
    """The cases of a scenario for one operator: one for each element type and choice of outputs."""
    coordinates = str(operator.constants.get("coordinate_transformation_mode", coordinates))
    mode = sizes.mode
    if operator.family == POOL:
        mode = "pixels"
    elif mode == "max" and operator.family != BOTH[0]:  # DirectML's maximum is that of samples; mmcv has averages only
        mode = "avg" if operator.family == ROTATED or operator.equations else "max_interpolated"
    each = channels_of_bins(operator, sizes.bins)
    if each > MAX_OF_BINS:
        return
    x_shape = _divisible(sizes.x_shape, each)
    least = min(x_shape[2:])
    # A RoI that is turned by 90 degrees has to fit, too.
    fitting = [tuple(min(n, (least - 1) // bins) for n in each for bins in [max(sizes.bins)]) for each in sizes.samples]
    samples: Any = fitting if operator.family == ROTATED else sizes.samples
    wanted = sizes.gradients if operator.is_gradient else (("y",),)
    for outputs in wanted:
        if operator.family == POOL and operator.is_gradient and outputs == ("drois",):
            continue
        asked = ("dx",) if operator.family == POOL and operator.is_gradient else outputs
        elements = x_shape[1] // each * sizes.bins[0] * sizes.bins[1]
        for element_type in types:
            formula = Windows(
                operator.name,
                element_type,
                asked,
                x_shape,
                sizes.count,
                sizes.bins,
                tuple(samples),
                mode,
                coordinates,
                sizes.scale,
                sizes.ratio,
                one_in=max(elements // TERMS_OF_DROIS, 1) if "drois" in asked else 1,
            )
            basis = Basis.VECTORS if operator.family == POOL else basis_of(mode, operator.family)
            variant = () if operator.family in (POOL, ROTATED) else (mode, coordinates)
            if len(wanted) > 1 and operator.family != POOL:
                variant = (*variant, *asked)
            yield replace(_case(f"{family}/{sizes.name}", sizes.note, formula, variant), basis=basis)


def _divisible(x_shape: tuple[int, int, int, int], each: int) -> tuple[int, int, int, int]:
    """The shape of a map, with a number of channels that is a multiple of another number."""
    images, channels, height, width = x_shape
    return images, max(channels // each, 1) * each, height, width


def _of_planes(operator: Operator) -> Iterator[Case]:
    coordinates = str(operator.constants.get("coordinate_transformation_mode", COORDINATES[0]))
    each = channels_of_bins(operator, PLANES.bins)
    x_shape = _divisible(PLANES.x_shape, each)
    for element_type in TYPES:
        formula = Planes(
            operator.name, element_type, ("y",), x_shape, PLANES.count, PLANES.bins, coordinates, PLANES.scale
        )
        yield _case(f"users/{PLANES.name}", PLANES.note, formula, ())


def _case(scenario: str, note: str, formula: ByRole, variant: tuple[str, ...]) -> Case:
    definition = formula.definition
    version = [f"v{definition.standard[1]}"] if definition.standard else []
    return Case(
        id="/".join([definition.function, scenario, *version, *variant, formula.element_type]),
        source=SOURCE,
        operator=definition.name,
        attributes=formula.attributes,
        inputs=Computed(formula),
        outputs=tuple(formula.outputs),
        note=note,
        expected=Computed(formula, are_inputs=False),
    )

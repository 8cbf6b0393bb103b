# SPDX-License-Identifier: MIT OR Apache-2.0
"""Problems with a detector's sizes: channels, rows, columns, RoIs and bins are large together.

Runtimes cut large problems into tiles, bands, panels of channels and chunks of RoIs. Mistakes at their seams do not show in
problems that are large along only one axis. Here all results have closed forms (`windows.py`, `planes.py`,
`repetitions.py`), and inputs and expected outputs are computed when a case runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import ortops
from conformance.case import Basis, Case, Source
from conformance.cases.every_attribute import basis_of
from conformance.cases.large.by_role import ByRole, channels_of_bins
from conformance.cases.large.middles import Middles
from conformance.cases.large.planes import Planes
from conformance.cases.large.repetitions import Repetitions
from conformance.cases.large.windows import Windows
from conformance.cases.make import ATTENTION, BOTH, NAMES, POOL, RESAMPLE, ROTATED
from conformance.cases.scenes import load
from conformance.formula import Computed
from conformance.model import with_named_axes
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import Operator

SOURCE = Source("conformance/cases/large/windows.py", f"ortops {ortops.__version__}", "closed forms")
MAX_OF_BINS = 256
"""The most channels of the map that a channel of the result reads. With more, maps would take 140 MB."""

TERMS_OF_DROIS = 25
"""About how many elements of a RoI's gradient are not 0 in cases with drois."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A scenario for operators with RoIs, a row of `data/large.json`.

    gradients: the outputs of the gradient's cases.
    family: the second part of the ids.
    types: the element types, of which an operator has cases of its own. For a maximum's gradient bfloat16 is left out:
        several pixels of a bin may be equally large, and whose gradient that is, is another question.
    use: whether every operator has these cases; or one version of each function, on a map that gives the result as many
        channels as `x_shape`; or they are calls of one session, of which the first is judged.
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
    coordinates: str = "half_pixel"
    gradients: tuple[tuple[str, ...], ...] = (("dx",),)
    family: str = "users"
    types: tuple[str, ...] = ("float", "float16")
    use: Literal["operator", "function", "session"] = "operator"


SIZES = load("large.json", Sizes)

RESAMPLED: dict[str, tuple[Any, Any]] = {
    "rows_and_columns_doubled": ((2, 65, 100, 152), (1.0, 1.0, 2.0, 2.0)),
    "rows_and_columns_halved": ((1, 129, 200, 304), (1.0, 1.0, 0.5, 0.5)),
    "channels_and_rows_doubled": ((3, 33, 65, 203), (1.0, 2.0, 2.0, 1.0)),
    "17_million_doubled": ((1, 33, 360, 361), (1.0, 1.0, 2.0, 2.0)),
    "17_million_halved": ((1, 33, 720, 722), (1.0, 1.0, 0.5, 0.5)),
}
"""The shape of the tensor, and the scales.

Offsets of 24 bits, and float32 numbers that count elements, end at 2^24, about 17 million.
"""

ATTENDED: dict[str, tuple[tuple[str, ...], Any]] = {
    "encoder": (("float", "float16"), ((64, 64), (1, 8, 32, 4, 4), 3900)),
    "decoder": (("float", "float16", "bfloat16", "double"), ((128, 64), (2, 8, 32, 3, 4), 300)),
    "17_million": (("float16",), ((256, 256), (1, 8, 33, 1, 2), 300)),
}
"""The element types, and the sizes of `Middles`."""


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for sizes in SIZES:
        for operator in with_rois() if sizes.use == "operator" else ():
            yield from _of_windows(sizes, operator)
    for operator in {operator.function: operator for operator in reversed(with_rois())}.values():
        for sizes in SIZES:
            if sizes.use == "function":
                images, channels, *lengths = sizes.x_shape
                x_shape: Any = images, channels * channels_of_bins(operator, sizes.bins), *lengths
                yield from _of_windows(replace(sizes, x_shape=x_shape), operator)
    for operator in with_rois():
        asked, *before = (next(_of_windows(sizes, operator)) for sizes in SIZES if sizes.use == "session")
        yield replace(with_named_axes(asked), before=tuple(before))
    for operator in with_rois():
        if not operator.is_gradient and operator.family != POOL:
            yield from _of_planes(operator)
    for operator in OPERATORS:
        if operator.family == RESAMPLE:
            for scenario, (x_shape, scales) in RESAMPLED.items():
                for element_type in ("float16",) if "17_million" in scenario else ("float", "float16", "double"):
                    role = "dx" if operator.is_gradient else "y"
                    formula = Repetitions(operator.name, element_type, (role,), x_shape, scales)
                    words = scenario.replace("_", " ")[:-1]
                    yield _case(f"users/{scenario}", f"a large tensor whose {words}d", formula, ())
        if operator.family == ATTENTION:
            names = tuple(tensor.name for tensor in operator.outputs)
            for scenario, (element_types, sizes) in ATTENDED.items():
                for element_type in element_types:
                    middles = Middles(operator.name, element_type, names, *sizes)
                    yield _case(f"users/{scenario}", "levels and queries of a detector", middles, ())


def with_rois() -> list[Operator]:
    """The operators with RoIs."""
    return [operator for operator in OPERATORS if operator.function.removesuffix("_grad") in {*NAMES} - {RESAMPLE}]


def _of_windows(sizes: Sizes, operator: Operator) -> Iterator[Case]:
    """The cases of a scenario for one operator: one for each element type and choice of outputs."""
    coordinates = str(operator.constants.get("coordinate_transformation_mode", sizes.coordinates))
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
        for element_type in sizes.types:
            is_known = any(element_type in types for types in operator.types.values())
            if not is_known or (element_type == "bfloat16" and operator.family == POOL and operator.is_gradient):
                continue
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
            yield replace(_case(f"{sizes.family}/{sizes.name}", sizes.note, formula, variant), basis=basis)


def _divisible(x_shape: tuple[int, int, int, int], each: int) -> tuple[int, int, int, int]:
    """The shape of a map, with a number of channels that is a multiple of another number."""
    images, channels, height, width = x_shape
    return images, max(channels // each, 1) * each, height, width


def _of_planes(operator: Operator) -> Iterator[Case]:
    coordinates = str(operator.constants.get("coordinate_transformation_mode", "half_pixel"))
    x_shape = _divisible((2, 256, 50, 76), channels_of_bins(operator, (7, 7)))
    for element_type in ("float", "float16"):
        formula = Planes(operator.name, element_type, ("y",), x_shape, 512, (7, 7), coordinates, 1 / 16)
        yield _case("users/planes_50x76", "adaptive: 512 RoIs of any size on planes", formula, ())


def _case(scenario: str, note: str, formula: ByRole, variant: tuple[str, ...]) -> Case:
    definition = BY_NAME[formula.operator]
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

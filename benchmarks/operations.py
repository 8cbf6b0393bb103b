"""The measured computations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.workloads import RESAMPLINGS, ROTATED, WORKLOADS, Resampling, Workload
from ortops.operators import BY_NAME

Family = Literal["roi_align", "rotated", "max_roi_pool", "resample"]

_OPERATORS = {
    "roi_align": BY_NAME["RoiAlign_22"],
    "rotated": BY_NAME["RoIAlignRotated"],
    "max_roi_pool": BY_NAME["MaxRoiPool_22"],
    "resample": BY_NAME["DmlResample"],
}
"""By family, an operator with all of the family's element types."""


@dataclass(frozen=True)
class Operation:
    """The computation of `outputs`, among Y, dX and drois, by a forward operator and its gradient.

    family: that of the operator.
    mode: the mode of RoiAlign or, for the family resample, of Resize; "rotated" or "max_pixel" for families without modes.
    """

    name: str
    family: Family
    mode: str
    outputs: tuple[str, ...]

    @property
    def is_gradient(self) -> bool:
        """Whether a gradient is computed."""
        return self.outputs != ("Y",)

    @property
    def element_types(self) -> tuple[str, ...]:
        """The element types of our operators."""
        operator = _OPERATORS[self.family]
        return tuple(operator.element_types(operator.inputs[0]))

    @property
    def workloads(self) -> tuple[Workload | Resampling, ...]:
        """The workloads on which it is measured."""
        by_family: dict[Family, tuple[Workload | Resampling, ...]]
        by_family = {"rotated": ROTATED, "resample": RESAMPLINGS}
        return by_family.get(self.family, WORKLOADS)

    @property
    def forward(self) -> Operation:
        """The forward operator alone."""
        return next(o for o in OPERATIONS if (o.family, o.mode, o.is_gradient) == (self.family, self.mode, False))


OPERATIONS = (
    Operation("avg", "roi_align", "avg", ("Y",)),
    Operation("max", "roi_align", "max", ("Y",)),
    Operation("max_interpolated", "roi_align", "max_interpolated", ("Y",)),
    Operation("dX", "roi_align", "avg", ("dX",)),
    Operation("drois", "roi_align", "avg", ("drois",)),
    Operation("dX+drois", "roi_align", "avg", ("dX", "drois")),
    Operation("Y+dX+drois", "roi_align", "avg", ("Y", "dX", "drois")),
    Operation("max dX", "roi_align", "max", ("dX",)),
    Operation("max drois", "roi_align", "max", ("drois",)),
    Operation("max_interpolated dX", "roi_align", "max_interpolated", ("dX",)),
    Operation("max_interpolated drois", "roi_align", "max_interpolated", ("drois",)),
    Operation("rotated", "rotated", "rotated", ("Y",)),
    Operation("rotated dX", "rotated", "rotated", ("dX",)),
    Operation("rotated drois", "rotated", "rotated", ("drois",)),
    Operation("pixels", "max_roi_pool", "max_pixel", ("Y",)),
    Operation("pixels dX", "max_roi_pool", "max_pixel", ("dX",)),
    Operation("linear", "resample", "linear", ("Y",)),
    Operation("nearest", "resample", "nearest", ("Y",)),
    Operation("linear dX", "resample", "linear", ("dX",)),
    Operation("nearest dX", "resample", "nearest", ("dX",)),
)

IN_MODEL = Operation("in-model", "roi_align", "avg", ("Y",))
"""The first operation inside a model, by the runtime's profile (`in_model`)."""

WITH_CONVERSIONS = Operation(f"{IN_MODEL.name} with conversions", "roi_align", "avg", ("Y",))
"""The same and the conversions of layout and type that the runtime adds before and after it; measured with `IN_MODEL`."""

BY_DEFAULT = (
    "avg",
    "max",
    "dX",
    "drois",
    "rotated",
    "rotated dX",
    "linear",
    "nearest",
    "linear dX",
    "nearest dX",
    IN_MODEL.name,
)

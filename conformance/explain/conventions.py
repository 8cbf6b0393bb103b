"""The conventions that are often confused: by each of them, where the samples of a RoI fall and what the bins become.

The reference computes both the samples and the values, so a drawing cannot disagree with the suite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from conformance.case import Array
from conformance.expected_values import Floats, reference
from conformance.explain.drawing import Point
from ortops.operators import BY_NAME
from ortops.spec import AttributeValue

MAX_COMPUTED = 1_000_000
"""The largest number of samples for which a convention computes the bins of a RoI."""


class Placed(NamedTuple):
    """A RoI on the map.

    point: the point at fractions of the RoI's height and width.
    bins, per_bin: the numbers of bins, and of samples of a bin, along the height and the width.
    coordinates: a function that returns y and x of all samples, [samples along the height, along the width] each.
    is_inside: takes y and x of a sample, and returns whether it is on the map.
    """

    point: Callable[[float, float], Point]
    bins: tuple[int, int]
    per_bin: tuple[int, int]
    coordinates: Callable[[], tuple[Floats, Floats]]
    is_inside: Callable[[float, float], bool]

    @property
    def total(self) -> int:
        """The number of samples of all bins."""
        return math.prod((*self.bins, *self.per_bin))


@dataclass(frozen=True, slots=True)
class Convention:
    """One convention, with one RoI of the case translated into it.

    name: the name in headings. `short` is that in columns of tables.
    operator: the name of the operator that computes its values.
    roi: the RoI as that operator takes it, [1, 4 or 5].
    placed: the RoI on the map.
    is_own: whether the case itself uses this convention.
    notes: sentences about attributes of the case that this convention does not have.
    """

    name: str
    detail: str
    operator: str
    attributes: Mapping[str, AttributeValue]
    roi: Floats
    placed: Placed
    is_own: bool
    notes: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The short name that columns of tables show."""
        return self.name.removeprefix("ONNX ")

    def output(self, image: Floats | None) -> Floats | None:
        """The bins [rows, columns] of the RoI on an image [H, W]; None if samples are too many or there is no image."""
        if image is None or self.placed.total > MAX_COMPUTED:
            return None
        definition = BY_NAME[self.operator]
        tensors: tuple[Array, ...] = image[None, None], self.roi, np.zeros(1, np.int64)
        inputs = dict(zip((tensor.name for tensor in definition.inputs), tensors, strict=True))
        attributes = {a.name: self.attributes[a.name] for a in definition.attributes if a.name in self.attributes}
        (output,) = reference(definition, attributes, inputs, [definition.outputs[0].name]).values()
        return np.asarray(output[0, 0], np.float64)

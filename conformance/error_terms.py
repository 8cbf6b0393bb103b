"""The terms of a forward error bound, from which the tolerance of each element follows (`conformance.compare`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ErrorTerms:
    """The terms of the error bound of one output; arrays broadcast against the output.

    An element is a sum of products.

    magnitude: the sum of the products' absolute values.
    terms: an upper bound of the number of products.
    coordinate_error: the largest change of an element if coordinates are computed in `compute_dtype(case)`.
    condition: the absolute condition number: the largest change of an element if all data change by at most 1.
    """

    magnitude: Floats
    terms: Floats | float
    coordinate_error: Floats
    condition: Floats

    @property
    def is_uniform(self) -> bool:
        """Whether the terms are the same for all elements."""
        return all(np.ndim(one) == 0 for one in (self.magnitude, self.terms, self.coordinate_error, self.condition))

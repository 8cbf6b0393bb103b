"""The terms of a forward error bound, from which the tolerance of each element follows (`conformance.compare`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ErrorTerms:
    """The terms of the error bound of one output; arrays broadcast against the output.

    magnitude: the sum of the absolute values of the products that an element is the sum of.
    terms: an upper bound of the number of these products.
    coordinate_error: the most that an element changes if coordinates are computed in `compute_dtype(case)`.
    condition: the absolute condition number: the most that an element changes if every element of the data changes by 1.
    """

    magnitude: Floats
    terms: Floats | float
    coordinate_error: Floats
    condition: Floats

    @property
    def is_uniform(self) -> bool:
        """Whether they are the same for all elements."""
        return all(np.ndim(one) == 0 for one in (self.magnitude, self.terms, self.coordinate_error, self.condition))

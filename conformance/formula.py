# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors that are computed when they are needed, for cases that are too large to be kept or sent between processes.

A case with a `Formula` has a few numbers instead of arrays. Its inputs and its expected outputs are `Computed`: mappings
that compute an array when it is read. A few arrays are kept, since a scenario's cases of other types and opsets read equal
ones next. Their types and shapes need no computation.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from conformance.error_terms import ErrorTerms

Array = npt.NDArray[Any]


LARGE = 2**20
"""Of arrays of at least this many bytes fewer are kept."""


class TensorType(NamedTuple):
    """The type and the shape of a tensor."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size of the tensor."""
        return self.dtype.itemsize * math.prod(self.shape)


class Formula(abc.ABC):
    """The formula of a large case's tensors. Subclasses are frozen dataclasses, compared and sent by their fields."""

    @property
    @abc.abstractmethod
    def inputs(self) -> Mapping[str, TensorType]:
        """The type and the shape of each input of the case, by name."""

    @property
    @abc.abstractmethod
    def outputs(self) -> Mapping[str, TensorType]:
        """The type and the shape of each expected output. Its array may have a more precise floating-point type."""

    @property
    @abc.abstractmethod
    def work(self) -> float:
        """A number that is roughly proportional to a runtime's time, such as the number of samples in all channels."""

    @abc.abstractmethod
    def tensor(self, name: str) -> Array:
        """The input or the expected output of this name."""

    @property
    @abc.abstractmethod
    def in_float(self) -> Formula:
        """A formula of equal tensors before they are rounded to their types, the same one for several types and opsets."""

    @abc.abstractmethod
    def error_terms(self, name: str, rounding: float) -> ErrorTerms:
        """The terms of the error bound of an output, which hold for all of its elements.

        Args:
            name: the output.
            rounding: the unit roundoff of the type in which a runtime computes.
        """

    @abc.abstractmethod
    def smaller(self) -> Formula:
        """A formula of the same form with about a hundredth of the work."""

    def recipe(self, name: str) -> dict[str, Any] | None:
        """How another program computes an input (docs/corpus.md); None for one that is small enough to be a file.

        Args:
            name: the input.
        """
        del name
        return None

    def with_mode(self, mode: str) -> Formula:
        """The same inputs with the expected outputs of another mode of RoiAlign, for a formula that has modes."""
        raise NotImplementedError(mode)


def _tensor(formula: Formula, name: str) -> Array:
    array = formula.tensor(name)
    array.flags.writeable = False
    return array


_large = functools.lru_cache(4)(_tensor)  # those of a case, up to 62 MiB each, and of its hundredth
_small = functools.lru_cache(64)(_tensor)


@functools.lru_cache(64)
def terms_of(formula: Formula, name: str, rounding: float) -> ErrorTerms:
    """See `Formula.error_terms`."""
    return formula.error_terms(name, rounding)


@dataclass(frozen=True, slots=True)
class Computed(Mapping[str, Array]):
    """The inputs or the expected outputs of a formula, computed when they are read. Outputs must not be written to."""

    formula: Formula
    are_inputs: bool = True

    @property
    def types(self) -> Mapping[str, TensorType]:
        """The type and the shape of each tensor."""
        return self.formula.inputs if self.are_inputs else self.formula.outputs

    def __getitem__(self, name: str) -> Array:
        """Compute a tensor. Inputs are new arrays."""
        if name not in self.types:
            raise KeyError(name)
        tensor = _large if self.types[name].nbytes >= LARGE else _small
        array = tensor(self.formula.in_float, name)
        return array.astype(self.types[name].dtype) if self.are_inputs else array

    def __contains__(self, name: object) -> bool:
        """Whether there is a tensor of this name, without computing it, which Mapping's own method would do."""
        return name in self.types

    def __iter__(self) -> Iterator[str]:
        """The names of the tensors."""
        return iter(self.types)

    def __len__(self) -> int:
        """The number of tensors."""
        return len(self.types)


def types_of(tensors: Mapping[str, Array]) -> Mapping[str, TensorType]:
    """The type and the shape of each tensor of a case, without computing any."""
    if isinstance(tensors, Computed):
        return tensors.types
    return {name: TensorType(array.dtype, array.shape) for name, array in tensors.items()}

# SPDX-License-Identifier: MIT
"""Tensors' element types, the pointer types of compiled functions' parameters, and kernels' status codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

LANES = 16
"""The number of elements in a SIMD value of compiled code: as many as an AVX-512 vector of float32 has."""

CACHE_LINE = 64
"""The size of a cache line in bytes, assumed for every processor."""

FLOAT16, BFLOAT16, FLOAT, DOUBLE = 0, 1, 2, 3
"""Tensors' element types. FLOAT is the compute type of the 16-bit types; FLOAT and DOUBLE are their own."""


class Elements(NamedTuple):
    """A pointer to elements that carries their type, so that code that only passes it on is compiled once for all types.

    address: the first element's address.
    kind: FLOAT16, BFLOAT16, FLOAT or DOUBLE.
    """

    address: int
    kind: int


T = TypeVar("T")


class Pointer(Protocol[T]):
    """A pointer to 8-byte numbers, for type checkers. Callers pass NumPy arrays for it."""

    def __getitem__(self, at: int, /) -> T:
        """Load number `at`."""

    def __setitem__(self, at: int, value: T, /) -> None:
        """Store number `at`."""


if TYPE_CHECKING:
    T_co = TypeVar("T_co", covariant=True)

    class Address(int, Generic[T_co]):
        """The address of a C function of type T."""

else:

    class Address:
        """An int, in compiled code and in the fields of structs."""

        def __class_getitem__(cls, _function: Any) -> type[int]:
            return int


Values: TypeAlias = Annotated[Any, "values"]
"""Parameter type: a pointer to values of the element type's compute type."""

Stored: TypeAlias = Annotated[Any, "stored"]
"""Parameter type: a pointer to stored elements."""

Source: TypeAlias = Annotated[Any, "pixels"]
"""Parameter type: a pointer to stored pixels (plane) or to LANES-wide vectors (panel)."""

Sums: TypeAlias = Annotated[Any, "sums"]
"""Parameter type: a pointer to values of the compute type (plane) or to vectors of them (panel)."""

Wide: TypeAlias = Annotated[Any, "wide"]
"""Parameter type: a pointer to float64s (plane) or to vectors of them (panel)."""

Places: TypeAlias = Annotated[Any, "places"]
"""Parameter type: a pointer to pixel numbers: float64s (plane) or `Sums` (panel, which has at most 2**18 pixels)."""

PANEL = " panel"
"""The suffix of the element type's name in functions that are specialised for panels."""

Words: TypeAlias = Annotated[Pointer[int], "int64"]
"""Parameter type: a pointer to int64s."""

Doubles: TypeAlias = Annotated[Pointer[float], "float64"]
"""Parameter type: a pointer to float64s."""

OUT_OF_MEMORY, INTERRUPTED = 1, -(2**62)
"""A kernel's status if memory ran out or a signal handler raised; otherwise the status is 0."""

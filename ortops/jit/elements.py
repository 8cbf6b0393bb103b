"""Element types of tensors, pointers to elements as parameters of compiled functions, and what kernels return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

FLOAT16, BFLOAT16, FLOAT, DOUBLE = 0, 1, 2, 3
"""The element types of tensors. Values of the 16-bit types are computed as FLOAT."""


class Elements(NamedTuple):
    """A pointer to elements whose type is known at run time only, so that all types share the code that moves it.

    address: of the first element.
    kind: FLOAT16, BFLOAT16, FLOAT or DOUBLE.
    """

    address: int
    kind: int


T = TypeVar("T")


class Pointer(Protocol[T]):
    """What type checkers see of a pointer to numbers of 8 bytes; NumPy's arrays are passed as such."""

    def __getitem__(self, at: int, /) -> T:
        """Load number `at`."""

    def __setitem__(self, at: int, value: T, /) -> None:
        """Store it."""


if TYPE_CHECKING:
    T_co = TypeVar("T_co", covariant=True)

    class Address(int, Generic[T_co]):
        """The address of a C function of type T."""


Values: TypeAlias = Annotated[Any, "values"]
"""A parameter of a compiled function: a pointer to numbers of the type in which the elements of a type are computed."""

Stored: TypeAlias = Annotated[Any, "stored"]
"""Likewise a pointer to elements as they are stored."""

Source: TypeAlias = Annotated[Any, "pixels"]
"""Likewise a pointer to the pixels of a plane as they are stored; or, of a panel, to vectors of LANES channels."""

Sums: TypeAlias = Annotated[Any, "sums"]
"""Likewise a pointer to values of the type in which a plane is computed; or, of a panel, to vectors of them."""

Wide: TypeAlias = Annotated[Any, "wide"]
"""Likewise a pointer to float64s for a plane; or, for a panel, to vectors of them."""

Places: TypeAlias = Annotated[Any, "places"]
"""Likewise a pointer to numbers of pixels: float64s for a plane; `Sums` for a panel, which has at most 2**18 pixels."""

PANEL = " panel"
"""What follows the name of the element type of a function that is compiled for panels."""

Words: TypeAlias = Annotated[Pointer[int], "int64"]
"""Likewise a pointer to int64."""

Doubles: TypeAlias = Annotated[Pointer[float], "float64"]
"""Likewise a pointer to float64."""

OUT_OF_MEMORY, INTERRUPTED = 1, -(2**62)
"""What a kernel returns if memory ran out, or if a signal handler raised; otherwise it returns 0."""

"""Names of functions to compile, for processes that compile them."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """A C function to compile.

    Args:
        module: the module below `ortops` that defines the function.
        function: the function's name.
        element: the element type for which it is specialised if it has parameters that point to elements, else "".
    """

    module: str
    function: str
    element: str

    @property
    def name(self) -> str:
        """The function's name in the cache."""
        return f"{self.module}.{self.function}"

"""Names of functions to compile, which refer to functions without importing their modules and thus numba."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

ArgType: TypeAlias = "str | tuple[type[Any], tuple[ArgType, ...]]"
"""An argument's type: INTEGER, FLOAT or a pointer as in `kernel.py`; for a named tuple, its class and field types."""


class Source(NamedTuple):
    """A function to compile.

    Args:
        module: the module below `ortops` that defines the function.
        function: the function's name.
        arguments: the argument types of a kernel, or the element type of a `CFunction`.
    """

    module: str
    function: str
    arguments: tuple[ArgType, ...] | str

    @property
    def name(self) -> str:
        """The function's name in the cache."""
        return f"{self.module}.{self.function}"

    @property
    def arg_types(self) -> tuple[str, ...]:
        """The argument types, with the fields of named tuples; the element type of a `CFunction`."""
        return (self.arguments,) if isinstance(self.arguments, str) else tuple(map(_type_name, self.arguments))


Function: TypeAlias = Any
"""A compiled function, or the `FunctionName` that represents it at run time."""


class FunctionName(NamedTuple):
    """A compiled function's module below `ortops`, and its name in the module."""

    module: str
    function: str


class Unimported:
    """A placeholder for a module of compiled functions: module and numba are imported only to compile a function.

    Type checkers and editors see the module itself:

        if TYPE_CHECKING:
            from ortops.kernels import axis
        else:
            axis = Unimported("kernels.axis")

    Args:
        module: the module below `ortops`.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, function: str) -> FunctionName:
        return FunctionName(self._module, function)


def _type_name(arg_type: ArgType) -> str:
    if isinstance(arg_type, str):
        return arg_type
    cls, types = arg_type
    fields = map(str, getattr(cls, "_fields", range(len(types))))
    return f"{cls.__name__}({', '.join(f'{name}={_type_name(one)}' for name, one in zip(fields, types, strict=True))})"

"""Constants (`native.constants`) as data of a library, whose addresses the linker fills in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ortops.native.constants import Constant, FunctionOf, Several, SharedWord, Target, cells, size_of

_TYPES: dict[str, Any] = {
    "int64": ir.IntType(64),
    "float64": ir.DoubleType(),
    "float32": ir.FloatType(),
    "uint8": ir.IntType(8),
}


class ConstantData:
    """The constants of an LLVM module.

    Args:
        declare: declares a function in it.
    """

    def __init__(self, module: Any, declare: Callable[[FunctionOf], Any]) -> None:
        self._module, self._declare, self._places = module, declare, dict[Target, Any]()

    def place(self, target: Target) -> Any:
        """A pointer to a function, or to something that is emitted once."""
        if isinstance(target, FunctionOf):
            return self._declare(target)
        if isinstance(target, SharedWord):
            symbol = f"ortops.{target.name}"
            return self._module.globals.get(symbol) or ir.GlobalVariable(self._module, _TYPES["int64"], symbol)
        if target not in self._places:
            if isinstance(target, str):
                content = bytearray(target.encode() + b"\0")
                value = ir.Constant(ir.ArrayType(_TYPES["uint8"], len(content)), content)
            else:
                value = self._struct(target)
            kind = target.struct.__name__ if isinstance(target, Constant) else type(target).__name__
            place = ir.GlobalVariable(self._module, value.type, f"{kind}.{len(self._places)}")
            place.linkage, place.global_constant, place.initializer, place.align = "internal", True, value, 8
            self._places[target] = place
        return self._places[target]

    def _struct(self, target: Constant | Several) -> Any:
        parts, at = [], 0
        for cell in cells(target):
            parts += self._zeros(cell.offset - at)
            if isinstance(cell.value, int | float):
                parts.append(_TYPES[cell.kind](cell.value))
            else:
                parts.append(self.place(cell.value).ptrtoint(_TYPES["int64"]))
            at = cell.offset + (1 if cell.kind == "uint8" else 4 if cell.kind == "float32" else 8)
        parts += self._zeros(size_of(target) - at)
        return ir.Constant(ir.LiteralStructType([part.type for part in parts], packed=True), parts)

    @staticmethod
    def _zeros(size: int) -> list[Any]:
        return [ir.Constant(ir.ArrayType(_TYPES["uint8"], size), None)] if size > 0 else []

"""The sources of all machine code that `ortops.warmup` compiles."""

from __future__ import annotations

from collections.abc import Iterable

from ortops import precompile
from ortops.calls.records import functions
from ortops.jit.source import Source  # noqa: TID251
from ortops.operators import BY_NAME

ENTRY_POINTS = (
    Source("jit.tasks", "work", ""),
    Source("jit.tasks", "run_on_threads", ""),
    Source("engine.compiled.callbacks", "fill", ("*int64", "int64")),
    Source("engine.compiled.allocator", "fill", ("*int64",)),
    Source("engine.compiled.inputs", "describe", ("int64", "int64", "int64", "int64", "*int64")),
)
"""The sources that `precompile.compile_entry_points` compiles."""


def needed(operators: Iterable[str], types: Iterable[str]) -> list[Source]:
    """The sources that `ortops.warmup` compiles for these operators, in the element types that each supports."""
    found = {
        Source(function.function.module, function.function.function, function.element)
        for kind in types
        for name in operators
        if any(kind in kinds for kinds in BY_NAME[name].types.values())
        for kernels in precompile.nodes([name], [kind])
        for record in kernels.records
        for function in functions(record)
    }
    # The code without element types is the largest, so it starts first.
    return [*sorted(found, key=lambda source: (source.arguments != "", source.name, source.arguments)), *ENTRY_POINTS]

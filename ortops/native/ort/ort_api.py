# SPDX-License-Identifier: MIT
"""OrtApi, ONNX Runtime's table of functions, in compiled code.

Later releases only append to the table, so a function keeps its position. Source: onnxruntime_c_api.h, API version 20.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ortops.compiler.compile import noinline
from ortops.compiler.parallel import to_words
from ortops.compiler.text import text
from ortops.native.ort.types import API_FUNCTIONS, FAIL

_INT64 = ir.IntType(64)


@intrinsic(prefer_literal=True)
def _call_api(_typing: Any, api: Any, name: Any, args: Any) -> Any:
    place, *_ = API_FUNCTIONS[name.literal_value]
    given = types.BaseTuple.from_types(tuple(map(types.unliteral, args.types)))

    def codegen(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        words = list(to_words(builder, values[2], given))
        function = ir.FunctionType(_INT64, [_INT64] * len(words)).as_pointer()
        table = builder.inttoptr(values[0], function.as_pointer())
        return builder.call(builder.load(builder.gep(table, [_INT64(place)])), words)

    return types.intp(types.intp, name, given), codegen


if TYPE_CHECKING:

    def call_api(api: int, name: str, args: tuple[object, ...]) -> int:
        """Call the function `name` of the OrtApi at address `api` with 8-byte words; return its OrtStatus, 0 for success."""
else:
    call_api = _call_api


@noinline
def out_of_memory(api: int) -> int:
    """An OrtStatus that says that memory has run out."""
    return call_api(api, "CreateStatus", (FAIL, text("ortops: out of memory")))

# SPDX-License-Identifier: MIT
"""The library's interface, by which any language calls kernels without ONNX Runtime (ortops.h)."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ortops
from ortops.native.types import FLOAT, INT, INTS, STRING
from ortops.runtime import library
from samples import FORWARD
from test_library import RESULT, on_linux, printed

ROOT = Path(__file__).parents[1]


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.c_int64 * 8),
    )


class Attribute(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("values", ctypes.c_void_p),
    )


class Call(ctypes.Structure):
    _fields_ = (
        *(("runner", ctypes.c_void_p), ("context", ctypes.c_void_p), ("state", ctypes.c_int64 * 9)),
        *(("tensors", Tensor * 9), ("text_size", ctypes.c_int64), ("text", ctypes.c_char * 2048)),
    )


def function(name: str, *types: Any) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64, *types)(getattr(library().interface, name))


def attribute(name: str, kind: int, *values: Any) -> Attribute:
    array: Any = (ctypes.c_double if kind == FLOAT else ctypes.c_int64) * len(values)
    memory = ctypes.create_string_buffer(values[0].encode()) if kind == STRING else array(*values)
    kept.append(memory)
    return Attribute(name.encode(), kind, len(values), ctypes.addressof(memory))


kept: list[Any] = []
SIZE = [attribute("output_height", INT, 2), attribute("output_width", INT, 2)]


def make(call: Call, *attributes: Attribute, name: str = "RoiAlign_16", element_type: int = 1) -> int:
    given = (Attribute * len(attributes))(*attributes)
    make_node = function("make_node", ctypes.c_int64, ctypes.c_char_p, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 2)
    operators = ctypes.addressof(library().interface.operators)
    address: int = make_node(operators, name.encode(), element_type, len(given), given, ctypes.byref(call))
    return address


def describe(call: Call, *arrays: Any) -> None:
    for tensor, array in zip(call.tensors, arrays, strict=False):
        number = {"float32": 1, "float64": 11, "float16": 10, "int64": 7}[str(array.dtype)]
        tensor.data, tensor.type, tensor.rank = array.ctypes.data, number, array.ndim
        tensor.dims[: array.ndim] = array.shape


def run(name: str, node: int, call: Call) -> int:
    result: int = function(name, ctypes.c_int64, ctypes.c_void_p)(node, ctypes.byref(call))
    return result


def release(node: int) -> None:
    function("release_node", ctypes.c_int64)(node)


@pytest.mark.parametrize("threads", [0, 1, 16])
def test_call_gives_bits_of_function(threads: int) -> None:
    call, count = Call(), ctypes.c_int64(threads)
    node = make(call, *SIZE, attribute("mode", STRING, "max"))
    describe(call, *FORWARD.values())
    if threads:
        call.runner, call.context = library().interface.run_on_threads, ctypes.addressof(count)
    assert run("infer_shapes", node, call) == 0
    output = call.tensors[3]
    assert (output.type, output.rank, output.dims[:4]) == (1, 4, [2, 1, 2, 2])
    y = np.empty(output.dims[:4], np.float32)
    output.data = y.ctypes.data
    assert run("compute", node, call) == 0
    release(node)
    expected = ortops.roi_align(*FORWARD.values(), output_height=2, output_width=2, mode="max")
    assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("attributes", "name", "element_type", "says"),
    [
        (SIZE, "RoiAlign", 1, "RoiAlign is no operator of this library"),
        (SIZE, "", 1, " is no operator of this library"),
        (SIZE, "RoiAlign_16", 7, "RoiAlign_16 does not take element type 7"),
        ([attribute("size", INT, 2), attribute("b", INT, 2)], "RoiAlign_16", 1, "RoiAlign_16 has no attribute size, b"),
        ([attribute("output_width", INT, 0)], "RoiAlign_16", 1, "output_width = 0: must be >= 1"),
        ([attribute("output_width", FLOAT, 2.0)], "RoiAlign_16", 1, "output_width has type FLOAT: must be INT"),
        ([attribute("mode", STRING, "mean")], "RoiAlign_16", 1, "mode = 'mean': must be one of"),
        ([attribute("spatial_scale", FLOAT, 0.0)], "RoiAlign_16", 1, "spatial_scale = 0.0: must be finite and > 0"),
        ([attribute("pooled_shape", INTS, 1, 2, 3)], "MaxRoiPool_1", 1, "pooled_shape = [1, 2, 3]: must have 2 values"),
    ],
)
def test_make_node_refuses_node(attributes: list[Attribute], name: str, element_type: int, says: str) -> None:
    call = Call()
    assert make(call, *attributes, name=name, element_type=element_type) == 0
    assert call.text.decode().startswith(says)
    assert call.text_size == len(call.text)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rois": np.zeros((2, 4), np.float64)}, "rois has element type 11: must be 1"),
        ({"X": np.zeros((1, 1, 4, 4), np.float64)}, "X has element type 11: must be 1"),
        ({"batch_indices": np.zeros(2, np.float32)}, "batch_indices has element type 1: must be 7"),
        ({"rois": np.zeros((2, 5), np.float32)}, "rois has shape [2, 5]: shape[1] must be 4"),
    ],
)
def test_infer_shapes_refuses_inputs(changes: dict[str, Any], says: str) -> None:
    call = Call()
    node = make(call, *SIZE)
    describe(call, *(FORWARD | changes).values())
    assert run("infer_shapes", node, call) == 2
    assert call.text.decode() == says
    describe(call, *FORWARD.values())
    call.tensors[1].type = 0
    assert run("infer_shapes", node, call) == 2
    assert call.text.decode() == "rois is missing: RoiAlign_16 requires it"
    release(node)


@on_linux
def test_program_in_c_calls_kernel_without_onnx_runtime(library: Path, tmp_path: Path) -> None:
    program, source = tmp_path / "call", ROOT / "examples" / "hosts" / "call.c"
    warnings = ("-Wall", "-Wextra", "-Werror")
    command: list[Any] = ["cc", *warnings, "-I", ROOT / "ortops" / "library", source, library, "-o", program]
    subprocess.run(command, check=True)  # noqa: S603
    assert printed(program) == RESULT

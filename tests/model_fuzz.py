# SPDX-License-Identifier: MIT
"""Calls the functions that take a model with damaged ones; ``python tests/model_fuzz.py FIRST COUNT [nodes]``.

A damaged model is a valid one in which a few fields of its protobuf messages have impossible values. The process prints
each number before it calls anything, so that the last line names the model that ended it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx

import onnx_models
from onnx_models.gradient.registry import REAL

LIMIT = 30
"""Seconds for a call; then the process ends with a traceback."""

INTEGERS = (-1, 0, 1, 2, 7, 100, -100, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
FLOATS = (float("nan"), float("inf"), -float("inf"), 1e38, -1.0, 0.0)
WORDS = ("x", "y", "loss", "ai.onnx", "own", "Slice", "Loop", "If", "Resize", "Conv", "axis", "value")
STRINGS = ("", "\0", "a" * 3000, *WORDS)
BYTES = (b"", b"\xff" * 8, b"\0" * 3, b"\x01" * 16)

HEADER = '<ir_version: 10, opset_import: ["" : 18, "own" : 1]>'
NUMBERS = "s = Constant <value_ints = [0]> () e = Constant <value_ints = [9]> () ax = Constant <value_ints = [2]> ()"
TEXTS = (
    f"""{HEADER} g (float[N, 2, 6, 6] x) => (float loss) <float[2, 2, 3, 3] w, float[2] b = {{0.5, 0.25}}> {{
        {NUMBERS}
        pads = Constant <value = int64[8] {{0, 0, 1, 1, 0, 0, 1, 1}}> ()
        a = Pad (x, pads)
        h = MaxPool <kernel_shape = [2, 2]> (a)
        y = Slice (h, s, e, ax)
        scales = Constant <value = float[4] {{1, 1, 2, 2}}> ()
        r = Resize <mode = "nearest"> (y, , scales)
        shape = Shape (r)
        part = Slice (shape, s, ax)
        t = Reshape (r, part)
        zeros = ConstantOfShape (shape)
        v = Add (r, zeros)
        p = Transpose <perm = [0, 2, 1, 3]> (v)
        z, rest = Split <axis = 1, num_outputs = 2> (p)
        q = Softmax <axis = -1> (z)
        both = Concat <axis = 1> (q, rest)
        loss = ReduceSum <keepdims = 0> (both)
    }}""",
    f"""{HEADER} g (float[N, 3] x, int64 n, bool c) => (float loss)
        <float[3, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, float[3] b = {{1, 2, 3}}> {{
        a = Gemm (x, w, b)
        i = If (c) <then_branch = t () => (float[N, 3] p) {{ p = Neg (a) }},
                    else_branch = f () => (float[N, 3] q) {{ q = own.twice (a) }}>
        l = Loop (n, c, i) <body = k (int64 at, bool go, float[N, 3] s) => (bool again, float[N, 3] more) {{
            again = Identity (go) more = MatMul (s, w) }}>
        loss = ReduceMean <keepdims = 0> (l)
    }}
    <opset_import: ["" : 18], domain: "own"> twice (t) => (d) {{ d = Add (t, t) }}""",
    f"""{HEADER} g (float[1, 1, 8, 8] x, float[r, 4] boxes, int64[r] of) => (float loss) {{
        y = RoiAlign <output_height = 2, output_width = 2> (x, boxes, of)
        p = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (y)
        f = Flatten (p)
        loss = ReduceSum <keepdims = 0> (f)
    }}""",
    f"""{HEADER} g (float[5, N, 3] x, float[1, 16, 3] W, float[1, 16, 4] R) => (float loss) {{
        y = LSTM <hidden_size = 4> (x, W, R)
        e = Einsum <equation = "abcd,abce->de"> (y, y)
        loss = ReduceSum <keepdims = 0> (e)
    }}""",
)


def node_models() -> list[bytes]:
    """The models of ONNX's own node tests: all operators."""
    from onnx.backend.test.case.node import collect_testcases

    found = [case.model for case in collect_testcases(None)]
    return [model.SerializeToString() for model in found if model is not None and model.ByteSize() < 30_000]


def messages(message: Any) -> Iterator[Any]:
    """Yield a protobuf message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                yield from messages(one)


def damage(model: onnx.ModelProto, rng: random.Random) -> None:
    """Change up to three fields."""
    known = list(messages(model))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        message = rng.choice(known)
        field = rng.choice(list(message.DESCRIPTOR.fields))
        try:
            change = damage_messages if field.message_type is not None else damage_values
            change(message, field, known, rng)
        except (ValueError, TypeError, OverflowError):
            continue  # protobuf itself refuses the value


def damage_messages(message: Any, field: Any, known: list[Any], rng: random.Random) -> None:
    alike = [
        type(one).FromString(one.SerializePartialToString()) for one in known if one.DESCRIPTOR is field.message_type
    ]
    if not field.is_repeated:
        message.ClearField(field.name)
        if alike and rng.random() < 0.5:
            getattr(message, field.name).CopyFrom(rng.choice(alike))
        return
    items = getattr(message, field.name)
    way = rng.random()
    if way < 0.3 and items:
        del items[rng.randrange(len(items))]
    elif way < 0.6 and alike:
        items.add().CopyFrom(rng.choice(alike))
    elif way < 0.8:
        items.sort(key=lambda _: rng.random())
    elif way < 0.9:
        items.add()
    else:
        message.ClearField(field.name)


def damage_values(message: Any, field: Any, _: list[Any], rng: random.Random) -> None:
    choices: dict[int, tuple[Any, ...]] = {
        field.CPPTYPE_ENUM: tuple(range(30)),
        field.CPPTYPE_FLOAT: FLOATS,
        field.CPPTYPE_DOUBLE: FLOATS,
        field.CPPTYPE_STRING: BYTES if field.type == field.TYPE_BYTES else STRINGS,
    }
    value = rng.choice(choices.get(field.cpp_type, INTEGERS))
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif not field.is_repeated:
        setattr(message, field.name, value)
    elif (items := getattr(message, field.name)) and rng.random() < 0.7:
        items[rng.randrange(len(items))] = value
    else:
        items.append(value)


def calls(model: onnx.ModelProto) -> Iterator[Callable[[], object]]:
    """Yield calls of the functions that take a model."""
    yield lambda: onnx_models.convert(model)
    yield lambda: onnx_models.portable.attach(model)
    inputs, outputs = (
        [value.name for value in values if value.type.tensor_type.elem_type in REAL]
        for values in (model.graph.input, model.graph.output)
    )
    if inputs and outputs:
        yield lambda: onnx_models.vjp(model, outputs[:1], inputs)
        yield lambda: onnx_models.with_loss(model, "mean_squared_error", outputs[0])
        yield lambda: onnx_models.gradient(model, outputs[0], "parameters")
        yield lambda: onnx_models.gradient(model, outputs[0], "parameters", untie=True)
    if weights := [tensor for tensor in model.graph.initializer if tensor.data_type in REAL]:
        zeros = np.zeros([1], np.float32)
        yield lambda: onnx_models.with_state(model, dict.fromkeys([tensor.name for tensor in weights], zeros))


def main(first: int, count: int, *, nodes: bool) -> None:
    warnings.simplefilter("ignore")
    models = node_models() if nodes else [onnx.parser.parse_model(text).SerializeToString() for text in TEXTS]
    for number in range(first, first + count):
        rng = random.Random(number)  # noqa: S311  # no secret
        model = onnx.load_from_string(rng.choice(models))
        damage(model, rng)
        for place, call in enumerate(calls(model)):
            print(f"model {number}, call {place}", flush=True)
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            with contextlib.suppress(TypeError, ValueError):  # refused, as it should be
                call()
        faulthandler.cancel_dump_traceback_later()
    print("all refused or done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), nodes="nodes" in sys.argv[3:])

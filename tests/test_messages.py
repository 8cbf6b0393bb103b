# SPDX-License-Identifier: MIT
"""The text of errors that compiled code writes, against what Python writes."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from in_process import c_function
from ortops.native.node import messages
from ortops.native.structs import Struct
from ortops.native.types import MAX_DIMS, TEXT_BYTES, Call, Tensor


@functools.cache
def function(name: str) -> Any:
    """A compiled function that takes the address of a call and up to one number."""
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return run(c_function(getattr(messages, name)))


@pytest.fixture(scope="module", autouse=True)
def _compile() -> None:
    for name in ("write_text", "write_int", "write_float", "write_shape"):
        function(name)


INT64 = st.integers(-(2**63), 2**63 - 1)


class _Guarded(Struct):
    """A call, and a number that nobody may change."""

    call: Call
    guard: int


class Text:
    """The text of a call."""

    def __init__(self) -> None:
        self._guarded = _Guarded()
        self._guarded.guard = -1

    def write(self, name: str, value: int) -> None:
        function(name)(ctypes.addressof(self._guarded.call), value)

    def append(self, text: bytes) -> None:
        buffer = ctypes.create_string_buffer(text)
        self.write("write_text", ctypes.addressof(buffer))

    @property
    def content(self) -> bytes:
        call: Any = self._guarded.call
        assert call.text[call.text_size] == 0
        assert self._guarded.guard == -1
        return bytes(call.text[: call.text_size])


def written(name: str, value: int) -> str:
    text = Text()
    text.write(name, value)
    return text.content.decode()


def bits(value: float) -> int:
    result: int = struct.unpack("q", struct.pack("d", value))[0]
    return result


@given(INT64)
@example(-(2**63))
def test_integers_are_those_of_python(value: int) -> None:
    assert written("write_int", value) == str(value)


@given(st.floats() | st.floats(width=32) | INT64.map(lambda word: struct.unpack("d", struct.pack("q", word))[0]))
@example(1e16)
@example(123456789012345.6)
@example(1e-5)
@example(-0.0)
@example(5e-324)
@example(1.7976931348623157e308)
def test_floats_are_those_of_python(value: float) -> None:
    assert written("write_float", bits(value)) == repr(value)


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_floats_near_powers_of_two_are_those_of_python(offset: int) -> None:
    """The floats below a power of two are nearer to each other than those above, which changes the shortest decimal."""
    values = [math.ldexp(1.0, exponent) for exponent in range(-1074, 1024)]
    for value in values if offset == 0 else np.nextafter(values, offset * math.inf).tolist():
        assert written("write_float", bits(value)) == repr(value)


@given(st.lists(st.integers(-1, 2**63 - 1), max_size=MAX_DIMS))
def test_shapes_are_those_of_python(shape: list[int]) -> None:
    tensor = Tensor(0, 0, len(shape), tuple(shape))
    expected = str([None if length == -1 else length for length in shape])
    assert written("write_shape", ctypes.addressof(tensor)) == expected


def test_texts_are_joined() -> None:
    text = Text()
    text.append("größer ".encode())
    text.write("write_int", 2)
    text.append(b"")
    text.write("write_float", bits(0.1))
    assert text.content == "größer 20.1".encode()


@given(st.integers(1, 3), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8))
def test_full_text_ends_between_characters(room: int, more: str) -> None:
    text = Text()
    text.append(b"x" * (TEXT_BYTES - 1 - room))
    text.append(more.encode())
    kept = text.content[TEXT_BYTES - 1 - room :].decode()
    assert more.startswith(kept)
    assert len(more[: len(kept) + 1].encode()) > room or kept == more


def test_full_text_cuts_numbers_off() -> None:
    text = Text()
    text.append(b"x" * (TEXT_BYTES - 3))
    for _ in range(3):
        text.write("write_int", 123)
        text.write("write_float", bits(0.5))
    assert text.content.endswith(b"x12")

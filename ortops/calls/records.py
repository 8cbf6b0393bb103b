"""Records: words that compiled code reads, defined once for both a process and a library."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ortops.jit.kernel import CFunction
from ortops.jit.machine_code import keep_forever
from ortops.jit.source import Function


@dataclass(frozen=True)
class FunctionOf:
    """A C function, specialised for an element type if it has parameters that point to elements (`jit.kernel.CFunction`).

    function: the function; or a callable that compiles and loads it, and returns its address.
    """

    function: Function
    element: str = ""


Word: TypeAlias = "int | float | str | FunctionOf | Record"
"""A number, or an object whose address is the word: a text (as a C string), a function or another record."""


@dataclass(frozen=True, eq=False)
class Record:
    """Words that do not change, except that a function's address is 0 until a call needs the function.

    name: a unique identifier.
    words: the words.
    """

    name: str
    words: Sequence[Word]


@functools.cache
def address_of(record: Record) -> int:
    """A record's address in this process, valid until the process ends."""
    memory = np.zeros(len(record.words), np.int64)
    keep_forever(memory)
    address: int = memory.ctypes.data
    for i, word in enumerate(record.words):
        if isinstance(word, FunctionOf):
            _unloaded[address + 8 * i] = word
        else:
            memory[i] = value_of(word)
    return address


def value_of(word: Word) -> int:
    """A word's value in this process: the number or the address."""
    if isinstance(word, Record):
        return address_of(word)
    if isinstance(word, str):
        return _text(word)
    number: Any = word
    return int(struct.unpack("q", struct.pack("d", number))[0] if isinstance(word, float) else number)


@functools.cache
def _text(text: str) -> int:
    memory = ctypes.create_string_buffer(text.encode())
    keep_forever(memory)
    return ctypes.addressof(memory)


_unloaded: dict[int, FunctionOf] = {}
"""The records' functions by the address of their word; loaded functions stay in it."""


@functools.cache
def _loaded(function: FunctionOf) -> int:
    if callable(function.function):
        address: int = function.function()
        return address
    return CFunction(function.function, function.element).address


def load(needed: int) -> None:
    """Load the function of a record's word that a call needs (`layout.NEEDED`)."""
    ctypes.c_int64.from_address(needed).value = _loaded(_unloaded[needed])


def functions(record: Record) -> Iterator[FunctionOf]:
    """The functions in a record and in all records to which it refers."""
    for word in record.words:
        if isinstance(word, Record):
            yield from functions(word)
        elif isinstance(word, FunctionOf):
            yield word


def load_all(record: Record) -> None:
    """Load all `functions` of a record."""
    for i, word in enumerate(record.words):
        if isinstance(word, Record):
            load_all(word)
        elif isinstance(word, FunctionOf):
            load(address_of(record) + 8 * i)

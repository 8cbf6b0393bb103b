"""Records: words that compiled code reads, defined once for both a process and a library."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ortops.memory import keep_forever


@dataclass(frozen=True)
class FunctionOf:
    """A compiled function of a library.

    function: the function.
    element: the element type for which it is specialised if it has parameters that point to elements, else "".
    """

    function: Any
    element: str = ""


@dataclass(frozen=True)
class SharedWord:
    """The word of a library that all its functions share (`jit.parallel.shared_word`)."""

    name: str


Word: TypeAlias = "int | float | str | FunctionOf | SharedWord | Record"
"""A number, or an object whose address is the word: a text (as a C string), a function or another record."""


@dataclass(frozen=True, eq=False)
class Record:
    """Words that do not change.

    name: a unique identifier.
    words: the words. Functions and shared words exist only in libraries.
    """

    name: str
    words: Sequence[Word]


@functools.cache
def address_of(record: Record) -> int:
    """A record's address in this process, valid until the process ends."""
    memory = np.array([value_of(word) for word in record.words], np.int64)
    keep_forever(memory)
    return int(memory.ctypes.data)


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


def functions(record: Record) -> Iterator[FunctionOf]:
    """The functions in a record and in all records to which it refers."""
    for word in record.words:
        if isinstance(word, Record):
            yield from functions(word)
        elif isinstance(word, FunctionOf):
            yield word

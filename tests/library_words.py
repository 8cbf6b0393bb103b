"""The words of the library that this process has loaded, which tests change."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator

import pytest

from ortops.calls.layout import ENTRY, SHAPES
from ortops.kernels.layout import PART_MAPS, PART_WORK
from ortops.library.compiled.layout import DECIDING_ROW, DRIVER_WORDS, DRIVERS, NODE
from ortops.operators import BY_NAME
from ortops.runtime import library
from ortops.spec import DOMAIN

_WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE


def word_at(address: int, number: int = 0) -> int:
    return ctypes.c_int64.from_address(address + 8 * number).value


def set_word(monkeypatch: pytest.MonkeyPatch, address: int, number: int, value: int) -> None:
    """Change a word until the test ends."""
    place = address + 8 * number
    page = place - place % mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), _WRITABLE) == 0
    monkeypatch.setattr(ctypes.c_int64.from_address(place), "value", value)


def entries() -> set[int]:
    """The records of the entries of all operators on RoIs."""
    records = (record for (_, name, _), own in library().operators.items() for record in own if "Resample" not in name)
    return {word_at(record, NODE + ENTRY) for record in records}


def shapes() -> int:
    """The record of the functions that infer and check shapes."""
    return word_at(next(iter(library().operators.values()))[0], NODE + SHAPES)


def _drivers(name: str) -> Iterator[int]:
    for record in library().operators[DOMAIN, name, 0]:
        row, drivers = word_at(record, DECIDING_ROW), word_at(record, DRIVERS)
        choices = 1 if row < 0 else len(BY_NAME[name].attributes[row].choices)
        yield from filter(None, (word_at(drivers, k) for k in range(DRIVER_WORDS * choices)))


def limit_parts(monkeypatch: pytest.MonkeyPatch, operators: Iterable[str], work: int) -> None:
    """Limit the work of a part: pixels and bins, or bytes of lists."""
    for name in operators:
        for driver in set(_drivers(name)):
            set_word(monkeypatch, driver, PART_WORK, work)
            set_word(monkeypatch, driver, PART_MAPS, 0)

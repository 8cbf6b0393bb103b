# SPDX-License-Identifier: MIT
"""The structs of the library that this process has loaded, which tests change."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from ortops.native.interface import TypedOperator
from ortops.native.kernels.functions import Driver
from ortops.native.kernels.types import RoiEntry
from ortops.native.types import NONE, Shapes
from ortops.operators import BY_NAME
from ortops.runtime import library
from ortops.spec import DOMAIN

_WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE


def set_field(monkeypatch: pytest.MonkeyPatch, struct: Any, name: str, value: int) -> None:
    """Change a number until the test ends."""
    place = ctypes.addressof(struct) + struct.fields[name].offset
    page = place - place % mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), _WRITABLE) == 0
    monkeypatch.setattr(struct, name, value)


def entries() -> list[RoiEntry]:
    """The entries of all operators on RoIs."""
    operators = (one for (_, name, _), own in library().operators.items() for one in own if "Resample" not in name)
    return [RoiEntry.from_address(address) for address in {*map(_entry_of, operators)}]


def _entry_of(address: int) -> int:
    return ctypes.addressof(TypedOperator.from_address(address).node.entry)


def shapes() -> Shapes:
    """The functions that infer and check shapes."""
    return TypedOperator.from_address(next(iter(library().operators.values()))[0]).node.shapes


def _drivers(name: str) -> Iterator[Driver]:
    for address in library().operators[DOMAIN, name, 0]:
        operator = TypedOperator.from_address(address)
        row = operator.deciding
        count = 1 if row == NONE else len(BY_NAME[name].attributes[row].choices)
        for choice in operator.drivers[:count]:
            yield from filter(None, (choice.driver, choice.driver_of_rois))


def limit_parts(monkeypatch: pytest.MonkeyPatch, operators: Iterable[str], work: int) -> None:
    """Limit the work of a part: pixels and bins, or bytes of lists."""
    for name in operators:
        for driver in {ctypes.addressof(driver): driver for driver in _drivers(name)}.values():
            set_field(monkeypatch, driver, "part_work", work)
            set_field(monkeypatch, driver, "part_maps", 0)

"""Have kernels split their work into parts that are small enough for a test."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import pytest

from ortops.calls.records import address_of
from ortops.kernels.entries import drivers_of
from ortops.kernels.layout import PART_MAPS, PART_WORK
from ortops.operators import BY_NAME


def limit_parts(monkeypatch: pytest.MonkeyPatch, operators: Iterable[str], work: int) -> None:
    """Limit the work of a part: pixels and bins, or bytes of lists."""
    for name in operators:
        for choices in drivers_of(BY_NAME[name]).drivers.values():
            for driver in (one for drivers in choices for one in drivers if one):
                for word, value in ((PART_WORK, work), (PART_MAPS, 0)):
                    monkeypatch.setattr(ctypes.c_int64.from_address(address_of(driver) + 8 * word), "value", value)

"""Every bit of the kernels' answers to 500 generated problems stays as it is, for any number of threads."""

from __future__ import annotations

import json
import sys

import pytest

import bits
from ortops.jit import machine_code


@pytest.mark.parametrize("kind", bits.TYPES)
def test_bits_stay(kind: str) -> None:
    found = bits.digests((kind,))
    expected = json.loads(bits.FILE.read_text("utf-8"))
    # Sums of products are rounded once where the processor can; sines are those of the C library.
    same = [group for group in found if sys.platform == "linux" or group != "RoIAlignRotated"]
    if machine_code.has_instructions():
        assert {group: found[group][kind] for group in same} == {group: expected[group][kind] for group in same}

"""Functions whose errors say what would do more than stand in a report, or cannot be written or said at all."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

CLEARS = (
    "\x1b[2J\x1b]8;;http://x\x1b\\link\x07\r\n3780 passed, 0 failed\n\0\x9b31m\u202edc\ud800 \uffff [red]中 :smile:"
)
"""Clears a terminal, makes a link, rings, feigns a last line, colours, turns text round, and is neither UTF-8 nor XML."""

SHOWN = (
    r"\x1b[2J\x1b]8;;http://x\x1b\link\x07\r\n3780 passed, 0 failed\n\x00\x9b31m\u202edc\ud800 \uffff [red]中 :smile:"
)


class WordlessError(Exception):
    """Its message cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError


def refuses(*_: object) -> None:
    raise ValueError(CLEARS)


def supports_nothing(*_: object) -> None:
    raise NotImplementedError(CLEARS)


def has_a_rude_name(*_: object) -> None:
    raise type(CLEARS.replace("\0", "").replace("\ud800", ""), (Exception,), {})


def says_much(*_: object) -> None:
    raise ValueError("\ud800" * 10**6)


def is_wordless(*_: object) -> None:
    raise WordlessError


def exits(*_: object) -> None:
    sys.exit(0)


def answers_in_a_rude_type(*_: object) -> npt.NDArray[np.void]:
    return np.zeros(3, [(f"\x1b{i}", np.float32) for i in range(1000)])


EXPECTED = {"roi_align/*": CLEARS}
refuses_as_expected = type("refuses_as_expected", (), {"EXPECTED_FAILURES": EXPECTED, "prepare": refuses})

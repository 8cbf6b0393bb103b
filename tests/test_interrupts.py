"""Signals while ONNX Runtime computes and makes sessions, each program in a process of its own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import interrupt_programs
from interrupt_programs import RAISED, RIGHT
from processes import python

MAX_EXIT_SECONDS = 30.0
"""From the end of a program to the end of its process."""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no alarms")
@pytest.mark.parametrize(
    ("nodes", "programs"),
    [
        ("ours", ("storm_run", "in_a_kernel", "nested", "recursion")),
        ("unconverted", ("storm_run", "recursion")),
    ],
    ids=["ours", "unconverted"],
)
def test_call_answers_right_or_raises_exception_of_handler(nodes: str, programs: tuple[str, ...]) -> None:
    found = json.loads(python(Path(interrupt_programs.__file__), nodes, *programs).splitlines()[-1])
    assert time.monotonic() - found["end"] < MAX_EXIT_SECONDS
    assert {name: ended for name, ended in found["outcomes"].items() if not set(ended) <= {RIGHT, RAISED}} == {}
    assert [name for name, ended in found["outcomes"].items() if not ended.get(RIGHT)] == []


def test_exception_at_any_line_is_raised() -> None:
    """An exception at any line of this library's Python code, as a signal handler may raise it."""
    assert json.loads(python(Path(interrupt_programs.__file__), "ours", "every_line"))["outcomes"]["every_line"] == {
        "run": ["AlarmError"],
        "run plain": [],  # there is no such line
        "make": ["AlarmError"],
        "make unconverted": ["AlarmError"],
        # ONNX Runtime ignores the status of shape inference.
        "make plain": [],
        "call": ["AlarmError"],
    }


SESSIONS_AT_THE_END = """
import sys
import onnx_models, ortops
class Holder: pass
sys.holder = Holder()  # which ends after all modules of Python's
sys.holder.session = ortops.InferenceSession(onnx_models.roi_align(16).SerializeToString())
sys.holder.holder = sys.holder
print("made")
"""


def test_session_outlives_modules() -> None:
    assert python(SESSIONS_AT_THE_END) == "made"

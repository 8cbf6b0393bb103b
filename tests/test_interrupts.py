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

if os.name == "nt":
    pytest.skip("Windows has no alarms", allow_module_level=True)

MAX_EXIT_SECONDS = 30.0
"""From the end of a program to the end of its process."""


@pytest.mark.parametrize(
    "programs",
    [
        # The last ends the process while a session runs. `test_any_line` interrupts plain sessions, and sessions being made.
        ("storm_run", "in_a_kernel", "nested", "recursion", "exit_while_running"),
        pytest.param(("cold_compile",), marks=pytest.mark.slow),
    ],
    ids=["running", "compiling"],
)
def test_a_call_answers_right_or_raises_the_handlers_exception(programs: tuple[str, ...]) -> None:
    found = json.loads(python(Path(interrupt_programs.__file__), *programs).splitlines()[-1])
    assert time.monotonic() - found["end"] < MAX_EXIT_SECONDS
    assert {name: ended for name, ended in found["outcomes"].items() if not set(ended) <= {RIGHT, RAISED}} == {}
    assert [name for name, ended in found["outcomes"].items() if not ended.get(RIGHT)] == []

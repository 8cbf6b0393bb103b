"""Signals while ONNX Runtime computes and makes sessions, each program in a process of its own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import interrupt_programs
from interrupt_programs import NOT_A_NUMBER, RAISED, RIGHT
from processes import python

if os.name == "nt":
    pytest.skip("Windows has no alarms", allow_module_level=True)

MAX_EXIT_SECONDS = 30.0
"""From the end of a program to the end of its process."""
OURS = {RIGHT, RAISED}


@pytest.mark.parametrize(
    ("engine", "session", "allowed"),
    [
        # The last ends the process while a session runs. `test_any_line` interrupts plain sessions, and sessions being made.
        (
            "direct",
            "ours",
            dict.fromkeys(("storm_run", "in_a_kernel", "nested", "recursion", "exit_while_running"), OURS),
        ),
        ("pyop", "ours", {"storm_run": OURS}),
        # Python operators of onnxruntime-extensions report no text: a failed call returns NaN or an empty output.
        ("pyop", "plain", {"storm_run": OURS | {NOT_A_NUMBER}}),
        pytest.param("direct", "ours", {"cold_compile": OURS}, marks=pytest.mark.slow),
    ],
    ids=["direct-ours", "pyop-ours", "pyop-plain", "compiling"],
)
def test_a_call_answers_right_or_raises_the_handlers_exception(
    engine: str, session: str, allowed: dict[str, set[str]]
) -> None:
    found = json.loads(python(Path(interrupt_programs.__file__), engine, session, *allowed).splitlines()[-1])
    assert time.monotonic() - found["end"] < MAX_EXIT_SECONDS
    wrong = {name: ended for name, ended in found["outcomes"].items() if not set(ended) <= allowed[name]}
    assert wrong == {}
    assert [name for name, ended in found["outcomes"].items() if not ended.get(RIGHT)] == []

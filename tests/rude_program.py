# SPDX-License-Identifier: MIT
"""A program that the suite asks, and that runs code of a test in place of a runtime: `python rude_program.py CODE`."""

from __future__ import annotations

import json
import os
import sys
import time  # noqa: F401  # for the code
from pathlib import Path
from typing import Any

START = {"seq": 0, "version": 1}


def say(**answer: object) -> None:
    """Write an answer."""
    print(json.dumps(answer), flush=True)


def tensor(file: str = "Y.out", size: int | None = None, **changes: object) -> dict[str, Any]:
    """The description of Y, after its file with zeros has been written unless `size` is negative."""
    right = {"name": "Y", "type": "float", "shape": [1, 2, 3, 4], "file": file}
    if size is None or size >= 0:
        Path("Y.out").write_bytes(b"\0" * (96 if size is None else size))
    return {**right, **changes}


for line in sys.stdin:
    request = json.loads(line)
    seq = request["seq"] if request["request"] != "stop" else -1
    if request["request"] == "start":
        os.chdir(request["folder"])
    kinds, _, code = sys.argv[1].rpartition("::")  # code for other requests than those to run begins with their names
    if request["request"] in (kinds.split() or ["run"]):
        exec(code)  # noqa: S102
    elif request["request"] == "start":
        say(**START)
    elif request["request"] == "stop":
        break

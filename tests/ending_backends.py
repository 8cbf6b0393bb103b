"""Functions that support nothing, and end a process: theirs, or at one case of `PLAN` one that waits for it; or none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from conformance.fuzz.work import Plan

PLAN = Plan("", 3, ("RoiAlign_16",))
NUMBER = 21


def ends_itself(_: str, inputs: Mapping[str, Any], *_others: object) -> None:
    _kill_at_the_case(inputs, 0)


def ends_its_examiner(_: str, inputs: Mapping[str, Any], *_others: object) -> None:
    _kill_at_the_case(inputs, 1)


def ends_its_worker(_: str, inputs: Mapping[str, Any], *_others: object) -> None:
    _kill_at_the_case(inputs, 2)


def ends_itself_at_a_wrong_index(_: str, inputs: Mapping[str, Any], *_others: object) -> None:
    if np.any((inputs["batch_indices"] < 0) | (inputs["batch_indices"] >= len(inputs["X"]))):
        os.abort()
    raise NotImplementedError


def never_ends(_: str, *_others: object) -> None:
    Path(os.environ["ASKED"]).touch()
    while True:
        time.sleep(1)


def _kill_at_the_case(inputs: Mapping[str, Any], generation: int) -> None:
    wanted = PLAN.case(NUMBER).inputs
    if all(np.array_equal(inputs[name], array, equal_nan=True) for name, array in wanted.items()):
        process = psutil.Process()
        os.kill([process, *process.parents()][generation].pid, signal.SIGKILL)
    raise NotImplementedError

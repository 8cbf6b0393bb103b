"""Functions that support nothing, and end a process: theirs, or at one case of `PLAN` the one that started it; or none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import ortops
from conformance.fuzz.worker import Plan

PLAN = Plan("ending_backends:supports_nothing", 24, ("RoiAlign_16",))
NUMBER = 1


def supports_nothing(*_: object) -> None:
    raise NotImplementedError


def ends_itself(_: str, inputs: Mapping[str, Any], *_others: object) -> None:
    _kill_at_the_case(inputs, 0)
    raise NotImplementedError


def ends_its_worker(_: str, inputs: Mapping[str, Any], *_others: object) -> None:
    _kill_at_the_case(inputs, 1)
    raise NotImplementedError


def is_right_and_ends_itself(_: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], *_others: object) -> Any:
    _kill_at_the_case(inputs, 0)
    return ortops.roi_align(*inputs.values(), **attributes)


def is_right_and_hangs(_: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], *_others: object) -> Any:
    if _is_the_case(inputs):
        time.sleep(1000)
    return ortops.roi_align(*inputs.values(), **attributes)


def ends_itself_at_a_wrong_index(_: str, inputs: Mapping[str, Any], *_others: object) -> None:
    if np.any((inputs["batch_indices"] < 0) | (inputs["batch_indices"] >= len(inputs["X"]))):
        os.abort()
    raise NotImplementedError


def never_ends(_: str, *_others: object) -> None:
    Path(os.environ["ASKED"]).touch()
    while True:
        time.sleep(1)


def _kill_at_the_case(inputs: Mapping[str, Any], generation: int) -> None:
    if _is_the_case(inputs):
        process = psutil.Process()
        os.kill([process, *process.parents()][generation].pid, signal.SIGKILL)


def _is_the_case(inputs: Mapping[str, Any]) -> bool:
    wanted = PLAN.case(NUMBER).inputs
    return all(np.array_equal(inputs[name], array, equal_nan=True) for name, array in wanted.items())

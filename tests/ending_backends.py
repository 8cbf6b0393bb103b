"""Functions that a fuzzed backend is made of: some end a process or fill its memory in mode max, others never answer."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

_asked = itertools.count(1)


def supports_nothing(*_: object) -> None:
    raise NotImplementedError


def ends_itself_at_max(_: str, _inputs: object, attributes: Mapping[str, Any], *_others: object) -> None:
    if attributes["mode"] == "max":
        os.abort()
    raise NotImplementedError


def hangs(*_: object) -> None:
    time.sleep(1000)


def hungry_at_max(_: str, _inputs: object, attributes: Mapping[str, Any], *_others: object) -> None:
    if attributes["mode"] == "max":
        np.ones(2**30)
    raise NotImplementedError


def ends_its_worker(*_: object) -> None:
    os.kill(psutil.Process().ppid(), signal.SIGKILL)


def answers_thirty(*_: object) -> None:
    if next(_asked) > 30:
        time.sleep(1000)
    raise ValueError("not now")


def never_ends(*_: object) -> None:
    Path(os.environ["ASKED"]).touch()
    while True:
        time.sleep(1)

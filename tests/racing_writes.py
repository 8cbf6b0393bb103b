"""Calls every operator while another thread writes to one of its inputs; a fault of memory ends this program by a signal.

Each call computes or refuses what it found. Which it does is up to the threads.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ortops
from conformance.backends.session import CPU, options
from ortops.operators import OPERATORS
from problems import Array
from samples import Sample, open_ranks, samples

CALLS = 8
"""The number of calls with each wrong value. With half as many, code that read batch indices twice failed 10 of 10 runs."""

COPIES = 100
"""How often the RoIs of a sample are repeated: a kernel then takes long enough for the other thread to write meanwhile."""


def main() -> None:
    """Call every operator as a function and in a session, with each input in turn in the hands of another thread."""
    sys.setswitchinterval(1e-5)  # the threads alternate, so that one writes between any two steps of the other
    for operator in OPERATORS:
        sample = enlarged(samples(operator)[0])
        runner = ortops.InferenceSession(open_ranks(sample.model()).SerializeToString(), options(), providers=[CPU])
        ways: dict[str, Callable[[], Any]] = {
            "function": sample.function,
            "session": functools.partial(runner.run, None, dict(sample.inputs)),
        }
        for name, array in sample.inputs.items():
            for way, call in ways.items():
                print(operator.name, name, way, flush=True)
                for wrong in wrong_values(name, array):
                    race(call, array, wrong)


def enlarged(sample: Sample) -> Sample:
    """The same call with many times as many RoIs."""
    name = next((name for name in sample.inputs if name.lower().startswith("roi")), "")
    count = len(sample.inputs[name]) if name else -1
    repeats = {key: COPIES if len(array) == count and key not in MAPS else 1 for key, array in sample.inputs.items()}
    inputs = {key: np.concatenate([array] * repeats[key]) for key, array in sample.inputs.items()}
    return Sample(sample.operator, sample.name, inputs, sample.attributes)


MAPS = ("X", "InputTensor", "x_shape")


def wrong_values(name: str, array: Array) -> Iterator[Array]:
    """Values that the other thread writes over the array: ones that are refused, or that say where to read or write."""
    if name == "x_shape":
        yield array + np.array([1, 2, 50, 70])
    elif array.dtype.kind == "f":
        yield from (np.full_like(array, number) for number in (np.nan, 1e30))
    else:
        yield np.full_like(array, 10**9)


def race(call: Callable[[], Any], array: Array, wrong: Array) -> None:
    """Call while another thread alternates between the right and the wrong values."""
    right, ended = array.copy(), threading.Event()

    def write() -> None:
        while not ended.is_set():
            array[...] = wrong
            array[...] = right

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(CALLS):
            compute_or_refuse(call)
    finally:
        ended.set()
        writer.join()
        array[...] = right


def compute_or_refuse(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:  # ONNX Runtime has classes of its own
        if "must " not in str(error):
            raise


if __name__ == "__main__":
    main()

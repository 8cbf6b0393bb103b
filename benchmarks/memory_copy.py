"""The baseline of any computation: copying every input once and writing every output once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.call import Call
from benchmarks.workloads import Array


def copy_call(inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> Call:
    """Return a call that copies `inputs` and writes arrays as large as `outputs`, split among threads.

    The memory is allocated beforehand, not by the call.
    """
    pairs = [(source, np.zeros_like(source)) for source in map(_bytes, inputs)]
    pairs += [(np.broadcast_to(np.uint8(0), (target.nbytes,)), np.zeros(target.nbytes, np.uint8)) for target in outputs]
    work = [list(zip(*(np.array_split(array, threads) for array in pair), strict=True)) for pair in pairs]
    parts = list(zip(*work, strict=True))

    def copy(part: Sequence[tuple[Array, ...]]) -> None:
        for source, target in part:
            np.copyto(target, source)

    if threads == 1:
        return Call(lambda: copy(parts[0]), lambda _: [])
    pool = ThreadPoolExecutor(threads)
    return Call(lambda: list(pool.map(copy, parts)), lambda _: [])


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

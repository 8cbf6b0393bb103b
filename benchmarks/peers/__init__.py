# SPDX-License-Identifier: MIT
"""The table of all implementations, ours and others, and what is compared with what. Tests and commands share it.

Each is a function (`benchmarks.measure.Peer`), and only its module imports its package.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import click

from benchmarks.measure import Peer
from ortops.compute import available_cpus

CPUS = available_cpus()
TYPES = ("float", "float16", "bfloat16", "double")

PEERS = {
    "ortops": "benchmarks.models:ours",
    "copy": "benchmarks.measure:copies",
    "onnxruntime": "benchmarks.models:onnxruntime_own",
    "openvino": "benchmarks.peers.openvino:prepare",
    "torchvision": "benchmarks.peers.torchvision:prepare",
    "bodies": "benchmarks.models:bodies",
    "ortops.torch": "benchmarks.peers.torch:ours",
    **dict.fromkeys(TYPES, "benchmarks.models:in_type"),
}
"""The function of each implementation; those named after an element type are ours in it."""


class Comparison(NamedTuple):
    """Implementations that are called in turn, and by default the operations and the numbers of threads.

    The times of the other peers are multiples of those of the first.
    """

    peers: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    threads: tuple[int, ...] = tuple(dict.fromkeys([1, CPUS]))


_ROI_ALIGN = ("average", "max", "dX", "drois")
_OTHERS = ("rotated", "rotated dX", "linear", "nearest", "linear dX", "nearest dX", "attention", "attention gradient")

COMPARISONS = {
    "roi-align": Comparison(("ortops", "copy", "onnxruntime", "openvino", "torchvision"), _ROI_ALIGN),
    "types": Comparison(TYPES, ("average", "dX"), (CPUS,)),
    "in-model": Comparison(("ortops", "onnxruntime", "openvino")),
    "others": Comparison(("ortops", "copy", "onnxruntime", "openvino"), _OTHERS),
    "against": Comparison((), (*_ROI_ALIGN, *_OTHERS)),
    "torch": Comparison(("ortops.torch", "torchvision"), ("average", "dX")),
    "custom-calls": Comparison(),
}
"""`make bench` runs the first four. They leave out bodies, which take seconds where the others take milliseconds."""


def load(names: Iterable[str], is_chosen: bool = False) -> dict[str, Peer]:
    """Return implementations by their names. Those that are not installed are left out, unless `is_chosen`, or the first."""
    # Spinning idle threads of OpenMP, which torch uses, would take the others' cores. OpenMP reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    peers: dict[str, Peer] = {}
    for name in names:
        try:
            peer = pkgutil.resolve_name(PEERS[name])
            peers[name] = partial(peer, name) if name in TYPES else peer
        except (ImportError, RuntimeError) as error:
            if is_chosen or not peers:
                raise click.UsageError(f"{name!r}: must be installed ({error})") from error
    return peers

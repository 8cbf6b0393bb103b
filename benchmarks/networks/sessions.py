"""Gradient models in ONNX Runtime sessions. It imports no PyTorch, whose memory would count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import ortops
from conformance.backends.session import CPU, options
from ortops.spec import DOMAIN

Array = np.ndarray[Any, Any]


def is_plain(model: onnx.ModelProto) -> bool:
    """Whether the model consists of standard operators alone."""
    return all(item.domain != DOMAIN for item in model.opset_import)


def session(model: bytes | Path, threads: int, *, plain: bool) -> Any:
    """A session of a model as bytes or in a file, with our operators unless it is `plain`.

    Its memory is not planned ahead. With a plan a gradient graph needs up to twice the memory, and is no faster: ONNX
    Runtime lays a block aside for the whole of the plan beside what it already has.
    """
    chosen = options()
    chosen.intra_op_num_threads = threads
    chosen.enable_mem_pattern = False
    made = onnxruntime.InferenceSession if plain else ortops.InferenceSession
    return made(model if isinstance(model, bytes) else str(model), chosen, providers=[CPU])


def session_gradients(made: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Those that a session computes, by the names of the tensors."""
    names = [output.name for output in made.get_outputs()]
    found = zip(names, made.run(names, dict(inputs)), strict=True)
    return {name.removesuffix("_grad"): np.asarray(value) for name, value in found if name.endswith("_grad")}

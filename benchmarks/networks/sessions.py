"""Run gradient models in ONNX Runtime sessions. It does not import PyTorch, whose memory would count."""

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
    """Return whether the model has only standard operators."""
    return all(item.domain != DOMAIN for item in model.opset_import)


def session(model: bytes | Path, threads: int, *, plain: bool) -> Any:
    """Create a session of a model as bytes or in a file, with our operators unless it is `plain`.

    Memory patterns are disabled. With them, a gradient graph needs up to twice the memory and is not faster, since ONNX
    Runtime allocates a block for the whole pattern beside the memory that it already has.
    """
    chosen = options()
    chosen.intra_op_num_threads = threads
    chosen.enable_mem_pattern = False
    made = onnxruntime.InferenceSession if plain else ortops.InferenceSession
    return made(model if isinstance(model, bytes) else str(model), chosen, providers=[CPU])


def session_gradients(made: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the gradients that a session computes, by the names of the tensors."""
    names = [output.name for output in made.get_outputs()]
    found = zip(names, made.run(names, dict(inputs)), strict=True)
    return {name.removesuffix("_grad"): np.asarray(value) for name, value in found if name.endswith("_grad")}

"""Exported models against PyTorch's autograd: what the tests of `onnx_models.torch` share.

Importing it skips the test module where PyTorch or its exporter is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ortops

pytest.importorskip("torch", reason="needs the extra torch: pip install ortops[torch]")
pytest.importorskip("onnxscript", reason="needs the extra torch: pip install ortops[torch]")

TOLERANCE = 1e-5

# PyTorch 2.13's own: of its pytrees, and of axes that have the same name because they are equal. And of gradients that are 0
# in PyTorch too.
QUIET = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:# The axis name:UserWarning"),
    pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning"),
]


def session(model: onnx.ModelProto) -> Any:
    """A session on the CPU of a model that passes onnx's checker."""
    onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return ortops.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """All outputs by name."""
    names = [output.name for output in model.graph.output]
    arrays = {name: value.detach().numpy() for name, value in feeds.items()}
    return dict(zip(names, session(model).run(names, arrays), strict=True))


def assert_close(found: Any, wanted: Any, name: str) -> None:
    """The same type and shape, and values up to rounding."""
    wanted = wanted.detach().numpy()
    assert found.shape == wanted.shape, f"{name}: shape {found.shape}, PyTorch has {wanted.shape}"
    assert found.dtype == wanted.dtype, f"{name}: type {found.dtype}, PyTorch has {wanted.dtype}"
    error = np.abs(found - wanted).max(initial=0) / max(np.abs(wanted).max(initial=0), 1e-6)
    assert error <= TOLERANCE, f"{name}: relative error {error:.2e}"

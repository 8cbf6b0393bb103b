# SPDX-License-Identifier: MIT
"""Build ONNX models of this project's operators, convert other models to them, and differentiate models.

Each product is a module or a package: `build` (with `collection`), `convert` (with `resize`), `portable`
(standard operators in place of this project's), `gradient`, `training` and `inference`, `gradient_check`, `torch` (exports
from PyTorch) and `commands`. They share `tools`, which read, check and change messages of ONNX.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import onnx

from onnx_models import portable
from onnx_models.build import BUILDERS, model, node, resize_grad
from onnx_models.convert import convert
from onnx_models.fuse import fuse
from onnx_models.gradient import coverage, gradient, hessian, jacobian, jvp, own_operators, report, untie, vjp
from onnx_models.inference import with_state
from onnx_models.portable import lower
from onnx_models.resize import resample_attributes
from onnx_models.tools.schema import register_schemas
from onnx_models.training import with_loss, with_optimizer

if TYPE_CHECKING:
    from onnx_models import torch as torch

# Grouped by purpose.
__all__ = [  # noqa: RUF022
    # ONNX's Resize as a DmlResample node, and its gradient.
    "resample_attributes",
    "resize_grad",
    # Models and nodes of any operator.
    "model",
    "node",
    # Changes to any model: this project's operators, standard nodes in their place, gradients, bodies of standard operators.
    "convert",
    "fuse",
    "lower",
    "gradient",
    "vjp",
    "jvp",
    "jacobian",
    "hessian",
    "untie",
    # What a gradient consists of, which operators have one, and which of this project's a model needs.
    "report",
    "coverage",
    "own_operators",
    "portable",
    # Training steps, and the trained model.
    "with_loss",
    "with_optimizer",
    "with_state",
    # Schemas for ONNX's checker and shape inference.
    "register_schemas",
]
__all__ += list(BUILDERS)


def __getattr__(name: str) -> Callable[..., onnx.ModelProto]:
    """Return a function of `BUILDERS`, or import ``onnx_models.torch`` on first use, since it needs PyTorch."""
    if name in BUILDERS:
        return BUILDERS[name]
    if name == "torch":
        return importlib.import_module("onnx_models.torch")  # type: ignore[return-value]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

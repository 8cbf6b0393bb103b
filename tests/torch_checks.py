# SPDX-License-Identifier: MIT
"""Exported models against PyTorch's autograd: what the tests of `onnx_models.torch` share.

Importing it skips the test module where PyTorch or its exporter is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_models
import ortops

torch: Any = pytest.importorskip("torch", reason="needs the extra torch: pip install ortops[torch]")
pytest.importorskip("onnxscript", reason="needs the extra torch: pip install ortops[torch]")

TOLERANCE = 1e-5

# PyTorch 2.13's own: of its pytrees, and of axes that have the same name because they are equal. And of gradients that are 0
# in PyTorch too.
QUIET = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:# The axis name:UserWarning"),
    pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning"),
]


def _share_translations() -> None:
    """Let exports share PyTorch's table of translations: each builds it anew, in 0.9 of the 1.4 s of a small export."""
    registration: Any = importlib.import_module("torch.onnx._internal.exporter._registration")
    kind, built = registration.ONNXRegistry, dict[Any, Any]()
    build = kind.from_torchlib

    def from_torchlib(**options: Any) -> Any:
        key = tuple(options.items())
        if key not in built:
            built[key] = build(**options)
        shared = kind()
        functions = {target: list(found) for target, found in built[key].functions.items()}
        vars(shared).update({**vars(built[key]), "functions": functions})
        return shared

    kind.from_torchlib = staticmethod(from_torchlib)


_share_translations()


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


@dataclass(frozen=True)
class Case:
    """A function of tensors; `variables` is how many of them, from the first on, have a gradient."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    variables: int = 1


class Functions(torch.nn.Module):  # type: ignore[misc]
    """Many functions in one model: an export takes seconds."""

    def __init__(self, cases: tuple[Case, ...]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, *x: Any) -> dict[str, Any]:
        return {case.name: case.function(*inputs) for case, inputs in zip(self.cases, x, strict=True)}


def _weighted(outputs: dict[str, Any]) -> Any:
    """A loss in which each element counts otherwise."""
    return sum((y * torch.linspace(0.5, 1.7, y.numel()).reshape(y.shape)).sum() for y in outputs.values())


def check(cases: tuple[Case, ...], atol: float = 1e-6) -> None:
    """Outputs and gradients of all functions, exported as one model, are PyTorch's."""
    module = Functions(cases)
    inputs = {f"x_{i}_{j}": x.clone() for i, case in enumerate(cases) for j, x in enumerate(case.inputs)}
    wrt = [f"x_{i}_{j}" for i, case in enumerate(cases) for j in range(case.variables)]
    model = onnx_models.torch.export(module, [list(case.inputs) for case in cases], loss=_weighted, wrt=wrt)
    found = run(model, inputs)
    for name in wrt:
        inputs[name].requires_grad_()
    outputs = module(*([inputs[f"x_{i}_{j}"] for j in range(len(case.inputs))] for i, case in enumerate(cases)))
    _weighted(outputs).backward()
    faults = []
    for i, case in enumerate(cases):
        expected = {f"output_{case.name}": outputs[case.name]}
        for j in range(case.variables):
            x = inputs[f"x_{i}_{j}"]
            expected[f"x_{i}_{j}_grad"] = torch.zeros_like(x) if x.grad is None else x.grad
        for name, value in expected.items():
            wanted = value.detach().numpy()
            if not np.allclose(found[name], wanted, rtol=2e-5, atol=atol, equal_nan=True):
                faults.append(f"{case.name}, {name}: {found[name].tolist()}, PyTorch has {wanted.tolist()}")
    assert not faults, "\n".join(faults)

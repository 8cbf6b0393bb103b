"""A backend from elsewhere: `module[:Class]` with ONNX's backend interface, `prepare(model, device).run(inputs)`.

It is asked with ONNX's own node wherever ONNX has the case, else with the custom operator. It says that it does not
support a model as `onnx.backend.base.Backend` does, by `is_compatible(model)` returning False, or by raising
NotImplementedError or unittest.SkipTest.
"""

from __future__ import annotations

import importlib
import unittest
from typing import Any

import numpy as np

from conformance import expected_failures
from conformance.backends.base import MissingBackendError, UnsupportedError
from conformance.case import Array, Case
from conformance.model import build


class External:
    """Answers with `target`, a module or class that has `prepare`."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.expected_failures = expected_failures.from_mapping(getattr(target, "EXPECTED_FAILURES", {}))

    def run(self, case: Case) -> dict[str, Array]:
        """See `Backend`."""
        is_standard = case.definition.standard is not None and case.attributes.get("mode") != "max_interpolated"
        model = build(case, "standard" if is_standard else "ortops")
        is_compatible = getattr(self._target, "is_compatible", None)
        if is_compatible is not None and not is_compatible(model, device="CPU"):
            raise UnsupportedError("is_compatible(model) is False")
        try:
            outputs = self._target.prepare(model, "CPU").run([case.inputs[i.name] for i in model.graph.input])
        except (NotImplementedError, unittest.SkipTest) as error:
            raise UnsupportedError(str(error) or type(error).__name__) from error
        return dict(zip((o.name for o in model.graph.output), map(np.asarray, outputs), strict=True))


def load(name: str) -> External:
    """The backend that `module[:Class]` names.

    Raises:
        MissingBackendError: the module cannot be imported, or has no such class, or `prepare` is not there.
    """
    module_name, _, class_name = name.partition(":")
    try:
        target = importlib.import_module(module_name)
        target = getattr(target, class_name) if class_name else target
    except (ImportError, AttributeError, ValueError) as error:
        raise MissingBackendError(f"backend {name}: {error}") from error
    if not callable(getattr(target, "prepare", None)):
        raise MissingBackendError(f"backend {name}: has no prepare(model, device)")
    return External(target)

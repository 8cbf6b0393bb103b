# SPDX-License-Identifier: MIT
"""An extension of griffe, which reads sources for mkdocstrings: the functions that `onnx_models` makes at its import."""

from __future__ import annotations

import inspect
from typing import Any

import griffe

from onnx_models.build import BUILDERS


class Builders(griffe.Extension):
    """Adds the functions of `BUILDERS`, which have a signature and a docstring and no source."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add them to `onnx_models`."""
        if pkg.path != "onnx_models":
            return
        for name, function in BUILDERS.items():
            parameters = griffe.Parameters()
            for parameter in inspect.signature(function).parameters.values():
                kind = griffe.ParameterKind(parameter.kind.description)
                parameters.add(griffe.Parameter(parameter.name, annotation=str(parameter.annotation), kind=kind))
            docstring = griffe.Docstring(inspect.getdoc(function) or "")
            member = griffe.Function(name, parameters=parameters, returns="onnx.ModelProto", docstring=docstring)
            pkg.set_member(name, member)

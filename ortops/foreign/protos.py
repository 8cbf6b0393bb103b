# SPDX-License-Identifier: MIT
"""What changes of a model's messages share: attributes, unused names and imports of domains."""

from __future__ import annotations

from typing import Any

import onnx


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """The value of a node's attribute, strings as str; the default if the node lacks it."""
    for proto in node.attribute:
        if proto.name == name:
            value = onnx.helper.get_attribute_value(proto)
            return value.decode(errors="replace") if isinstance(value, bytes) else value
    return default


def unused_name(base: str, names: set[str]) -> str:
    """A name that begins with `base` and is not among `names`; it is added to them."""
    name = next(name for i in range(len(names) + 1) if (name := f"{base}_{i}") not in names)
    names.add(name)
    return name


def normalize_domain(domain: str) -> str:
    """The domain, with "" for ONNX's own, which is also called ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def onnx_opset(scope: onnx.ModelProto | onnx.FunctionProto) -> int | None:
    """The version of ONNX's own domain that a model or a function imports, the last of several, or None."""
    return next((item.version for item in reversed(scope.opset_import) if normalize_domain(item.domain) == ""), None)


def import_domain(scope: onnx.ModelProto | onnx.FunctionProto, domain: str, version: int) -> None:
    """Import a domain, unless the model or the function already does."""
    if all(normalize_domain(item.domain) != domain for item in scope.opset_import):
        scope.opset_import.append(onnx.helper.make_opsetid(domain, version))

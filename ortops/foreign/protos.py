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


def import_domain(model: onnx.ModelProto, domain: str, version: int) -> None:
    """Import a domain other than ONNX's own, unless the model already does."""
    if all(item.domain != domain for item in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))

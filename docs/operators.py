# SPDX-License-Identifier: MIT
"""The reference of all operators as Markdown: operators.md, from their definitions and the words of its template."""

from __future__ import annotations

import inspect
import re
from itertools import groupby

import ortops
from docs import template
from docs.pictures import PICTURES
from ortops.operators import OPERATORS
from ortops.spec import VARIABLE_AXES, Attribute, Operator, Tensor


def operators_document() -> str:
    """The text of operators.md."""
    filters = {"line": line, "shape": shape, "allowed": allowed, "default": default, "anchor": str.lower}
    return template("operators.md", **filters).render(
        families={family: list(group) for family, group in groupby(OPERATORS, lambda operator: operator.family)},
        operators=OPERATORS,
        row=row,
        twin=twin,
        builder=builder,
        call=call,
        pictures=PICTURES,
    )


def row(operator: Operator) -> str:
    """The row of an operator in the table of all; ? marks tensors that a node may leave out."""
    inputs, outputs = (
        ", ".join(tensor.name + "?" * tensor.optional for tensor in tensors)
        for tensors in (operator.inputs, operator.outputs)
    )
    attributes = ", ".join(attribute.name for attribute in operator.attributes)
    types = ", ".join(operator.element_types(operator.inputs[0]))
    name = f"[{operator.name}](#{operator.name.lower()})"
    return f"| {name} | {inputs} | {outputs} | {attributes} | {types} |"


def twin(operator: Operator) -> Operator | None:
    """An operator before this one that differs from it in name, element types and source alone, or None."""

    def described(it: Operator) -> tuple[object, ...]:
        tensors = [(t.name, t.shape, line(t.doc)) for t in (*it.inputs, *it.outputs)]
        return it.function, it.formula, tensors, [(a.name, a.default, line(a.doc), a.rule) for a in it.attributes]

    before = OPERATORS[: OPERATORS.index(operator)]
    return next((earlier for earlier in before if described(earlier) == described(operator)), None)


def call(operator: Operator) -> str:
    """The call of the function on NumPy arrays, with its required arguments."""
    parameters = inspect.signature(getattr(ortops, operator.function)).parameters.values()
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    positional = [parameter.name for parameter in required if parameter.kind is not parameter.KEYWORD_ONLY]
    keywords = [parameter.name for parameter in required if parameter.kind is parameter.KEYWORD_ONLY]
    return f"ortops.{operator.function}({', '.join([*positional, '*', *keywords, '...'])})"


def builder(operator: Operator) -> str:
    """The call of `onnx_models` that makes a model of one node."""
    opset = f"{operator.standard[1]}, " if operator.standard else ""
    return f"onnx_models.{operator.function}({opset}...)"


def line(text: str) -> str:
    """A text as one line, fit for the cell of a table."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def shape(tensor: Tensor) -> str:
    """The named axes of a tensor."""
    names = (
        re.sub(rf"(.*){re.escape(VARIABLE_AXES)}", rf"\g<1>0, \g<1>1, {VARIABLE_AXES}", str(axis))
        for axis in tensor.shape
    )
    return f"[{', '.join(names)}]"


def allowed(attribute: Attribute) -> str:
    """The rule of an attribute's values, or of each value of a list."""
    if attribute.choices:
        return ", ".join(f"`{choice}`" for choice in attribute.choices)
    if (attribute.minimum, attribute.maximum) == (0, 1):
        return "0, 1"
    rule = attribute.rule.removeprefix("must be ")
    count = f"{len(attribute.axes)} values, " if attribute.axes else "one value for each axis, "
    return f"{count}each {rule}" if attribute.is_list else rule


def default(attribute: Attribute) -> str:
    """The default of an attribute, as it is written in Python."""
    value = list(attribute.default) if attribute.is_list else attribute.default
    return f"`{value}`" + (", but ONNX's own node must have it" if attribute.required else "")

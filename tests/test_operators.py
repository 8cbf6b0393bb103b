# SPDX-License-Identifier: MIT
"""What every operator has. `missing` says in sentences what one lacks, and so what a new one needs."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import onnx_models.collection
import ortops
from conformance.cases import collect
from conformance.families import PARTS, Family, family_of
from docs.operators import row
from onnx_models.gradient.registry import RULES
from ortops.library.drivers import ENTRIES
from ortops.operators import BY_NAME, OPERATORS
from ortops.operators.roi_align import ROI_ALIGN_22
from ortops.spec import DOMAIN, Attribute, Operator

REFERENCE = Path(__file__).parents[1] / "docs" / "operators.md"

ROOMS = {
    "ortops.operators": "the definition of {name}",
    "ortops.reference": "the reference of {name}, float64 loops that are written from the specification alone",
    "ortops.functional": "{function} on NumPy arrays",
    "onnx_models.portable": "the body of {name} in standard operators",
    "conformance.families": "a record of the suite's parts of {name}",
}
"""The packages that have a module for each family of operators, and what it holds."""


def missing(operator: Operator) -> Iterator[str]:
    """What an operator lacks, a sentence each."""
    for room, words in ROOMS.items():
        if find_spec(f"{room}.{operator.family}") is None:
            described = words.format(name=operator.name, function=operator.function)
            file = f"{operator.family}/__init__" if room == "conformance.families" else operator.family
            yield f"{room.replace('.', '/')}/{file}.py is missing: {described}."
    reference = f"ortops.reference.{operator.family}"
    if find_spec(reference) and not hasattr(importlib.import_module(reference), operator.function):
        yield f"{reference} has no function {operator.function}."
    if operator.function not in ENTRIES:
        yield f"ENTRIES in ortops/library/drivers.py does not have {operator.function}."
    if operator.gradient is not None and operator.gradient not in BY_NAME:
        yield f"{operator.name} says that its gradient is {operator.gradient}, which OPERATORS does not have."
    if BY_NAME.get(operator.name) is not operator:
        yield f"OPERATORS in ortops/operators/__init__.py does not have {operator.name}."
    if not hasattr(ortops, operator.function):
        yield f"ortops/__init__.py does not export {operator.function}."
    else:
        yield from _disagreements(operator, getattr(ortops, operator.function))
    if (DOMAIN, operator.name) not in RULES:
        yield f"onnx_models/gradient/rules has no rule of {operator.name}."
    if find_spec(f"conformance.families.{operator.family}"):
        yield from _missing_parts(family_of(operator))
    cases = [case for case in collect() if case.operator == operator.name]
    if not any(case.expects_error is None for case in cases):
        yield f"conformance/cases has no case of {operator.name}."
    if not any(case.expects_error for case in cases):
        yield f"conformance/cases has no case in which {operator.name} is to refuse what it is given."
    if row(operator) not in REFERENCE.read_text("utf-8"):
        yield f"docs/operators.md does not have {operator.name}: `python -m docs` writes it."


def _missing_parts(family: Family) -> Iterator[str]:
    """What the suite lacks for a family."""
    for part, module in family.modules.items():
        names = PARTS[part]
        if find_spec(module) is None:
            yield f"{module.replace('.', '/')}.py is missing: {', '.join(names) or part} of {family.name}."
            continue
        for name in names:
            if not hasattr(importlib.import_module(module), name):
                yield f"{module.replace('.', '/')}.py has no {name}."
    for file, content in (("vectors", family.vectors), ("refusals.json", family.refusals)):
        if not content and not family.like:
            yield f"{family.package.replace('.', '/')}/{file} is missing."


def _disagreements(operator: Operator, function: Callable[..., Any]) -> Iterator[str]:
    """Where the function on NumPy arrays is not what the definition says."""
    name, signature = operator.function, inspect.signature(function)
    keywords = {p.name: p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    attributes = {a.name: a for a in _widest(operator).attributes}
    others = [p for p in signature.parameters if p not in attributes and p != "outputs"]
    if len(others) != len(operator.inputs):
        yield f"{name} takes {', '.join(others)}: must take the {len(operator.inputs)} inputs of {operator.name}."
    for attribute in attributes.values():
        parameter = keywords.get(attribute.name)
        if parameter is None:
            yield f"{name} has no keyword {attribute.name}."
        elif parameter.default is not parameter.empty and not _same(attribute, parameter.default):
            yield f"{name} has {attribute.name} = {parameter.default!r} by default: must be {attribute.default!r}."
    text = inspect.getdoc(function) or ""
    for parameter_name in signature.parameters:
        if not re.search(rf"^    {parameter_name}: ", text, re.MULTILINE):
            yield f"The docstring of {name} does not say what {parameter_name} is."
    for heading in ("Args:", "Returns:", "Raises:", "Source:"):
        if heading not in text:
            yield f"The docstring of {name} has no {heading[:-1]}."


def _widest(operator: Operator) -> Operator:
    """The last operator of the same function: the newest version has all attributes."""
    return [other for other in OPERATORS if other.function == operator.function][-1]


def _same(attribute: Attribute, value: object) -> bool:
    return bool(attribute.check(int(value) if isinstance(value, bool) else value) == attribute.default)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_nothing_is_missing_of_an_operator(operator: Operator) -> None:
    assert list(missing(operator)) == []


def test_what_a_new_operator_lacks_is_said_in_sentences() -> None:
    new = replace(ROI_ALIGN_22, name="RoiMedian", family="roi_median", function="roi_median", gradient="RoiMedianGrad")
    said = list(missing(new))
    assert "ENTRIES in ortops/library/drivers.py does not have roi_median." in said
    path = "conformance/families/roi_median/__init__.py"
    assert f"{path} is missing: a record of the suite's parts of RoiMedian." in said
    assert "RoiMedian says that its gradient is RoiMedianGrad, which OPERATORS does not have." in said
    assert "docs/operators.md does not have RoiMedian: `python -m docs` writes it." in said
    assert len(said) == len(ROOMS) + 8


def test_every_operator_has_a_model_that_is_written() -> None:
    written = {node.op_type for _, _, model in onnx_models.collection.collection() for node in model.graph.node}
    assert {operator.name for operator in OPERATORS} <= written

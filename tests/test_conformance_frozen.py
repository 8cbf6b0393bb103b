"""What is frozen in the package: ONNX's own vectors, and the list of cases."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node

from conformance.case import Basis, Case
from conformance.vectors import collect, frozen

FLOATS = {case.id: case for case in collect() if case.group == "roi_align/official" and case.element_type == "float"}


def installed() -> dict[str, Any]:
    """RoiAlign's vectors of the installed onnx, by name. Importing one file of vectors runs that file alone."""
    importlib.import_module("onnx.backend.test.case.node.roialign")
    return {vector.name: vector for vector in node._NodeTestCases if vector.name.startswith("test_roialign_")}  # noqa: SLF001


@pytest.mark.parametrize("case", [case for case in FLOATS.values() if case.version == 16], ids=lambda case: case.id)
def test_the_frozen_vectors_are_those_of_the_installed_onnx(case: Case) -> None:
    vector = installed()[case.source.section]
    (operator,) = vector.model.graph.node
    for attribute in operator.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        assert case.attributes[attribute.name] == (value.decode() if isinstance(value, bytes) else value)
    ((inputs, outputs),) = vector.data_sets
    for name, array in zip(operator.input, inputs, strict=True):
        np.testing.assert_array_equal(case.inputs[name], array, strict=True)
    assert case.expected is not None
    # The file of ONNX prints up to seven digits and makes float32 of them.
    np.testing.assert_allclose(case.expected["Y"], outputs[0].astype(np.float64), rtol=0, atol=1e-7, strict=True)


DIGESTS = frozen.digests_of(collect())


def test_the_cases_are_those_of_this_release() -> None:
    changes = frozen.changes(DIGESTS)
    assert not changes, "\n".join([*changes, "If that is meant: a line in CHANGELOG.md, and `make frozen`"])
    assert frozen.FILE.read_text("utf-8") == frozen.render(DIGESTS)


def test_what_a_runtime_sees_of_a_case_is_in_its_digest_and_words_are_not() -> None:
    case = next(case for case in collect() if case.twin)
    assert case.twin is not None
    twin = replace(case.twin, inputs={name: array + 1 for name, array in case.inputs.items()})
    changed = [replace(case, basis=Basis.TEXT), replace(case, attributes={}), replace(case, twin=twin)]
    assert len({frozen.digests_of([one])[case.id] for one in (case, *changed)}) == 4
    assert frozen.digests_of([replace(case, note="other words")]) == frozen.digests_of([case])

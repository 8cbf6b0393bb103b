# SPDX-License-Identifier: MIT
"""Explaining a case: its tables, its picture, and wrong calls."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import numpy.typing as npt
import pytest

import suite_runs
from conformance import backends
from conformance.case import Array, Case
from conformance.cases import collect
from conformance.explain import Explanation, explain
from conformance.explain.drawing import MAX_CELLS, picture
from conformance.families.view import MAX_ROWS, MAX_SAMPLES, Table
from conformance.run import Answer, ask, judge
from docs.pictures import PICTURES, drawn
from suite_runs import small_case

FIRST = {case.group: case for case in reversed(collect()) if case.formula is None}
BY_ID = {case.id: case for case in collect()}
OFFICIAL = "roi_align/official/aligned_false/v10/float"
ROTATED = "roi_align_rotated/matrix/angles/aligned/counter_clockwise/float"
POOL = "max_roi_pool/matrix/many/v22/float"
POOL_GRAD = "max_roi_pool_grad/matrix/many/float"


run = functools.partial(suite_runs.run, "explain")


def forward(operator: str, x: Array, roi: Sequence[float], **attributes: Any) -> Case:
    return small_case(operator, None, attributes, x, np.array([roi], np.float64), np.zeros(1, np.int64))


def table(explanation: Explanation, title: str) -> Table:
    return next(table for table in explanation.tables if table.title == title)


def column(of: Table, name: str) -> list[str]:
    return [row[list(of.columns).index(name)] for row in of.rows]


@pytest.mark.parametrize("group", sorted(FIRST))
def test_the_first_case_of_every_group_is_explained(group: str) -> None:
    case = FIRST[group]
    answer = ask(backends.load("reference"), case)
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="reference")
    assert explanation.facts["backend reference"].startswith("passed")
    if explanation.drawing is None:
        assert explanation.notes
        return
    ET.fromstring(picture("a title", "", [explanation.drawing]))  # noqa: S314  # our own
    if not case.definition.is_gradient:
        values = table(explanation, case.outputs[0])
        got, expected = (np.array(column(values, name), np.float64) for name in ("got", "expected"))
        np.testing.assert_allclose(got, expected, rtol=0.02, atol=0.02)


def test_the_table_of_samples_has_what_they_read() -> None:
    x = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    explanation = explain(forward("RoiAlign_16", x, [-5, 0, 3, 2], sampling_ratio=2))
    of_samples = explanation.tables[0]
    assert column(of_samples, "x") == ["-3.5", "0.5", "-3.5", "0.5"]
    assert column(of_samples, "y") == ["0", "0", "1", "1"]
    assert column(of_samples, "interpolated") == ["0", "1.5", "0", "6.5"]
    assert explanation.drawing is not None
    assert [sample.kind for sample in explanation.drawing.samples] == ["sample outside", "sample"] * 2
    assert column(table(explanation, "Y"), "expected") == ["2"]


@pytest.mark.parametrize(
    ("case_id", "index", "heading"),
    [
        (OFFICIAL, (1, 0, 3, 2), "RoI 1 of 3: x1 0, y1 5, x2 4, y2 9; image 0, channel 0"),
        (ROTATED, (5, 1, 1, 2), "RoI 5 of 9"),
        (POOL, (4, 1, 0, 1), "RoI 4 of 9"),
        (POOL_GRAD, (1, 1, 2, 3), "RoI 1 of 9"),  # the first RoI of the pixel's image
    ],
)
def test_the_roi_of_the_worst_element_is_explained(case_id: str, index: tuple[int, ...], heading: str) -> None:
    case = BY_ID[case_id]
    answer = ask(backends.load("reference"), case)
    assert answer.outputs is not None
    answer.outputs[case.outputs[0]][index] += 1
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="wrong")
    assert explanation.heading.startswith(heading)
    assert f"failed: {case.outputs[0]}{list(index)}" in explanation.facts["backend wrong"]
    values = table(explanation, case.outputs[0])
    assert values.marked is not None
    assert values.rows[values.marked][0] == str(list(index))
    assert explanation.drawing is not None
    assert ("worst" in {outline.kind for outline in explanation.drawing.outlines}) is not case.definition.is_gradient


@pytest.mark.parametrize("operator", ["RoiAlign_16", "RoIAlignRotated"])
@pytest.mark.parametrize(
    ("length", "roi", "ratio"),
    [(300, [3.0, 5.0, 290.0, 280.0], 12), (60, [-1e9, -1e9, 1e9, 1e9], 0), (60, [1e15, 0.0, 1e16, 50.0], 0)],
)
def test_huge_rois_and_maps_stay_small(operator: str, length: int, roi: list[float], ratio: int) -> None:
    x: npt.NDArray[np.float64] = np.linspace(0, 1, length * length).reshape(1, 1, length, length)
    roi = [*roi, 0.7] if operator == "RoIAlignRotated" else roi
    explanation = explain(forward(operator, x, roi, output_height=6, output_width=6, sampling_ratio=ratio))
    assert explanation.drawing is not None
    assert picture("huge", "", [explanation.drawing]).count("<rect") <= MAX_CELLS**2
    assert len(explanation.drawing.samples) <= MAX_SAMPLES
    assert all(len(table.shown) <= MAX_ROWS for table in explanation.tables)
    assert any("samples, too many to draw" in note for note in explanation.notes)


def test_an_answer_to_an_invalid_case_is_listed() -> None:
    case = BY_ID["roi_align/refusal/mode_unknown/v16/float"]
    answer = Answer("outputs", {"Y": np.arange(24.0).reshape(1, 2, 3, 4), "name": np.array(["text"])})
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="mine")
    assert [(table.title, table.columns) for table in explanation.tables] == [("Y", ("element", "got"))]
    assert explanation.notes[0].startswith("An error is expected: its attribute is wrong. The reference says: mode")


@pytest.mark.parametrize("name", PICTURES)
def test_the_value_of_each_pixel_stands_free_of_samples_and_lines(name: str) -> None:
    drawings = [drawing for case, *_ in PICTURES[name].drawings if (drawing := explain(case).drawing)]
    pixels = sum(math.prod(drawing.map_size) for drawing in drawings)
    assert drawn(PICTURES[name])["light"].count('class="value"') == pixels


def test_a_legend_explains_only_what_its_drawings_show() -> None:
    plain, with_bins = (drawn(PICTURES[name])["light"] for name in ("opset-10-and-16", "roi-align"))
    for words in ("Dashed lines", "Hollow dots"):
        assert words not in plain
        assert words in with_bins


def test_the_command_prints_tables_and_draws_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "case.svg"
    result = run(OFFICIAL[:-1] + "?", "--backend", "reference", "--svg", str(file))
    assert result.exit_code == 0, result.output
    assert "Samples by output_half_pixel, as torchvision with aligned=False" in result.output
    assert "  and 76 more\n" in result.output
    root = ET.fromstring(file.read_text("utf-8"))  # noqa: S314  # our own
    assert [text.text for text in root.iter() if text.get("class") == "heading"] == ["RoiAlign_10"]
    assert file.read_text("utf-8").count("<circle") == 100


def test_an_expected_failure_has_the_message_of_the_runtime_and_the_reason_of_the_list() -> None:
    lines = run("roi_align/edge/half_pixel_inside/v22/float", "--backend", "onnxruntime").output.splitlines()
    assert "expected failure: the CPU provider has no kernel for RoiAlign-22" in lines
    assert any(line.startswith("backend onnxruntime: failed: no implementation: [ONNXRuntimeError]") for line in lines)


def test_tensors_of_a_detectors_size_are_not_listed() -> None:
    large = next(case for case in collect() if case.formula is not None)
    explanation = explain(large)
    assert explanation.tables == []
    assert explanation.notes == ("The tensors are too large to list and to draw.",)

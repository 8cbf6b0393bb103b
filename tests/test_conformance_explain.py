"""Explaining a case: conventions side by side, the page, the terminal, limits and wrong calls."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from conformance import backends
from conformance.__main__ import main
from conformance.case import Array, Case, Source
from conformance.expected_values import expected_outputs
from conformance.explain import explain, page, picture
from conformance.explain.draw import MOST_CELLS, MOST_SAMPLES
from conformance.explain.tables import MOST_ROWS, number, write
from conformance.run import Answer, ask, judge
from conformance.vectors import collect
from pages import column, parsed, shapes

FIRST = {case.family: case for case in reversed(collect())}
OFFICIAL = "roi_align/official/aligned_false/v10/float"
SOURCE = Source("a test", "1", "none")
READS = "reads [1, 1] x 0.375, [1, 2] x 0.125, [2, 1] x 0.375, [2, 2] x 0.125; value 7.25"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def by_id(name: str) -> Case:
    return next(case for case in collect() if case.id == name)


def forward(x: Array, roi: list[float], **attributes: Any) -> Case:
    rois = np.array([roi], np.float64)
    inputs: Mapping[str, Array] = {"X": x, "rois": rois, "batch_indices": np.zeros(1, np.int64)}
    return Case("test/explain/x", SOURCE, "RoiAlign_16", attributes, inputs, ("Y",), "a test")


@pytest.mark.parametrize("family", sorted(FIRST))
def test_the_first_case_of_every_family_has_a_page_with_what_is_expected(family: str) -> None:
    case = FIRST[family]
    explanation = explain(case)
    text = "\n".join(parsed(page.render(explanation)).text)
    assert case.id in text
    assert case.note in text
    assert str(case.source) in text
    if case.expects_error:
        assert "An error is expected" in text
        return
    for part in explanation.outputs:
        assert part.expected is not None
        values = part.expected.ravel().tolist()
        # Of many values, tables have the first ones.
        assert all(number(value) in text for value in (values if len(values) <= MOST_ROWS else values[:8]))
    assert len(explanation.outputs) == sum(value.size > 0 for value in expected_outputs(case).values())


@pytest.mark.parametrize("family", sorted(FIRST))
def test_the_first_case_of_every_family_is_explained_with_an_answer(family: str) -> None:
    case = FIRST[family]
    answer = ask(backends.load("reference"), case)
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="reference")
    parsed(page.render(explanation))
    assert explanation.facts["backend reference"].startswith("passed")


@pytest.mark.parametrize(
    "family",
    [name for name, case in FIRST.items() if "roi_align" in name and case.expected is None and not case.expects_error],
)
def test_the_convention_of_the_case_gives_what_is_expected(family: str) -> None:
    explanation = explain(FIRST[family])
    if explanation.values is None:
        pytest.skip("no RoI")
    own = next(shown.convention for shown in explanation.conventions if shown.convention.is_own)
    assert column(explanation, own.short) == column(explanation, "expected")


def test_half_a_pixel_shows_in_the_coordinates() -> None:
    for table in explain(by_id(OFFICIAL)).coordinates:
        old, new, directml = table.columns[2:]
        assert (old, new, directml) == ("RoiAlign-10", "RoiAlign-16/22", "DirectML")
        for row in table.rows:
            first, second, third = map(float, row.cells[2:])
            assert first - second == pytest.approx(0.5, abs=1e-4)
            assert second == third


def test_half_a_pixel_shows_in_the_picture() -> None:
    old, new, _ = (shapes(shown.drawing, "dot") for shown in explain(by_id(OFFICIAL), roi=2).conventions)
    assert len(old) == len(new) == 100
    picture = explain(by_id(OFFICIAL), roi=2).conventions[0].drawing
    cell = float(shapes(picture, "cell")[0].at["width"])
    assert float(old[0].at["cx"]) - float(new[0].at["cx"]) == pytest.approx(cell / 2)
    width = float(ET.fromstring(picture.svg).attrib["width"])  # noqa: S314  # our own
    assert all(0 <= float(dot.at["cx"]) <= width for dot in old)


def test_a_sample_names_its_pixels_and_weights() -> None:
    x = np.arange(16, dtype=np.float64).reshape(1, 1, 4, 4)
    case = forward(x, [1.5, 1.5, 2.0, 2.5], output_height=1, output_width=1, sampling_ratio=1)
    (dot,) = shapes(explain(case).conventions[1].drawing, "dot")
    assert dot.title == "bin (0, 0) sample (0, 0) at y 1.5, x 1.25; " + READS


def test_no_number_is_written_under_a_sample() -> None:
    x = np.arange(16, dtype=np.float64).reshape(1, 1, 4, 4)
    attributes = {"output_height": 1, "output_width": 1, "sampling_ratio": 2}
    several = explain(forward(x, [1.0, 1.0, 2.0, 2.0], **{**attributes, "sampling_ratio": 5})).conventions[1].drawing
    assert {str(n) for n in range(16)} - {text.title for text in shapes(several, "value")} == {"5"}
    dots, texts = shapes(several, "dot"), shapes(several, "value")
    assert not any(
        abs(float(text.at["y"]) - float(dot.at["cy"])) < 7 and abs(float(text.at["x"]) - float(dot.at["cx"])) < 10
        for dot in dots
        for text in texts
    )
    for y in (0.6, 1.0, 1.4):
        one = {**attributes, "sampling_ratio": 1}
        picture = explain(forward(x, [1.0, y, 2.0, y + 1.0], **one)).conventions[1].drawing
        (dot,) = shapes(picture, "dot")
        beside = [text for text in shapes(picture, "value") if abs(float(text.at["x"]) - float(dot.at["cx"])) < 10]
        assert len(beside) == 4
        assert all(abs(float(text.at["y"]) - float(dot.at["cy"])) > 7 for text in beside)


def test_what_came_has_the_colours_of_what_is_expected() -> None:
    case = by_id(OFFICIAL)
    answer = ask(backends.load("reference"), case)
    assert answer.outputs is not None
    answer.outputs["Y"][0, 0, 0, 0] = -5
    drawings = explain(case, answer=answer).outputs[0].drawings
    expected, got, _ = (
        [(cell.at["class"], cell.at["fill-opacity"]) for cell in shapes(drawing, "cell")] for drawing in drawings
    )
    assert expected[1:] == got[1:]
    assert expected[0] != got[0]


def test_an_answer_where_an_error_is_due_is_drawn() -> None:
    case = by_id("roi_align/refusal/mode_unknown/v16/float")
    answer = Answer("outputs", {"Y": np.arange(24.0).reshape(1, 2, 3, 4), "name": np.array(["text"])})
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="mine")
    (part,) = explanation.outputs
    assert (part.title, part.shape, list(part.named)) == ("Y[0, 0]", (3, 4), ["got"])
    parsed(page.render(explanation))
    write(explanation, Console(file=io.StringIO()))


def test_an_answer_that_has_no_numbers_is_left_out() -> None:
    case = by_id(OFFICIAL)
    shape = expected_outputs(case)["Y"].shape
    answer = Answer("outputs", {"Y": np.full(shape, "text")})
    assert list(explain(case, answer=answer, result=judge(case, answer)).outputs[0].named) == ["expected"]


def test_one_roi_of_several_is_chosen() -> None:
    explanation = explain(by_id(OFFICIAL), roi=1)
    assert explanation.roi.startswith("RoI 1 of 3: x1 0, y1 5, x2 4, y2 9")


def test_the_worst_element_is_marked_and_its_roi_shown() -> None:
    case = by_id(OFFICIAL)
    answer = ask(backends.load("reference"), case)
    assert answer.outputs is not None
    answer.outputs["Y"][1, 0, 3, 2] += 1
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="wrong")
    assert explanation.roi.startswith("RoI 1 ")
    assert explanation.values is not None
    assert [row.cells[0] for row in explanation.values.rows if row.marked] == ["(3, 2)"]
    assert explanation.outputs[0].mark == (3, 2)
    assert any("marked" in dot.at["class"] for dot in shapes(explanation.conventions[0].drawing, "dot"))
    assert [drawing.title for drawing in explanation.outputs[0].drawings] == ["expected", "got", "difference"]
    assert "failed: Y[1, 0, 3, 2]" in explanation.facts["backend wrong"]


def test_conventions_of_gradients_differ_in_dx() -> None:
    explanation = explain(FIRST["roi_align_grad/matrix"])
    old, new, _ = ([cell.title for cell in shapes(shown.drawing, "cell")] for shown in explanation.conventions)
    assert old != new
    assert [part.title.split("[")[0] for part in explanation.outputs] == ["dX", "drois"]


def test_what_onnx_cannot_follow_is_said() -> None:
    case = FIRST["dml_roi_align/published"]
    assert any("never to the nearest pixel" in note for note in explain(case).notes)


def test_two_axes_are_two_pictures() -> None:
    explanation = explain(FIRST["dml_resample/published"])
    assert [axis.drawing.title.split(",")[0] for axis in explanation.axes] == ["Axis 0: 2 pixels", "Axis 1: 2 pixels"]
    assert explanation.axes[1].table.rows[0].cells[0] == "0"


@pytest.mark.parametrize(
    ("length", "roi", "ratio"),
    [(300, [3.0, 5.0, 290.0, 280.0], 12), (60, [-1e9, -1e9, 1e9, 1e9], 0), (60, [1e15, 0.0, 1e16, 50.0], 0)],
)
def test_huge_rois_and_maps_stay_small(length: int, roi: list[float], ratio: int) -> None:
    x = np.linspace(0, 1, length * length).reshape(1, 1, length, length)
    case = forward(x, roi, output_height=6, output_width=6, sampling_ratio=ratio)
    explanation = explain(case)
    for shown in explanation.conventions:
        assert len(shapes(shown.drawing, "cell")) <= MOST_CELLS**2
        assert len(shapes(shown.drawing, "dot")) <= MOST_SAMPLES
        assert "left out" in shown.drawing.left_out
    html = page.render(explanation)
    assert len(html) < 1_000_000
    parsed(html)


def test_values_that_are_not_finite_are_drawn() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.0]).reshape(1, 1, 2, 2)
    parsed(page.render(explain(forward(x, [0.0, 0.0, 2.0, 2.0], output_height=2, output_width=2, sampling_ratio=1))))


def test_terminal_and_page(tmp_path: Path) -> None:
    file = tmp_path / "case.html"
    result = run(OFFICIAL, "--backend", "reference", "--roi", "2", "--out", str(file))
    assert result.exit_code == 0
    assert "Coordinates of the samples along y" in result.output
    assert re.search(r"0\s+0\s+5\.2\s+4\.7\s+4\.7", result.output)
    parser = parsed(file.read_text("utf-8"))
    assert parser.counts["svg"] == 6
    assert parser.counts["circle"] == 300


def drawn(file: Path) -> tuple[list[str], int]:
    """The headings of a picture file, and its number of drawings."""
    root = ET.fromstring(file.read_text("utf-8"))  # noqa: S314  # our own
    texts = [text.text or "" for text in root.iter() if text.get("class") == "words heading"]
    return texts, sum(child.tag.endswith("svg") for child in root)


def test_a_picture_file_has_the_drawings_that_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "case.svg"
    result = run(OFFICIAL, "--svg", str(file))
    assert result.exit_code == 0
    assert f"wrote {file}" in result.output.replace("\n", "")
    assert drawn(file) == (["ONNX RoiAlign-10", "ONNX RoiAlign-16/22", "DirectML"], 3)
    light = file.read_text("utf-8")
    run(OFFICIAL, "--svg", str(file), "--drawing", "2", "--drawing", "1", "--theme", "dark")
    assert drawn(file) == (["ONNX RoiAlign-16/22", "ONNX RoiAlign-10"], 2)
    assert "#0d1117" in file.read_text("utf-8")
    assert "#0d1117" not in light


@pytest.mark.parametrize("family", sorted(FIRST))
def test_the_first_case_of_every_family_has_a_picture_unless_it_is_a_refusal(family: str) -> None:
    explanation = explain(FIRST[family])
    if picture.panels(explanation):
        root = ET.fromstring(picture.render("a title", "", picture.chosen(explanation, ()), "a hint"))  # noqa: S314
        assert sum(child.tag.endswith("svg") for child in root) > 0
    else:
        with pytest.raises(ValueError, match="the case has no drawings"):
            picture.chosen(explanation, ())


def test_a_picture_has_the_values_of_few_samples_and_bins() -> None:
    x = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    one = explain(forward(x, [1.0, 1.0, 3.0, 3.0], sampling_ratio=2)).conventions
    assert [shown.result for shown in one[:2]] == ["samples 10, 11, 15, 16: Y = 13", "samples 7, 8, 12, 13: Y = 10"]
    four = explain(forward(x, [0.0, 0.0, 4.0, 4.0], sampling_ratio=2, output_height=2, output_width=2)).conventions
    assert four[1].result == "Y = [[4, 6], [14, 16]]"
    many = explain(forward(x, [0.0, 0.0, 4.0, 4.0], sampling_ratio=2, output_height=3, output_width=2)).conventions
    assert many[1].result == ""


def test_the_bins_of_a_max_roi_pool_are_drawn_with_their_largest_pixels() -> None:
    x = np.arange(49.0).reshape(1, 1, 7, 7)
    x[0, 0, 2, 1] = 90
    inputs: Mapping[str, Array] = {"X": x, "rois": np.array([[0, 1.0, 1.0, 5.0, 9.0]])}
    case = Case("test/explain/x", SOURCE, "MaxRoiPool_22", {"pooled_shape": (3, 2)}, inputs, ("Y",), "a test")
    (shown,) = explain(case).conventions
    blocks, rings = shapes(shown.drawing, "block"), shapes(shown.drawing, "largest")
    # Of the three rows of bins, which have the pixels 1 to 3, 4 to 6 and 7 to 9, the last one is off the map.
    assert len(blocks) == len(rings) == 4
    cell = {(c.at["x"], c.at["y"]): c.title for c in shapes(shown.drawing, "cell")}
    size = float(shapes(shown.drawing, "cell")[0].at["width"])
    found = [
        cell[f"{float(ring.at['cx']) - size / 2}", f"{float(ring.at['cy']) - size / 2}"].rsplit(" ", 1)[1]
        for ring in rings
    ]
    assert found == ["90", "26", "45", "47"]
    assert explain(replace(case, attributes={"pooled_shape": (1, 2)})).conventions[0].result == "Y = [[90, 47]]"


def test_no_page_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("roi_align/official/aligned_false/v10/floa?").exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_id_names_those_close_to_it() -> None:
    result = run("roi_align/oficial/aligned_false/v10/float")
    assert result.exit_code == 2
    assert OFFICIAL in result.output


def test_a_pattern_must_have_one_match() -> None:
    result = run("roi_align/official/*")
    assert result.exit_code == 2
    assert "matches 27 cases" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        (OFFICIAL, "--roi", "3"),
        (OFFICIAL, "--backend", "no_such_module"),
        (OFFICIAL, "--out", "no/such/folder/x.html"),
        (OFFICIAL, "--svg", "no/such/folder/x.svg"),
        (OFFICIAL, "--drawing", "1"),
        (OFFICIAL, "--theme", "dark"),
        (OFFICIAL, "--svg", "x.svg", "--drawing", "0"),
        (OFFICIAL, "--svg", "x.svg", "--drawing", "9"),
        ("dml_resample/published/page_example/float", "--roi", "0"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2

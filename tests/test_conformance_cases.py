"""The cases themselves: complete, well-formed, true, and away from where rounding decides."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from conformance.case import Case
from conformance.compare import compare
from conformance.expect import expected_outputs, reference
from conformance.model import build
from conformance.vectors import collect, literal, scenes
from ortops import OPERATORS
from wrong_backends import Control

MARGIN = 1e-3
"""Pixels. Rounding of float32 coordinates moves a sample of these scenes by less than a tenth of it."""

LEAD = 5e-5
"""Float32 coordinates change a value of these scenes by less than half of it."""

REQUIRED = {"fact", "note", "inputs", "expected"}

CASES = collect()
GENERATED = [case for case in CASES if case.expected is None and not case.expects_error]
LITERAL = [case for case in CASES if case.expected is not None]


def with_prefix(prefix: str, cases: list[Case] = GENERATED) -> list[Case]:
    return [case for case in cases if case.id.startswith(prefix)]


def test_ids_are_unique_and_readable() -> None:
    ids = [case.id for case in CASES]
    assert len(set(ids)) == len(ids)
    assert [i for i in ids if not re.fullmatch(r"[a-z_]+(/[A-Za-z0-9_]+){2,}", i)] == []


def test_every_operator_meets_each_of_its_types_and_choices() -> None:
    met = {
        (case.operator, case.element_type, name, value)
        for case in CASES
        if not case.expects_error
        for name, value in case.attributes.items()
    }
    for operator in OPERATORS:
        for element_type, attribute in itertools.product(operator.types["T1"], operator.attributes):
            values = attribute.choices or [attribute.default]
            assert [v for v in values if (operator.name, element_type, attribute.name, v) not in met] == []


def test_every_rule_of_an_attribute_is_broken_by_a_case() -> None:
    broken = set()
    for case in CASES:
        if case.expects_error == "attribute":
            with pytest.raises(ValueError, match="must be") as error:
                case.definition.check_attributes(case.attributes)
            broken.add((case.operator, str(error.value).split(" ")[0]))
    assert broken == {(operator.name, attribute.name) for operator in OPERATORS for attribute in operator.attributes}


def test_reference_refuses_what_is_wrong() -> None:
    for case in CASES:
        if case.expects_error:
            with pytest.raises(ValueError, match=r"must|requires|needs"):
                reference(case.definition, case.attributes, case.inputs, case.outputs)


@pytest.mark.parametrize("family", sorted({case.family for case in LITERAL}))
def test_reference_confirms_printed_numbers(family: str) -> None:
    for case in LITERAL:
        if case.family == family:
            exact = reference(case.definition, case.attributes, case.inputs, case.outputs)
            if case.decimals is None:
                expected = expected_outputs(case)
                for name in case.outputs:
                    np.testing.assert_allclose(exact[name], expected[name], rtol=1e-12, atol=0, err_msg=case.id)
            passed, worst = compare(case, {name: value.astype(case.dtype) for name, value in exact.items()})
            assert passed, f"{case.id}: {worst}"


def test_literal_numbers_are_exact_in_their_types() -> None:
    doubles = {case.id.rpartition("/")[0]: case for case in literal.cases() if case.element_type == "double"}
    for case in literal.cases():
        for name, array in case.inputs.items():
            exact = doubles[case.id.rpartition("/")[0]].inputs[name]
            np.testing.assert_array_equal(array.astype(np.float64), exact, err_msg=f"{case.id} {name}")


def test_rois_of_scenes_are_exact_in_every_type() -> None:
    by_name = {scene.name: scene.inputs["rois"] for scene in scenes.SCENES}
    for case in CASES:
        fact = case.id.split("/")[2]
        if case.id.split("/")[1] == "matrix" and fact in by_name:
            np.testing.assert_array_equal(case.inputs["rois"].astype(np.float64), by_name[fact], err_msg=case.id)


def test_every_official_vector_is_there_at_every_opset_that_can_express_it() -> None:
    met = {(case.id.split("/")[2], case.version) for case in CASES if case.family == "roi_align/official"}
    assert met == {("aligned_true", opset) for opset in (16, 22)} | {
        (name, opset) for name in ("aligned_false", "mode_max") for opset in (10, 16, 22)
    }


def test_models_hold_what_the_case_gives() -> None:
    for case in CASES:
        model = build(case, "ortops")
        (node,) = model.graph.node
        assert (node.op_type, node.domain) == (case.operator, "ai.onnx.contrib")
        assert {attribute.name for attribute in node.attribute} == set(case.attributes)
        assert {name for name in node.input if name} == set(case.inputs)
        assert [name for name in node.output if name] == list(case.outputs)


@functools.cache
def arguments(case: Case) -> dict[str, Any]:
    given = case.definition.check_attributes(case.attributes)
    bins = case.inputs["dY"].shape[2:] if "dY" in case.inputs else (given["output_height"], given["output_width"])
    shape = case.inputs["x_shape"].tolist() if "x_shape" in case.inputs else case.inputs["X"].shape
    return {**given, "bins": bins, "lengths": shape[2:]}


def axes(case: Case) -> Iterator[tuple[float, float, int, int]]:
    """Start, size, bins and length of every RoI along y and x."""
    given = arguments(case)
    is_half = given["coordinate_transformation_mode"] == "half_pixel"
    for x1, y1, x2, y2 in case.inputs["rois"].astype(np.float64):
        for r1, r2, bins, length in zip((y1, x1), (y2, x2), given["bins"], given["lengths"], strict=True):
            size = (r2 - r1) * given["spatial_scale"]
            assert is_half or abs(size - 1) > MARGIN, case.id
            yield r1 * given["spatial_scale"] - 0.5 * is_half, size if is_half else max(size, 1.0), bins, length


def coordinates(case: Case) -> Iterator[tuple[npt.NDArray[Any], int]]:
    for start, size, bins, length in axes(case):
        per_bin = arguments(case)["sampling_ratio"] or max(int(np.ceil(size / bins)), 0)
        count = per_bin * bins
        yield start + (np.arange(count) + 0.5) * size / max(count, 1), length


@pytest.mark.parametrize("prefix", ["roi_align/matrix", "roi_align/defaults", "roi_align_grad"])
def test_no_sample_is_where_rounding_could_move_it_over_the_border(prefix: str) -> None:
    for case in with_prefix(prefix):
        if "huge" not in case.id:
            for c, length in coordinates(case):
                assert np.all(np.abs(c + 1) > MARGIN), case.id
                assert np.all(np.abs(c - length) > MARGIN), case.id


def test_no_number_of_samples_depends_on_rounding() -> None:
    for case in GENERATED:
        if arguments(case)["sampling_ratio"] == 0 and "huge" not in case.id:
            for _, size, bins, _ in axes(case):
                wanted = size / bins
                is_exact = float(arguments(case)["spatial_scale"]).hex().startswith("0x1.0000")
                assert abs(wanted - round(wanted)) > MARGIN or (is_exact and wanted == round(wanted)), case.id


def test_no_roi_gradient_is_taken_on_a_pixel() -> None:
    for case in with_prefix("roi_align_grad"):
        if "drois" in case.outputs:
            for c, length in coordinates(case):
                inside = c[(c > -MARGIN) & (c < length - 1 + MARGIN)]
                assert np.all(np.abs(inside - np.round(inside)) > MARGIN), case.id


def test_no_maximum_is_won_by_a_rounding() -> None:
    for case in with_prefix("roi_align_grad/matrix"):
        # Samples of a RoI without extent are at one place in any arithmetic, so their ties are exact.
        if arguments(case)["mode"] != "avg" and "/no_extent/" not in case.id:
            for lead, effects_agree in runners_up(case):
                assert lead > LEAD or effects_agree, case.id


def runners_up(case: Case) -> Iterator[tuple[float, bool]]:
    """How far the winner of each output leads every other candidate, and whether that would pass the same gradient."""
    control = Control(build(case, "ortops"))
    bins, lengths, x = arguments(case)["bins"], arguments(case)["lengths"], case.inputs["X"].astype(np.float64)
    for roi, n in zip(case.inputs["rois"].astype(np.float64), case.inputs["batch_indices"], strict=True):
        axis_y, axis_x = control.axes(roi, bins, lengths)
        for p, q in np.ndindex(*bins):
            candidates = control.candidates(x[n], axis_y, axis_x, p, q)
            for channel, values in zip(x[n], candidates, strict=True):
                winner, *others = np.argsort(-values, kind="stable")[:8]
                won = control.effect(channel, axis_y, axis_x, p, q, int(winner))
                for other in others:
                    lost = control.effect(channel, axis_y, axis_x, p, q, int(other))
                    yield values[winner] - values[other], all(map(np.array_equal, won, lost))


def test_files_of_vectors_have_no_misspelt_entry() -> None:
    files = sorted(Path(literal.__file__).parent.glob("*.json"))
    assert len(files) >= 5
    for file in files:
        data = json.loads(file.read_text("utf-8"))
        assert set(data) == {"function", "family", "source", "attributes", "arrays", "cases"}, file
        for entry in data["cases"]:
            assert set(entry) >= REQUIRED, entry["fact"]
            assert set(entry) <= REQUIRED | {"attributes", "types", "decimals", "source"}, entry["fact"]

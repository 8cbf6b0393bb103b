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

from conformance import backends
from conformance.case import Case
from conformance.expected_values import expected_outputs, reference
from conformance.geometry.rois import geometry_of
from conformance.model import build
from conformance.outcome import Outcome
from conformance.run import CaseRunner, ask
from conformance.vectors import collect, literal, scenes
from conformance.vectors.dialects import Rule
from ortops.operators import BY_NAME, OPERATORS
from ortops.reference.roi_align import Candidate, Term, add_to_droi, add_to_dx, candidates_of
from ortops.reference.sampling import Bin, SampledAxis, bins_of

MARGIN = 1e-3
"""Pixels. Rounding of float32 coordinates moves a sample of these scenes by less than a tenth of it."""

LEAD = 5e-5
"""Float32 coordinates change a value of these scenes by less than half of it."""

REQUIRED = {"fact", "note", "inputs", "expected"}
OPTIONAL = {"function", "source", "basis", "attributes", "types", "decimals", "published_type", "input_error"}

CASES = collect()
GENERATED = [case for case in CASES if case.expected is None and not case.expects_error]
ROI_ALIGN = [case for case in GENERATED if case.definition.family == "roi_align"]
DML_ROI_ALIGN = [case for case in GENERATED if case.definition.family == "dml_roi_align"]
DML_RESAMPLE = [case for case in GENERATED if case.definition.family == "dml_resample"]
LITERAL = [case for case in CASES if case.expected is not None]


def with_prefix(prefix: str, cases: list[Case] = ROI_ALIGN) -> list[Case]:
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
        floats = next(kinds for kinds in operator.types.values() if "float" in kinds)
        for element_type, attribute in itertools.product(floats, operator.attributes):
            values = attribute.choices or ([0, 1] if attribute.maximum == 1 else [attribute.default])
            assert [v for v in values if (operator.name, element_type, attribute.name, v) not in met] == []


def test_every_rule_of_an_attribute_is_broken_by_a_case() -> None:
    broken = set()
    for case in CASES:
        if case.expects_error == "attribute":
            with pytest.raises(ValueError, match="must") as error:
                case.definition.check_attributes(case.attributes)
            broken.add((case.operator, re.split(r"[ \[]", str(error.value))[0]))
    assert broken == {
        (operator.name, attribute.name)
        for operator in OPERATORS
        for attribute in operator.attributes
        # What may be any number is the value of samples off the map.
        if attribute.rule != "must be a number"
    }


def test_reference_refuses_what_is_wrong() -> None:
    for case in CASES:
        if case.expects_error:
            with pytest.raises((TypeError, ValueError), match=r"must|requires|needs"):
                reference(case.definition, case.attributes, case.inputs, case.outputs)


def test_reference_passes_a_sample_of_the_cases() -> None:
    runner = CaseRunner(functools.partial(ask, backends.load("reference")))
    assert [case.id for case in CASES[::31] if runner.result(case).outcome is not Outcome.PASSED] == []


def test_reference_confirms_printed_numbers_to_the_last_digit_where_they_are_exact() -> None:
    exact_cases = [case for case in LITERAL if case.decimals is None and case.element_type == "double"]
    for case in exact_cases:
        exact, expected = reference(case.definition, case.attributes, case.inputs, case.outputs), expected_outputs(case)
        for name in case.outputs:
            np.testing.assert_allclose(exact[name], expected[name], rtol=1e-12, atol=1e-12, err_msg=case.id)
    assert len(exact_cases) > 1000


def test_literal_numbers_are_exact_in_their_types() -> None:
    # ONNX's own are decimal numbers that every type rounds: `input_error` allows for that.
    exact_cases = [case for case in literal.cases() if "/official/" not in case.id]
    doubles = {case.id.rpartition("/")[0]: case for case in exact_cases if case.element_type == "double"}
    for case in exact_cases:
        for name, array in case.inputs.items():
            exact = doubles[case.id.rpartition("/")[0]].inputs[name]
            np.testing.assert_array_equal(array.astype(np.float64), exact, err_msg=f"{case.id} {name}")


def test_rois_of_scenes_are_exact_in_every_type() -> None:
    by_name = {scene.name: scene.tensors["rois"] for scene in scenes.SCENES}
    for case in (*ROI_ALIGN, *DML_ROI_ALIGN):
        fact = case.id.split("/")[2]
        name = {"roi_align": "rois", "dml_roi_align": "ROITensor"}.get(case.definition.family)
        if case.id.split("/")[1] == "matrix" and fact in by_name and name:
            rois = case.inputs[name]
            np.testing.assert_array_equal(rois.reshape(-1, 4).astype(np.float64), by_name[fact], err_msg=case.id)


def test_every_official_vector_is_there_at_every_opset_that_can_express_it() -> None:
    met = {(case.id.split("/")[2], case.version) for case in CASES if case.group == "roi_align/official"}
    assert met == {("aligned_true", opset) for opset in (16, 22)} | {
        (name, opset) for name in ("aligned_false", "mode_max") for opset in (10, 16, 22)
    }


def test_models_hold_what_the_case_gives() -> None:
    for case in CASES[::7]:
        model = build(case, "ortops")
        (node,) = model.graph.node
        assert (node.op_type, node.domain) == (case.operator, "ai.onnx.contrib")
        assert {attribute.name for attribute in node.attribute} == {n for n, v in case.attributes.items() if v != ()}
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
    for case in ROI_ALIGN:
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
    geometry = geometry_of(case)
    assert geometry.x is not None
    for roi, n in zip(geometry.rois.tolist(), geometry.indices.tolist(), strict=True):
        axes = [placed.axis for placed in geometry.sampling.place(roi)]
        for bin_ in bins_of(*axes):
            for channel in geometry.x[n].tolist():
                found = candidates_of(geometry.sampling.mode, bin_, channel, 0.0)
                ordered = sorted(found, key=lambda one: -one.value)[:8]
                effects = [effect(one, channel, bin_, axes) for one in ordered]
                for other, passed in zip(ordered[1:], effects[1:], strict=True):
                    yield ordered[0].value - other.value, passed == effects[0]


def effect(candidate: Candidate, channel: list[list[float]], bin_: Bin, axes: list[SampledAxis]) -> Any:
    """What a candidate passes to the map and to the RoI."""
    dx, droi = np.zeros(np.shape(channel)).tolist(), [0.0] * 4
    if candidate.sample is not None:
        term = Term(1, candidate.corners, *([index] for index in candidate.sample.first))
        add_to_dx(dx, 1.0, term)
        add_to_droi(droi, 1.0, term, channel, bin_, *axes)
    return dx, droi


@functools.cache
def dml_arguments(case: Case) -> dict[str, Any]:
    given = case.definition.check_attributes(case.attributes)
    dy, shape = case.inputs.get("InputGradientTensor"), case.inputs.get("x_shape")
    bins = (given["output_height"], given["output_width"]) if dy is None else dy.shape[2:]
    return {**given, "bins": bins, "lengths": (case.inputs["InputTensor"].shape if shape is None else shape)[2:]}


def dml_axes(case: Case) -> Iterator[tuple[float, float, int, int]]:
    """Start, size, outputs and length of every region along y and x."""
    given = dml_arguments(case)
    scales = given["spatial_scale_y"], given["spatial_scale_x"]
    for x1, y1, x2, y2 in case.inputs["ROITensor"].reshape(-1, 4).astype(np.float64):
        for (r1, r2), scale, bins, length in zip(
            ((y1, y2), (x1, x2)), scales, given["bins"], given["lengths"], strict=True
        ):
            yield r1 * scale, (r2 - r1) * scale, bins, length


def dml_coordinates(case: Case) -> Iterator[tuple[npt.NDArray[Any], int]]:
    given = dml_arguments(case)
    for a, size, bins, length in dml_axes(case):
        least, most = given["minimum_samples_per_output"], given["maximum_samples_per_output"]
        count = bins * int(np.clip(np.ceil(size / bins), least, most))
        steps = max(count - 1, 1) if given["align_regions_to_corners"] else count
        t = (np.arange(count) - given["output_pixel_offset"]) / steps
        if given["align_regions_to_corners"] and count == 1:
            t = np.array([0.5])
        yield a + size * t - given["input_pixel_offset"], length


DML_SCENES = [case for case in DML_ROI_ALIGN if "/matrix/" in case.id and "/huge" not in case.id]


def test_no_sample_of_directml_is_where_rounding_could_move_it_over_the_border() -> None:
    for case in DML_SCENES:
        for c, length in dml_coordinates(case):
            assert np.all(np.abs(c + 1) > MARGIN), case.id
            assert np.all(np.abs(c - length) > MARGIN), case.id


def test_no_number_of_samples_of_directml_depends_on_rounding() -> None:
    for case in DML_SCENES:
        given = dml_arguments(case)
        least, most = given["minimum_samples_per_output"], given["maximum_samples_per_output"]
        for _, size, bins, _ in dml_axes(case):
            wanted = size / bins
            is_free = least < most and least - MARGIN < wanted < most + MARGIN
            is_exact = float(wanted * 2**20).is_integer()
            assert not is_free or is_exact or abs(wanted - round(wanted)) > MARGIN, case.id


def test_no_nearest_pixel_depends_on_rounding() -> None:
    met = 0
    for case in DML_SCENES:
        if dml_arguments(case)["interpolation_mode"] == "nearest_neighbor":
            for c, length in dml_coordinates(case):
                inside = c[(c > 0) & (c < length - 1)] + 0.5
                assert np.all(np.abs(inside - np.round(inside)) > MARGIN), case.id
                met += inside.size
    assert met > 1000


def test_no_gradient_of_a_region_is_taken_on_a_pixel() -> None:
    for case in DML_SCENES:
        if "OutputROIGradientTensor" in case.outputs and dml_arguments(case)["interpolation_mode"] == "linear":
            for c, length in dml_coordinates(case):
                inside = c[(c > -MARGIN) & (c < length - 1 + MARGIN)]
                assert np.all(np.abs(inside - np.round(inside)) > MARGIN), case.id


def test_no_maximum_of_directml_is_won_by_a_rounding() -> None:
    for case in DML_SCENES:
        # Samples of a region without extent are at one place in any arithmetic, so their ties are exact.
        is_gradient = "InputGradientTensor" in case.inputs and "/no_extent/" not in case.id
        if is_gradient and dml_arguments(case)["reduction_function"] == "max":
            for lead, effects_agree in runners_up(case):
                assert lead > LEAD or effects_agree, case.id


def test_directml_meets_each_index_type_and_rank() -> None:
    met = {
        (case.definition.name, case.inputs["BatchIndicesTensor"].dtype.name, name, case.inputs[name].ndim)
        for case in DML_SCENES
        for name in ("ROITensor", "BatchIndicesTensor")
    }
    for operator in ("DmlRoiAlign", "DmlRoiAlignGrad"):
        for index_type in ("uint32", "int64"):
            assert {(operator, index_type, "ROITensor", rank) for rank in (2, 3, 4)} <= met
            assert {(operator, index_type, "BatchIndicesTensor", rank) for rank in (1, 2, 3, 4)} <= met


def test_the_first_number_of_directml_is_the_one_that_onnxruntime_records() -> None:
    # 0.4664 and the difference 0.0513830 that roialign_test.cc of onnxruntime (03b32b86) gives for DirectML.
    (case,) = with_prefix("dml_roi_align/official/aligned_true/double", LITERAL)
    y = reference(case.definition, case.attributes, case.inputs, case.outputs)["OutputTensor"]
    assert y[0, 0, 0, 0] == pytest.approx(0.4664 + 0.0513830, abs=5e-7)


def resample_axes(case: Case) -> Iterator[tuple[npt.NDArray[Any], float, int]]:
    """Of each axis the coordinates, the scale and the length of the input."""
    given = case.definition.check_attributes(case.attributes)
    if "x_shape" in case.inputs:
        lengths, outputs = case.inputs["x_shape"].tolist(), case.inputs["InputGradientTensor"].shape
    else:
        lengths, outputs = case.inputs["InputTensor"].shape, expected_outputs(case)["OutputTensor"].shape
    for i, (length, count) in enumerate(zip(lengths, outputs, strict=True)):
        scale = given["scales"][i] if given["scales"] else count / length
        before, after = (
            given["input_pixel_offsets"] or [0.5] * (i + 1),
            given["output_pixel_offsets"] or [-0.5] * (i + 1),
        )
        x = (np.arange(count) - after[i]) / scale - before[i]
        yield x, scale, length


def test_no_nearest_pixel_of_resample_depends_on_rounding() -> None:
    met = 0
    for case in DML_RESAMPLE:
        if case.attributes.get("interpolation_mode") == "nearest_neighbor":
            is_half_up = case.attributes.get("rounding_direction", "half_up") == "half_up"
            for x, scale, length in resample_axes(case):
                inside = x[(x > -1) & (x < length)] + 0.5 * is_half_up
                is_exact = float(scale).hex().startswith("0x1.0000000")
                assert is_exact or np.all(np.abs(inside - np.round(inside)) > MARGIN), case.id
                met += inside.size
    assert met > 1000


def test_resample_meets_every_rank_with_either_interpolation() -> None:
    met = {
        (case.operator, case.attributes["interpolation_mode"], next(iter(case.inputs.values())).ndim)
        for case in DML_RESAMPLE
        if "/matrix/" in case.id
    }
    assert met == set(
        itertools.product(("DmlResample", "DmlResampleGrad"), ("linear", "nearest_neighbor"), (1, 2, 3, 4))
    )


def test_either_reading_of_the_offsets_of_a_resample_gradient_has_other_numbers() -> None:
    ours, exchanged = (
        with_prefix(f"dml_resample_grad/published/{fact}/double", LITERAL)[0]
        for fact in ("offsets_forward_naming", "offsets_exchanged")
    )
    np.testing.assert_array_equal(ours.inputs["InputGradientTensor"], exchanged.inputs["InputGradientTensor"])
    for first, second in itertools.permutations(("input_pixel_offsets", "output_pixel_offsets")):
        assert ours.attributes[first] == exchanged.attributes[second]
    (one,), (other,) = expected_outputs(ours).values(), expected_outputs(exchanged).values()
    assert np.all(one != other)


def test_the_resample_gradient_has_the_recorded_adjoint_value() -> None:
    # 444 is the value that test_resample_grad_is_the_adjoint_of_resample of PyDirectML (eb241f29) records.
    (forward,) = with_prefix("dml_resample/published/adjoint_forward/double", LITERAL)
    x = forward.inputs["InputTensor"]
    (y,) = expected_outputs(forward).values()
    for case in with_prefix("dml_resample_grad/published/adjoint_444", LITERAL):
        (dx,) = expected_outputs(case).values()
        assert float((dx * x).sum()) == float((case.inputs["InputGradientTensor"] * y).sum()) == 444


def is_raised(scene: scenes.Scene) -> bool:
    """Whether output_half_pixel makes a RoI larger than it is."""
    return any(min(x2 - x1, y2 - y1) * scene.spatial_scale < 1 for x1, y1, x2, y2, _ in scene.rois)


@pytest.mark.parametrize(
    ("scene", "coordinates"),
    [
        pytest.param(scene, coordinates, id=f"{scene.name}-{coordinates}")
        for scene in scenes.SCENES
        for coordinates in ("half_pixel", "output_half_pixel")
        if scene.sampling_ratio and (coordinates == "half_pixel" or not is_raised(scene))
    ],
)
def test_directml_is_onnx_where_the_number_of_samples_is_given(scene: scenes.Scene, coordinates: str) -> None:
    rule = Rule(None, coordinates, scene.spatial_scale, scene.sampling_ratio)
    sizes = {"output_height": scene.bins[0], "output_width": scene.bins[1]}
    x, rois, indices = (scene.tensors[role] for role in ("x", "rois", "indices"))
    of_onnx = {"X": x, "rois": rois, "batch_indices": indices}
    of_directml = {"InputTensor": x, "ROITensor": rois, "BatchIndicesTensor": indices}
    for reduction, mode in (("average", "avg"), ("max", "max_interpolated")):
        dml = {**rule.attributes("dml_roi_align"), **sizes, "reduction_function": reduction}
        onnx = {**rule.attributes("roi_align"), **sizes, "mode": mode}
        found = reference(BY_NAME["DmlRoiAlign"], dml, of_directml, ["OutputTensor"])
        expected = reference(BY_NAME["RoiAlign_16"], onnx, of_onnx, ["Y"])
        np.testing.assert_allclose(found["OutputTensor"], expected["Y"], rtol=1e-12, atol=1e-12)


def test_files_of_vectors_have_no_misspelt_entry() -> None:
    files = sorted(Path(literal.__file__).parent.glob("*.json"))
    assert len(files) >= 13
    for file in files:
        data = json.loads(file.read_text("utf-8"))
        assert set(data) - {"basis"} == {"function", "family", "source", "attributes", "arrays", "cases"}, file
        for entry in data["cases"]:
            assert set(entry) >= REQUIRED, entry["fact"]
            assert set(entry) <= REQUIRED | OPTIONAL, entry["fact"]

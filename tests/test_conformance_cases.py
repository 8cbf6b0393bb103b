# SPDX-License-Identifier: MIT
"""The cases themselves: complete, well-formed, true, away from where rounding decides, and frozen."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.backend.test.case import node

from conformance.case import Basis, Case
from conformance.cases import collect, frozen, printed
from conformance.expected_values import expected_outputs, reference
from conformance.families import families
from conformance.families.dml_resample.geometry import axes_of
from conformance.families.roi_align_rotated import geometry as rotated
from conformance.families.upright.geometry import AxisGeometry, Geometry, Sampling
from ortops.operators.asked import OPERATORS
from ortops.reference.roi_align import Candidate, Term, add_to_droi, add_to_dx, candidates_of
from ortops.reference.sampling import Bin, SampledAxis, bins_of, candidate_indices

MARGIN = 1e-3
"""Pixels. Rounding of float32 coordinates moves a sample of these scenes by less than a twentieth of it."""

LEAD = 5e-5
"""Float32 coordinates change a value of these scenes by less than half of it."""


REQUIRED = {"fact", "note", "inputs", "expected"}
OPTIONAL = {"function", "source", "basis", "attributes", "types", "decimals", "published_type", "input_error"}

CASES = collect()
GENERATED = [case for case in CASES if case.expected is None and not case.expects_error]
LITERAL = [case for case in CASES if case.expected is not None]


def test_every_operator_meets_each_of_its_types_and_choices() -> None:
    met = {
        (case.operator, case.element_type, name, value)
        for case in CASES
        if not case.expects_error
        for name, value in case.attributes.items()
    }
    left_out = {
        (case.operator, attribute.name)
        for case in CASES
        for attribute in case.definition.attributes
        if not case.expects_error and attribute.name not in case.attributes
    }
    for operator in OPERATORS:
        floats = next(kinds for kinds in operator.types.values() if "float" in kinds)
        for element_type, attribute in itertools.product(floats, operator.attributes):
            values = attribute.choices or ([0, 1] if attribute.maximum == 1 else [attribute.default])
            assert [v for v in values if (operator.name, element_type, attribute.name, v) not in met] == []
            defaults = (operator.name, attribute.name) in left_out
            assert attribute.required or defaults, f"no case leaves out {attribute.name} of {operator.name}"


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


def is_small(case: Case) -> bool:
    return case.nbytes < 2**14


def test_reference_confirms_printed_numbers_to_the_last_digit_where_they_are_exact() -> None:
    exact_cases = [
        case for case in LITERAL if case.decimals is None and case.element_type == "double" and is_small(case)
    ]
    for case in exact_cases:
        exact, expected = reference(case.definition, case.attributes, case.inputs, case.outputs), expected_outputs(case)
        for name in case.outputs:
            np.testing.assert_allclose(exact[name], expected[name], rtol=1e-12, atol=1e-12, err_msg=case.id)
    assert len(exact_cases) > 1000


def clearance(c: NDArray[np.float64], length: int, shift: float, has_slopes: bool) -> float:
    """The least distance of samples along an axis from borders, and from where the pixels that they read change."""
    inside = c[(c > -MARGIN) & (c < length - 1 + MARGIN)] - shift if has_slopes else c[:0]
    distances = [np.abs(c + 1), np.abs(c - length), np.abs(inside - np.round(inside))]
    return min(float(np.min(distance, initial=1.0)) for distance in distances)


def is_nearly_whole(wanted: float) -> bool:
    """Whether rounding may decide the number of samples of a bin of this many pixels."""
    return abs(wanted - round(wanted)) < MARGIN and not (wanted * 2**20).is_integer()


def is_clear(roi: list[float], sampling: rotated.Sampling, has_slopes: bool) -> bool:
    """Whether rounding decides neither the number of samples of a rotated RoI nor which pixels they read.

    A RoI with too many samples to list is not checked further.
    """
    region = sampling.region(roi)
    for stored, side in ((roi[2], region.width), (roi[3], region.height)):
        is_open = sampling.ratio == 0 and side.size > 0 and is_nearly_whole(side.size / side.bins)
        if is_open or (not sampling.aligned and abs(stored * sampling.scale - 1) < MARGIN):
            return False
    if region.total * region.height.bins * region.width.bins > 10**6:
        return True
    along = zip(rotated.coordinates(region), region.map_size, strict=True)
    return all(clearance(c, length, 0.0, has_slopes) >= MARGIN for c, length in along)


def are_clear(case: Case) -> bool:
    """Whether rounding decides nothing of where a case reads its map."""
    if case.definition.family == "dml_resample":
        half = 0.5 if case.attributes["rounding_direction"] == "half_up" else 0.0
        axes = [axis for axis in axes_of(case) if math.frexp(axis.scale)[0] != 0.5]
        switches = [x[(x > -1) & (x < axis.length)] + half for axis in axes for x in [axis.coordinates]]
        nearest = [np.min(np.abs(x - np.round(x)), initial=1.0) for x in switches]
        return case.attributes["interpolation_mode"] == "linear" or min(nearest, default=1.0) > MARGIN
    turned = rotated.Geometry(case)
    return all(is_clear(roi, turned.sampling, "drois" in case.outputs) for roi in turned.rois.tolist())


@pytest.mark.parametrize("family", ["roi_align_rotated", "dml_resample"])
def test_rounding_decides_neither_a_number_of_samples_nor_what_they_read(family: str) -> None:
    scenarios = re.compile(rf"{family}(_grad)?/matrix/(?!huge)")
    cases = [case for case in GENERATED if scenarios.match(case.id) and case.element_type in ("float", "double")]
    assert [case.id for case in cases if not are_clear(case)] == []
    assert len(cases) > 90


def test_pixels_that_no_sample_of_a_rotated_roi_reads_change_nothing() -> None:
    cases = [case for case in GENERATED if re.search("^roi_align_rotated.*_beside_the_samples/", case.id)]
    assert len(cases) == 4
    assert all(np.isfinite(y).all() for case in cases for y in expected_outputs(case).values())


def coordinates(placed: AxisGeometry, dtype: type) -> Iterator[NDArray[np.float64]]:
    """The coordinates of the samples near the map, as right implementations compute them in a type."""
    axis = placed.axis
    near = [(p, i) for p in range(axis.bins) for i in candidate_indices(axis, p)]
    p: Any
    i: Any
    p, i = np.array(near, dtype).reshape(-1, 2).T
    numbers = placed.first, placed.size, *placed.offsets, axis.bins, axis.per_bin, placed.steps
    first, size, before, after, bins, per_bin, steps = map(dtype, numbers)
    start, k = first - before, p * per_bin + i - after
    t = k / steps
    forms = [
        start + size * t,
        start + k * (size / steps),
        start + k * size / steps,
        start * (1 - t) + (start + size) * t,
    ]
    if placed.steps == placed.samples:
        forms.append(start + p * (size / bins) + (i - after) * (size / bins / per_bin))
    yield from (form.astype(np.float64) for form in forms)


def read_at(c: NDArray[np.float64], length: int, sampling: Sampling, has_slopes: bool) -> NDArray[np.float64]:
    """What decides what samples at these coordinates read: whether they are on the map, and their cells if these matter."""
    is_inside = (c >= -1) & (c <= length) if sampling.coordinates else (c > -1) & (c <= length)
    clamped = np.clip(c, 0, length - 1)
    cells = np.floor(clamped) + np.sign(c - clamped) / 2 if has_slopes else np.zeros(c.shape)
    cells = np.floor(np.clip(c + 0.5, 0, length - 1)) if sampling.nearest else cells
    return np.where(is_inside, cells, -2.0)


def test_no_order_of_operations_moves_a_sample_over_a_border_or_a_pixel() -> None:
    met = set()
    for case in CASES:
        is_upright = case.definition.family in ("roi_align", "dml_roi_align") and case.element_type in (
            "float",
            "double",
        )
        if not is_upright or case.expects_error or case.formula is not None:
            continue
        geometry, has_slopes = Geometry(case), not {"drois", "OutputROIGradientTensor"}.isdisjoint(case.outputs)
        types = (np.float64, np.float32) if case.element_type == "float" else (np.float64,)
        for roi in geometry.rois.tolist():
            key = *roi, geometry.sampling, has_slopes, types
            for placed in geometry.sampling.place(roi) if key not in met else ():
                forms = [c for dtype in types for c in coordinates(placed, dtype)] if placed.steps else []
                read = {read_at(c, placed.axis.length, geometry.sampling, has_slopes).tobytes() for c in forms}
                assert len(read) <= 1, case.id
            met.add(key)
    assert len(met) > 5000


@pytest.mark.parametrize("family", ["roi_align", "dml_roi_align"])
def test_no_maximum_is_won_by_a_rounding(family: str) -> None:
    for case in GENERATED:
        # Samples of a RoI without extent are at one place in any arithmetic, so their ties are exact.
        if (
            case.id.startswith(f"{family}_grad/matrix")
            and case.element_type == "float"
            and "/no_extent/" not in case.id
        ):
            for lead, effects_agree in runners_up(case) if Geometry(case).sampling.mode != "avg" else ():
                assert lead > LEAD or effects_agree, case.id


def runners_up(case: Case) -> Iterator[tuple[float, bool]]:
    """How far the winner of each output leads every other candidate, and whether that would pass the same gradient."""
    geometry = Geometry(case)
    assert geometry.x is not None
    for roi, n in zip(geometry.rois.tolist(), geometry.indices.tolist(), strict=True):
        axes = [placed.axis for placed in geometry.sampling.place(roi)]
        for bin_ in bins_of(*axes):
            for channel in geometry.x[n].tolist():
                candidates = candidates_of(geometry.sampling.mode, bin_, channel, 0.0)
                ordered = sorted(candidates, key=lambda candidate: -candidate.value)[:8]
                effects = [effect(candidate, channel, bin_, axes) for candidate in ordered]
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


def test_literal_numbers_are_exact_in_their_types() -> None:
    # ONNX's own are decimal numbers that every type rounds: `input_error` allows for that.
    exact_cases = [case for case in printed.cases() if "/official/" not in case.id]
    doubles = {case.id.rpartition("/")[0]: case for case in exact_cases if case.element_type == "double"}
    for case in exact_cases:
        for name, array in case.inputs.items():
            exact = doubles[case.id.rpartition("/")[0]].inputs[name]
            np.testing.assert_array_equal(array.astype(np.float64), exact, err_msg=f"{case.id} {name}")


def test_files_of_vectors_have_no_misspelt_entry() -> None:
    files = [file for family in families() for file in family.vectors]
    assert len(files) >= 13
    for file in files:
        data = json.loads(file.read_text("utf-8"))
        assert set(data) - {"basis"} == {"function", "family", "source", "attributes", "arrays", "cases"}, file
        for entry in data["cases"]:
            assert set(entry) >= REQUIRED, entry["fact"]
            assert set(entry) <= REQUIRED | OPTIONAL, entry["fact"]


# What is frozen in the package: ONNX's own vectors, and the list of cases.


FLOATS = {case.id: case for case in collect() if case.group == "roi_align/official" and case.element_type == "float"}


def installed() -> dict[str, Any]:
    """RoiAlign's vectors of the installed onnx, by name. Importing one file of vectors runs that file alone."""
    module = importlib.import_module("onnx.backend.test.case.node.roialign")
    names = {name.replace("export", "test", 1) for name in vars(module.RoiAlign)}  # documents add others
    return {vector.name: vector for vector in node._NodeTestCases if vector.name in names}  # noqa: SLF001


@pytest.mark.parametrize("case", [case for case in FLOATS.values() if case.version == 16], ids=lambda case: case.id)
def test_the_frozen_vectors_are_those_of_the_installed_onnx(case: Case) -> None:
    assert set(installed()) == {official.source.section for official in FLOATS.values()}, "official.json lacks a vector"
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


def test_the_cases_are_those_of_this_release() -> None:
    changes = frozen.changes(frozen.digests_of(collect()))
    assert not changes, "\n".join([*changes, "If that is meant: a line in CHANGELOG.md, and `make frozen`"])


def test_what_a_runtime_sees_of_a_case_is_in_its_digest_and_words_are_not() -> None:
    case = next(case for case in collect() if case.twin)
    assert case.twin is not None
    twin = replace(case.twin, inputs={name: array + 1 for name, array in case.inputs.items()})
    changed = [replace(case, basis=Basis.TEXT), replace(case, attributes={}), replace(case, twin=twin)]
    assert len({frozen.digests_of([each])[case.id] for each in (case, *changed)}) == 4
    assert frozen.digests_of([replace(case, note="other words")]) == frozen.digests_of([case])

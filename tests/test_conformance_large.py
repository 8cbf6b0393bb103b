# SPDX-License-Identifier: MIT
"""Cases whose tensors a formula computes: true, cheap to collect and to send, and strict at the seams of large problems."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import conformance.run
import seams
from conformance import backends, compare
from conformance.backends import Backend, Session
from conformance.case import Array, Case
from conformance.cases import collect
from conformance.cases.large import scenarios
from conformance.cases.large.by_role import ByRole
from conformance.cases.large.planes import Planes
from conformance.cases.large.repetitions import Repetitions
from conformance.cases.large.windows import Windows
from conformance.compare import allowed_errors
from conformance.expected_values import reference, with_conventions
from conformance.families import error_terms
from conformance.formula import Computed
from conformance.model import build
from conformance.outcome import Outcome
from conformance.run import ask, judge
from ortops.operators import OPERATORS

LARGE = [case for case in collect() if case.formula is not None]
BY_ID = {case.id: case for case in LARGE}

SHAPE, COUNT, BINS = (2, 3, 40, 50), 60, (2, 3)
AVERAGES, MAXIMA = ((1, 1), (2, 3), (4, 2)), ((2, 2), (1, 2))


def formulas() -> Iterator[ByRole]:
    """Small problems of every form."""
    for operator, mode, wanted in (
        ("RoiAlign_10", "avg", ("y",)),
        ("RoiAlign_16", "avg", ("y",)),
        ("RoiAlign_22", "max", ("y",)),
        ("RoiAlign_22", "max_interpolated", ("y",)),
        ("RoiAlignGrad", "avg", ("dx", "drois")),
        ("RoiAlignGrad", "max", ("dx",)),
        ("RoiAlignGrad", "max_interpolated", ("dx",)),
        ("DmlRoiAlign", "avg", ("y",)),
        ("DmlRoiAlign", "max_interpolated", ("y",)),
        ("DmlRoiAlignGrad", "avg", ("dx", "drois")),
        ("DmlRoiAlignGrad", "max_interpolated", ("dx",)),
        ("RoIAlignRotated", "avg", ("y",)),
        ("RoIAlignRotatedGrad", "avg", ("dx", "drois")),
        ("MaxRoiPool_1", "pixels", ("y",)),
        ("MaxRoiPool_22", "pixels", ("y",)),
        ("MaxRoiPoolGrad", "pixels", ("dx",)),
    ):
        for coordinates in ("half_pixel", "output_half_pixel"):
            if operator == "RoiAlign_10" and coordinates == "half_pixel":
                continue
            samples = AVERAGES if mode in ("avg", "pixels") else MAXIMA
            one_in = 2 if "drois" in wanted else 1
            yield Windows(
                operator, "double", wanted, SHAPE, COUNT, BINS, samples, mode, coordinates, 0.25, 0, one_in
            )  # fmt: skip
    for operator in ("RoiAlign_16", "DmlRoiAlign", "RoIAlignRotated"):
        for coordinates in ("half_pixel", "output_half_pixel"):
            yield Planes(operator, "double", ("y",), SHAPE, COUNT, BINS, coordinates, 0.25)
    for operator, role in (("DmlResample", "y"), ("DmlResampleGrad", "dx")):
        for scales in ((1.0, 1.0, 2.0, 2.0), (1.0, 1.0, 0.5, 0.5), (1.0, 2.0, 2.0, 1.0)):
            yield Repetitions(operator, "double", (role,), (2, 4, 10, 14), scales)


FORMULAS = list(formulas())
OF_BFLOAT16 = [
    replace(formula, element_type="bfloat16", scale=1.0)
    for formula in FORMULAS
    if isinstance(formula, Windows) and formula.operator in ("RoiAlign_22", "RoiAlignGrad", "RoIAlignRotated")
]


def named(formula: ByRole) -> str:
    """The name of a test's parameter."""
    return "-".join(map(str, (formula.operator, *formula.attributes.values(), *formula.wanted)))


def case_of(formula: ByRole) -> Case:
    """A case whose inputs and expected outputs the formula computes."""
    return replace(
        LARGE[0],
        id="of/a/test",
        operator=formula.operator,
        attributes=formula.attributes,
        inputs=Computed(formula),
        outputs=tuple(formula.outputs),
        expected=Computed(formula, are_inputs=False),
    )


def computed(case: Case) -> Case:
    """The case with arrays instead of a formula."""
    return replace(case, inputs=dict(case.inputs), expected={**(case.expected or {})})


@pytest.mark.parametrize("formula", [*FORMULAS, *OF_BFLOAT16], ids=named)
def test_the_reference_agrees_with_the_closed_forms(formula: ByRole) -> None:
    case = computed(case_of(formula))
    assert {name: (a.dtype, a.shape) for name, a in case.inputs.items()} == dict(formula.inputs)
    exact = reference(case.definition, case.attributes, case.inputs, case.outputs)
    assert case.expected is not None
    for name, due in exact.items():
        np.testing.assert_allclose(case.expected[name], due, rtol=1e-6, atol=1e-6)
        assert np.ptp(due) > 1  # a closed form of zeros would agree, too


@pytest.mark.parametrize("formula", [replace(formula, element_type="float") for formula in FORMULAS], ids=named)
def test_one_bound_for_all_elements_is_above_each_of_them_and_far_below_their_spread(formula: ByRole) -> None:
    case = case_of(formula)
    of_each, of_all = allowed_errors(computed(case)), allowed_errors(case)
    for name in case.outputs:
        values = Computed(formula, are_inputs=False)[name]
        assert np.std(values[values != 0]) > 20 * of_all[name].max()
        # In general a maximum may be passed anywhere in its RoI. Here all weights of a winner are known.
        is_maximum = any(str(value).startswith("max") for value in case.attributes.values())
        if not is_maximum or name not in ("dX", "OutputGradientTensor"):
            assert np.all(of_all[name] >= of_each[name])


def test_each_operator_has_sizes_of_users_in_each_of_its_types() -> None:
    own = [case for case in LARGE if case.definition in OPERATORS]
    covered = {(case.operator, case.element_type) for case in own if "/users/" in case.id}
    types = {(operator.name, kind) for operator in OPERATORS for kind in operator.element_types(operator.outputs[0])}
    # Several pixels of a bin may be equally large in bfloat16.
    assert covered == types - {("MaxRoiPoolGrad", "bfloat16")}


def test_each_function_has_a_tensor_of_more_elements_than_24_bits_count() -> None:
    large = [case for case in LARGE if "17_million" in case.id]
    tensors = {case.id: {**case.types, **case.expected.types} for case in large if isinstance(case.expected, Computed)}
    assert {max(math.prod(tensor.shape) for tensor in types.values()) > 2**24 for types in tensors.values()} == {True}
    assert {case.definition.function for case in large} == {operator.function for operator in OPERATORS}


def test_collecting_sending_and_building_large_cases_computes_no_large_array(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"x_shape"}  # the model of a gradient has the lengths of the map

    def tensor(self: ByRole, name: str) -> Array:
        assert name in small, f"{name} is computed"
        return np.array(self.x_shape)  # type: ignore[attr-defined]

    for kind in (Windows, Planes, Repetitions):
        monkeypatch.setattr(kind, "tensor", tensor)
    for case in scenarios.cases():
        build(case, "ortops")
        sent = pickle.dumps(case)
        assert len(sent) < 10_000
        assert pickle.loads(sent).formula == case.formula  # noqa: S301  # of this very process
        assert case.nbytes > 0


def test_a_wrong_element_of_a_large_output_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PART", 100)
    case = case_of(replace(FORMULAS[0], element_type="float"))
    assert case.expected is not None
    right = np.asarray(case.expected["Y"], np.float32)
    for at in ((0, 0, 0, 0), (17, 2, 1, 1), (59, 2, 1, 2)):
        wrong = right.copy()
        wrong[at] += 1
        fits, worst = compare.compare(case, {"Y": wrong})
        assert (fits, worst and worst.index) == (False, at)
    assert compare.compare(case, {"Y": right})[0]


def test_a_convention_changes_what_a_formula_expects() -> None:
    case = next(case for case in LARGE if "/max/half_pixel/" in case.id and not case.definition.is_gradient)
    small = case_of(case.formula.smaller())  # type: ignore[union-attr, arg-type]
    judged = with_conventions(small, ["max_interpolated"])
    due = reference(judged.definition, judged.attributes, dict(judged.inputs), judged.outputs)["Y"]
    assert judged.expected is not None
    assert small.expected is not None
    np.testing.assert_allclose(judged.expected["Y"], due, atol=1e-6)
    assert np.any(small.expected["Y"] != judged.expected["Y"])
    assert error_terms(judged)["Y"].coordinate_error > error_terms(small)["Y"].coordinate_error


@pytest.mark.parametrize("name", seams.SEAMS)
def test_a_mistake_at_a_seam_of_large_problems_fails_a_case_that_is_right_without_it(name: str) -> None:
    case = BY_ID[seams.SEAMS[name].case_id]
    assert judge(case, ask(backends.load("ortops"), case)).outcome is Outcome.PASSED
    assert judge(case, ask(seams.Spoilt(name), case)).outcome is Outcome.FAILED


class Slow(Backend):
    """A backend whose calls take time by a clock of its own.

    each: for each RoI and channel.
    call: for each call.
    first: for the first call of each session.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, each: float, call: float = 0.0, first: float = 0.0) -> None:
        self.now, self.each, self.call, self.first = 0.0, each, call, first
        self.asked: list[int] = []
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr(conformance.run, "time", clock)

    def prepare(self, _case: Case) -> Session:
        """See `Backend`."""
        calls: list[int] = []

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            self.now += self.each * len(inputs["rois"]) * inputs["X"].shape[1] + self.call + (not calls) * self.first
            calls.append(len(inputs["rois"]))
            self.asked.append(len(inputs["rois"]))
            return {}

        return run


TIMED = "roi_align/users/images_8/v16/avg/output_half_pixel/float"
"""400 RoIs of 64 channels. A hundredth of it has 40 of 6, a ten-thousandth 4 of 1, and the least part 1 of 1."""


@pytest.mark.parametrize(
    ("seconds", "text", "asked"),
    [
        # A loop in Python: a hundredth would take as long as a case may.
        ({"each": 0.5}, "would take about 10000 s, judging by a ten-thousandth of it", [4] * 3 + [1] * 3),
        ({"each": 0.003}, "would take about 80 s, judging by a hundredth of it", [4] * 3 + [40] * 3),
        # A program that starts anew for each call.
        (
            *({"each": 0.003, "call": 0.5}, "would take about 100 s, judging by a hundredth of it"),
            [4] * 3 + [1] * 3 + [40] * 3,
        ),
        # One that compiles, and one that starts slowly.
        ({"each": 1e-4, "first": 20.0}, "", [4] * 3),
        ({"each": 1e-4, "call": 0.01}, "", [4] * 3 + [40] * 3),
    ],
)
def test_a_runtime_that_would_need_minutes_is_told_so_and_asked_for_parts_only(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], text: str, asked: list[int]
) -> None:
    backend = Slow(monkeypatch, **seconds)
    answer = ask(backend, BY_ID[TIMED], time_limit=60.0)
    assert (answer.kind, answer.text) == ("unsupported" if text else "outputs", text)
    assert backend.asked[: len(asked) + 1] == asked + ([] if text else [400])


@pytest.mark.parametrize(
    ("case_id", "calls"),
    [
        ("roi_align/users/after_other_sizes/v16/avg/half_pixel/float", 3),
        ("roi_align_rotated/users/images_8/float16", 2),
    ],
)
def test_all_calls_of_a_large_case_have_to_fit_into_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, case_id: str, calls: int
) -> None:
    case = BY_ID[case_id]
    backend = Slow(monkeypatch, each=1e-4)
    assert ask(backend, case).kind == "outputs"
    assert len(backend.asked) == calls  # some come before the compared one, or repeat it
    limits = [share * backend.now for share in (3.0, 1.5)]
    kinds = [ask(Slow(monkeypatch, each=1e-4), case, limit).kind for limit in limits]
    assert kinds == ["outputs", "unsupported"]


def test_a_tensor_that_several_types_and_opsets_share_is_that_of_each() -> None:
    for case in LARGE:
        assert case.formula is not None
        formula = case.formula.smaller().smaller()
        for name, (dtype, _) in formula.inputs.items():
            np.testing.assert_array_equal(formula.in_float.tensor(name).astype(dtype), formula.tensor(name), case.id)
        for name in formula.outputs:
            np.testing.assert_array_equal(formula.in_float.tensor(name), formula.tensor(name), case.id)

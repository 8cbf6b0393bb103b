"""What the suite holds a runtime to: whose rule each case is, proven refusals, calls of one session, conventions."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from conformance import backends, expected_failures
from conformance.backends.external import FunctionBackend, OnnxBackend
from conformance.case import Array, Basis, Case
from conformance.conventions import CONVENTIONS, check
from conformance.expected_failures import find
from conformance.model import build
from conformance.outcome import Outcome
from conformance.run import CaseRunner, ask
from conformance.vectors import collect
from ortops.operators import BY_NAME
from ortops.reference import evaluate
from suite_runs import run

CASES = collect()
ROI_ALIGN = [case for case in CASES if case.definition.function == "roi_align" and case.element_type == "float"]

SOME = [case for i, case in enumerate(ROI_ALIGN) if case.group == "roi_align/session" or i % 20 == 0]


def outcomes(backend: backends.Backend, cases: Sequence[Case], conventions: Sequence[str] = ()) -> dict[str, Outcome]:
    runner = CaseRunner(functools.partial(ask, backend), conventions=conventions)
    return {result.case.id: result.outcome for result in map(runner.result, cases)}


def evaluated(op_type: str, inputs: Mapping[str, Array | None], attributes: Mapping[str, Any], *_: object) -> Array:
    """RoiAlign by the reference, at the opset that its attributes mean."""
    if op_type != "RoiAlign":
        raise NotImplementedError(op_type)
    (y,) = evaluate(BY_NAME["RoiAlign_22"], list(inputs.values()), attributes, (True,))
    assert y is not None
    assert inputs["X"] is not None
    return y.astype(inputs["X"].dtype)


def test_a_model_passes_the_checker_and_holds_what_the_case_gives() -> None:
    kinds = {
        (case.operator, case.group, case.element_type, case.expects_error, case.named_axes): case for case in CASES
    }
    for case in list(kinds.values())[::2]:
        for dialect in ("standard", "ortops"):
            model = build(case, dialect)
            onnx.checker.check_model(model, full_check=case.expects_error is None)
        (node,) = model.graph.node
        assert (node.op_type, node.domain) == (case.operator, "ai.onnx.contrib")
        assert {attribute.name for attribute in node.attribute} == {n for n, v in case.attributes.items() if v != ()}
        assert {name for name in node.input if name} == set(case.inputs)
        assert [name for name in node.output if name] == list(case.outputs)


def test_a_refusal_alone_has_a_valid_twin_of_the_same_node() -> None:
    for case in CASES:
        assert (case.twin is not None) == (case.expects_error is not None), case.id
        if case.twin is not None:
            twin = case.twin
            assert (twin.expects_error, twin.operator, twin.outputs) == (None, case.operator, case.outputs)
            assert {(name, 0) for name in case.outputs} <= twin.named_axes  # as in the case's own model


def test_what_is_said_to_be_the_rule_of_onnx_evaluator_is_not_listed_as_its_failure() -> None:
    _, known = expected_failures.load("onnx-reference")
    cases = [case for case in ROI_ALIGN if case.version >= 16 and case.basis in (Basis.VECTORS, Basis.REFERENCE)]
    listed = {case.id for case in cases if find(known, case.id)}
    assert listed == {case.id for case in cases if "huge" in case.id and "ratio_2" not in case.id}  # many samples
    evaluator = backends.load("onnx-reference")
    asked = [case for case in cases if case.id not in listed][::9]
    assert {case.basis for case in asked} == {Basis.VECTORS, Basis.REFERENCE}
    assert set(outcomes(evaluator, asked).values()) == {Outcome.PASSED}


class OverOnnxruntime:
    """A backend class over `onnxruntime.backend`, as a runtime's maintainer would write it."""

    @staticmethod
    def is_compatible(model: onnx.ModelProto, device: str = "CPU") -> bool:
        (node,) = model.graph.node
        return device == "CPU" and not node.domain and model.opset_import[0].version < 22

    @staticmethod
    def prepare(model: onnx.ModelProto, device: str) -> Any:
        import onnxruntime.backend

        return onnxruntime.backend.prepare(model, device)


def test_a_backend_class_over_onnxruntime_gets_what_the_adapter_gets() -> None:
    cases = [case for case in ROI_ALIGN if case.version < 22 and "huge" not in case.id][::11]
    adapter, over = outcomes(backends.load("onnxruntime"), cases), outcomes(OnnxBackend(OverOnnxruntime), cases)
    assert {name for name, outcome in adapter.items() if over[name] is not outcome} == set()
    assert Counter(over.values())[Outcome.PASSED] > 30


def always_raises(*_: object) -> Array:
    raise ValueError("no")


def writes_to_its_inputs(op_type: str, inputs: Mapping[str, Array | None], attributes: Any, *_: object) -> Array:
    y = evaluated(op_type, inputs, attributes)
    for array in inputs.values():
        if array is not None:
            array[...] = 0
    return np.array(y)


class ZerosTheSecondTime(backends.Backend):
    """A session that answers zeros from its second call on."""

    def prepare(self, case: Case) -> backends.Session:
        calls: list[None] = []
        right = backends.load("reference").prepare(case)

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            calls.append(None)
            return {name: y * (len(calls) == 1) for name, y in right(inputs).items()}

        return run


def test_a_backend_that_always_raises_refuses_nothing() -> None:
    found = outcomes(FunctionBackend(always_raises), SOME)
    assert found == {case.id: Outcome.UNSUPPORTED if case.expects_error else Outcome.FAILED for case in SOME}


def test_a_backend_that_writes_to_its_inputs_fails_every_case_that_it_answers() -> None:
    found = outcomes(FunctionBackend(writes_to_its_inputs), SOME)
    of_the_same_values = {case.id for case in SOME if all(not array.any() for array in case.inputs.values())}
    answered = {case.id for case in SOME if case.expects_error is None} - of_the_same_values
    assert {name for name in answered if found[name] is not Outcome.FAILED} == set()


def test_a_backend_that_answers_zeros_the_second_time_fails() -> None:
    found = outcomes(ZerosTheSecondTime(), SOME)
    failed = {name for name, outcome in found.items() if outcome is Outcome.FAILED}
    assert {name.split("/")[2] for name in failed} >= {"after_smaller", "after_larger", "again"}
    assert {name.split("/")[1] for name in failed} == {"session"}


@pytest.mark.parametrize(("strict", "status"), [("vectors", 0), ("reference", 1), ("all", 1)])
@pytest.mark.usefixtures("no_processes")
def test_strictness_decides_what_a_failure_is(strict: str, status: int) -> None:
    outside = "roi_align/edge/all_outside/v16/float"
    result = run("--backend", f"{__name__}:replicates_edges", "--select", outside, "--strict", strict)
    assert result.exit_code == status
    assert ("1 departed" in result.output) == (status == 0)


def replicates_edges(_op_type: str, inputs: Mapping[str, Array], *_: object) -> Array:
    return np.full((len(inputs["rois"]), inputs["X"].shape[1], 1, 1), 99, inputs["X"].dtype)


def reads_max_by_interpolation(op_type: str, inputs: Any, attributes: Mapping[str, Any], *_: object) -> Array:
    mode = {"max": "max_interpolated"}.get(attributes["mode"], attributes["mode"])
    return evaluated(op_type, inputs, {**attributes, "mode": mode})


def test_a_runtime_that_reads_max_by_interpolation_is_judged_by_that() -> None:
    groups = ("roi_align/edge", "roi_align/matrix", "roi_align/refusal")
    cases = [case for case in ROI_ALIGN if case.group in groups and case.version == 16][::2]
    backend = FunctionBackend(reads_max_by_interpolation)
    failed = {name for name, outcome in outcomes(backend, cases).items() if outcome is not Outcome.PASSED}
    assert len(failed) > 10
    assert set(outcomes(backend, cases, ["max_interpolated"]).values()) == {Outcome.PASSED}
    right = outcomes(FunctionBackend(evaluated), cases, ["max_interpolated"])
    assert {name for name, outcome in right.items() if outcome is not Outcome.PASSED} >= {
        name for name in failed if "/max/" in name and "/matrix/" in name
    }


def computes_in_float16(op_type: str, inputs: Any, attributes: Any, outputs: Any) -> Array:
    """Sums of samples in float16, one after another; RoIs without rounding."""
    y = evaluated(op_type, inputs, attributes, outputs)
    if y.dtype != np.float16 or not y.size:
        return y
    return np.asarray(y * np.float16(1 + 2**-10))


def test_a_runtime_that_computes_float16_in_float16_is_judged_by_that() -> None:
    names = ("overlapping", "images_and_channels", "scale_1_16")
    cases = [c for c in CASES if c.id.startswith("roi_align/matrix/") and c.id.endswith("/avg/half_pixel/float16")]
    cases = [case for case in cases if case.id.split("/")[2] in names]
    backend = FunctionBackend(computes_in_float16)
    assert Outcome.FAILED in set(outcomes(backend, cases).values())
    assert set(outcomes(backend, cases, ["float16_arithmetic"]).values()) == {Outcome.PASSED}


def test_a_convention_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match=f"'max_of_corners': must be one of {', '.join(CONVENTIONS)}"):
        check(["max_of_corners"])

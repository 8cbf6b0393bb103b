"""Exported cases are read and judged by ONNX's own runner, and nothing that the suite takes is refused there."""

from __future__ import annotations

import json
import unittest
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from onnx import numpy_helper
from onnx.backend.base import Backend
from onnx.backend.test import runner as onnx_runner
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

import ortops
from conformance import backends, expected_failures, export
from conformance.__main__ import main
from conformance.backends import session
from conformance.bounds.growth import least
from conformance.case import Array, Case
from conformance.compare import allowed_errors, compare
from conformance.expect import expected_outputs
from conformance.vectors import collect

BY_ID = {case.id: case for case in collect()}
EXPORTABLE = [case for case in collect() if not case.expects_error]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", *arguments])


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


class Prepared:
    """What a backend's `prepare` returns; `factor` makes its answers wrong."""

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = factor

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return [(y * self._factor).astype(y.dtype) if self._factor != 1.0 else y for y in self._answer(inputs)]

    def _answer(self, inputs: Sequence[Array]) -> list[Array]:
        raise NotImplementedError


class PreparedEvaluator(Prepared):
    def __init__(self, model: onnx.ModelProto, factor: float = 1.0) -> None:
        super().__init__(factor)
        self._model = model

    def _answer(self, inputs: Sequence[Array]) -> list[Array]:
        names = [value.name for value in self._model.graph.input]
        outputs = ReferenceEvaluator(self._model).run(None, dict(zip(names, inputs, strict=True)))
        return [np.asarray(output) for output in outputs]


class PreparedSession(Prepared):
    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self._session = ortops.InferenceSession(model.SerializeToString(), session.options())

    def _answer(self, inputs: Sequence[Array]) -> list[Array]:
        names = [value.name for value in self._session.get_inputs()]
        feeds = {name: session.to_ort(array) for name, array in zip(names, inputs, strict=True)}
        outputs = [value.name for value in self._session.get_outputs()]
        values = self._session.run_with_ort_values(outputs, feeds, onnxruntime.RunOptions())
        return [session.from_ort(value) for value in values]


class OnCpu(Backend):
    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class Evaluator(OnCpu):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Any:
        assert device == "CPU"
        return PreparedEvaluator(model)


class WrongEvaluator(OnCpu):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Any:
        assert device == "CPU"
        return PreparedEvaluator(model, factor=1.03)


class OurOperators(OnCpu):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Any:
        assert device == "CPU"
        return PreparedSession(model)


@pytest.fixture
def _own_tests_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The runner without the hundreds of tests that onnx brings, which it makes when it is constructed."""
    monkeypatch.setattr(onnx_runner, "load_model_tests", lambda **_: [])
    with warnings.catch_warnings():
        # What a backend of onnx's warns of is no failure of the export.
        warnings.simplefilter("ignore")
        yield


def judged_by_onnx(backend: type[Backend], folder: Path, kind: str, *, but: Sequence[str] = ()) -> unittest.TestResult:
    """What ONNX's runner makes of the tests in folder/kind, those named in `but` left out."""
    runner = onnx_runner.Runner(backend, __name__)
    for test in load_model_tests(str(folder), kind):
        if test.name not in but:
            runner._add_model_test(test, "Ortops")  # noqa: SLF001  # there is no other way to give it a folder
    result = unittest.TestResult()
    cases = runner.test_cases["OnnxBackendOrtopsModelTest"]
    unittest.defaultTestLoader.loadTestsFromTestCase(cases).run(result)
    return result


def ran(result: unittest.TestResult) -> int:
    return result.testsRun - len(result.skipped)


@pytest.mark.usefixtures("_own_tests_only")
@pytest.mark.parametrize("glob", ["roi_align/edge/*/v16/*", "roi_align/official/*", "roi_align/matrix/*/v22/bfloat16"])
def test_onnx_runner_passes_its_evaluator_where_it_is_right(tmp_path: Path, glob: str) -> None:
    assert run(str(tmp_path), "--select", glob).exit_code == 0
    _, known = expected_failures.load("onnx-reference")
    wrong = [export.folder_name(case) for case in EXPORTABLE if expected_failures.find(known, case.id)]
    result = judged_by_onnx(Evaluator, tmp_path, "standard", but=wrong)
    assert not (result.failures + result.errors)
    assert ran(result) == len({folder.name for folder in (tmp_path / "standard").iterdir()} - set(wrong)) > 0


@pytest.mark.usefixtures("_own_tests_only")
def test_onnx_runner_fails_wrong_answers(tmp_path: Path) -> None:
    assert run(str(tmp_path), "--select", "roi_align/edge/half_pixel_inside/v22/*").exit_code == 0
    result = judged_by_onnx(WrongEvaluator, tmp_path, "standard")
    assert len(result.failures) == ran(result) == 4


@pytest.mark.usefixtures("_own_tests_only")
@pytest.mark.parametrize("glob", ["roi_align_grad/edge/*", "roi_align/edge/max_*", "dml_*/edge/*nf*", "*/empty/*"])
def test_onnx_runner_passes_our_operators(tmp_path: Path, glob: str) -> None:
    backends.load("ortops")
    assert run(str(tmp_path), "--select", glob, "--dialect", "ortops").exit_code == 0
    result = judged_by_onnx(OurOperators, tmp_path, "ortops")
    assert not (result.failures + result.errors)
    assert ran(result) == len(list((tmp_path / "ortops").iterdir())) > 0


def test_layout(tmp_path: Path) -> None:
    case = BY_ID["roi_align/edge/half_pixel_inside/v22/float16"]
    result = run(str(tmp_path / "a" / "b"), "--select", case.id)
    folder = tmp_path / "a" / "b" / "standard" / "test_roi_align_edge_half_pixel_inside_v22_float16"
    assert (result.exit_code, result.output) == (0, f"1 cases written to {folder.parent}\n")
    tensors = [f"test_data_set_0/{name}.pb" for name in ("input_0", "input_1", "input_2", "output_0")]
    assert sorted(files_of(folder)) == ["config.txt", "data.json", "model.onnx", *tensors]
    scalars = json.loads((folder / "data.json").read_text("utf-8"))
    assert scalars == export.tolerances(case)._asdict()
    lines = (folder / "config.txt").read_text("utf-8").splitlines()
    config = {key: float(value) for key, value in (line.split(":") for line in lines)}
    assert config == {
        "per_sample_tolerance": scalars["atol"],
        "relative_per_sample_tolerance": scalars["rtol"],
    }


@pytest.mark.parametrize("element_type", ["float16", "bfloat16", "float", "double"])
def test_tensors_have_the_types_and_names_of_the_model(tmp_path: Path, element_type: str) -> None:
    case = BY_ID[f"roi_align/official/mode_max/v22/{element_type}"]
    folder = export.write(case, tmp_path, "standard")
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.node[0].domain == ""
    values = {"input": model.graph.input, "output": model.graph.output}
    arrays: dict[str, Array] = {}
    for role, infos in values.items():
        for i, info in enumerate(infos):
            tensor = onnx.load_tensor(folder / export.DATA_SET / f"{role}_{i}.pb")
            assert (tensor.name, tensor.data_type) == (info.name, info.type.tensor_type.elem_type)
            arrays[tensor.name] = numpy_helper.to_array(tensor)
    for name, array in case.inputs.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].tobytes() == array.tobytes()
    assert arrays["Y"].dtype == case.dtype
    rounded = expected_outputs(case)["Y"].astype(case.dtype)
    assert arrays["Y"].tobytes() == rounded.tobytes()


def test_the_custom_operator_is_of_its_domain(tmp_path: Path) -> None:
    case = BY_ID["roi_align/official/mode_max/v22/float"]
    (node,) = onnx.load(export.write(case, tmp_path, "ortops") / "model.onnx").graph.node
    assert node.domain == "ai.onnx.contrib"


def test_a_tensor_that_the_case_leaves_out_has_no_file(tmp_path: Path) -> None:
    case = next(c for c in EXPORTABLE if len(c.outputs) < len(c.definition.outputs))
    folder = export.write(case, tmp_path, "ortops") / export.DATA_SET
    assert sorted(f.stem for f in folder.glob("output_*")) == [f"output_{i}" for i in range(len(case.outputs))]
    assert sorted(f.stem for f in folder.glob("input_*")) == [f"input_{i}" for i in range(len(case.inputs))]


def test_bytes_are_always_the_same_and_stale_tensors_go(tmp_path: Path) -> None:
    glob = "roi_align/edge/half_pixel_*"
    assert run(str(tmp_path / "one"), "--select", glob).exit_code == 0
    assert run(str(tmp_path / "two"), "--select", glob).exit_code == 0
    written = files_of(tmp_path / "one")
    assert files_of(tmp_path / "two") == written
    for data in (tmp_path / "two" / "standard").glob("*/" + export.DATA_SET):
        (data / "input_3.pb").write_bytes(b"of an older version")
        (data / "output_0.pb").write_bytes(b"of an older version")
    assert run(str(tmp_path / "two"), "--select", glob).exit_code == 0
    assert files_of(tmp_path / "two") == written


def test_folder_names_are_identifiers_and_all_differ() -> None:
    names = [export.folder_name(case) for case in collect()]
    assert all(name.isidentifier() and name.isascii() and name.startswith("test_") for name in names)
    # Some file systems do not tell upper case from lower.
    assert len({name.lower() for name in names}) == len(names)


def test_what_is_left_out_is_counted_with_its_reason(tmp_path: Path) -> None:
    selected = [case for case in collect() if case.id.endswith("_grad") or "/refusal/" in case.id or "/max_" in case.id]
    kept, left_out = export.divide(selected, "ortops")
    assert [case.id for case in kept] == [case.id for case in selected if not case.expects_error]
    assert left_out == {
        "an error is due, and the layout knows values only": sum(c.expects_error is not None for c in selected)
    }
    kept, left_out = export.divide(collect(), "standard")
    assert all(case.definition.standard and case.attributes.get("mode") != "max_interpolated" for case in kept)
    assert len(kept) + left_out.total() == len(collect())
    assert left_out["RoiAlignGrad is no operator of ONNX"] == sum(c.operator == "RoiAlignGrad" for c in EXPORTABLE)
    assert left_out["ONNX has no mode max_interpolated"] > 0
    result = run(str(tmp_path), "--select", "roi_align/*/mode_*")
    due = sum(case.expects_error is not None for case in collect() if case.id.startswith("roi_align/refusal/mode_"))
    assert result.output.splitlines()[-1] == f"{due} left out: an error is due, and the layout knows values only"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--select", "no/such/case"], "selects no case"),
        (["--select", "roi_align/refusal/mode_*"], "selects no case that can be exported"),
        (["--select", "dml_resample/empty/*"], "DmlResample is no operator of ONNX"),
        (["--dialect", "other"], "'other' is not one of"),
    ],
)
def test_a_wrong_call_is_status_2_and_writes_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(str(tmp_path / "new"), *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_status_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", "utf-8")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "standard").write_text("no folder", "utf-8")
    for folder in ("file", "file/below", "taken"):
        result = run(str(tmp_path / folder), "--select", "roi_align/edge/half_pixel_inside/*")
        assert result.exit_code == 2, folder
        assert "DIR" in result.output


@pytest.mark.parametrize("element_type", ["float16", "bfloat16", "float", "double"])
def test_scalars_are_no_stricter_than_the_suite_and_hardly_looser(element_type: str) -> None:
    for case in EXPORTABLE:
        if case.element_type == element_type:
            _check_scalars(case)


def _check_scalars(case: Case) -> None:
    rtol, atol = export.tolerances(case)
    most_needed, largest = 0.0, 0.0
    for name, rounded in export.rounded_outputs(case).items():
        is_finite = np.isfinite(expected_outputs(case)[name])
        exact, written = expected_outputs(case)[name][is_finite], rounded.astype(np.float64)[is_finite]
        needed = allowed_errors(case)[name][is_finite] + np.abs(written - exact)
        assert (needed <= atol + rtol * np.abs(written)).all(), case.id
        most_needed = max(most_needed, float(np.max(needed - rtol * np.abs(written), initial=0.0)))
        largest = max(largest, float(np.max(np.abs(written), initial=0.0)))
    slack = 4 * rtol * (most_needed + rtol * largest) + 4 * least(case.dtype) + float(np.finfo(np.float64).tiny)
    assert atol <= most_needed + slack, case.id


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_the_farthest_answers_that_the_suite_takes_pass_onnx_comparison(dtype: Any) -> None:
    """Compared as NumPy does it: in float16 where the tensors are."""
    tried = 0
    for case in EXPORTABLE[::7]:
        if case.dtype != np.dtype(dtype):
            continue
        for sign in (-1.0, 1.0):
            answers = _farthest(case, sign)
            if not compare(case, answers)[0]:
                continue
            outputs = export.rounded_outputs(case)
            names = list(outputs)
            onnx_runner.Runner.assert_similar_outputs(
                [outputs[name] for name in names],
                [answers[name] for name in names],
                *export.tolerances(case),
            )
            tried += 1
    assert tried > 20


def _farthest(case: Case, sign: float) -> dict[str, Array]:
    """Answers in the case's type as far from what is expected as the suite takes, on one side."""
    answers = {}
    for name, expected in expected_outputs(case).items():
        aim = np.asarray(expected + sign * allowed_errors(case)[name])
        with np.errstate(over="ignore", invalid="ignore"):
            answer = aim.astype(case.dtype)
            beyond = np.abs(answer.astype(np.float64) - expected) > allowed_errors(case)[name]
            answer[beyond] = expected.astype(case.dtype)[beyond]
        answers[name] = answer
    return answers

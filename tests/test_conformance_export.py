# SPDX-License-Identifier: MIT
"""The corpus says what the suite says, to ONNX's own runner and to readers of plain files."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import subprocess
import sys
import unittest
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.backend.test import runner as onnx_runner
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

import ortops
from conformance import backends, expected_failures, export, tensor_files
from conformance.backends import session
from conformance.backends.base import is_standard
from conformance.case import Array, Case
from conformance.cases import collect
from conformance.compare import allowed_errors, compare
from conformance.expected_values import expected_outputs
from conformance.families.upright.geometry import samples
from conformance.model import with_named_axes
from examples import read_corpus
from suite_runs import run, words

BY_ID = {case.id: case for case in collect()}
EXPORTABLE = [case for case in collect() if not case.expects_error and case.formula is None]
INSIDE = BY_ID["roi_align/edge/half_pixel_inside/v22/float"]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


class Evaluator:
    """ONNX's reference evaluator, as a backend."""

    factor = 1.0

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str) -> Any:
        assert device == "CPU"
        evaluator = ReferenceEvaluator(model)

        def answer(inputs: Sequence[Array]) -> list[Array]:
            names = [value.name for value in model.graph.input]
            outputs = map(np.asarray, evaluator.run(None, dict(zip(names, inputs, strict=True))))
            return [y if cls.factor == 1 else (y * cls.factor).astype(y.dtype) for y in outputs]

        return SimpleNamespace(run=answer)


class WrongEvaluator(Evaluator):
    factor = 1.03


class OurOperators:
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str) -> Any:
        assert device == "CPU"
        ours = ortops.InferenceSession(model.SerializeToString(), session.options())

        def answer(inputs: Sequence[Array]) -> list[Array]:
            feeds = {i.name: ortops.to_ort(array) for i, array in zip(ours.get_inputs(), inputs, strict=True)}
            names = [output.name for output in ours.get_outputs()]
            values = ours.run_with_ort_values(names, feeds, onnxruntime.RunOptions())
            return [ortops.from_ort(value) for value in values]

        return SimpleNamespace(run=answer)


def judged_by_onnx(folder: Path, backend: type) -> tuple[int, list[str], int]:
    """The number of cases that ONNX's own runner passes, the folders of those that it fails, the number of skipped ones."""
    kinds = [kind.name for kind in folder.iterdir() if kind.is_dir()]

    def load(*, kind: str) -> list[Any]:
        return [test for name in kinds for test in load_model_tests(str(folder), name)] if kind == "simple" else []

    target: Any = SimpleNamespace(supports_device="CPU".__eq__, is_compatible=lambda _: True, prepare=backend.prepare)  # type: ignore[attr-defined]
    verdicts = unittest.TestResult()
    # The runner takes no folder. It calls this function for the test data of each kind in the onnx package.
    with mock.patch.object(onnx_runner, "load_model_tests", load):
        cases = onnx_runner.Runner(target, __name__).test_cases
    for case in cases.values():
        names = unittest.defaultTestLoader.getTestCaseNames(case)
        unittest.TestSuite(case(name) for name in names if name.endswith("_cpu")).run(verdicts)
    failed = [test.id().rpartition(".")[2].removesuffix("_cpu") for test, _ in (*verdicts.failures, *verdicts.errors)]
    skipped = len(verdicts.skipped)
    return verdicts.testsRun - len(failed) - skipped, failed, skipped


@pytest.mark.parametrize(
    "glob", ["roi_align/edge/[a-h]*/v16/*", "roi_align/official/*", "grid_sample/[stv]*/*/v22/float"]
)
def test_onnx_runner_fails_its_evaluator_where_that_is_known_to_be_wrong(tmp_path: Path, glob: str) -> None:
    assert run("export", tmp_path, "--names", "onnx", "--select", glob).exit_code == 0
    _, known = expected_failures.load("onnx-reference")
    wrong = {export.folder_name(case, "onnx") for case in EXPORTABLE if expected_failures.find(known, case.id)}
    written = {folder.name for folder in (tmp_path / "standard").iterdir()}
    passed, failed, _ = judged_by_onnx(tmp_path, Evaluator)
    assert set(failed) <= wrong
    assert passed == len(written) - len(failed)
    assert len(written - wrong) > 10


def test_onnx_runner_fails_wrong_answers(tmp_path: Path) -> None:
    assert run("export", tmp_path, "--names onnx --select roi_align/edge/half_pixel_inside/v22/*").exit_code == 0
    assert judged_by_onnx(tmp_path, Evaluator) == (4, [], 0)
    passed, failed, _ = judged_by_onnx(tmp_path, WrongEvaluator)
    assert (passed, len(failed)) == (0, 4)


@pytest.mark.parametrize("glob", ["roi_align_grad/edge/max*/float", "*/empty/*/float"])
def test_onnx_runner_passes_our_operators(tmp_path: Path, glob: str) -> None:
    backends.load("ortops")
    assert run("export", tmp_path, "--select", glob).exit_code == 0
    count = len(list(tmp_path.glob("*/test_*")))
    assert count > 10
    assert judged_by_onnx(tmp_path, OurOperators) == (count, [], 0)


def test_calls_of_one_session_are_data_sets(tmp_path: Path) -> None:
    twice = {**INSIDE.inputs, "X": INSIDE.inputs["X"] * 2}
    longer = {**twice, "rois": np.tile(twice["rois"], (2, 1)), "batch_indices": np.tile(twice["batch_indices"], 2)}
    earlier = (replace(INSIDE, inputs=inputs, expected=None) for inputs in (twice, longer))
    case = replace(with_named_axes(INSIDE), before=tuple(earlier))
    folder = tmp_path / "standard" / export.folder_name(case)
    export.write(case, folder)
    ys = [onnx.load_tensor(folder / f"test_data_set_{i}" / "output_0.pb") for i in range(3)]
    once = numpy_helper.to_array(ys[2])
    np.testing.assert_array_equal(numpy_helper.to_array(ys[0]), once * 2)
    np.testing.assert_array_equal(numpy_helper.to_array(ys[1]), np.tile(once * 2, (2, 1, 1, 1)))
    assert judged_by_onnx(tmp_path, Evaluator) == (1, [], 0)
    # An answer that is right in the last call alone.
    (folder / "test_data_set_0" / "output_0.pb").write_bytes(ys[2].SerializeToString())
    assert len(judged_by_onnx(tmp_path, Evaluator)[1]) == 1
    # Written over by the same case with one call.
    export.write(INSIDE, folder)
    assert [data.name for data in folder.glob("test_data_set_*")] == ["test_data_set_0"]


def test_bytes_are_always_the_same_and_stale_tensors_go(tmp_path: Path) -> None:
    glob = "roi_align/edge/half_pixel_*"
    assert run("export", tmp_path / "one", "--select", glob).exit_code == 0
    assert run("export", tmp_path / "two", "--select", glob).exit_code == 0
    written = files_of(tmp_path / "one")
    assert files_of(tmp_path / "two") == written
    files = {Path(name).name: text for name, text in written.items() if f"{export.folder_name(INSIDE)}/" in name}
    inputs = [f"input_{i}.{ending}" for i in range(3) for ending in ("bin", "pb")]
    assert [*files] == [
        *("case.json", "config.txt", "data.json", "model.onnx"),
        *("due_0.bin", *inputs, "output_0.pb", "tensors.json"),
    ]
    scalars = json.loads(files["data.json"])
    assert scalars == export.tolerances(INSIDE)._asdict()
    config = dict(line.split(":") for line in files["config.txt"].decode().splitlines())
    expected = {"per_sample_tolerance": scalars["atol"], "relative_per_sample_tolerance": scalars["rtol"]}
    assert {key: float(value) for key, value in config.items()} == expected
    for data in (tmp_path / "two" / "standard").glob("*/test_data_set_0"):
        (data / "input_3.pb").write_bytes(b"of an older version")
        (data / "output_0.pb").write_bytes(b"of an older version")
    assert run("export", tmp_path / "two", "--select", glob).exit_code == 0
    assert files_of(tmp_path / "two") == written


@pytest.mark.parametrize("kind", ["id", "onnx"])
def test_folder_names_are_identifiers_and_all_differ(kind: export.Names) -> None:
    names = [export.folder_name(case, kind) for case in collect()]
    assert all(name.isidentifier() and name.isascii() and name.startswith("test_") for name in names)
    # Some file systems do not tell upper case from lower.
    assert len({name.lower() for name in names}) == len(names)


def test_what_is_left_out_is_counted_with_its_reason(tmp_path: Path) -> None:
    left_out = Counter(map(export.reason_left_out, collect()))
    count = sum(c.operator == "RoiAlignGrad" and not c.expects_error for c in collect())
    assert left_out["ONNX has no operator RoiAlignGrad"] == count
    assert left_out["ONNX has no mode max_interpolated"] > 0
    assert left_out["large inputs, which a formula computes"] == sum(
        case.formula is not None and is_standard(case) for case in collect()
    )
    result = run("export", tmp_path, "--names", "onnx", "--select", "roi_align/*/mode_*")
    due = sum(case.expects_error is not None for case in collect() if case.id.startswith("roi_align/refusal/mode_"))
    assert (
        result.output.splitlines()[-1] == f"{due} left out: the case expects an error, and the layout only has values"
    )


def test_cases_that_visit_too_many_samples_are_written_when_asked_for(tmp_path: Path) -> None:
    glob = "roi_align/edge/huge_ratio_2/v16/float", "roi_align/edge/half_pixel_huge_ratio_0/v16/float"
    few, many = (BY_ID[case_id] for case_id in glob)
    # Two by two in each of the bins, and a sample for each pixel of a square of 1e9 or 2^30.
    assert samples(few) == 4 * expected_outputs(few)["Y"].size
    assert samples(many) > 1e17
    assert not export.reason_left_out(few)
    result = run("export", tmp_path, "--names", "onnx", "--select", many.id)
    assert (result.exit_code, "more than 1000000 samples" in words(result)) == (2, True)
    assert run("export", tmp_path, "--select", many.id).exit_code == 0
    assert judged_by_onnx(tmp_path, OurOperators) == (1, [], 0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_the_farthest_answers_that_the_suite_takes_pass_onnx_comparison(dtype: Any) -> None:
    """Compared as NumPy does it: in float16 where the tensors are."""
    tried = 0
    for case in [case for case in EXPORTABLE if case.dtype == np.dtype(dtype)][::60]:
        for sign in (-1.0, 1.0):
            answers = farthest(case, sign)
            if compare(case, answers)[0]:
                outputs = export.rounded_outputs(case)
                written, given = ([arrays[name] for name in outputs] for arrays in (outputs, answers))
                onnx_runner.Runner.assert_similar_outputs(written, given, *export.tolerances(case))
                for name, expected in expected_outputs(case).items():
                    due = export.due_of(case.dtype, expected)
                    bound = export.bound_of(case.dtype, expected, allowed_errors(case)[name], due)
                    # Where nothing is rounded, the suite takes a neighbour of a power of two, and the corpus does not.
                    assert read_corpus.fits(np.where(bound > 0, answers[name], due), due, bound)
                tried += 1
    assert tried > 12


def farthest(case: Case, sign: float) -> dict[str, Array]:
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


def test_a_reader_of_plain_files_gets_the_same_from_every_process(tmp_path: Path) -> None:
    chosen = ["--select", "roi_align/[er]*/[hb]*_in[sd]*/v16/float"]
    assert run("export", tmp_path / "here", *chosen).exit_code == 0
    command = [sys.executable, "-m", "conformance", "export", str(tmp_path / "there"), *chosen]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "1"})  # noqa: S603
    written = files_of(tmp_path / "here")
    assert written == files_of(tmp_path / "there")
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in sorted(written.items())]
    assert written["SHA256SUMS"].decode().splitlines() == [line for line in sums if "SHA256SUMS" not in line]
    assert read_corpus.main(tmp_path / "here") == {"answered": 2, "must fail, refused": 4}


def test_the_reader_fails_wrong_answers_and_does_not_run_what_onnx_does_not_have(tmp_path: Path) -> None:
    assert run("export", tmp_path, "--select", "*roi_align*/edge/*_inside/*float").exit_code == 0
    before = read_corpus.main(tmp_path)
    assert before["not run"] > 0
    for file in (tmp_path / "standard").glob("*/test_data_set_0/due_0.bin"):
        (np.fromfile(file, np.float32) + np.float32(0.01)).tofile(file)
    after = read_corpus.main(tmp_path)
    assert (after["answered"], after["wrong"]) == (0, before["answered"])


def test_a_session_and_a_refusal_are_described_as_the_suite_asks_them(tmp_path: Path) -> None:
    session_case = next(case for case in collect() if case.is_at_once and case.definition.standard)
    export.write(session_case, tmp_path / "session")
    about = json.loads((tmp_path / "session" / "case.json").read_text("utf-8"))
    assert (about["id"], about["calls"], about["at_once"]) == (session_case.id, len(session_case.before) + 1, True)
    for i, call in enumerate([*session_case.before, session_case]):
        data = tmp_path / "session" / f"test_data_set_{i}"
        described = json.loads((data / "tensors.json").read_text("utf-8"))
        assert [each["name"] for each in described["inputs"]] == list(call.inputs)
        for each in described["inputs"]:
            np.testing.assert_array_equal(tensor_files.read(each, data), call.inputs[each["name"]])
    refused = next(case for case in collect() if case.twin and case.definition.standard)
    export.write(refused, tmp_path / "refused")
    about = json.loads((tmp_path / "refused" / "case.json").read_text("utf-8"))
    assert (about["must_fail"], about["twin"], about["note"]) == (True, "twin", refused.note)
    assert read_corpus.outcome(tmp_path / "refused" / about["twin"]) in ("answered", "refused")
    assert list((tmp_path / "refused").glob("test_data_set_0/output*")) == []


def element(described: dict[str, Any], index: tuple[int, ...]) -> float:
    """An element of an input, as docs/corpus.md tells a program in any language to compute it."""
    formula, kind = described["formula"], described["type"]
    if formula["kind"] == "repeating":
        if sum(map(operator.mul, formula.get("mixed", index), index)) % formula.get("one_in", 1):
            return 0.0
        multiple = pow(sum(map(operator.mul, formula["steps"], index)) % 1021, 151, 1021) - 510
        if kind == "bfloat16":
            return float(math.trunc(multiple / 4) / 32)
        return float(multiple / 128 * (1 + 2.0**-28 if kind == "double" else 1))
    if formula["kind"] == "planes":
        n, c, row, column = index
        level = ((61 * n + 37 * c) % 127 - 63) / 32
        return float(level + row * (-1.0) ** c * (1 + c % 3) / 16 + column * (-1.0) ** (c // 2) * (1 + c % 5) / 32)
    k = int(np.ravel_multi_index(index, described["shape"]))
    return float((7 * k + 5 * (k // 13)) % 61 - 30)


@pytest.mark.parametrize(
    "case_id",
    [
        "grid_sample/users/image/v22/float",
        "ps_roi_align/users/map_61x63_of_other_types/avg/half_pixel/double",
        "ps_roi_align_grad/users/map_50x76_adaptive/avg/output_half_pixel/drois/float16",
        pytest.param("roi_align/users/planes_50x76/v22/float", marks=pytest.mark.weekly),
    ],
)
def test_a_formula_gives_the_bytes_that_the_table_tells(case_id: str, tmp_path: Path) -> None:
    export.write(BY_ID[case_id], tmp_path)
    described = json.loads((tmp_path / "test_data_set_0" / "tensors.json").read_text("utf-8"))
    rows = [each for each in described["inputs"] if "formula" in each]
    row = min(rows, key=lambda each: math.prod(each["shape"]))
    shape = row["formula"].get("shape", row["shape"])
    elements = (element(row, index) for index in np.ndindex(*shape))
    data = np.fromiter(elements, np.float64, math.prod(shape)).astype(tensor_files.TYPES[row["type"]])
    assert hashlib.sha256(data.tobytes()).hexdigest() == row["sha256"]
    (y,) = described["outputs"]
    sampled = tensor_files.read(y["due"], tmp_path / "test_data_set_0")
    (expected,) = expected_outputs(BY_ID[case_id]).values()
    np.testing.assert_array_equal(sampled, export.due_of(BY_ID[case_id].dtype, expected.ravel()[:: y["step"]]))
    assert math.gcd(y["step"], expected.size) == 1


def test_a_folder_with_an_export_of_other_cases_is_refused(tmp_path: Path) -> None:
    assert run("export", tmp_path, "--select", "roi_align/official/mode_*/v16/float").exit_code == 0
    before = set(tmp_path.rglob("*"))
    assert run("export", tmp_path, "--select", "roi_align/official/*/v16/float").exit_code == 0  # the same and more
    assert before < set(tmp_path.rglob("*"))
    refused = run("export", tmp_path, "--select", "roi_align/official/mode_max/v16/float")
    assert refused.exit_code == 2
    told = words(refused)
    assert "DIR: has 2 folders of another export, such as " in told
    assert "remove them, or name a new folder" in told
    other = next(case.id for case in collect() if case.id not in export.core())
    refused = run("export", tmp_path / "core", "--corpus", "core", "--select", other)
    assert (refused.exit_code, "the corpus core has none of these" in words(refused)) == (2, True)

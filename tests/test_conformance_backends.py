# SPDX-License-Identifier: MIT
"""The backends that come with the suite. Our operators are asked every case by `make conformance`."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance import backends, expected_failures, schedule
from conformance.backends import MissingBackendError, Session
from conformance.backends.base import is_standard
from conformance.backends.ortops import SMALL
from conformance.case import DTYPES, Array, Case
from conformance.cases import collect
from conformance.outcome import Outcome
from conformance.run import ask
from conformance.schedule import BackendChild, Declaration, Setting
from ortops.native.kernels.schedule import MIN_PARALLEL_PIXELS

RUNTIMES = ("onnxruntime", "onnx-reference")


weekly = pytest.mark.weekly


def counts_of(name: str, tmp_path: Path, *options: str) -> dict[str, int]:
    """The summary of a run in a process of its own, where engines are chosen anew and crashes do no harm."""
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "conformance", "--backend", name, "--json", str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    summary: dict[str, int] = json.loads(file.read_text("utf-8"))["summary"]
    return summary


@pytest.mark.parametrize(
    ("shard", "passed"), [pytest.param("1/96", 10, marks=pytest.mark.slow), pytest.param("1/12", 120, marks=weekly)]
)
def test_bodies_pass(shard: str, passed: int, tmp_path: Path) -> None:
    # All cases take minutes, and test_portable asks each body. On large maps a body takes seconds.
    part = "--select", "*/float", "--exclude", "*/users/map_*", "--shard", shard
    summary = counts_of("portable", tmp_path, *part)
    assert (summary["failed"], summary["crashed"]) == (0, 0)
    assert summary["passed"] > passed


@pytest.mark.parametrize("shard", ["1/24", pytest.param("1/1", marks=weekly)])  # another job runs 1/1 at each commit
def test_unconverted_models_of_onnx_pass(shard: str, tmp_path: Path) -> None:
    summary = counts_of("ortops-standard", tmp_path, "--shard", shard)
    assert (summary["failed"], summary["crashed"], summary["expected_failure"]) == (0, 0, 0)
    assert summary["passed"] > (3600 if shard == "1/1" else 100)


@pytest.mark.parametrize(
    ("name", "glob", "passed", "failed"),
    [
        ("onnxruntime", "*", 400, 100),
        pytest.param("onnx-reference", "*", 400, 100, marks=weekly),
        ("onnx-reference", "roi_align/edge/*/v16/*", 20, 5),
        ("torchvision", "roi_align*/edge/*/float16", 50, 4),
        ("torchvision", "roi_align/[em][da]*/v16/*", 100, 30),
        ("torchvision", "roi_align_grad/refusal/batch_*/dX_alone/*", 0, 3),
        pytest.param("openvino", "roi_align/[em][da]*/v16/*", 130, 60, marks=weekly),
        ("openvino", "roi_align/refusal/*/v16/*", 8, 10),
    ],
)
@pytest.mark.slow
def test_a_runtime_fails_exactly_where_it_is_known_to(
    name: str, glob: str, passed: int, failed: int, tmp_path: Path
) -> None:
    for package in PACKAGES.get(name, ()):
        pytest.importorskip(package, reason=f"{package} is not installed", exc_type=ImportError)
    found_with, _ = expected_failures.load(name)
    package, release = found_with.split()
    if version(package) != release:
        pytest.skip(f"the list is of {found_with}")
    summary = counts_of(name, tmp_path, "--select", glob)
    assert summary["passed"] >= passed
    assert summary["expected_failure"] >= failed


@pytest.mark.parametrize("name", sorted(file.stem for file in Path(expected_failures.__file__).parent.glob("*.json")))
def test_every_listed_failure_is_of_a_case(name: str) -> None:
    _, known = expected_failures.load(name)
    ids = [case.id for case in collect()]
    assert [failure.glob for failure in known if not any(fnmatchcase(i, failure.glob) for i in ids)] == []


@pytest.mark.parametrize("name", [*RUNTIMES, "ortops-standard"])
def test_a_runtime_of_standard_nodes_is_not_asked_for_what_onnx_has_not(name: str) -> None:
    backend = backends.load(name)
    cases = [case for case in collect() if not is_standard(case)]
    assert {ask(backend, case).kind for case in cases[::17]} == {"unsupported"}


def test_a_session_without_threads_has_no_work_for_them() -> None:
    assert SMALL**2 < MIN_PARALLEL_PIXELS


# The adapters to torchvision and OpenVINO.


PEERS = ("torchvision", "openvino")
PACKAGES = {"torchvision": ("torch", "torchvision"), "openvino": ("openvino",)}
ROI_ALIGN = tuple(case for case in collect() if case.definition.family == "roi_align" and case.formula is None)


@pytest.fixture(autouse=True)
def _adapters_are_imported_anew() -> Iterator[None]:
    names = [f"conformance.backends.{peer}" for peer in PEERS]
    had = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(had)


def case_of(case_id: str) -> Case:
    return next(case for case in ROI_ALIGN if case.id == case_id)


# Packages that are not there.


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("error", ["RuntimeError", "ModuleNotFoundError"])
def test_a_package_whose_import_fails_is_a_missing_backend(
    peer: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = PACKAGES[peer][0]
    (tmp_path / f"{package}.py").write_text(f"raise {error}('no operator nms')", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(MissingBackendError, match=f"backend {peer}: no operator nms"):
        backends.load(peer)


# torchvision's adapter, around a function in its place.


def with_roi_align(roi_align: Any, monkeypatch: pytest.MonkeyPatch, without_kernel: Sequence[str] = ()) -> Any:
    """The module of the adapter, whose tensors are arrays."""
    for name, attributes in (("torch", {}), ("torchvision", {}), ("torchvision.ops", {"roi_align": roi_align})):
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    adapter = importlib.import_module("conformance.backends.torchvision")
    monkeypatch.setattr(adapter, "_takes", lambda dtype: dtype.name not in without_kernel)
    monkeypatch.setattr(adapter, "to_torch", np.asarray)
    monkeypatch.setattr(adapter, "to_numpy", np.asarray)
    return adapter


@pytest.mark.parametrize(
    ("case_id", "reason"),
    [
        ("roi_align/edge/max_on_pixels/v16/float", "only averages"),
        ("roi_align/edge/max_interpolated_on_pixels/v16/float", "only averages"),
        ("roi_align/refusal/coordinates_upper_case/v16/float", "cannot express 'HALF_PIXEL'"),
        ("roi_align/refusal/sampling_ratio_negative/v16/float", "sampling_ratio -1 is valid in torchvision"),
        ("roi_align/refusal/fewer_batch_indices/v16/float", "one batch index in the row of each RoI"),
        ("roi_align_grad/edge/drois_alone/float", "no gradient with respect to the boxes"),
        ("roi_align/edge/half_pixel_inside/v22/bfloat16", "torchvision has only float16, float, double"),
        ("dml_roi_align/edge/*/float", "has no DmlRoiAlign"),
    ],
)
def test_what_torchvision_has_no_place_for_is_unsupported(
    case_id: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in collect() if fnmatchcase(case.id, case_id))
    backend = with_roi_align(pytest.fail, monkeypatch, ["bfloat16"]).Torchvision()
    answer = ask(backend, case)
    assert answer.kind == "unsupported"
    assert reason in answer.text


def test_torchvision_is_called_with_boxes_and_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def roi_align(*arguments: Any, **keywords: Any) -> Array:
        calls.append((*arguments, keywords))
        return np.zeros(1, np.float32)

    case = case_of("roi_align/official/aligned_true/v16/float")
    ask(with_roi_align(roi_align, monkeypatch).Torchvision(), replace(case, id="x/once"))
    ((x, boxes, sizes, keywords),) = calls
    np.testing.assert_array_equal(x, case.inputs["X"])
    np.testing.assert_array_equal(boxes, np.column_stack((case.inputs["batch_indices"], case.inputs["rois"])))
    assert sizes == (case.attributes["output_height"], case.attributes["output_width"])
    scale, ratio = case.attributes["spatial_scale"], case.attributes["sampling_ratio"]
    assert keywords == {"spatial_scale": scale, "sampling_ratio": ratio, "aligned": True}


def test_kernels_that_are_not_there_are_a_missing_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = with_roi_align(pytest.fail, monkeypatch, [dtype.name for dtype in DTYPES.values()])
    with pytest.raises(MissingBackendError, match="backend torchvision: its kernels"):
        adapter.Torchvision()


# Backends that wrong data may harm.


def test_every_case_of_an_unsafe_backend_is_asked_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(_case: Case) -> Session:
        raise AssertionError("asked in this process")

    # In the child, where nothing is replaced, the name is that of the reference.
    unsafe = SimpleNamespace(is_unsafe=True, expected_failures=(), conventions=(), version="", prepare=prepare)
    monkeypatch.setattr(backends, "load", lambda *_: unsafe)
    case = case_of("roi_align/edge/half_pixel_inside/v16/float")
    schedule._loaded.cache_clear()  # noqa: SLF001
    with schedule.judge_of(Setting("reference"), is_isolated=False) as result_of:
        assert result_of(case).outcome is Outcome.PASSED
    unsafe.is_unsafe = False
    with schedule.judge_of(Setting("reference"), is_isolated=False) as result_of:
        assert "asked in this process" in result_of(case).message
    schedule._loaded.cache_clear()  # noqa: SLF001


def test_an_unsafe_backend_has_a_new_child_after_it_took_wrong_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os\nimport numpy\ndef answer(*_):\n    return numpy.array(os.getpid())\n"
    (tmp_path / "answers_its_process.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    unsafe = Declaration((), is_unsafe=True, conventions=())
    monkeypatch.setattr(BackendChild, "declaration", lambda _: unsafe)
    right = case_of("roi_align/edge/half_pixel_inside/v16/float")
    wrong = case_of("roi_align/refusal/batch_index_negative/v16/float")
    with BackendChild(Setting("answers_its_process:answer")) as child:
        answers = [child.answer(case).outputs for case in (right, right, wrong, right)]
    first, second, third, fourth = (int(outputs["Y"]) for outputs in answers if outputs is not None)
    assert first == second == third
    assert fourth not in (first, os.getpid())

"""The backends that come with the suite. Our operators are asked every case by `make conformance`."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from conformance import backends, expected_failures, schedule
from conformance.backends import MissingBackendError, Session
from conformance.backends.base import is_standard
from conformance.backends.ortops import SMALL
from conformance.case import Case
from conformance.cases import collect
from conformance.expected_values import reference
from conformance.outcome import Outcome, Result
from conformance.run import CaseRunner, ask
from conformance.schedule import BackendChild, Declaration, Setting
from ortops.native.kernels.schedule import MIN_PARALLEL_PIXELS
from ortops.operators import BY_NAME

RUNTIMES = ("onnxruntime", "onnx-reference")


def counts_of(name: str, tmp_path: Path, *options: str) -> dict[str, int]:
    """The summary of a run in a process of its own, where engines are chosen anew and crashes do no harm."""
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "conformance", "--backend", name, "--json", str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    summary: dict[str, int] = json.loads(file.read_text("utf-8"))["summary"]
    return summary


@pytest.mark.slow
def test_bodies_pass(tmp_path: Path) -> None:
    # A part of each family: all cases take 100 s. On large maps a body takes seconds, and a busy machine too long.
    part = "--select", "*/float", "--exclude", "*/users/map_*", "--shard", "1/12"
    summary = counts_of("portable", tmp_path, *part)
    assert (summary["failed"], summary["crashed"]) == (0, 0)
    assert summary["passed"] > 120


@pytest.mark.parametrize("shard", [pytest.param("1/24"), pytest.param("1/1", marks=pytest.mark.slow)])
def test_unconverted_models_of_onnx_pass(shard: str, tmp_path: Path) -> None:
    summary = counts_of("ortops-standard", tmp_path, "--shard", shard)
    assert (summary["failed"], summary["crashed"], summary["expected_failure"]) == (0, 0, 0)
    assert summary["passed"] > (3600 if shard == "1/1" else 100)


@pytest.mark.parametrize(
    ("name", "glob", "passed", "failed"),
    [
        ("onnxruntime", "*", 400, 100),
        ("onnx-reference", "*", 400, 100),
        ("torchvision", "roi_align*/edge/*/float16", 50, 4),
        ("torchvision", "roi_align/[em][da]*/v16/*", 100, 30),
        ("torchvision", "roi_align_grad/refusal/batch_*/dX_alone/*", 0, 3),
        ("openvino", "roi_align/[em][da]*/v16/*", 130, 60),
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


# The adapters to torchvision and OpenVINO, and backends that wrong data may harm. The reference plays torchvision where a
# test is of the adapter alone: what that asks has then to come out right.


Array = np.ndarray[Any, Any]

PEERS = ("torchvision", "openvino")
PACKAGES = {"torchvision": ("torch", "torchvision"), "openvino": ("openvino",)}
ROI_ALIGN = tuple(case for case in collect() if case.definition.family == "roi_align" and case.formula is None)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


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


def bad(results: Sequence[Result]) -> list[str]:
    return [f"{r.case.id}: {r.message}" for r in results if r.outcome.is_bad]


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


# torchvision, played by the reference.


class Tensor:
    """As much of a torch.Tensor as holds a NumPy array, which torch has no bfloat16 of."""

    def __init__(self, array: Array, call: dict[str, Any] | None = None) -> None:
        self.array = array
        self.call = call

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.array.view(dtype), self.call)

    def detach(self) -> Tensor:
        return self

    def requires_grad_(self) -> Tensor:
        return self

    def numpy(self) -> Array:
        if self.dtype == BFLOAT16:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


def from_numpy(array: Array) -> Tensor:
    if array.dtype == BFLOAT16:
        raise TypeError("can't convert np.ndarray of type bfloat16")
    return Tensor(array)


def torch_roi_align(
    x: Tensor,
    boxes: Tensor,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """torchvision's signature, computed by the reference."""
    assert boxes.dtype == x.dtype
    attributes = {
        "coordinate_transformation_mode": "half_pixel" if aligned else "output_half_pixel",
        "sampling_ratio": max(sampling_ratio, 0),
        "spatial_scale": spatial_scale,
    }
    rois = {"rois": boxes.array[:, 1:], "batch_indices": boxes.array[:, 0].astype(np.int64)}
    sizes = {"output_height": output_size[0], "output_width": output_size[1]}
    y = reference(BY_NAME["RoiAlign_22"], {**attributes, **sizes}, {"X": x.array, **rois}, ["Y"])["Y"]
    return Tensor(y.astype(x.dtype), {"attributes": attributes, "inputs": rois})


def torch_grad(y: Tensor, x: Tensor, dy: Tensor) -> tuple[Tensor]:
    assert y.call is not None
    assert y.array.shape == dy.array.shape
    inputs = {**y.call["inputs"], "dY": dy.array, "x_shape": np.array(x.array.shape)}
    dx = reference(BY_NAME["RoiAlignGrad"], y.call["attributes"], inputs, ["dX"])["dX"]
    return (Tensor(dx.astype(x.dtype)),)


def play_torchvision(monkeypatch: pytest.MonkeyPatch, roi_align: Any = torch_roi_align) -> backends.Backend:
    torch, torchvision, ops = (ModuleType(name) for name in ("torch", "torchvision", "torchvision.ops"))
    vars(torch).update(
        from_numpy=from_numpy,
        bfloat16=BFLOAT16,
        int16=np.dtype(np.int16),
        autograd=SimpleNamespace(grad=torch_grad),
    )
    vars(ops).update(roi_align=roi_align)
    vars(torchvision).update(ops=ops, __path__=[])
    for module in (torch, torchvision, ops):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return backends.load("torchvision")


def test_a_torchvision_without_faults_passes_all_that_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = play_torchvision(monkeypatch)
    results = list(map(CaseRunner(functools.partial(ask, backend)).result, ROI_ALIGN[::21]))
    assert bad(results) == []
    average = [r for r in results if r.case.attributes.get("mode", "avg") == "avg" and "drois" not in r.case.outputs]
    assert Counter(r.outcome for r in average)[Outcome.PASSED] > 30
    assert {r.case.id.split("/")[2] for r in average if r.outcome is not Outcome.PASSED} <= {
        "coordinates_unknown",
        "coordinates_upper_case",
        "sampling_ratio_negative",
        "rois_rank_1",
        "batch_indices_rank_2",
        "fewer_batch_indices",
        "more_batch_indices",
    }


@pytest.mark.parametrize(
    ("case_id", "reason"),
    [
        ("roi_align/edge/max_on_pixels/v16/float", "only averages"),
        ("roi_align/edge/max_interpolated_on_pixels/v16/float", "only averages"),
        ("roi_align/refusal/coordinates_upper_case/v16/float", "cannot express 'HALF_PIXEL'"),
        ("roi_align/refusal/sampling_ratio_negative/v16/float", "sampling_ratio -1 is valid in torchvision"),
        ("roi_align/refusal/fewer_batch_indices/v16/float", "one batch index in the row of each RoI"),
        ("roi_align_grad/edge/drois_alone/float", "no gradient with respect to the boxes"),
        ("dml_roi_align/edge/*/float", "has no DmlRoiAlign"),
    ],
)
def test_what_torchvision_has_no_place_for_is_unsupported(
    case_id: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in collect() if fnmatchcase(case.id, case_id))
    answer = ask(play_torchvision(monkeypatch), case)
    assert answer.kind == "unsupported"
    assert reason in answer.text


def test_a_type_without_a_kernel_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def roi_align(x: Tensor, *arguments: Any, **keywords: Any) -> Tensor:
        if x.dtype == BFLOAT16:
            raise NotImplementedError("\"roi_align_forward_kernel\" not implemented for 'BFloat16'")
        return torch_roi_align(x, *arguments, **keywords)

    backend = play_torchvision(monkeypatch, roi_align)
    answer = ask(backend, case_of("roi_align/edge/half_pixel_inside/v22/bfloat16"))
    assert (answer.kind, answer.text) == ("unsupported", "torchvision has only float16, float, double")
    assert ask(backend, case_of("roi_align/edge/half_pixel_inside/v22/float16")).kind == "outputs"


def test_kernels_that_are_not_there_are_a_missing_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def roi_align(*_arguments: Any, **_keywords: Any) -> Tensor:
        raise RuntimeError("Couldn't load custom C++ ops.")

    with pytest.raises(MissingBackendError, match="backend torchvision: its kernels"):
        play_torchvision(monkeypatch, roi_align)


# Backends that wrong data may harm.


def test_every_case_of_an_unsafe_backend_is_asked_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(_case: Case) -> Session:
        raise AssertionError("asked in this process")

    # In the child, where nothing is replaced, the name is that of the reference.
    unsafe = SimpleNamespace(is_unsafe=True, expected_failures=(), conventions=(), prepare=prepare)
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

"""The backends that come with the suite. Our operators are asked every case by `make conformance`."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

import pytest

from conformance import backends, expected_failures
from conformance.backends.base import is_standard
from conformance.backends.ortops import SMALL
from conformance.run import ask
from conformance.vectors import collect
from ortops.kernels.schedule import MIN_PARALLEL_PIXELS

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
    # A part of each family: all cases take 100 s. A slow machine is not asked for all large problems.
    summary = counts_of("portable", tmp_path, "--select", "*/float", "--shard", "1/12")
    assert (summary["failed"], summary["crashed"]) == (0, 0)
    assert summary["passed"] > 120


@pytest.mark.parametrize("shard", [pytest.param("1/24"), pytest.param("1/1", marks=pytest.mark.slow)])
def test_unconverted_models_of_onnx_pass(shard: str, tmp_path: Path) -> None:
    summary = counts_of("ortops-standard", tmp_path, "--shard", shard)
    assert (summary["failed"], summary["crashed"], summary["expected_failure"]) == (0, 0, 0)
    assert summary["passed"] > (3600 if shard == "1/1" else 100)


@pytest.mark.slow
def test_ortops_pyop_passes_what_its_engine_can_be_asked(tmp_path: Path) -> None:
    # Values of other types than float are what kernels compute, whose engine does not matter to them. What is expected
    # to fail are attributes of more than six digits.
    summary = counts_of("ortops-pyop", tmp_path, "--select", "*/float", "--shard", "1/4")
    assert (summary["failed"], summary["crashed"]) == (0, 0)
    assert summary["expected_failure"] < 10
    assert summary["passed"] > 300


@pytest.mark.parametrize("name", RUNTIMES)
@pytest.mark.slow
def test_a_runtime_fails_exactly_where_it_is_known_to(name: str, tmp_path: Path) -> None:
    found_with, _ = expected_failures.load(name)
    package, release = found_with.split()
    if version(package) != release:
        pytest.skip(f"the list is of {found_with}")
    summary = counts_of(name, tmp_path)
    assert summary["passed"] > 400
    assert summary["expected_failure"] > 100


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

"""What a run leaves behind: written as it is, read as it was, and never half of it."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ortops
from conformance import backends
from conformance.case import Array, Basis
from conformance.outcome import Outcome, Result
from conformance.report import record
from conformance.report.record import Entry, NotAReportError, Report, Run, read, read_merged
from conformance.run import Answer, ask, judge
from conformance.vectors import collect

CASES = [case for case in collect() if case.family in ("roi_align/official", "roi_align/refusal")]


def results() -> list[Result]:
    """Right answers, answers that are off by one, accepted refusals and a crash."""
    reference = backends.load("reference")
    answers = [ask(reference, case) for case in CASES]
    for answer in answers[::2]:
        for name, output in (answer.outputs or {}).items():
            answer.outputs[name] = output + 1  # type: ignore[index]
    some = {name: np.ones((1, 1, 1, 1), np.float32) for name in CASES[-1].outputs}
    answers[-2:] = [Answer("crash", text="gone", seconds=1.5), Answer("outputs", some)]
    return [judge(case, answer) for case, answer in zip(CASES, answers, strict=True)]


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    run = Run("reference", results())
    record.write(tmp_path / "r.json", run)
    report = read(tmp_path / "r.json")
    assert (report.backend, report.complete, list(report.entries)) == ("reference", True, [case.id for case in CASES])
    assert {entry.outcome for entry in report.entries.values()} == {Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED}
    assert report.origin.version == report.origin.suite == ortops.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", report.origin.date)
    for case, result in zip(CASES, run.results, strict=True):
        back = report.entries[case.id].result(case)
        assert (back.case, back.outcome, back.message) == (case, result.outcome, result.message)
        assert back.seconds == pytest.approx(result.seconds, abs=1e-6)
        assert same(back.outputs, result.outputs)
        if result.worst and result.worst.error is not None:
            assert back.worst is not None
            assert (back.worst.error, back.worst.allowed) == (result.worst.error, result.worst.allowed)
    assert report.entries[CASES[-1].id].accepted
    assert sum(entry.accepted for entry in report.entries.values()) == 1


def same(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    return {name: a.tobytes() for name, a in first.items()} == {name: a.tobytes() for name, a in second.items()}


def test_a_run_is_gone_on_with(tmp_path: Path) -> None:
    file, every = tmp_path / "r.json", results()
    record.write(file, Run("reference", every[:20], complete=False))
    begun = read(file)
    assert not begun.complete
    kept = [begun.entries[case.id].result(case) for case in CASES if case.id in begun.entries]
    record.write(file, Run("reference", [*kept, *every[20:]]))
    whole = read(file)
    assert whole.complete
    assert whole.entries == Run("reference", every).report.entries


def test_a_reader_never_has_half_a_file(tmp_path: Path) -> None:
    file, every = tmp_path / "r.json", results()
    record.write(file, Run("reference", every[:1]))

    def writes() -> None:
        for _ in range(20):
            record.write(file, Run("reference", every))

    writer = threading.Thread(target=writes)
    writer.start()
    lengths = set()
    while writer.is_alive():
        lengths.add(len(read(file).entries))
    writer.join()
    assert lengths <= {1, len(every)}
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "r.json"
    record.write(file, Run("reference", results()[:3]))
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no room"):
        record.write(file, Run("reference", results()))
    assert len(read(file).entries) == 3
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


def refuse(*_: object) -> None:
    raise OSError("no room")


def test_a_link_stays_one_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    record.write(tmp_path / "link.json", Run("reference", results()[:2]))
    assert (tmp_path / "link.json").is_symlink()
    assert len(read(tmp_path / "real.json").entries) == 2
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=record.write, args=(tmp_path / "pipe", Run("reference", results()[:2])))
    writer.start()
    assert len(read(tmp_path / "pipe").entries) == 2
    writer.join()
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_of_the_first_release_is_read(tmp_path: Path) -> None:
    case = {"id": "f/one/a", "outcome": "failed", "max_error": 2.0, "allowed": 1e-7, "message": "off"}
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"backend": "b", "summary": {"failed": 1}, "cases": [case]}), "utf-8")
    report = read(file)
    assert report == Report("b", {"f/one/a": Entry(Outcome.FAILED, "off", max_error=2.0, allowed=1e-7)})
    assert (report.title, report.complete) == ("b", True)


def test_bases_are_kept(tmp_path: Path) -> None:
    record.write(tmp_path / "r.json", Run("reference", results()))
    assert {name: entry.basis for name, entry in read(tmp_path / "r.json").entries.items()} == {
        case.id: case.basis for case in CASES
    }
    assert {case.basis for case in CASES} <= set(Basis)


def test_shards_are_one_report_and_two_versions_are_two(tmp_path: Path) -> None:
    every = results()
    files = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    for file, part in zip(files, (every[:9], every[9:], every), strict=True):
        record.write(file, Run("reference", part, complete=file.name != "b.json"))
    other = json.loads(files[2].read_text("utf-8"))
    files[2].write_text(json.dumps({**other, "version": "9.9"}), "utf-8")
    first, second = read_merged(files)
    assert (first.title, second.title) == (f"reference {ortops.__version__}", "reference 9.9")
    assert set(first.entries) == set(second.entries)
    assert (first.complete, second.complete) == (False, True)


def test_a_case_twice_is_refused_with_file_and_case(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.json", "b.json")]
    for file in files:
        record.write(file, Run("reference", results()[:1]))
    with pytest.raises(NotAReportError, match=rf"b\.json has case {CASES[0].id} of reference.*, which .*a\.json has"):
        read_merged(files)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int64, np.uint32])
def test_a_tensor_comes_back_bit_for_bit(dtype: Any) -> None:
    values = [0.0, 1.0, 3.0] if np.dtype(dtype).kind in "iu" else [np.nan, np.inf, -np.inf, -0.0, 1.5, 1e-3]
    given: dict[str, Array] = {
        "Y": np.array([values], dtype),
        "empty": np.zeros((0, 2), dtype),
        "one": np.array(1, dtype),
    }
    stored = json.loads(json.dumps(record.encode(given), allow_nan=False))
    back = record.decode(stored)
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in back.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in given.items()
    }


def test_the_names_of_outputs_are_printable() -> None:
    assert list(record.decode(record.encode({"\x1b[2J": np.zeros(1, np.float32)}))) == [r"\x1b[2J"]


def test_what_is_no_tensor_of_the_suite_is_not_stored() -> None:
    assert record.encode({"Y": np.array(["text"]), "Z": np.array([True]), "W": np.array([None])}) == {}


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([], "its outputs have no names"),
        ({"Y": 1}, "output Y: type None is not one of float16"),
        ({"Y": {"type": "float", "shape": [-1], "data": ""}}, "output Y: shape [-1] is no list of lengths"),
        ({"Y": {"type": "float", "shape": [True], "data": "AAAAAA=="}}, "is no list of lengths"),
        ({"Y": {"type": "float", "shape": [1], "data": "*"}}, "output Y: data is no base64"),
        ({"Y": {"type": "float", "shape": [1], "data": None}}, "output Y: data is no base64"),
        ({"Y": {"type": "float", "shape": [2**40], "data": "AAAA"}}, "output Y: 3 bytes of data for shape"),
        ({"Y": {"type": "float", "shape": [1] * 99, "data": "AAAAAA=="}}, "dimension"),
    ],
)
def test_outputs_that_are_none_are_refused(tmp_path: Path, outputs: object, message: str) -> None:
    file = tmp_path / "a.json"
    case = {"id": "f/one/a", "outcome": "failed", "message": "", "outputs": outputs}
    file.write_text(json.dumps({"backend": "b", "cases": [case]}), "utf-8")
    with pytest.raises(NotAReportError, match=r"case f/one/a: ") as raised:
        read(file)
    assert message in str(raised.value)

"""Report files: what is read is what was written, a file is never half written, and a wrong file is refused."""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ortops
from conformance import backends
from conformance.case import Array
from conformance.outcome import Outcome, Result
from conformance.report import record
from conformance.report.record import NotAReportError, read, read_merged, report_of
from conformance.run import Answer, ask, judge
from conformance.vectors import collect
from ortops import atomic_file

CASES = [case for case in collect() if case.group in ("roi_align/official", "roi_align/refusal")][::5]


def results() -> list[Result]:
    """Right answers, answers that are off by one, an accepted invalid case and a crash."""
    reference = backends.load("reference")
    answers = [ask(reference, case) for case in CASES]
    for answer in answers[::2]:
        for name, output in (answer.outputs or {}).items():
            answer.outputs[name] = output + 1  # type: ignore[index]
    some = {name: np.ones((1, 1, 1, 1), np.float32) for name in CASES[-1].outputs}
    answers[-2:] = [Answer("crash", text="gone", seconds=1.5), Answer("outputs", some)]
    return [judge(case, answer) for case, answer in zip(CASES, answers, strict=True)]


def write(file: Path, report: record.Report) -> None:
    atomic_file.write(file, record.render(report))


REPORT = report_of("reference", results())


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "r.json", REPORT)
    report = read(tmp_path / "r.json")
    assert report == REPORT
    assert {entry.outcome for entry in report.entries.values()} == {Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED}
    assert report.origin.version == report.origin.suite == ortops.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", report.origin.date)
    assert [case_id for case_id, entry in report.entries.items() if entry.accepted] == [CASES[-1].id]
    for case, result in zip(CASES, results(), strict=True):
        back = report.entries[case.id].result(case)
        assert (back.case, back.outcome, back.message) == (case, result.outcome, result.message)
        assert {name: a.tobytes() for name, a in back.outputs.items()} == {
            name: a.tobytes() for name, a in result.outputs.items()
        }


def test_a_reader_never_has_half_a_file(tmp_path: Path) -> None:
    file, one = tmp_path / "r.json", report_of("reference", results()[:1])
    write(file, one)

    def writes() -> None:
        for _ in range(20):
            write(file, REPORT)

    writer = threading.Thread(target=writes)
    writer.start()
    lengths = set()
    while writer.is_alive():
        lengths.add(len(read(file).entries))
    writer.join()
    assert lengths <= {1, len(CASES)}
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


def test_a_file_stays_as_it_was_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "r.json"
    write(file, report_of("reference", results()[:3]))

    def refuse(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no room"):
        write(file, REPORT)
    assert len(read(file).entries) == 3
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


def test_a_link_stays_one_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    write(tmp_path / "link.json", REPORT)
    assert (tmp_path / "link.json").is_symlink()
    assert read(tmp_path / "real.json") == REPORT
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=write, args=(tmp_path / "pipe", REPORT))
    writer.start()
    assert read(tmp_path / "pipe") == REPORT
    writer.join()


def test_shards_are_one_report_and_two_versions_are_two(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    other = replace(REPORT, origin=replace(REPORT.origin, version="9.9"))
    parts = report_of("reference", results()[:9]), report_of("reference", results()[9:], complete=False), other
    for file, part in zip(files, parts, strict=True):
        write(file, part)
    first, second = read_merged(files)
    assert (first.title, second.title) == (f"reference {ortops.__version__}", "reference 9.9")
    assert set(first.entries) == set(second.entries)
    assert (first.complete, second.complete) == (False, True)
    write(files[1], parts[0])
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
    back = record.decode(json.loads(json.dumps(record.encode(given), allow_nan=False)))
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in back.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in given.items()
    }


def test_outputs_of_other_types_are_not_stored_and_names_are_printable() -> None:
    assert record.encode({"Y": np.array(["text"]), "Z": np.array([True]), "W": np.array([None])}) == {}
    assert list(record.decode(record.encode({"\x1b[2J": np.zeros(1, np.float32)}))) == [r"\x1b[2J"]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([], "its outputs have no names"),
        ({"Y": 1}, "output Y: type None is not one of float16"),
        ({"Y": {"type": "float", "shape": [-1], "data": ""}}, "output Y: shape [-1] is not a list of lengths"),
        ({"Y": {"type": "float", "shape": [True], "data": "AAAAAA=="}}, "is not a list of lengths"),
        ({"Y": {"type": "float", "shape": [1], "data": "*"}}, "output Y: data is not base64"),
        ({"Y": {"type": "float", "shape": [2**40], "data": "AAAA"}}, "output Y: 3 bytes of data for shape"),
        ({"Y": {"type": "float", "shape": [1] * 99, "data": "AAAAAA=="}}, "dimension"),
    ],
)
def test_outputs_that_are_no_tensors_are_refused(tmp_path: Path, outputs: object, message: str) -> None:
    file = tmp_path / "a.json"
    case = {"id": "f/one/a", "outcome": "failed", "message": "", "outputs": outputs}
    file.write_text(json.dumps({"backend": "b", "cases": [case]}), "utf-8")
    with pytest.raises(NotAReportError, match=r"case f/one/a: ") as raised:
        read(file)
    assert message in str(raised.value)

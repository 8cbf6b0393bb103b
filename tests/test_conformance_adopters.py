# SPDX-License-Identifier: MIT
"""Lists of expected failures for other projects: each is read as its project reads it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

import pytest

from conformance.cases import by_id
from conformance.export import folder_name, reason_left_out, tolerances
from conformance.outcome import Outcome, Reason, Result
from conformance.printable import printable
from conformance.report.adopters import entries_of, render
from suite_runs import run

CASES = {case_id: case for case_id, case in by_id().items() if fnmatchcase(case_id, "roi_align/e[dm]*/v*/float*")}
NASTY = printable('it\'s "quoted" */ // ]}\n# a line\\')
STATES = [
    (Outcome.PASSED, None, ""),
    (Outcome.FAILED, Reason.NUMBER, NASTY),
    (Outcome.DEPARTED, Reason.REFUSED, f"refused: {NASTY}"),
    (Outcome.UNSUPPORTED, None, ""),
    (Outcome.CRASHED, Reason.ENDED, f"the process ended: {NASTY}"),
]
RESULTS = [
    Result(case.id, outcome, message, reason=reason, basis=case.basis)
    for k, case in enumerate(CASES.values())
    for outcome, reason, message in [STATES[k % len(STATES)]]
]
STATE = {folder_name(CASES[r.id], "onnx"): r.outcome for r in RESULTS if not reason_left_out(CASES[r.id])}
BAD = {name for name, outcome in STATE.items() if outcome is not Outcome.PASSED}
"""The names of the folders that do not pass."""


def test_patterns_of_onnxruntime_exclude_these_cases_and_no_others(file: Callable[[str], Path]) -> None:
    lines = file("onnxruntime").read_text("utf-8").splitlines()
    data = json.loads("\n".join(line.split("//")[0] for line in lines))  # as onnx_backend_test_series.py
    unsupported = {name for name, outcome in STATE.items() if outcome is Outcome.UNSUPPORTED}
    for category, due in (("current_failing_tests", BAD - unsupported), ("unsupported_usages", unsupported)):
        found = re.compile("|".join(data[category]))
        for device in ("", "_cpu", "_cuda"):
            assert {name for name in STATE if found.search(name + device)} == due
    for field in ("rtol", "atol"):
        bounds = {
            folder_name(CASES[r.id], "onnx"): getattr(tolerances(CASES[r.id]), field) for r in RESULTS if not r.message
        }
        default, wider = data[f"{field}_default"], data[f"{field}_overrides"]
        passed = STATE.keys() - BAD
        assert wider == {name: bounds[name] for name in passed & bounds.keys() if bounds[name] > default}


def test_marks_of_openvino_have_the_reasons_and_skip_what_crashes(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = ModuleType("tests")
    tests.xfail_test = lambda reason: pytest.mark.xfail(reason=reason, strict=True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tests", tests)
    names: dict[str, list[pytest.MarkDecorator]] = {}
    exec(file("openvino").read_text("utf-8"), content := dict[str, list[tuple[pytest.MarkDecorator, str]]]())  # noqa: S102
    for mark, *listed in content["tests_expected_to_fail"]:
        for name in listed:
            names.setdefault(name, []).append(mark)
    assert names.keys() == {f"OnnxBackendNodeModelTest.{name}_cpu" for name in BAD}
    for name, (mark,) in names.items():
        crashes = STATE[name.split(".")[1].removesuffix("_cpu")] is Outcome.CRASHED
        assert mark.name == ("skip" if crashes else "xfail")
        assert mark.kwargs["reason"] == "unsupported" or NASTY in mark.kwargs["reason"]


def test_the_deny_list_of_opencv_is_the_inside_of_an_array(file: Callable[[str], Path], tmp_path: Path) -> None:
    lines = file("opencv").read_text("utf-8").splitlines()
    assert {line[1:-2] for line in lines if re.fullmatch(r'"\w+",', line)} == BAD
    assert all(line.startswith("// ") and line[-1] != "\\" for line in lines if line[0] != '"')
    if compiler := shutil.which("cc"):
        source = f'#include <stdio.h>\nconst char *names[] = {{\n#include "{file("opencv")}"\n}};\n'
        source += "int main(void) { for (unsigned i = 0; i < sizeof names / sizeof *names; i++) puts(names[i]); }\n"
        command = [compiler, "-Wall", "-Wextra", "-Werror", "-xc", "-", "-o", str(tmp_path / "names")]
        subprocess.run(command, input=source, text=True, check=True)  # noqa: S603
        printed = subprocess.run([tmp_path / "names"], capture_output=True, text=True, check=True)  # noqa: S603
        assert set(printed.stdout.split()) == BAD


def test_the_expectations_of_burn_have_all_cases_with_a_state(file: Callable[[str], Path]) -> None:
    tables = tomllib.loads(file("burn").read_text("utf-8"))
    words = {Outcome.PASSED: "pass", Outcome.FAILED: "fail-compare", Outcome.CRASHED: "flaky"}
    for name, outcome in STATE.items():
        status = words.get(outcome, "skip-codegen")
        assert tables[name]["status"] == status
        assert set(tables[name]) == ({"status"} if status == "pass" else {"status", "reason"})
    assert tables.keys() == STATE.keys()


def test_the_metadata_of_web_platform_tests_are_of_the_page_that_the_file_names(file: Callable[[str], Path]) -> None:
    lines = [line for line in file("ini").read_text("utf-8").splitlines() if not re.match(r"\s*(#|$)", line)]
    assert lines[:2] == ["[roi_align.https.any.html]", "  expected: [OK, CRASH, TIMEOUT]"]
    names = [re.fullmatch(r"  \[(\w+)\]", line) for line in lines[2::2]]
    statuses = [re.fullmatch(r"    expected: (.*)", line) for line in lines[3::2]]
    found = {name[1]: status[1] for name, status in zip(names, statuses, strict=True) if name and status}
    words = {Outcome.UNSUPPORTED: "PRECONDITION_FAILED", Outcome.CRASHED: "[FAIL, NOTRUN, TIMEOUT]"}
    assert found == {name: words.get(STATE[name], "FAIL") for name in BAD}


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """A function that writes the list in a format."""

    def written(form: str) -> Path:
        path = tmp_path / "roi_align.https.any.js.ini"
        path.write_text(render(form, entries_of(RESULTS, []), "runtime 1.0", path), "utf-8")
        return path

    return written


@pytest.mark.usefixtures("no_processes")
def test_a_run_writes_the_list_and_counts_what_the_runners_of_onnx_cannot_run(tmp_path: Path) -> None:
    asked = ("--backend", "wrong_backends:ten", "--select", "roi_align/[er]*/*x*/v16/float", "--format", "opencv")
    done = run(*asked, "--write-expected-failures", tmp_path / "deny.inl.hpp")
    assert done.exit_code == 0, done.output
    assert re.search(r"\n\d+ of \d+ cases for ONNX's runners, without \d+ others written to .*hpp\n$", done.output)
    names = re.findall(r'^"(.*)",$', (tmp_path / "deny.inl.hpp").read_text("utf-8"), re.MULTILINE)
    assert names
    assert set(names) <= {folder_name(case, "onnx") for case in by_id().values()}
    for wrong in ((), ("--write-expected-failures", tmp_path / "deny.inl.hpp", "--update")):
        assert run(*asked, *wrong).exit_code == 2

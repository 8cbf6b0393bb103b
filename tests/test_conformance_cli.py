# SPDX-License-Identifier: MIT
"""`python -m conformance run`: selecting, reporting, outcomes and exit status."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from conformance import backends
from conformance.cases import collect
from conformance.commands import COMMANDS
from conformance.commands.run import shard_of
from conformance.outcome import Outcome
from ortops.operators.asked import OPERATORS
from suite_runs import INSIDE, outcomes, report, run, stored, words

IDS = [case.id for case in collect()]
HERE = Path(__file__).parent
FEW = "roi_align/edge/half_pixel_*/v16/*"

pytestmark = pytest.mark.usefixtures("no_processes")


def test_list_prints_the_ids_that_are_selected_and_not_excluded_and_runs_nothing() -> None:
    assert run("--list", "--backend", "no_such_module").output.splitlines() == IDS
    glob = "roi_align/edge/sample_*/v16/float"
    listed = run("--list", "--select", glob, "--exclude", "*minus_1*", "--exclude", "*/sample_at_H/*").output.split()
    chosen = [i for i in IDS if re.fullmatch("roi_align/edge/sample_.*/v16/float", i)]
    assert listed == [i for i in chosen if "minus_1" not in i and "/sample_at_H/" not in i]
    assert 0 < len(listed) < len(chosen)


def test_shards_are_disjoint_even_and_together_all() -> None:
    shards = [shard_of(collect(), part, 7) for part in range(1, 8)]
    assert sorted(case.id for shard in shards for case in shard) == sorted(IDS)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    kinds = [Counter((case.group, case.element_type) for case in shard) for shard in shards]
    for kind in set().union(*kinds):
        assert max(counter[kind] for counter in kinds) - min(counter[kind] for counter in kinds) <= 1


WRONG_CALLS = [
    (
        "--backend no_such_module",
        "No module named 'no_such_module'. Built in are ortops, ortops-standard, onnxruntime,",
    ),
    ("--backend wrong_backends:NoSuchClass", "NoSuchClass"),
    ("--backend onnxruntim", "No module named 'onnxruntim'. Did you mean onnxruntime? Built in are ortops,"),
    ("--backend json", "must be a function or have prepare(model, device)"),
    ("--backend wrong_backends", "did you mean wrong_backends:Control or wrong_backends:answers_one or"),
    ("--backend ./mine.py", "must be MODULE:NAME; did you mean mine:answer?"),
    ("--backend mine.py:ten", "must be MODULE:NAME; did you mean mine:ten?"),
    ("--backend json:dumps", "must take op_type, inputs, attributes and outputs: too many positional arguments"),
    ("--backend reference --provider CPUExecutionProvider", "only with backend ortops, ortops-standard, onnxruntime"),
    ("--backend onnxruntime --provider None", "'None': must be one of"),
    ("--select roi_algn/edge/*", "'roi_algn/edge/*' selects no case; did you mean roi_align or"),
    ("--select *_grad/matriks/*", "selects no case; did you mean *_grad/matrix?"),
    ("--select roi_align/official", "'roi_align/official' selects no case; did you mean roi_align/official/*?"),
    ("--select roi_align/*/flaot", "did you mean roi_align/*/float or"),
    ("runn", "'runn': must be a command, run, fuzz, matrix"),
    ("--list --exclude dml*", "'dml*' excludes no case"),
    ("--list --exclude *", "'*' leaves no case"),
    ("--list --shard=4/3", "'4/3': must be i/n with 1 <= i <= n"),
    ("--list --shard=1/2", "must have at most as many parts as there are cases, 1"),
    ("--list --at-least 2", "must be at most the number of cases, 1"),
    ("--list --time-limit=nan", "--time-limit"),
    ("--list --expected-failures none.toml", "'none.toml' does not exist"),
    ("--json no/such/folder/report.json", "must be a folder"),
    ("--write-expected-failures mine.py", "exists: must be a new file, or --update must be given"),
    ("--write-expected-failures new --expected-failures mine.py", "cannot be used with"),
    ("--update", "must come with --write-expected-failures"),
    ("matrix no_such.json", "No such file"),
    ("matrix no_such_module", "No module named 'no_such_module'"),
    ("matrix a.json --select g/*", "selects no case of mine"),
    ("matrix reference reference", "must be named once"),
    ("matrix a.json --markdown a.json", "must not be one of SOURCES"),
    ("matrix a.json --markdown no/such/m.md", "must be a folder"),
    ("compare mine.py a.json", "mine.py is not a report of --json: Expecting value"),
    ("compare a.json mine.py", "mine.py is not a report of --json: Expecting value"),
    ("compare a.json none.json", "'none.json' does not exist"),
    ("compare a.json .", "is a directory"),
    ("compare a.json", "Missing argument 'B.json'"),
    ("fuzz --backend no_such_module", "No module named 'no_such_module'"),
    ("fuzz --operator NoSuchOperator", "--operator"),
    ("fuzz --replay no/such/file.json", "does not exist"),
    ("fuzz --backend reference --replay a.json", "a.json does not hold a case"),
    ("fuzz --cases 0", "--cases"),
    ("explain roi_align/oficial/aligned_false/v10/float", "selects no case; did you mean roi_align/official"),
    ("explain roi_align/official/*", "'roi_align/official/*' must match one case, not 27, such as roi_align/official/"),
    (f"explain {INSIDE.removesuffix('/float')}", f"or {INSIDE} or"),
    (f"explain {INSIDE} --svg no/such/folder/x.svg", "must be a folder"),
    ("explain roi_align/refusal/mode_unknown/v16/float --svg x.svg", "has nothing to draw"),
    ("export new --select no/such/case", "selects no case"),
    ("export new --names onnx --select roi_align/refusal/mode_*", "selects no case that can be exported"),
    ("export new --names onnx --select dml_resample/empty/*", "ONNX has no operator DmlResample"),
    (f"export mine.py --select {INSIDE}", "DIR"),
    (f"export mine.py/below --select {INSIDE}", "DIR"),
    ("init mine.py", "mine.py exists; choose another name or delete it"),
    ("init my-backend.py", "my-backend.py: must be the name of a module, such as my_backend.py"),
    ("init backend.txt", "must be the name of a module"),
    ("init backend", "must be the name of a module"),
    ("init no/such/folder/backend.py", "cannot write: "),
]


@pytest.mark.parametrize(("call", "message"), WRONG_CALLS)
def test_a_wrong_call_is_status_2(call: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("# mine", "utf-8")
    stored(Path("a.json"), "mine", {"f/one/a": "passed"})
    few = ["--select", INSIDE] if call.startswith("--") and "--select" not in call else []
    result = run(*call.split(), *few)
    assert (result.exit_code, message in words(result)) == (2, True), result.output
    assert {file.name for file in tmp_path.iterdir()} == {"mine.py", "a.json"}


def test_the_help_of_every_command_names_its_page() -> None:
    assert (HERE.parent / "docs" / "conformance.md").exists()
    for arguments in (["--help"], *([str(command.name), "--help"] for command in COMMANDS)):
        assert "docs/conformance.md" in run(*arguments).output


def test_a_missing_package_of_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.__main__.EXTRA", ("no_such_package",))
    result = run("--list")
    text = (
        "No module named 'no_such_package': python -m conformance needs an extra: "
        "in a clone of ortops, run pip install '.[conformance]'\n"
    )
    assert (result.exit_code, result.output) == (2, text)
    assert run("run", "--help").exit_code == 0


def test_memory_cannot_be_limited_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.child.can_limit_memory", lambda: False)
    result = run("--backend", "reference", "--select", INSIDE, "--memory-limit", "100")
    assert (result.exit_code, "--memory-limit: 100: only on Linux" in words(result)) == (2, True)


def test_failures_are_in_every_report_with_their_worst_element(tmp_path: Path) -> None:
    xml = tmp_path / "report.xml"
    result, data = report(tmp_path, "--backend", "wrong_backends:NoHalfPixel", "--select", FEW, "--junit", xml)
    assert result.exit_code == 1
    assert f"failed {INSIDE}" in result.output
    message = r"Y\[0, 0, 0, 0\]: expected 10, got 13, off by 3 where \S+ is allowed"
    assert re.search(message, result.output)
    head = {"backend", "version", "suite", "onnx", "python", "platform", "date", "complete", "seconds", "level"}
    assert set(data) == {*head, "summary", "cases"}
    assert (data["backend"], data["complete"]) == ("wrong_backends:NoHalfPixel", True)
    assert data["summary"] == {outcome.value: list(outcomes(data).values()).count(outcome) for outcome in Outcome}
    for case in data["cases"]:
        fields = ["id", "outcome", "reason", "basis", "max_error", "allowed", "seconds", "message"]
        assert list(case) == fields + (["outputs"] if case["outcome"] != "passed" else [])
        assert (case["outcome"] == "passed") == (case["message"] == "") == (case["max_error"] <= case["allowed"])
    (suite,) = ET.parse(xml).getroot()  # noqa: S314  # our own file
    assert (suite.get("tests"), suite.get("failures")) == (str(len(data["cases"])), str(data["summary"]["failed"]))
    assert {case.get("classname") for case in suite.findall("testcase")} == {"roi_align/edge"}
    failure = suite.find(f"testcase[@name='{INSIDE}']/failure")
    assert failure is not None
    assert re.search(message, failure.get("message", ""))


def test_unsupported_is_neither_passed_nor_failed(tmp_path: Path) -> None:
    result, data = report(tmp_path, "--backend", "rude_backends:supports_nothing", "--select", FEW)
    assert set(outcomes(data).values()) == {"unsupported"}
    assert f"{len(data['cases'])} unsupported: " in result.output
    end = "0 passed, 0 failed\nthe backend supports none of the selected cases; nothing was tested\n"
    assert (result.exit_code, result.output.endswith(end)) == (1, True)


def test_a_backend_may_be_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from wrong_backends import Control\nprepare = Control.prepare\n__version__ = '1.2'\n"
    (tmp_path / "a_runtime.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    result, data = report(tmp_path, "--backend", "a_runtime", "--select", FEW)
    count = len(run("--list", "--select", FEW).output.splitlines())
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, f"{count} passed, 0 failed")
    assert data["version"] == "1.2"
    again = report(tmp_path, "--backend", "a_runtime", "--select", FEW, "--resume", tmp_path / "report.json")
    assert again[1] == data


def test_a_class_of_a_package_has_the_packages_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").write_text("__version__ = '2\x1b'", "utf-8")
    (tmp_path / "a_package" / "own.py").write_text("from wrong_backends import Control", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert backends.load("a_package.own:Control").version == r"2\x1b"
    assert backends.load("wrong_backends:Control").version == ""


# What `init` writes.


@pytest.mark.parametrize(
    ("file", "name"), [("conformance/commands/template.py", "    op_type: "), ("docs/conformance.md", "| `op_type` |")]
)
def test_the_description_of_a_function_has_all_names_of_operators(file: str, name: str) -> None:
    described = (HERE.parent / file).read_text("utf-8").partition(name)[2].partition("inputs")[0]
    names = {operator.standard[0] if operator.standard else operator.name for operator in OPERATORS}
    assert [name for name in names if name.removesuffix("Grad") not in described] == []


def test_what_it_writes_runs_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_backend", raising=False)
    written = run("init", "my_backend.py")
    assert (written.exit_code, written.stdout) == (0, "python -m conformance --backend my_backend:answer\n")
    assert "MODULE" not in Path("my_backend.py").read_text("utf-8")
    # The command that it prints, for a part of the cases with the one that it lists as an expected failure.
    options = ["--select", "roi_align/*/v16/*float", "--shard", "1/6", "--json", "report.json"]
    done = run(*written.stdout.split()[3:], *options)
    assert done.exit_code == 0, done.output
    cases = json.loads(Path("report.json").read_text("utf-8"))["cases"]
    outcomes = Counter(case["outcome"] for case in cases)
    assert outcomes["passed"] > 25
    assert outcomes["unsupported"] > 5
    assert outcomes["failed"] == outcomes["crashed"] == 0
    known = run("--backend", "my_backend:answer", "--select", "*/batch_index_negative/v16/float")
    assert (known.exit_code, "NumPy takes -1 for the last image" in known.output) == (0, True), known.output

"""Whatever a backend does, a run ends with all its reports, and each case has an outcome."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from conformance import backends
from conformance.__main__ import main
from conformance.backends import MissingBackendError
from conformance.isolate import Child, Setting, child_of, declaration_of
from conformance.report import record
from conformance.run import ask, judge
from conformance.vectors import collect
from conformance.workers import LocalPool
from ortops import atomic_file

GLOB = "roi_align/official/*/v16/float"
CASES = [case for case in collect() if case.group == "roi_align/official" and case.id.endswith("/v16/float")]
ENDS = "it would have ended the process: "
TABLE = [
    ("panics", "crashed", f"{ENDS}Panic: unwrap() on a `None` value"),
    ("interrupts_itself", "crashed", f"{ENDS}KeyboardInterrupt: "),
    ("exits_in_its_message", "failed", "refused: ExitInMessageError: its message raised SystemExit"),
    ("interrupts_in_its_message", "failed", "refused: InterruptInMessageError: its message raised KeyboardInterrupt"),
    ("is_nameless", "failed", "refused: NamelessError: x"),
    ("ends_at_once", "crashed", f"{ENDS}os._exit(0)"),
    ("closes_the_streams", "failed", "refused: ValueError: closed"),
    ("redirects_the_streams", "failed", "refused: ValueError: redirected"),
    ("has_a_thread_that_dies", "failed", "refused: ValueError: thread"),
    ("answers_in_objects", "failed", "Y: expected type float32, got type object"),
    ("answers_in_a_word", "failed", "Y: expected type float32, got type <U1"),
]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc lists the descriptors")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def reports_of(folder: Path, backend: str, *options: str) -> tuple[Result, list[tuple[str, str]]]:
    """The result of a run, and outcome and message of each case; all three files have them."""
    files = {name: folder / f"r.{name}" for name in ("json", "junit", "html")}
    written = [part for name, file in files.items() for part in (f"--{name}", str(file))]
    done = run("--backend", backend, "--select", GLOB, *written, *options)
    cases = json.loads(files["json"].read_text("utf-8"))["cases"]
    assert len(ET.parse(files["junit"]).findall(".//testcase")) == len(cases)  # noqa: S314  # our own file
    assert files["html"].stat().st_size > 1000
    return done, [(case["outcome"], case["message"]) for case in cases]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_each_case_has_an_outcome_in_every_report(tmp_path: Path) -> None:
    done, found = reports_of(tmp_path, "rude_backends:forks_and_both_return")
    assert found == [("failed", "refused: ValueError: parent")] * len(CASES)
    assert done.exit_code == 1
    assert done.output.endswith(f"0 passed, {len(CASES)} failed\n")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_backend_in_this_process_leaves_the_streams_and_the_exit() -> None:
    streams, end = (sys.stdout, sys.stderr), os._exit
    for name, outcome, message in TABLE:
        result = judge(CASES[0], ask(backends.load(f"rude_backends:{name}"), CASES[0]))
        assert (result.outcome.value, result.message) == (outcome, message)
        assert ((sys.stdout, sys.stderr), os._exit) == (streams, end)
        os.fstat(1)
        os.fstat(2)


def test_one_child_lives_through_it_all(tmp_path: Path) -> None:
    several = "roi_align/edge/half_pixel*/v16/float"
    file = tmp_path / "r.json"
    run("--backend", "rude_backends:does_it_all", "--select", several, "--jobs", "1", "--json", str(file))
    found = [(case["outcome"], case["message"]) for case in json.loads(file.read_text("utf-8"))["cases"]]
    expected = [(outcome, message) for _, outcome, message in TABLE]
    assert found[: len(TABLE)] == expected


@on_linux
@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("answers_for_another_case", "mine"),
        ("writes_garbage_to_its_pipe", "something else than an answer came from the process: UnpicklingError"),
        ("closes_its_pipe", "the process ended with exit code "),
        ("leaves_a_child_and_ends", "the process ended with exit code -9"),
    ],
)
def test_what_a_child_does_to_its_pipe_costs_one_case(backend: str, message: str) -> None:
    with LocalPool(1), child_of(Setting(f"rude_backends:{backend}", time_limit=10.0)) as child:
        assert [message in result.message for result in child.results(CASES[:2])] == [True, True]


MODULES = [
    ("EXPECTED_FAILURES = 7", "EXPECTED_FAILURES = 7: must be a mapping of globs to reasons"),
    ("EXPECTED_FAILURES = {'*': 7}", "EXPECTED_FAILURES has '*': 7: must map strings to strings"),
    ("EXPECTED_FAILURES = ['*']", "EXPECTED_FAILURES = ['*']: must be a mapping"),
    ("CONVENTIONS = 7", "CONVENTIONS = 7: must be a list of names"),
    ("CONVENTIONS = 'roi'", "CONVENTIONS = 'roi': must be a list of names"),
    ("import os; os._exit(0)", "importing it would have ended the process: os._exit(0)"),
    ("raise SystemExit(0)", "importing it would have ended the process: 0"),
    ("raise RuntimeError('no\\x1b[2J')", r"importing it raised RuntimeError: no\x1b[2J"),
    ("from rude_backends import panics; panics()", "importing it raised Panic: unwrap()"),
    ("def __getattr__(name): raise RuntimeError(name)", "raised RuntimeError"),
]


@pytest.mark.parametrize(("text", "message"), MODULES)
def test_a_backend_that_cannot_be_loaded_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    (tmp_path / "own.py").write_text(f"def prepare(*_): pass\n{text}\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    with pytest.raises(MissingBackendError) as caught:
        declaration_of(backends.load("own"))
    assert str(caught.value).startswith("backend own: ")
    assert message in str(caught.value)


@on_linux
def test_a_module_that_ends_its_process_is_one_line_where_it_is_imported_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fatal.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    done = run("--backend", "fatal", "--select", GLOB, "--json", str(tmp_path / "r.json"))
    assert done.exit_code == 2
    assert not (tmp_path / "r.json").exists()
    assert "backend fatal: loading it ended the process with exit code -9" in said(done)


def said(done: Result) -> str:
    return " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize("option", ["--json", "--junit", "--html"])
@pytest.mark.parametrize("name", ["/proc/self/r", "x" * 300])
@on_linux
def test_a_file_that_cannot_be_written_is_told_before_the_first_case(option: str, name: str) -> None:
    done = run("--backend", "rude_backends:panics", "--select", GLOB, option, name)
    assert done.exit_code == 2
    assert "cannot be written: " in said(done)
    assert "crashed" not in done.output


def test_a_file_that_cannot_be_written_in_the_end_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = atomic_file.write

    def full(path: Path, content: str | bytes) -> None:
        if path.suffix == ".json":
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(atomic_file, "write", full)
    files = [part for name in ("json", "junit", "html") for part in (f"--{name}", str(tmp_path / f"r.{name}"))]
    done = run("--backend", "reference", "--select", GLOB, *files)
    assert done.exit_code == 1
    assert "r.json is not written: [Errno 28] No space left on device" in done.output
    assert {file.name for file in tmp_path.iterdir()} == {"r.junit", "r.html"}


def test_an_error_of_the_suite_itself_leaves_the_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Child.results
    monkeypatch.setattr(Child, "results", lambda self, cases: results(self, cases) if CASES[0] in cases else 1 / 0)
    done = run("--backend", "reference", "--select", GLOB, "--json", str(tmp_path / "r.json"), "--jobs", "1")
    assert isinstance(done.exception, ZeroDivisionError)
    report = record.read(tmp_path / "r.json")
    assert (list(report.entries), report.complete) == ([case.id for case in CASES[:1]], False)


def test_a_part_file_is_never_one_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if its random name were guessed: a link of this name is not followed."""
    precious = tmp_path / "precious"
    precious.write_text("precious", "utf-8")
    monkeypatch.setattr("ortops.atomic_file.secrets.token_hex", lambda _: "guessed")
    (tmp_path / ".guessed.part").symlink_to(precious)
    with pytest.raises(FileExistsError):
        atomic_file.write(tmp_path / "r.json", "report")
    assert precious.read_text("utf-8") == "precious"
    assert not (tmp_path / "r.json").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_report_has_the_mode_of_other_new_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    atomic_file.write(tmp_path / "r.json", "report")
    assert (tmp_path / "r.json").stat().st_mode == (tmp_path / "other").stat().st_mode

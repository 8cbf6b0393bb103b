"""Whatever a backend does or says, a run ends with all its reports, and each case has an outcome."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest

from conformance import backends
from conformance.backends import MissingBackendError
from conformance.isolate import Child, Setting, child_of, declaration_of
from conformance.printable import MAX_LENGTH, printable
from conformance.report import record
from conformance.run import ask, judge
from conformance.vectors import collect
from conformance.worker_process import ProcessLostError, WorkerProcess, stage
from conformance.workers import LocalPool
from ortops import atomic_file
from rude_backends import CLEARS, RUDE, SHOWN
from suite_runs import report, run, words

GLOB = "roi_align/official/*/v16/float"
CASES = [case for case in collect() if case.group == "roi_align/official" and case.id.endswith("/v16/float")]
HIDDEN = {chr(i) for i in (*range(32), *range(127, 160), 0x202E, 0xFFFF)} - {"\n"}
"""What no report may have, but for ends of lines."""

ENDS = "it would have ended the process: "
RAISED = "refused: {}: its message raised {}".format
TABLE = {
    "panics": ("crashed", f"{ENDS}Panic: unwrap() on a `None` value"),
    "interrupts_itself": ("crashed", f"{ENDS}KeyboardInterrupt: "),
    "exits": ("crashed", f"{ENDS}SystemExit: 0"),
    "exits_in_its_message": ("failed", RAISED("ExitInMessageError", "SystemExit")),
    "interrupts_in_its_message": ("failed", RAISED("InterruptInMessageError", "KeyboardInterrupt")),
    "is_wordless": ("failed", RAISED("WordlessError", "RuntimeError")),
    "is_nameless": ("failed", "refused: NamelessError: x"),
    "ends_at_once": ("crashed", f"{ENDS}os._exit(0)"),
    "closes_the_streams": ("failed", "refused: ValueError: closed"),
    "redirects_the_streams": ("failed", "refused: ValueError: redirected"),
    "has_a_thread_that_dies": ("failed", "refused: ValueError: thread"),
    "answers_in_objects": ("failed", "Y: expected type float32, got type object"),
    "answers_in_a_word": ("failed", "Y: expected type float32, got type <U1"),
    "answers_in_a_rude_type": ("failed", r"Y: expected type float32, got type [('\x1b0', '<f4'), ('\x1b1', "),
    "refuses": ("failed", f"refused: ValueError: {SHOWN}"),
    "supports_nothing": ("unsupported", SHOWN),
    "has_a_rude_name": ("failed", rf"refused: {SHOWN}: ".replace(r"\x00", "").replace(r"\ud800", "")),
    "says_much": ("failed", r"\ud800... and 998012 more characters"),
}
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc lists the descriptors")


def test_one_child_lives_through_it_all_and_every_report_says_so(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("r.xml", "r.html")]
    select = (
        "--select",
        "roi_align/edge/[h-z]*/v16/float",
        "--jobs",
        "1",
        "--junit",
        files[0],
        "--html",
        files[1],
        "-v",
    )
    done, data = report(tmp_path, "--backend", "rude_backends:does_it_all", *select)
    assert done.exit_code == 1
    last = done.output.splitlines()[-1]
    cases = data["cases"][: len(RUDE)]
    assert [function.__name__ for function in RUDE] == list(TABLE)
    elements = ET.parse(files[0]).findall(".//testcase")  # noqa: S314  # our own file
    page = files[1].read_text("utf-8")
    assert len(elements) == len(data["cases"])
    for case, element, (outcome, message) in zip(cases, elements, TABLE.values(), strict=False):
        text = case["message"]
        assert (case["outcome"], message in text) == (outcome, True), text
        assert len(text) < 10 * MAX_LENGTH
        (child,) = (one for one in element if one.tag != "properties")
        assert child.get("message") == f"{outcome}: {text}"
        assert text.replace("'", "&#39;").replace("<", "&lt;") in page
        assert outcome == "unsupported" or f"    {text}\n" in done.output
    for text in (done.output, page, *(file.read_text("utf-8") for file in tmp_path.glob("r*.[jx]*"))):
        assert not HIDDEN.intersection(text)
    assert [line for line in done.output.splitlines() if re.match(r"\d+ passed", line)] == [last]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_backend_in_this_process_leaves_the_streams_and_the_exit() -> None:
    streams, end = (sys.stdout, sys.stderr), os._exit
    for name, (outcome, message) in TABLE.items():
        result = judge(CASES[0], ask(backends.load(f"rude_backends:{name}"), CASES[0]))
        assert (result.outcome.value, message in result.message) == (outcome, True)
        assert ((sys.stdout, sys.stderr), os._exit) == (streams, end)
        os.fstat(1)
        os.fstat(2)


@on_linux
@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("rude_backends:answers_for_another_case", "mine"),
        ("rude_backends:writes_garbage_to_its_pipe", "something else than an answer came from the process: Unpickl"),
        ("rude_backends:leaves_a_child_and_ends", "the process ended with exit code -9"),
        ("rude_backends:forks_and_both_return", "refused: ValueError: parent"),
        ("ending_backends:hangs", "no answer within 0.5 s"),
    ],
)
def test_what_a_backend_does_to_its_process_costs_one_case(backend: str, message: str) -> None:
    with LocalPool(1), child_of(Setting(backend, time_limit=0.5 if "hangs" in backend else 10.0)) as child:
        assert [message in result.message for result in child.results(CASES[:2])] == [True, True]


def waits_for_a_program(file: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    file.write_text(str(program.pid), "ascii")
    stage("", 0.5)
    program.wait()


@on_linux
def test_a_program_that_a_backend_waits_for_ends_with_it(tmp_path: Path) -> None:
    child, file = WorkerProcess(os.getpid), tmp_path / "pid"
    with pytest.raises(ProcessLostError, match=r"within 0.5 s"):
        child.call(waits_for_a_program, file)
    child.end()
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(file.read_text("ascii"))).wait(60)


@on_linux
@pytest.mark.parametrize("starts_another", [False, True])
def test_the_group_of_a_child_ends_before_the_child_is_reaped(
    monkeypatch: pytest.MonkeyPatch, starts_another: bool
) -> None:
    """Else its number may be that of a group of somebody else; the start of any process reaps those that have ended."""
    done: list[tuple[str, int]] = []
    waitpid, killpg = os.waitpid, os.killpg

    def reaps(pid: int, flag: int) -> tuple[int, int]:
        found = waitpid(pid, flag)
        done.extend([("reaped", pid)] if found[0] else [])
        return found

    def kills(pid: int, number: int) -> None:
        done.append(("killed", pid))
        killpg(pid, number)

    monkeypatch.setattr(os, "waitpid", reaps)
    monkeypatch.setattr(os, "killpg", kills)
    child = WorkerProcess(os.getpid)
    group = child.start()
    if starts_another:
        os.kill(group, signal.SIGKILL)
        os.waitid(os.P_PID, group, os.WEXITED | os.WNOWAIT)
        other = WorkerProcess(os.getpid)
        other.start()
        other.end()
    else:
        with pytest.raises(ProcessLostError):
            child.call(os._exit, 3)
    child.end()
    own = [what for what, pid in done if pid == group]
    assert "killed" in own
    assert own[-1] == "reaped"


MODULES = [
    ("EXPECTED_FAILURES = 7", "EXPECTED_FAILURES = 7: must be a mapping of globs to reasons"),
    ("EXPECTED_FAILURES = {'*': 7}", "EXPECTED_FAILURES has '*': 7: must map strings to strings"),
    ("CONVENTIONS = 7", "CONVENTIONS = 7: must be a list of names"),
    ("CONVENTIONS = 'roi'", "CONVENTIONS = 'roi': must be a list of names"),
    ("CONVENTIONS = ['roi']", "convention 'roi': must be one of max_interpolated"),
    ("import os; os._exit(0)", "importing it would have ended the process: os._exit(0)"),
    ("raise SystemExit(0)", "importing it would have ended the process: 0"),
    ("raise RuntimeError('no\\x1b[2J')", r"importing it raised RuntimeError: no\x1b[2J"),
    ("from rude_backends import panics; panics()", "importing it raised Panic: unwrap()"),
    ("def __getattr__(name): raise RuntimeError(name)", "raised RuntimeError"),
]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a module `own`."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    return tmp_path / "own.py"


@pytest.mark.parametrize(("text", "message"), MODULES)
def test_a_backend_that_cannot_be_loaded_says_why(own: Path, text: str, message: str) -> None:
    own.write_text(f"def prepare(*_): pass\n{text}\n", "utf-8")
    with pytest.raises(MissingBackendError) as caught:
        declaration_of(backends.load("own"))
    assert str(caught.value).startswith("backend own: ")
    assert message in str(caught.value)


@on_linux
def test_a_module_that_kills_its_process_is_a_wrong_call(own: Path) -> None:
    own.write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "utf-8")
    done = run("--backend", "own", "--select", CASES[0].id, "--json", own.with_name("r.json"))
    assert (done.exit_code, own.with_name("r.json").exists()) == (2, False)
    assert "backend own: loading it ended the process with exit code -9" in words(done)


@pytest.mark.parametrize("command", ["run", "matrix", "explain", "fuzz"])
@pytest.mark.usefixtures("no_processes")
def test_a_module_that_exits_is_a_wrong_call(own: Path, command: str) -> None:
    own.write_text(f"raise SystemExit({CLEARS!a})", "utf-8")
    named = {"matrix": ["own"], "explain": [CASES[0].id, "--backend", "own"]}
    done = run(command, *named.get(command, ["--backend", "own"]))
    assert done.exit_code == 2
    assert r"backend own: importing it would have ended the process: \x1b[2J" in words(done)


def test_a_terminal_that_lacks_characters_has_the_report() -> None:
    command = [sys.executable, "-m", "conformance", "explain", CASES[0].id, "--backend", "rude_backends:refuses"]
    path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, b"waiting for rude_backends:refuses, at most 10 s\n")
    assert b"refused: ValueError: " + SHOWN.encode("ascii", "backslashreplace") in done.stdout


def test_what_is_printable_stays_as_it_is() -> None:
    for text in ("", "é 中 😀 ~", SHOWN, "x" * MAX_LENGTH):
        assert printable(text) == text
    assert printable(printable(CLEARS)) == printable(CLEARS) == SHOWN
    assert len(printable("x" * 10**6)) == MAX_LENGTH


# The files of a run.


@pytest.mark.parametrize("option", ["--json", "--junit", "--html"])
@on_linux
def test_a_file_that_cannot_be_written_is_told_before_the_first_case(option: str) -> None:
    for name in ("/proc/self/r", "x" * 300):
        done = run("--backend", "rude_backends:panics", "--select", GLOB, option, name)
        assert (done.exit_code, "crashed" in done.output) == (2, False)
        assert "cannot be written: " in words(done)


@pytest.mark.usefixtures("no_processes")
def test_a_file_that_cannot_be_written_in_the_end_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = atomic_file.write

    def full(path: Path, content: str | bytes) -> None:
        if path.suffix == ".json":
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(atomic_file, "write", full)
    files = [part for name in ("json", "junit", "html") for part in (f"--{name}", tmp_path / f"r.{name}")]
    done = run("--backend", "reference", "--select", GLOB, *files)
    assert done.exit_code == 1
    assert "r.json is not written: [Errno 28] No space left on device" in done.output
    assert {file.name for file in tmp_path.iterdir()} == {"r.junit", "r.html"}


@pytest.mark.usefixtures("no_processes")
def test_an_error_of_the_suite_itself_leaves_the_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Child.results
    monkeypatch.setattr(Child, "results", lambda self, cases: results(self, cases) if CASES[0] in cases else 1 / 0)
    done = run("--backend", "reference", "--select", GLOB, "--json", tmp_path / "r.json", "--jobs", "1")
    assert isinstance(done.exception, ZeroDivisionError)
    found = record.read(tmp_path / "r.json")
    assert (list(found.entries), found.complete) == ([case.id for case in CASES[:1]], False)


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

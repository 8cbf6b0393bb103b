# SPDX-License-Identifier: MIT
"""Whatever a backend does, whatever stops a run, and in whatever order results come, a run ends with all its reports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import pytest

import rude_backends
from conformance import backends, schedule
from conformance.backends import MissingBackendError
from conformance.case import MAX_SAMPLES, Case
from conformance.cases import collect
from conformance.child import Child, ProcessLostError, can_limit_memory, stage
from conformance.families import family_of
from conformance.outcome import Outcome, Result
from conformance.printable import MAX_LENGTH
from conformance.report import files, record
from conformance.report.files import Reports
from conformance.run import ask, judge
from conformance.schedule import BackendChild, Declaration, Setting, WorkerPool
from ortops import atomic_file
from rude_backends import CLEARS, RUDE, SHOWN
from suite_runs import report, run, words

GLOB = "roi_align/official/*/v16/float"
CASES = [case for case in collect() if case.group == "roi_align/official" and case.id.endswith("/v16/float")]
HIDDEN = {chr(i) for i in (*range(32), *range(127, 160), 0x202E, 0xFFFF)} - {"\n"}
"""What no report may have, but for ends of lines."""

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc lists the descriptors")


def test_one_child_lives_through_it_all_and_every_report_says_so(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("r.xml", "r.html")]
    asked = "--backend rude_backends:does_it_all --select roi_align/edge/[h-z]*/v16/float --jobs 1 -v"
    done, data = report(tmp_path, asked, "--junit", files[0], "--html", files[1])
    assert done.exit_code == 1
    last = done.output.splitlines()[-1]
    cases = data["cases"][: len(RUDE)]
    elements = ET.parse(files[0]).findall(".//testcase")  # noqa: S314  # our own file
    page = files[1].read_text("utf-8")
    assert len(elements) == len(data["cases"])
    for case, element, (outcome, message) in zip(cases, elements, RUDE.values(), strict=False):
        text = case["message"]
        assert (case["outcome"], message in text) == (outcome, True), text
        assert len(text) < 10 * MAX_LENGTH
        (child,) = (part for part in element if part.tag != "properties")
        assert child.get("message") == f"{outcome}: {text}"
        assert text.replace("'", "&#39;").replace("<", "&lt;") in page
        assert outcome == "unsupported" or f"    {text}\n" in done.output
    for text in (done.output, page, *(file.read_text("utf-8") for file in tmp_path.glob("r*.[jx]*"))):
        assert not HIDDEN.intersection(text)
    assert [line for line in done.output.splitlines() if re.match(r"\d+ passed", line)] == [last]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_backend_in_this_process_leaves_the_streams_and_the_exit() -> None:
    streams, end = (sys.stdout, sys.stderr), os._exit
    for name, (outcome, message) in RUDE.items():
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
        ("rude_backends:writes_garbage_to_its_pipe", "the process sent something other than an answer: Unpickl"),
        ("rude_backends:leaves_a_child_and_ends", "the process ended with signal 9 (Killed"),
        ("rude_backends:forks_and_both_return", "refused: ValueError: parent"),
        ("rude_backends:hangs", "no answer within 0.5 s"),
    ],
)
def test_what_a_backend_does_to_its_process_costs_one_case(backend: str, message: str) -> None:
    with BackendChild(Setting(backend, time_limit=0.5 if "hangs" in backend else 10.0)) as child:
        assert [message in result.message for result in child.results(CASES[:2])] == [True, True]


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("hangs_at_first_unless_it_has_a_second", "refused: ValueError: loaded"),
        ("hangs_and_writes_its_limit", "no answer within 0.5 s"),
    ],
)
def test_the_first_call_of_a_worker_has_more_time_and_does_not_count(
    backend: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, data = report(tmp_path, f"--backend rude_backends:{backend} --select {GLOB} --jobs 1 --time-limit 0.5")
    assert [case["message"] for case in data["cases"]] == [message] * len(CASES)
    first, *others = Path("limits.txt").read_text("ascii").split()
    assert (first, set(others)) == ("1.5", {"0.5"})  # also those of the processes that replace one that hangs


@pytest.mark.skipif(not can_limit_memory(), reason="memory is limited on Linux only")
def test_a_case_beyond_its_memory_has_crashed(tmp_path: Path) -> None:
    asked = (
        "--backend rude_backends:hungry_at_max --memory-limit 2048 --select roi_align/edge/m*_has_no_floor/v16/float"
    )
    result, data = report(tmp_path, asked)
    assert result.exit_code == 1
    assert {case["outcome"] for case in data["cases"]} == {"crashed", "unsupported"}
    assert "took more memory than the 2048 MiB it is allowed: MemoryError: Unable to allocate 8.00 GiB" in result.output


def test_a_child_that_was_idle_is_replaced_before_it_ends_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with Child(os.getpid) as child:
        first = child.call(os.getpid)
        assert child.call(os.getpid) == first
        monkeypatch.setattr("conformance.child.IDLE_SECONDS", 0.0)
        assert child.call(os.getpid) != first


def waits_for_a_program(file: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    file.write_text(str(program.pid), "ascii")
    stage("", 0.5)
    program.wait()


@on_linux
def test_a_program_that_a_backend_waits_for_ends_with_it(tmp_path: Path) -> None:
    child, file = Child(os.getpid), tmp_path / "pid"
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
        reaped = waitpid(pid, flag)
        done.extend([("reaped", pid)] if reaped[0] else [])
        return reaped

    def kills(pid: int, number: int) -> None:
        done.append(("killed", pid))
        killpg(pid, number)

    monkeypatch.setattr(os, "waitpid", reaps)
    monkeypatch.setattr(os, "killpg", kills)
    child = Child(os.getpid)
    group = child.start()
    if starts_another:
        os.kill(group, signal.SIGKILL)
        os.waitid(os.P_PID, group, os.WEXITED | os.WNOWAIT)
        other = Child(os.getpid)
        other.start()
        other.end()
    else:
        with pytest.raises(ProcessLostError):
            child.call(os._exit, 3)
    child.end()
    events = [what for what, pid in done if pid == group]
    assert "killed" in events
    assert events[-1] == "reaped"


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
        backends.load("own")
    assert str(caught.value).startswith("backend own: ")
    assert message in str(caught.value)


@on_linux
def test_a_module_that_kills_its_process_is_a_wrong_call(own: Path) -> None:
    own.write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "utf-8")
    done = run("--backend", "own", "--select", CASES[0].id, "--json", own.with_name("r.json"))
    assert (done.exit_code, own.with_name("r.json").exists()) == (2, False)
    assert "backend own: loading it ended the process with signal 9 (Killed" in words(done)


@pytest.mark.parametrize(
    "command",
    [f"--backend own --select {GLOB}", "matrix own", f"explain {CASES[0].id} --backend own", "fuzz --backend own"],
)
@pytest.mark.usefixtures("no_processes")
def test_a_module_that_exits_is_a_wrong_call(own: Path, command: str) -> None:
    own.write_text(f"raise SystemExit({CLEARS!a})", "utf-8")
    done = run(command)
    assert done.exit_code == 2
    assert r"backend own: importing it would have ended the process: \x1b[2J" in words(done)


def test_a_terminal_that_lacks_characters_has_the_report() -> None:
    command = [sys.executable, "-m", "conformance", "explain", CASES[0].id, "--backend", "rude_backends:refuses"]
    path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, b"waiting for rude_backends:refuses, at most 10 s\n")
    assert b"refused: ValueError: " + SHOWN.encode("ascii", "backslashreplace") in done.stdout


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
def test_a_signal_during_the_diagnosis_leaves_all_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "diagnose", lambda _: signal.raise_signal(signal.SIGTERM))
    names = [part for name in ("json", "junit", "html") for part in (f"--{name}", tmp_path / f"r.{name}")]
    done = run("--backend", "rude_backends:refuses", "--select", GLOB, *names)
    assert (done.exit_code, "stopped by signal 15 after" in done.output) == (128 + 15, True)
    assert {file.name for file in tmp_path.iterdir()} == {"r.json", "r.junit", "r.html"}
    assert record.read(tmp_path / "r.json").complete


def test_any_number_of_processes_gives_the_same_reports(tmp_path: Path) -> None:
    asked = "--backend rude_backends:ends_itself_at_max --select roi_align/edge/[i-m]*/v16/float"
    runs, junit = [], tmp_path / "r.xml"
    for jobs in (1, 2):
        done, data = report(tmp_path, asked, "--exclude */max_[!h]* --exclude */max_hu* -j", jobs, "--junit", junit)
        untimed = re.sub(r'time="[^"]*"', "", junit.read_text("utf-8"))
        runs.append((done.exit_code, re.sub(r"; \d+ s\n", "\n", done.stdout), data, untimed))
    assert runs[0] == runs[1]
    status, output, data, _ = runs[0]
    crashed = {case["id"].split("/")[2]: case["message"] for case in data["cases"] if case["outcome"] != "unsupported"}
    assert crashed == {"max_has_no_floor": f"the process ended with signal 6 ({signal.strsignal(signal.SIGABRT)})"}
    assert (status, output.splitlines()[-1]) == (1, "0 passed, 1 crashed")


# A run that is stopped leaves what it has, and another one goes on from there.


EDGE_GLOB = "roi_align/edge/*/v16/float"
IDS = [case.id for case in collect() if case.id.startswith("roi_align/edge/") and case.id.endswith("/v16/float")]
FIRST = 30
"""Cases that the backend answers before it hangs."""

ASKED = ("--backend", "rude_backends:answers_thirty", "--select", EDGE_GLOB, "--jobs", "1")


def after_each_result(patch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Let a run do something whenever it has a result and has written it to its JSON report."""
    add = Reports.add

    def adds(reports: Reports, result: Result) -> None:
        add(reports, result)
        then()

    patch.setattr(Reports, "SECONDS", 0.0)
    patch.setattr(Reports, "add", adds)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_reports_of_a_backend_that_hangs(number: signal.Signals, tmp_path: Path) -> None:
    json_file, junit_file, html_file = (tmp_path / f"results.{suffix}" for suffix in ("json", "xml", "html"))

    def stops() -> None:
        if len(record.read(json_file).entries) == FIRST:
            signal.raise_signal(number)

    with pytest.MonkeyPatch.context() as patch:
        after_each_result(patch, stops)
        result = run(*ASKED, "--json", json_file, "--junit", junit_file, "--html", html_file)
    assert result.exit_code == 128 + number, result.output
    assert result.output.endswith(f"stopped by signal {number.value} after {FIRST} of {len(IDS)} cases\n")
    data: dict[str, Any] = json.loads(json_file.read_text("utf-8"))
    assert data["complete"] is False
    assert [case["id"] for case in data["cases"]] == IDS[:FIRST]
    assert len(ET.parse(junit_file).findall(".//testcase")) == FIRST  # noqa: S314  # our own file
    assert html_file.stat().st_size > 1000


@pytest.mark.usefixtures("no_processes")
def test_a_run_that_goes_on_keeps_what_it_has_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had failed stays failed; what had not been asked is asked of the backend, which answers now."""
    file, sizes, due = tmp_path / "r.json", list[int](), [ValueError("not now"), NotImplementedError("now it does")]

    def raises(*_: object) -> None:
        raise due[0]

    monkeypatch.setattr(rude_backends, "answers_thirty", raises)
    assert run(*ASKED[:2], "--select", IDS[-1], "--json", file, "--level", "strict").exit_code == 1
    due.pop(0)

    def is_kept() -> None:
        saved = record.read(file)
        assert IDS[-1] in saved.entries
        assert saved.complete is (len(saved.entries) == len(IDS))
        sizes.append(len(saved.entries))

    after_each_result(monkeypatch, is_kept)
    result = run(*ASKED, "--resume", file, "--json", file, "--level", "strict")
    assert result.exit_code == 1
    assert sizes == [1, *range(2, len(IDS) + 1)]
    *others, last = json.loads(file.read_text("utf-8"))["cases"]
    assert [case["id"] for case in (*others, last)] == IDS
    assert last["message"] == "refused: ValueError: not now"
    assert {case["outcome"] for case in others} == {"unsupported"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "onnxruntime"}, "has results of onnxruntime by suite"),
        ({"suite": "0.0.1"}, "by suite 0.0.1: must have results of reference"),
        ({"cases": 5}, "has no list of cases"),
    ],
)
def test_only_a_report_of_the_same_backend_and_suite_is_resumed(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    assert run("--backend", "reference", "--select", IDS[0], "--json", str(file)).exit_code == 0
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **change}), "utf-8")
    result = run("--backend", "reference", "--select", EDGE_GLOB, "--resume", str(file))
    assert result.exit_code == 2
    assert message in words(result)


# Results come as they are known: what is slow holds nothing up, and the reports are in order all the same.


OF_EDGE = [case for case in collect() if case.group == "roi_align/edge" and case.id.endswith("/v16/float")]
HUGE = [case for case in OF_EDGE if not case.expects_error and family_of(case.definition).samples(case) > MAX_SAMPLES]


def test_huge_rois_come_last_in_their_group_and_parts_have_one_scenario() -> None:
    assert 1 < len(HUGE) < len(OF_EDGE)
    other = [case for case in collect() if case.group == "max_roi_pool/edge"]
    tasks = schedule.tasks_of([*OF_EDGE, *other])
    order = [case for task in tasks for case in task]
    small = [case for case in OF_EDGE if case not in HUGE]
    assert [case.id for case in order] == [case.id for case in (*small, *HUGE, *other)]
    assert all(len({case.id.split("/")[2] for case in task}) == 1 for task in tasks)


class Threads(WorkerPool):
    """Two threads, of which one waits in its first task until the test lets it go on."""

    worker_count = 2

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self._threads = ThreadPoolExecutor(2)

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run a task without a backend: each case has passed."""
        if function is not schedule.run_task:
            return self._threads.submit(lambda: Declaration((), False, ()))
        return self._threads.submit(self._run, *args)

    def _run(self, _setting: Setting, cases: list[Case]) -> list[Result]:
        assert cases[0] is not OF_EDGE[0] or self.goes_on.wait(30), "other results are held up"
        return [Result(case.id, Outcome.PASSED) for case in cases]


def test_a_case_that_takes_long_holds_up_no_other_result() -> None:
    pool, first = Threads(), {case.id for case in schedule.tasks_of(OF_EDGE)[0]}
    _, results = schedule.run_cases(pool, Setting("any"), OF_EDGE)
    others = [next(results).id for _ in range(len(OF_EDGE) - len(first))]
    pool.goes_on.set()
    assert {result.id for result in results} == first
    assert len(others) == len(set(others) - first) == len(OF_EDGE) - len(first)


def test_a_case_that_exceeds_its_time_has_taken_it_and_the_run_all_of_it(tmp_path: Path) -> None:
    asked = f"--backend rude_backends:hangs --select {OF_EDGE[0].id} --time-limit 0.5"
    begun = time.monotonic()
    files = "--json", tmp_path / "r.json", "--junit", tmp_path / "r.xml"
    result = run(asked, *files, "--write-expected-failures", tmp_path / "r.toml")
    whole = time.monotonic() - begun
    stored = record.read(tmp_path / "r.json")
    (entry,) = stored.entries.values()
    assert (entry.message, entry.seconds) == ("no answer within 0.5 s", 0.5)
    assert entry.seconds <= stored.seconds <= whole
    suite = ET.parse(tmp_path / "r.xml").find("testsuite")  # noqa: S314  # our own file
    assert suite is not None
    assert float(suite.get("time", "")) == pytest.approx(stored.seconds, abs=1e-3)
    assert f"; {stored.seconds:.0f} s" in result.output.splitlines()[2]
    assert (
        "1 of the failing cases exceeded the time limit. On a faster machine such a case may pass, and" in result.output
    )


@pytest.mark.usefixtures("no_processes")
@pytest.mark.usefixtures("no_processes")
def test_a_list_of_expected_failures_is_written_from_a_report_without_the_runtime(tmp_path: Path) -> None:
    few, backend = "roi_align/edge/half_pixel_*/v16/float", "wrong_backends:NoHalfPixel"
    asked = ("--backend", backend, "--select", few)
    _, data = report(tmp_path, *asked)
    assert data["summary"]["failed"] > 1
    resumed = (*asked, "--resume", tmp_path / "report.json", "--write-expected-failures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.backends.load", lambda *_: pytest.fail("the runtime was asked"))
        assert run(*resumed, tmp_path / "from_report.toml").exit_code == 0
    assert run(*asked, "--write-expected-failures", tmp_path / "from_run.toml").exit_code == 0
    written = [(tmp_path / name).read_text("utf-8") for name in ("from_report.toml", "from_run.toml")]
    assert written[0] == written[1]
    # What a list has hidden is asked again.
    _, listed = report(tmp_path, *asked, "--expected-failures", tmp_path / "from_run.toml")
    assert listed["summary"]["failed"] == 0 < listed["summary"]["expected_failure"]
    assert run(*resumed, tmp_path / "again.toml").exit_code == 0
    assert (tmp_path / "again.toml").read_text("utf-8") == written[1]

# SPDX-License-Identifier: MIT
"""Whatever a program does that the suite asks, it costs one case; and the examples answer as their runtimes do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import psutil
import pytest
from click.testing import CliRunner

from conformance import backends, schedule
from conformance.__main__ import main
from conformance.backends import MissingBackendError
from conformance.backends.program import Program
from conformance.cases import by_id
from conformance.child import can_limit_memory
from conformance.run import ask, judge
from conformance.schedule import BackendChild, Setting
from suite_runs import INSIDE, outcomes

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "examples" / "programs"
CASE = by_id()[INSIDE]
BROKEN = "the program's answer breaks the protocol: "

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes are of POSIX")


def rude(code: str) -> str:
    """The backend of a program that runs code."""
    return f"exec:{shlex.join([sys.executable, '-S', str(ROOT / 'tests' / 'rude_program.py'), code])}"


RUDE = {
    "os.abort()": ("crashed", "the program ended with signal 6 (Abort"),
    "os._exit(3)": ("crashed", "the program ended with exit code 3"),
    "raise SystemExit('no room')": ("crashed", "the program ended with exit code 1: no room"),
    "os.close(1); time.sleep(60)": ("crashed", "the program ended with signal 9 (Killed"),
    "print('{Y: 1}', flush=True)": ("crashed", f"{BROKEN}is not JSON: Expecting property name enclosed in double"),
    "print('{\"a\":' * 10**5, flush=True)": ("crashed", f"{BROKEN}is not JSON: "),
    "[os.write(1, b'{' * 2**20) for _ in range(1024)]": ("crashed", f"{BROKEN}has more than 1048576 bytes"),
    "[os.write(1, b'x' * 2**20) for _ in range(1024)]": ("crashed", f"{BROKEN}has more than 1048576 bytes"),
    "[os.write(1, b'x\\n' * 2**10) for _ in range(2**20)]": ("crashed", f"{BROKEN}has more than 1048576 bytes"),
    "print('loading'); say(seq=seq, unsupported='no')": ("unsupported", "no"),
    "os.write(2, b'x' * 10**7); say(seq=seq, refused='loud')": ("failed", "refused: loud"),
    "say(seq=seq, refused='\\x1b[2J\\ud800')": ("failed", r"refused: \x1b[2J\ud800"),
    'os.write(1, b\'{"seq":1,"refused":"\\xff\\t"}\\n\')': ("failed", "refused: \N{REPLACEMENT CHARACTER}\\t"),
    "say(seq=seq + 1, unsupported='no')": ("crashed", f"{BROKEN}seq 2: must be 1, as in the request"),
    "say(unsupported='no')": ("crashed", f"{BROKEN}seq None: must be 1"),
    "say(seq=seq, outputs=float('nan'))": ("crashed", f"{BROKEN}must have a list of outputs, or a text: unsupported"),
    "say(seq=seq, unsupported=1)": ("crashed", f"{BROKEN}must have a list of outputs, or a text: unsupported"),
    "say(seq=seq, outputs=[])": ("failed", "Y: expected shape"),
    "say(seq=seq, outputs=['Y'])": ("crashed", f"{BROKEN}tensor 'Y': must be an object with the fields name, type"),
    "say(seq=seq, outputs=[tensor(), tensor()])": ("crashed", f"{BROKEN}name 'Y': must be one of Y, each at most once"),
    "say(seq=seq, outputs=[tensor(name='Z')])": ("crashed", f"{BROKEN}name 'Z': must be one of Y"),
    "say(seq=seq, outputs=[tensor(type='float8')])": ("crashed", f"{BROKEN}type 'float8': must be one of float16"),
    "say(seq=seq, outputs=[tensor(type='int32')])": ("failed", "Y: expected type float32, got type int32"),
    "say(seq=seq, outputs=[tensor()])": ("failed", "Y: expected shape"),
    "say(seq=seq, outputs=[tensor(size=95)])": ("crashed", f"{BROKEN}file Y.out: has 95 bytes, but float of shape"),
    "say(seq=seq, outputs=[tensor(size=97)])": ("crashed", f"{BROKEN}file Y.out: has 97 bytes, but float of shape"),
    "say(seq=seq, outputs=[tensor(shape=[2**29])])": ("crashed", f"{BROKEN}shape [536870912]: needs 2147483648 bytes"),
    "say(seq=seq, outputs=[tensor(size=-1)])": (
        "crashed",
        f"{BROKEN}file Y.out: must be a file in `folder`: No such file",
    ),
    "say(seq=seq, outputs=[tensor(os.path.abspath('Y.out'))])": ("crashed", "must be the name of a file in the folder"),
    "os.mkfifo('pipe'); say(seq=seq, outputs=[tensor('pipe')])": ("crashed", "file pipe: must be a regular file"),
    "os.symlink('Y.out', 'link'); say(seq=seq, outputs=[tensor('link')])": ("crashed", "link"),
    "os.mkdir('Y.out'); say(seq=seq, outputs=[tensor(size=-1)])": ("crashed", "Y.out"),
}
"""What a program may do in one case, and the outcome and words of the message that this has."""


@pytest.mark.parametrize("code", RUDE)
def test_what_a_program_does_has_an_outcome_with_a_message(code: str) -> None:
    result = judge(CASE, ask(backends.load(rude(code)), CASE))
    outcome, message = RUDE[code]
    assert (result.outcome.value, message in result.message) == (outcome, True), result


def test_the_case_after_a_crash_gets_a_new_program_and_no_file_of_an_earlier_one() -> None:
    backend = backends.load(
        rude("say(seq=seq, outputs=[tensor(size=96 if seq == 1 else -1)]) if seq < 3 else os.abort()")
    )
    messages = [judge(CASE, ask(backend, CASE)).message for _ in range(4)]
    assert ["expected shape" in messages[0], "No such file" in messages[1]] == [True, True]
    assert messages[2:] == messages[:2]


def test_a_program_gets_its_model_once_and_the_calls_of_a_session_after_it() -> None:
    backend = backends.load(rude("say(seq=seq, refused=' '.join([request['model'], *os.listdir()]))"))
    case = by_id()["roi_align/session/after_another_map/v16/avg/output_half_pixel/float"]
    session, texts = backend.prepare(case), list[str]()
    for call in (*case.before, case):
        with pytest.raises(Exception, match="model_1") as raised:
            session(dict(call.inputs))
        texts.append(str(raised.value))
    assert {" ".join(sorted(text.split())) for text in texts} == {
        "X.in batch_indices.in model_1.onnx model_1.onnx rois.in"
    }


def test_the_document_has_the_requests_of_the_suite(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"start run stop::open({str(log)!r}, 'a').write(line); "
    backend = backends.load(
        rude(f"{code}say(**START) if seq == 0 else say(seq=seq, unsupported='') if seq > 0 else exit()")
    )
    assert ask(backend, CASE).kind == "unsupported"
    backend._running.end()  # type: ignore[attr-defined]  # noqa: SLF001
    document = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    shown = re.findall(r"^```json\n(\{\"request.*?)```$", document, re.DOTALL | re.MULTILINE)
    written = re.sub(r'"folder":"[^"]*"', '"folder":"/tmp/conformance-1a2b/program-3c4d"', log.read_text("ascii"))
    assert ["".join(text.split()) for text in shown] == written.splitlines()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "must have a command, such as exec:./my_runtime"),
        ("'", "No closing quotation"),
        ("./no_such_program", "No such file or directory: './no_such_program'"),
        (rude("start::os._exit(2)").removeprefix("exec:"), "the program ended with exit code 2"),
        (rude("start::say(seq=0, version=2)").removeprefix("exec:"), f"{BROKEN}version 2: must be 1"),
    ],
)
def test_a_program_that_does_not_start_is_a_missing_backend(command: str, message: str) -> None:
    with pytest.raises(MissingBackendError) as raised:
        Program(command)
    assert message in str(raised.value)


def test_a_program_may_say_the_version_of_its_runtime() -> None:
    assert Program(rude("start::say(**START, runtime='1.2')").removeprefix("exec:")).version == "1.2"
    assert Program(rude("pass").removeprefix("exec:")).version == ""


def test_a_backend_that_takes_long_to_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "QUIET_SECONDS", 0.1)
    backend = rude("start run::say(**START) if seq == 0 else say(seq=seq, unsupported='')")
    done = CliRunner().invoke(main, ["--backend", backend, "--select", INSIDE, "--jobs", "1"])
    assert done.stderr.startswith(f"waiting for {backend} to start, at most 120 s\n")


def test_paths_that_need_escapes_in_json_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ü").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "ü"))
    with pytest.raises(MissingBackendError, match="TMPDIR must be in ASCII, without quotes and backslashes"):
        Program("true")


def test_a_program_that_ignores_the_request_to_stop_is_killed() -> None:
    backend = Program(rude("stop::time.sleep(60)").removeprefix("exec:"))
    process = psutil.Process(backend._running._process.pid)  # noqa: SLF001
    backend._running.end()  # noqa: SLF001
    assert not process.is_running()


@pytest.mark.skipif(not can_limit_memory(), reason="memory is limited on Linux only")
def test_a_program_beyond_its_time_or_memory_has_crashed_and_leaves_neither_a_process_nor_a_folder(
    tmp_path: Path,
) -> None:
    log, other = tmp_path / "log", by_id()["roi_align/official/aligned_false/v16/float"]
    code = (
        f"open({str(log)!r}, 'a').write(f'{{os.getpid()}} {{os.getcwd()}}\\n'); "
        "time.sleep(60) if 'inside' in request['case'] else bytearray(2**30)"
    )
    with BackendChild(Setting(rude(code), time_limit=1.0, memory_limit=256)) as child:
        hung, hungry = child.results([CASE, other])
    assert "no answer within 1 s" in hung.message
    assert "the program ended with exit code 1, allowed 256 MiB: " in hungry.message
    assert hungry.message.endswith("MemoryError")
    for process, folder in map(str.split, log.read_text("utf-8").splitlines()):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(process)).wait(60)
        assert not Path(folder).exists()


def test_the_time_of_a_case_is_not_that_of_a_new_program() -> None:
    code = "start run::say(**START) if seq == 0 and time.sleep(1.5) is None else os._exit(3)"
    with BackendChild(Setting(rude(code), time_limit=1.0)) as child:
        assert [result.message for result in child.results([CASE] * 2)] == ["the program ended with exit code 3"] * 2


def compiled(folder: Path) -> list[str]:
    """The command of the example in C."""
    program, (library,) = folder / "program", Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    source = PROGRAMS / "with_onnxruntime.c"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", source, "-o", program, "-ldl"], check=True)  # noqa: S603, S607
    return [str(program), str(library)]


def in_node(_: Path, package: str = "onnxruntime-node") -> list[str]:
    """The command of the example in JavaScript, whose package is installed once, in a folder of build."""
    folder = ROOT / "build" / package
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    if not (folder / "node_modules" / package).exists():
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
        command = ["npm", "install", *options, f"{package}@1.30.0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            pytest.skip(f"npm cannot install {package}: {done.stderr[-500:]}")
    return ["node", str(PROGRAMS / "with_onnxruntime.js"), package]


def on_the_web(folder: Path) -> list[str]:
    """The same with WebAssembly."""
    return in_node(folder, "onnxruntime-web")


def in_python(_: Path) -> list[str]:
    """The command of the example in Python."""
    return [sys.executable, str(PROGRAMS / "with_onnxruntime.py")]


def outcomes_of(backend: str, folder: Path) -> dict[str, str]:
    """The outcomes of cases that ONNX Runtime answers, refuses, accepts or lacks, and of sessions, without a list.

    Not those with maps of no pixels, beyond which it reads, and of two threads, which a program cannot have.
    """
    (folder / "none.toml").touch()
    words = [
        "--select",
        "roi_align/[rs]e[fs]*/*/v16/*float",
        "--exclude",
        "*/no_[cr]o*",
        "--exclude",
        "*/two_threads/*",
        "--jobs",
        "1",
    ]
    files = ["--json", str(folder / "report.json"), "--expected-failures", str(folder / "none.toml")]
    done = CliRunner().invoke(main, ["--backend", backend, *words, *files])
    assert done.exit_code == 0, done.output
    return outcomes(json.loads((folder / "report.json").read_text("utf-8")))


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize(
    "command",
    [
        in_node,
        in_python,
        pytest.param(on_the_web, marks=pytest.mark.weekly),
        *([compiled] if sys.platform == "linux" else []),
    ],
)
def test_an_example_has_the_outcomes_of_its_runtime(
    command: Callable[[Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command(tmp_path)
    packages = (ROOT / "build").glob("onnxruntime-*/node_modules")
    monkeypatch.setenv("NODE_PATH", os.pathsep.join(map(str, packages)))
    answers = outcomes_of(f"exec:{shlex.join(words)}", tmp_path)
    assert answers == outcomes_of("onnxruntime", tmp_path)
    assert set(answers.values()) == {"passed", "departed", "unsupported"}

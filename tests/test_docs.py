# SPDX-License-Identifier: MIT
"""Every code block of the README and of docs/ runs, in order, in one folder and one namespace for each document.

A `python` block is executed. A block whose first line is a comment with a file name is written to that file instead. A
`text` block right below one is what it prints. In a `console` block, a line that begins with `$ ` is a command and the
lines after it are what it prints. `...` stands for any output. CONTRIBUTING.md says the same to those who write documents.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from click.testing import CliRunner

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])

LONG = {"conformance.md"}
"""The documents whose blocks take many seconds."""

NEVER_RUN = {"math", "mermaid", "csharp", "java"}
"""Languages of blocks that are pictures or that Python cannot run."""

LANGUAGES = {"python", "text", "console", "toml", "yaml", "json", "c", *NEVER_RUN}
"""Of the blocks that a document may have."""

NOT_RUN = ("make", "pip", "git", "cd", "docker")
"""Commands that other tests or CI run, or that install something."""

CI, ACTION, CI_SCRIPT = ".github/workflows/ci.yml", "action.yml", ".ci/run"

ELSEWHERE = {
    "make conformance": (CI_SCRIPT, "make conformance\n"),
    "make docs REPORTS=report.json": (".github/workflows/weekly.yml", 'python -m docs "$REPORTS"/*.json'),
    "make lint test": (CI_SCRIPT, "make lint"),
    "make test": (CI, "make test\n"),
    "pip install .": (CI, "pip install . pytest\n"),
    "pip install '.[conformance]'": (ACTION, 'pip install "${GITHUB_ACTION_PATH}[conformance]"'),
}
"""The file that runs each command of `NOT_RUN`, and its text that does."""

PROJECT = ("ortops", "onnx_models", "conformance", "benchmarks")
"""Packages with a command line."""

ONNX_RUNTIME = """
typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef enum { ORT_LOGGING_LEVEL_WARNING = 2 } OrtLoggingLevel;
typedef struct {
  const char *(*GetErrorMessage)(const OrtStatus *);
  OrtStatus *(*CreateEnv)(OrtLoggingLevel, const char *, OrtEnv **);
  OrtStatus *(*CreateSession)(const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **);
  OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **);
  OrtStatus *(*RegisterCustomOpsLibrary_V2)(OrtSessionOptions *, const char *);
} OrtApi;
typedef struct OrtApiBase { const OrtApi *(*GetApi)(unsigned); } OrtApiBase;
const OrtApiBase *OrtGetApiBase(void);
"""
"""Of its header in C, which its wheel lacks: what the documents use."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*?)(?:\s+# exits with (\d+))?$")
_FILE_NAME = re.compile(r"^# ([\w./-]+\.\w+)\n")


class Block(NamedTuple):
    """A fenced block of a document: its language, text and first line, and the text between it and the block before."""

    language: str
    text: str
    line: int
    before: str


def needs_torch(block: Block) -> bool:
    return "torch" in block.text and block.language == "python"


def blocks(document: Path) -> list[Block]:
    text, end, found = document.read_text("utf-8"), 0, []
    for one in _BLOCK.finditer(text):
        found.append(Block(one[1], one[2], text.count("\n", 0, one.start()) + 2, text[end : one.start()]))
        end = one.end()
    return found


@dataclass(frozen=True)
class Shell:
    """Runs commands in a folder, with this interpreter and this project first."""

    folder: Path

    def run(self, command: str) -> tuple[int, str]:
        """The exit status and all that is printed. Our own commands run in this process, which has imported much."""
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        modules = os.pathsep.join((str(self.folder), str(ROOT)))
        settings = {"PATH": path, "PYTHONPATH": modules, "COLUMNS": "120", "NO_COLOR": "1"}
        words = shlex.split(command)
        if words[:2] == ["python", "-m"] and words[2] in PROJECT and not set(words) & {"|", "||", "&&", "2>&1"}:
            main = importlib.import_module(f"{words[2]}.__main__").main
            runner = CliRunner(env=settings)
            ended = runner.invoke(main, words[3:], prog_name=" ".join(words[:3]))
            unexpected = "".join(traceback.format_exception(ended.exception)) if ended.exit_code else ""
            return ended.exit_code, ended.output + ("" if "SystemExit" in unexpected else unexpected)
        done = subprocess.run(  # noqa: S603  # of this project's own documents
            ["bash", "-c", command],  # noqa: S607
            cwd=self.folder, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout


def commands(console: str) -> Iterator[tuple[str, int, str]]:
    """Each command of a console block, the exit status that is due, and the output that is shown."""
    lines = console.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        first = start
        while lines[first].endswith("\\"):
            first += 1
        match = _COMMAND.match(" ".join(line.rstrip("\\").strip() for line in lines[start : first + 1]))
        assert match is not None
        yield match[1], int(match[2] or 0), "\n".join(lines[first + 1 : end])


def same_output(shown: str, printed: str) -> bool:
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return checker.check_output(shown.strip() + "\n", printed.strip() + "\n", flags)


def check_command_that_is_not_run(command: str) -> None:
    """Its targets and extras exist."""
    if command.startswith("make"):
        makefile = (ROOT / "Makefile").read_text("utf-8")
        for target in re.findall(r"make ([\w-]+)", command):
            assert re.search(rf"^([\w-]+ )*{target}( [\w-]+)*:", makefile, re.MULTILINE), (
                f"the Makefile has no target {target}"
            )
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra in re.findall(r"ortops\[([\w-]+)\]", command):
        assert extra in extras, f"pyproject.toml has no extra {extra}"


def run_command(shell: Shell, command: str, status: int, shown: str, where: str) -> None:
    if command.startswith(NOT_RUN):
        check_command_that_is_not_run(command)
        return
    ended, printed = shell.run(command)
    assert ended == status, f"{where}: {command} exits with {ended}\n{printed[-4000:]}"
    if shown.strip():
        assert same_output(shown, printed), f"{where}: {command} prints\n{printed}"


def steps(workflow: str) -> Iterator[str]:
    """The commands that the steps of a GitHub workflow run which use our action."""
    for job in yaml.safe_load(workflow).get("jobs", {}).values():
        for step in job["steps"]:
            if "/ortops@" in step.get("uses", ""):
                given = step["with"]
                assert set(given) <= set(yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["inputs"])
                options = (f"--{name} {shlex.quote(given[name])}" for name in given if name != "requirements")
                yield f"python -m conformance {' '.join(options)}"


def run_python(block: Block, document: Path, names: dict[str, Any]) -> str:
    """Execute a block, with the lines of the document in tracebacks, and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, str(document), "exec"), names)  # noqa: S102
    return printed.getvalue()


def compile_c(block: Block, where: str, folder: Path) -> None:
    """Check a file in C, or the lines of a function, if there is a compiler. tests/test_library.py runs a whole program."""
    if compiler := shutil.which("cc"):
        (folder / "onnxruntime_c_api.h").write_text(ONNX_RUNTIME, "utf-8")
        source = block.text
        if not source.startswith("#include"):
            headers = "#include <onnxruntime_c_api.h>\n#include <ortops.h>\n"
            source = f"{headers}OrtStatus *of_a_host(void) {{\n{source}return status; }}\n"
        folders = (f"-I{folder}", f"-I{ROOT / 'ortops' / 'library'}")
        command = [compiler, "-fsyntax-only", "-Wall", "-Werror", *folders, "-xc", "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, f"{where}: {done.stderr}"


def run_blocks(document: Path, folder: Path) -> None:
    shell, names, printed = Shell(folder), {"__name__": document.stem}, None
    for block in blocks(document):
        where = f"{document.name}:{block.line}"
        file_name = _FILE_NAME.match(block.text)
        if needs_torch(block) and find_spec("torch") is None:
            pytest.skip(f"{where} needs torch, which `make test-torch` has")
        if file_name:
            (folder / file_name[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / file_name[1]).write_text(block.text, "utf-8")
            if block.language == "yaml":
                for command in steps(block.text):
                    run_command(shell, command, 0, "", where)
        elif block.language == "python":
            printed = run_python(block, document, names)
            continue
        elif block.language == "c":
            compile_c(block, where, folder)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "text":
            if printed is not None and not block.before.strip():
                assert same_output(block.text, printed), f"{where}: what is printed is\n{printed}"
        elif block.language == "console":
            for command, status, shown in commands(block.text):
                run_command(shell, command, status, shown, where)
        else:
            assert block.language in NEVER_RUN, f"{where}: a {block.language} block needs a file name"
        printed = None


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # of PyTorch 2.13's own pytrees
@pytest.mark.filterwarnings("ignore:.*create_unbacked_symint.*:FutureWarning")  # of torchvision 0.28
@pytest.mark.filterwarnings("ignore:# The axis name:UserWarning")  # of PyTorch 2.13, of lengths that are equal
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            one,
            marks=[pytest.mark.slow] * (one.name in LONG) + [pytest.mark.torch] * any(map(needs_torch, blocks(one))),
            id=one.name,
        )
        for one in DOCUMENTS
    ],
)
def test_code_blocks_of_document_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run_blocks(document, tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_document_has_no_block_that_nothing_runs(document: Path) -> None:
    text = document.read_text("utf-8")
    assert {block.language for block in blocks(document)} <= LANGUAGES
    assert not re.search(r"\n\n {4}\S", _BLOCK.sub("", text)), "an indented block is code that nothing runs: fence it"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_of_document_lead_somewhere(document: Path) -> None:
    text = _BLOCK.sub("", document.read_text("utf-8"))
    for target in [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'(?:src|srcset|href)="([^"]+)"', text)]:
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, heading = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{target} is no file"
        if heading:
            assert heading in headings(file), f"{target} is no heading"


def headings(document: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a document, and those that it sets itself."""
    text = _BLOCK.sub("", document.read_text("utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r'(?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_of_tests_that_a_document_names_exist(document: Path) -> None:
    named = set(re.findall(r"(?<![\w/])tests/[a-z][\w*]*\.\w+", document.read_text("utf-8")))
    assert [name for name in named if not list(ROOT.glob(name))] == []


def test_documented_commands_run_elsewhere_where_documents_do_not_run_them() -> None:
    consoles = [block.text for document in DOCUMENTS for block in blocks(document) if block.language == "console"]
    texts = {re.sub(r"\s+# .*", "", text) for console in consoles for text, _, _ in commands(console)}
    assert any(not text.startswith(NOT_RUN) for text in texts)
    assert {text for text in texts if text.startswith(NOT_RUN)} == set(ELSEWHERE)
    for file, text in ELSEWHERE.values():
        assert text in (ROOT / file).read_text("utf-8"), f"{file} does not run {text}"


def write(folder: Path, text: str) -> Path:
    document = folder / "document.md"
    document.write_text(text, "utf-8")
    return document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nprint(1)\n```\n```text\n2\n```\n", "what is printed is"),
        ("```console\n$ python -c 'exit(3)'\n```\n", "exits with 3"),
        ("```toml\na = 1\n```\n", "needs a file name"),
        pytest.param(
            "```c\nOrtStatus *status = RegisterOnnx22(1);\n```\n",
            "too few arguments",
            marks=pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler of C"),
        ),
    ],
)
def test_wrong_document_fails(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=message):
        run_blocks(write(tmp_path, text), tmp_path)

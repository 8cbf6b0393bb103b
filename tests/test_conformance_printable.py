"""What a backend's errors say stands in every report, and does nothing else there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from conformance.__main__ import main
from conformance.printable import MAX_LENGTH, printable
from rude_backends import CLEARS, SHOWN

CASE = "roi_align/official/aligned_true/v16/float"
HIDDEN = {chr(i) for i in (*range(32), *range(127, 160), 0x202E, 0xFFFF)} - {"\n"}
"""What no report may have, but for ends of lines."""


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(main, list(arguments))
    assert not HIDDEN.intersection(done.output)
    return done


def texts(tmp_path: Path, backend: str, *options: str) -> tuple[Result, dict[str, str]]:
    """The result of a run of one case, and what it says of it: on the terminal and in each written file."""
    files = {name: tmp_path / f"r.{name}" for name in ("json", "junit", "html")}
    arguments = [part for name, file in files.items() for part in (f"--{name}", str(file))]
    done = run("--backend", f"rude_backends:{backend}", "--select", CASE, *arguments, *options)
    for file in files.values():
        assert not HIDDEN.intersection(file.read_bytes().decode("utf-8"))
    (case,) = json.loads(files["json"].read_text("utf-8"))["cases"]
    (skip,) = (e for e in ET.parse(files["junit"]).iter() if e.tag in ("failure", "error", "skipped"))  # noqa: S314
    page = files["html"].read_text("utf-8")
    return done, {"json": case["message"], "junit": skip.get("message", ""), "html": page, "terminal": done.output}


@pytest.mark.parametrize(
    ("backend", "outcome", "message"),
    [
        ("refuses", "failed", f"refused: ValueError: {SHOWN}"),
        ("supports_nothing", "unsupported", SHOWN),
        ("has_a_rude_name", "failed", rf"refused: {SHOWN}: ".replace(r"\x00", "").replace(r"\ud800", "")),
        ("says_much", "failed", r"\ud800... and 998012 more characters"),
        ("is_wordless", "failed", "refused: WordlessError: its message raised RuntimeError"),
        ("exits", "crashed", "it would have ended the process: SystemExit: 0"),
        ("answers_in_a_rude_type", "failed", r"Y: expected type float32, got type [('\x1b0', '<f4'), ('\x1b1', "),
        ("refuses_as_expected", "expected_failure", SHOWN),
    ],
)
def test_words_of_a_backend_stand_in_every_report(tmp_path: Path, backend: str, outcome: str, message: str) -> None:
    done, found = texts(tmp_path, backend)
    assert done.exit_code == (0 if outcome == "expected_failure" else 1)
    assert message in found["json"]
    assert found["junit"] == f"{outcome}: {found['json']}"
    assert len(found["json"]) < 10 * MAX_LENGTH
    if outcome in ("failed", "crashed"):
        assert f"    {found['json']}\n" in done.output
        assert [line for line in done.output.splitlines() if line.endswith(" failed")] == ["0 passed, 1 failed"]
    plain = found["json"].replace("'", "&#39;").replace("<", "&lt;")
    assert plain in found["html"]


def test_a_terminal_that_lacks_characters_has_the_report() -> None:
    command = [sys.executable, "-m", "conformance", "explain", CASE, "--backend", "rude_backends:refuses"]
    path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"refused: ValueError: " + SHOWN.encode("ascii", "backslashreplace") in done.stdout


def test_matrix_shows_it(tmp_path: Path) -> None:
    made = tmp_path / "m.html"
    done = run(
        "matrix", "rude_backends:refuses", "rude_backends:supports_nothing", "--select", CASE, "--html", str(made)
    )
    assert done.exit_code == 0, done.output
    page = made.read_text("utf-8")
    assert page.count(SHOWN) >= 2
    assert not HIDDEN.intersection(page)


def test_fuzz_finds_it_and_replays_it(tmp_path: Path) -> None:
    wanted = ("fuzz", "--backend", "rude_backends:refuses")
    done = run(*wanted, "--cases", "4", "--operator", "RoiAlign_16", "--jobs", "1", "--out", str(tmp_path))
    assert done.exit_code == 1, done.output
    assert f"refused: refused: ValueError: {SHOWN}" in done.output
    file = next(file for file in sorted(tmp_path.iterdir()) if "-refused-" in file.name)
    assert json.loads(file.read_text("utf-8"))["message"] == f"refused: ValueError: {SHOWN}"
    done = run(*wanted, "--replay", str(file))
    assert done.output == f"RoiAlign_16: refused: refused: ValueError: {SHOWN}\n"


def test_reports_of_others_are_compared(tmp_path: Path) -> None:
    case = {"id": f"f/{CLEARS}/a", "outcome": "failed", "max_error": None, "allowed": None, "message": CLEARS}
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    before.write_text(json.dumps({"backend": CLEARS, "summary": {}, "cases": []}), "utf-8")
    after.write_text(json.dumps({"backend": CLEARS, "summary": {}, "cases": [case]}), "utf-8")
    done = run("compare", str(before), str(after))
    assert done.exit_code == 1, done.output
    assert f"f/{SHOWN}/a: failed\n      {SHOWN}\n" in done.output
    after.write_text(json.dumps({"backend": "b", "cases": [{**case, "outputs": {CLEARS: {}}}]}), "utf-8")
    done = run("compare", str(before), str(after))
    assert done.exit_code == 2
    assert r"\x1b[2J" in done.output


@pytest.mark.parametrize("command", ["run", "matrix", "explain", "fuzz"])
def test_a_module_that_ends_the_process_is_a_wrong_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "ends_at_once.py").write_text(f"raise SystemExit({CLEARS!a})")
    monkeypatch.syspath_prepend(tmp_path)
    named = {"matrix": ["ends_at_once"], "explain": [CASE, "--backend", "ends_at_once"]}
    done = run(command, *named.get(command, ["--backend", "ends_at_once"]))
    assert done.exit_code == 2
    assert r"backend ends_at_once: importing it would have ended the process: \x1b[2J" in " ".join(done.output.split())


def test_what_is_printable_stays_as_it_is() -> None:
    for text in ("", "é 中 😀 ~", SHOWN, "x" * MAX_LENGTH):
        assert printable(text) == text
    assert printable(printable(CLEARS)) == printable(CLEARS) == SHOWN
    assert len(printable("x" * 10**6)) == MAX_LENGTH

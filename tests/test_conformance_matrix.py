"""The matrix: reports side by side as a table, in Markdown and as a page, and what the page shows in a browser."""

from __future__ import annotations

import base64
import gzip
import html
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner, Result

from conformance import backends
from conformance.__main__ import main
from conformance.case import Array, Basis
from conformance.commands import matrix as command
from conformance.outcome import ACCEPTED, Outcome
from conformance.report import page as report_page
from conformance.report.matrix import Matrix, markdown
from conformance.report.record import Entry, Origin, Report, read
from conformance.vectors import collect

FEW = "roi_align/[eo]*[dl]_[fint]*/v1?/float*"
"""Cases of two families, some of them of opset 10."""
WRONG = "no_half_pixel:answer"
INSIDE = "roi_align/edge/half_pixel_inside/v16/float"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --virtual-time-budget=10000 --dump-dom"
)
NO_HALF_PIXEL = """
from conformance.expected_values import reference
from ortops.operators import BY_NAME


def answer(op_type, inputs, attributes, outputs):
    operator = BY_NAME["RoiAlign_10"]
    given = {a.name: attributes[a.name] for a in operator.attributes if a.name in attributes}
    return {name: y.astype(inputs["X"].dtype) for name, y in reference(operator, given, inputs, outputs).items()}
"""
Outcomes = dict[str, str]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def report(file: Path, backend: str, outcomes: Outcomes, **more: object) -> Path:
    cases = [
        {"id": case_id, "outcome": outcome, "message": "" if outcome == "passed" else f"why {outcome}", **more}
        for case_id, outcome in outcomes.items()
    ]
    file.write_text(json.dumps({"backend": backend, "cases": cases}), "utf-8")
    return file


@pytest.fixture(scope="module", autouse=True)
def no_half_pixel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The backend `WRONG`, which evaluates every RoiAlign as that of opset 10."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "no_half_pixel.py").write_text(NO_HALF_PIXEL, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


BAD = (Outcome.FAILED, Outcome.DEPARTED)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One backend that is right, in two shards, and one that is wrong."""
    folder = tmp_path_factory.mktemp("reports")
    files = [folder / f"{name}.json" for name in ("first", "second", "wrong")]
    for file, (backend, shard) in zip(files, (("reference", "1/2"), ("reference", "2/2"), (WRONG, "1/1")), strict=True):
        run("--backend", backend, "--select", FEW, "--shard", shard, "--json", str(file))
    return files


@pytest.fixture(scope="module")
def made(reports: list[Path]) -> Path:
    """The page and the table of them, in one folder."""
    folder = reports[0].parent
    done = run("matrix", *map(str, reports), "--html", str(folder / "m.html"), "--markdown", str(folder / "m.md"))
    assert done.exit_code == 0, done.output
    return folder


def rows(text: str) -> dict[str, dict[str, str]]:
    """The attributes of each failure of a page, by its key; nothing in the page leaves it."""
    assert not re.search(r"""(src|href|action)=["'](?!#)|url\(|@import|https?://(?!www\.w3\.org)""", text)
    found = [dict(re.findall(r'([\w-]+)="([^"]*)"', tag)) for tag in re.findall(r'<details class="case"[^>]*>', text)]
    return {html.unescape(row["data-key"]): row for row in found}


def drawings(text: str, row: dict[str, str]) -> list[ET.Element]:
    """The drawings of a failure."""
    scripts = dict(re.findall(r'<script[^>]* id="picture-(\d+)"[^>]*>([^<]*)', text))
    pieces = [gzip.decompress(base64.b64decode(scripts[number])).decode() for number in row["data-pictures"].split()]
    return [ET.fromstring(one) for one in re.findall(r"<svg.*?</svg>", "".join(pieces), re.DOTALL)]  # noqa: S314


def test_the_table_has_passed_of_asked_and_what_else_came(tmp_path: Path) -> None:
    a = {f"f/one/{i}": outcome for i, outcome in enumerate(["passed", "failed", "unsupported", "crashed"])}
    b = {"f/one/0": "unsupported", "f/two/0": "expected_failure", "g/one/0": "passed"}
    files = [report(tmp_path / f"{name}.json", name, outcomes) for name, outcomes in (("a", a), ("b", b))]
    result = run("matrix", *map(str, files), "--markdown", str(tmp_path / "m.md"))
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines[lines.index("f/one 1/4 unsupported") :][:4] == [
        "f/one 1/4 unsupported",
        "1 crashed",
        "1 failed",
        "1 unsupported",
    ]
    assert (tmp_path / "m.md").read_text("utf-8").splitlines()[:6] == [
        "| family | a | b |",
        "| --- | ---: | ---: |",
        "| f/one | 1/4, 1 crashed, 1 failed, 1 unsupported | unsupported |",
        "| f/two |  | 0/1, 1 expected failure |",
        "| g/one |  | 1/1 |",
        "| all | 1/4, 1 crashed, 1 failed, 1 unsupported | 1/3, 1 expected failure, 1 unsupported |",
    ]


def test_unsupported_is_never_passed() -> None:
    entries = {f"f/one/{i}": Entry(Outcome.UNSUPPORTED, "no") for i in range(3)}
    (row,) = Matrix([Report("b", entries)]).rows
    assert (row.cells[0].passed, row.cells[0].asked, row.cells[0].score) == (0, 3, "unsupported")


def test_lines_of_a_function_that_say_the_same_are_one_in_markdown() -> None:
    entries = {f"f/{name}/x": Entry(Outcome.PASSED, "") for name in ("one", "two", "three")}
    other = {name: Entry(Outcome.UNSUPPORTED, "no") for name in entries}
    all_plain = Matrix([Report("a", entries), Report("b", other)])
    assert [(row.name, [cell.score for cell in row.cells]) for row in all_plain.folded] == [
        ("f", ["3/3", "unsupported"])
    ]
    other["f/two/x"] = Entry(Outcome.FAILED, "off")
    mixed = Matrix([Report("a", entries), Report("b", other)])
    assert [row.name for row in mixed.folded] == ["f: one, three", "f/two"]


def test_families_stand_in_the_order_of_the_operators() -> None:
    entries = {case.id: Entry(Outcome.PASSED, "") for case in reversed(collect())}
    names = [row.name for row in Matrix([Report("b", {"x/new/y": Entry(Outcome.PASSED, "")} | entries)]).rows]
    assert names[0] == collect()[0].family
    assert names[-1] == "x/new"
    functions = [name.split("/")[0] for name in names]
    assert len(list(dict.fromkeys(functions))) == sum(a != b for a, b in itertools.pairwise(functions)) + 1


def test_releases_that_say_the_same_share_a_column() -> None:
    passed, failed = ({"f/one/a": Entry(outcome)} for outcome in (Outcome.PASSED, Outcome.FAILED))
    given = [("b", "1.0", passed), ("b", "1.1", passed), ("b", "1.2", failed), ("c", "1.2", failed), ("c", "", failed)]
    reports = [Report(name, entries, Origin(version)) for name, version, entries in given]
    assert markdown(Matrix(reports)).splitlines()[0] == "| family | b 1.0 to 1.1 | b 1.2 | c 1.2 | c |"


def test_departures_and_accepted_refusals_are_told_from_wrong_numbers() -> None:
    accepted = Entry(Outcome.FAILED, f"{ACCEPTED}its data is wrong: no", Basis.OURS)
    departed = Entry(Outcome.DEPARTED, accepted.message, Basis.OURS)
    wrong = Entry(Outcome.FAILED, "Y[0]: expected 1, got 2, off by 1 where 0 is allowed", Basis.TEXT, max_error=1.0)
    entries = {"f/a/1": accepted, "f/a/2": departed, "f/a/3": wrong, "f/b/1": accepted, "f/c/1": departed}
    made = Matrix([Report("b", entries)])
    assert [(row.name, row.cells[0].worst, str(row.cells[0])) for row in made.rows] == [
        ("f/a", "failed", "0/3, 2 failed (1 accepted), 1 departed"),
        ("f/b", "accepted", "0/1, 1 failed (1 accepted)"),
        ("f/c", "departed", "0/1, 1 departed"),
    ]
    assert [(row.name.split(":")[0], str(row.cells[0])) for row in made.bases] == [
        ("text", "0/1, 1 failed"),
        ("ours", "0/4, 2 failed (2 accepted), 2 departed"),
    ]
    assert "| ours: this project's own reading | 0/4, 2 failed (2 accepted), 2 departed |" in markdown(made)


def test_a_cause_has_one_card() -> None:
    def wrong(got: int) -> Entry:
        message = f"Y[{got}]: expected 1, got {got}, off by {got - 1} where 1e-07 is allowed"
        return Entry(Outcome.FAILED, message, max_error=1.0)

    refused = [
        Entry(Outcome.FAILED, f"refused: no kernel for type {name}") for name in ("float16", "bfloat16", "double")
    ]
    known = Entry(Outcome.EXPECTED_FAILURE, "half a pixel off", max_error=1.0)
    entries = {
        "f/a/x/v1/float": wrong(2),
        "f/a/x/v2/float": wrong(30),
        "f/a/y/v1/float": wrong(2),
        "f/a/x/v1/float16": refused[0],
        "f/a/y/v1/bfloat16": refused[1],
        "f/b/y/v1/double": refused[2],
        "f/a/z/v1/float": known,
        "f/b/z/v1/float": known,
    }
    text = report_page.render(Matrix([Report("b", entries), Report("c", {"f/a/x/v1/float": wrong(2)})]))
    found = re.findall(r'<code>([^<]*)</code> <span class="cases">(\d+) cases?</span> <span class="backend">(.)', text)
    assert found == [
        ("f/a/x", "2", "b"),
        ("f/a/y", "1", "b"),
        ("f: 3 scenarios", "3", "b"),
        ("f: 2 scenarios", "2", "b"),
        ("f/a/x", "1", "c"),
    ]


def test_the_headline_has_what_was_asked_and_what_is_the_same_for_all() -> None:
    here = Origin("1.31", "0.1", "1.23", "3.11", "Linux", "2026-11-22T05:00:00+00:00")
    reports = [Report("a", {"f/one/a": Entry(Outcome.PASSED)}, here)]
    assert report_page.headline(reports) == "Conformance of a 1.31, 2026-11-22, suite 0.1, onnx 1.23"
    reports.append(replace(reports[0], backend="b", origin=replace(here, onnx="1.20", version=""), complete=False))
    assert report_page.headline(reports) == "Conformance of a 1.31, b, 2026-11-22, suite 0.1"
    text = report_page.render(Matrix(reports))
    assert f"<h1>{report_page.headline(reports)}</h1>" in text
    assert text.count("The run was stopped before its last case") == 1


def test_a_diagnosis_is_shown_on_page_and_terminal(tmp_path: Path) -> None:
    page, results, table = (tmp_path / name for name in ("run.html", "run.json", "matrix.html"))
    backend = "conformance.mutants.roi_align:ShiftBeforeScale"
    options = ("--select", "roi_align/matrix/scale_*/v16/avg/*/float", "--html", str(page), "--json", str(results))
    done = run("--backend", backend, *options)
    said = "answers like ShiftBeforeScale: "
    assert f"roi_align/matrix {said}" in done.output
    assert said in page.read_text("utf-8")
    run("matrix", str(results), "--html", str(table))
    assert said in table.read_text("utf-8")


def test_markdown_of_a_hostile_name_stays_one_line(tmp_path: Path) -> None:
    file = report(tmp_path / "a.json", "a|b\n<i>*c*", {"f/one/a": "passed"})
    run("matrix", str(file), "--markdown", str(tmp_path / "m.md"))
    assert (tmp_path / "m.md").read_text("utf-8").splitlines()[0] == r"| family | a\|b\\n\<i\>\*c\* |"


def test_the_page_has_every_failure_with_its_drawings(reports: list[Path], made: Path) -> None:
    text = (made / "m.html").read_text("utf-8")
    failed = [case_id for case_id, entry in read(reports[2]).entries.items() if entry.outcome in BAD]
    shown = rows(text)
    assert set(shown) == {f"{case_id}@{WRONG}" for case_id in failed} != set()
    assert {len(drawings(text, row)) for row in shown.values()} == {6}


@pytest.mark.parametrize(
    ("case_id", "output", "count"),
    [
        ("roi_align/refusal/mode_unknown/v16/float", np.ones((1, 3)), 1),  # where an error is due
        ("dml_resample/published/page_example/float", np.ones((1, 3)), 5),
        (INSIDE, np.ones((1, 3)), 4),  # of another shape, which cannot be compared
        (INSIDE, np.full((1, 1, 1, 1), np.nan), 6),
        (INSIDE, None, 4),
        ("f/one/a", None, 0),  # which the suite does not have
    ],
)
def test_any_answer_has_its_drawings(case_id: str, output: Array | None, count: int) -> None:
    case = next((case for case in collect() if case.id == case_id), None)
    outputs = {} if case is None or output is None else {case.outputs[0]: output.astype(np.float32)}
    text = report_page.render(Matrix([Report("b", {case_id: Entry(Outcome.FAILED, "off", outputs=outputs)})]))
    assert len(drawings(text, rows(text)[f"{case_id}@b"])) == count


def test_what_a_report_says_is_text(tmp_path: Path) -> None:
    bad = "</script><b onclick='x'>[red]\ud800\x00"
    file, made = tmp_path / "a.json", tmp_path / "m.html"
    report(file, bad, {f"f/{bad}/a": "failed", INSIDE: "failed", "f/no/a": "unsupported"})
    file.write_text(file.read_text("utf-8").replace("why ", json.dumps(bad)[1:-1]), "utf-8")
    result = run("matrix", str(file), "--html", str(made), "--markdown", str(tmp_path / "m.md"))
    assert result.exit_code == 0, result.output
    assert r"<b onclick='x'>[red]\ud800\x00" in result.output
    text = made.read_text("utf-8")
    assert rows(text)
    assert "<b onclick" not in text
    assert text.count("&lt;b onclick=&#39;x&#39;&gt;[red]\\ud800\\x00") > 3


def test_a_backend_is_asked_and_its_package_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"9.9 of {name}")
    file = report(tmp_path / "a.json", "mine", {INSIDE: "passed"})
    result = run("matrix", "reference", str(file), "--select", INSIDE)
    assert result.exit_code == 0
    assert re.search(r"family +mine +reference 9\.9 of ortops", result.output)
    assert re.search(r"roi_align/edge +1/1 +1/1", result.output)


def test_a_backend_that_fails_is_status_0() -> None:
    result = run("matrix", WRONG, "--select", INSIDE)
    assert result.exit_code == 0
    assert "1 failed" in result.output


def test_without_sources_those_that_are_installed_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    load: Callable[..., backends.Backend] = backends.load

    def without_onnx(name: str, *options: str | None) -> backends.Backend:
        if name == "onnx-reference":
            raise backends.MissingBackendError(f"backend {name}: no onnx here")
        return load(name, *options)

    monkeypatch.setattr(backends, "load", without_onnx)
    monkeypatch.setattr(command, "DEFAULTS", ("reference", "onnx-reference"))
    result = run("matrix", "--select", INSIDE)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "left out: backend onnx-reference: no onnx here"
    assert "reference" in result.output.splitlines()[2]
    assert "onnx-reference" not in result.output.splitlines()[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_module"], "No module named 'no_such_module'"),
        (["no_such_file.json"], "no_such_file.json"),
        (["reference", "reference"], "backend reference: must be named once"),
        (["reference", "--select", "no/such/case"], "selects no case"),
        (["--select", "no/such/case"], "selects no case"),
        (["reference", "--html", "no/such/folder/m.html"], "must be a folder"),
        (["reference", "--markdown", "no/such/folder/m.md"], "must be a folder"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: list[str], message: str) -> None:
    result = run("matrix", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("option", ["--html", "--markdown"])
def test_a_source_is_not_overwritten(tmp_path: Path, option: str) -> None:
    file = report(tmp_path / "a.json", "b", {"f/one/a": "passed"})
    before = file.read_bytes()
    done = run("matrix", str(file), option, str(file))
    assert (done.exit_code, file.read_bytes()) == (2, before)
    assert "must not be one of SOURCES" in " ".join(done.output.replace("│", " ").split())


@pytest.fixture
def shown_by_browser(tmp_path: Path) -> Callable[[Path, str], str]:
    """The page as a browser has it after its script has run."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")

    def shown(file: Path, link: str) -> str:
        arguments = [*QUIET.split(), f"--user-data-dir={tmp_path / 'browser'}", f"{file.as_uri()}#{link}"]
        done = subprocess.run([browser, *arguments], capture_output=True, text=True, check=True, timeout=120)  # noqa: S603
        return done.stdout

    return shown


def test_a_link_filters_and_opens_in_a_browser(made: Path, shown_by_browser: Callable[[Path, str], str]) -> None:
    link = f"backend={WRONG}&outcome=failed&family=roi_align/edge&type=float&text=V16+inside&open={INSIDE}@{WRONG}"
    dumped = shown_by_browser(made / "m.html", link)
    every = re.findall(r'<details class="case"[^>]*>', dumped)
    shown = [row for row in every if not re.search(r"\shidden\b", row)]
    assert f"{len(shown)} of {len(every)} cases" in dumped
    assert 0 < len(shown) < len(every)
    assert all('data-family="roi_align/edge"' in row and 'data-type="float"' in row and "/v16/" in row for row in shown)
    (opened,) = (row for row in every if re.search(r"\sopen\b", row))
    assert f'data-key="{INSIDE}@{WRONG}"' in opened
    assert dumped.split(opened)[1].split('<details class="case"')[0].count("<svg") == dumped.count("<svg") == 6

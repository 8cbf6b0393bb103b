"""The benchmarks: operations agree with their peers, what differs is not timed, a run writes tables. No time is asserted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from benchmarks import __main__ as command
from benchmarks import in_model, models, peers, report, start, sweeps
from benchmarks.bench import MAX_ROUNDS, MIN_ROUNDS, Call, Cell, Peer, interleave, measure
from benchmarks.workloads import (
    OPERATIONS,
    PYRAMIDS,
    RESAMPLINGS,
    ROTATED,
    WORKLOADS,
    Array,
    Operation,
    Problem,
    Pyramid,
    Resampling,
    Rotated,
    Workload,
)

TINY = Workload("tiny", (2, 3, 12, 16), 5, 3, 0, 1 / 2, (4, 16))
TINY_PYRAMID = Pyramid("both", (TINY, replace(TINY, name="half", shape=(2, 3, 6, 8), spatial_scale=1 / 4)))
TINY_ROTATED = Rotated("tiny", (2, 3, 12, 16), 5, 3, 0, 1 / 2, (4, 16))
TINY_OF: dict[object, Workload | Resampling]
TINY_OF = {RESAMPLINGS: Resampling("tiny", (1, 2, 5, 6), (10, 12)), ROTATED: TINY_ROTATED}
ONE = ("--workload", "one", "--threads", "1", "--rounds", "1")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, list(arguments))


def tiny(operation: Operation, element_type: str = "float") -> Problem:
    return Problem(operation, TINY_OF.get(operation.workloads, TINY), element_type)


def altered(alter: Callable[[Array], Array], reason: str = "") -> Peer:
    """A peer whose answers are ours, altered."""

    def prepare(problem: Problem, threads: int) -> Call:
        call = models.ours(problem, threads)
        return Call(call.run, lambda answer: [alter(one) for one in call.arrays(answer)], reason)

    return prepare


def off_by_a_tenth(array: Array) -> Array:
    return np.asarray(array + array.dtype.type(0.1) * np.abs(array).max())


def test_rois_of_a_workload_are_on_the_map() -> None:
    for workload in (*WORKLOADS, *PYRAMIDS[0].levels, *dict(sweeps.sweeps())):
        images, _, height, width = workload.shape
        arrays = replace(workload, shape=(images, 1, height, width)).inputs()
        x1, y1, x2, y2 = arrays["rois"].T * workload.spatial_scale
        assert x1.size == arrays["batch_indices"].size == workload.rois
        assert ((x1 >= 0) & (x1 < x2) & (x2 <= width)).all(), workload.name
        assert ((y1 >= 0) & (y1 < y2) & (y2 <= height)).all(), workload.name
        assert set(arrays["batch_indices"].tolist()) <= set(range(images))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_an_operation_agrees_with_its_peers(operation: Operation) -> None:
    # Loops take long to compile, and bodies to make. Whoever compares with them sees whether they agree.
    names = ["onnxruntime", *(["openvino"] if find_spec("openvino") and operation.name != "pixels" else [])]
    cell = measure(tiny(operation), 2, models.ours, {name: peers.load(name) for name in names}, rounds=1)
    assert cell.refused == ()
    timed = {
        "onnxruntime": {"avg", "max", "pixels", "linear", "nearest"},
        "openvino": {"avg", "max_interpolated", "linear", "nearest"},
    }
    expected = {name for name in names if operation.name in timed[name]}
    assert set(cell.times) == {"ortops", *expected, *([] if operation.is_gradient else ["copy"])}


def test_other_types_are_measured_beside_float() -> None:
    (dx,) = (one for one in OPERATIONS if one.name == "dX")
    cell = measure(tiny(dx, "bfloat16"), 1, models.ours, {"bodies": peers.load("bodies")}, rounds=1)
    assert (cell.refused, set(cell.times)) == ((), {"ortops", "float", "bodies"})


def test_a_peer_with_wrong_numbers_is_not_timed() -> None:
    wrong = [off_by_a_tenth, lambda a: a[:-1], lambda a: a * np.float32(np.nan), lambda a: a * 0, lambda a: a * 1.001]
    found = {f"wrong {i}": altered(alter) for i, alter in enumerate(wrong)}
    found |= {"right": altered(lambda a: a), "known": altered(lambda a: a * 0, "its reasons")}
    cell = measure(tiny(OPERATIONS[0]), 1, models.ours, found, rounds=1)
    says = [f"wrong {i} is not compared: avg of tiny in float differs from ours by" for i in range(len(wrong))]
    assert [one.startswith(start) for one, start in zip(cell.refused, says, strict=True)] == [True] * len(wrong)
    assert cell.notes == ("known, avg: its reasons",)
    assert set(cell.times) == {"ortops", "copy", "right", "known"}


@pytest.mark.parametrize("peer", ["torch", "torchvision"])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torchvision as it is imported
def test_libraries_of_pytorch_agree_where_they_are_installed(peer: str) -> None:
    try:
        found = {peer: peers.load(peer)}
    except ValueError as error:
        pytest.skip(str(error))
    cells = [measure(tiny(one), 1, models.ours, found, rounds=1) for one in OPERATIONS if one.name != "pixels"]
    assert [cell.refused for cell in cells if cell.refused] == []
    expected = {"torch": {"linear", "nearest", "linear dX", "nearest dX"}, "torchvision": {"avg", "dX"}}
    assert {cell.operation for cell in cells if peer in cell.times} == expected[peer]


@pytest.mark.parametrize("peer", ["onnxruntime", "openvino"])
def test_a_model_has_a_row_for_each_level_and_for_their_sum(peer: str) -> None:
    if peer == "openvino":
        pytest.importorskip("openvino")
    cells = in_model.measure(TINY_PYRAMID, 1, [peer], rounds=2)
    for first, second, both in (cells[:3], cells[3:]):
        assert [first.workload, second.workload, both.workload] == [*TINY_PYRAMID.levels, TINY_PYRAMID]
        for name in ("ortops", peer):
            assert both.times[name] == [sum(one) for one in zip(first.times[name], second.times[name], strict=True)]
            assert len(both.times[name]) == 2


def test_sweeps_and_the_start_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sweeps, "sweeps", lambda: [(TINY, 1)])
    sweeps.main()
    assert capsys.readouterr().out.count("| tiny | 2x3x12x16 | 5 | 3 | by size | 1 | 0.") == 2
    assert all(float(number) >= 0 for number in start.run(("-c", "pass"), str(tmp_path)))
    exec(start.WITH_GRADIENT[1], {})  # noqa: S102 - the calls that `make start` measures


def test_a_round_has_every_call_twice_and_none_always_follows_the_same() -> None:
    called: list[str] = []
    calls = {name: (lambda name=name: called.append(name)) for name in "abc"}
    assert {name: len(taken) for name, taken in interleave(calls, 12).items()} == {"a": 12, "b": 12, "c": 12}
    timed = called[1::2]
    assert called[::2] == timed
    assert all(sorted(timed[i : i + 3]) == ["a", "b", "c"] for i in range(0, 36, 3))
    for name in "abc":
        assert {before for before, after in pairwise(timed) if after == name} >= {*"abc"} - {name}
    assert len(interleave({"quick": lambda: None})["quick"]) == MAX_ROUNDS > MIN_ROUNDS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--operation", "none"], "--operation"),
        (["--threads", "0"], "--threads"),
        (["--json", "no/such/folder/run.json"], "is no folder"),
        (["--operation", "linear", "--workload", "one"], "no chosen operation"),
        (["--operation", "linear", "--type", "bfloat16"], "no chosen operation"),
        (["--operation", "in-model", "--type", "float16"], "no chosen operation"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_package_that_is_not_installed_is_named_and_else_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("benchmarks.peers.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("openvino", "openvino.properties", "torch", "torch.nn.functional", "torchvision.ops"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("openvino", "torch", "torchvision"):
        result = run("--peer", name)
        assert (result.exit_code, f"{name!r}: must be installed" in result.output) == (2, True)
    assert list(peers.present()) == ["onnxruntime", "loops"]


def test_a_refused_peer_is_status_1_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "present", lambda: {"odd": altered(off_by_a_tenth)})
    result = run("--operation", "avg", *ONE)
    assert result.exit_code == 1
    assert "odd is not compared: avg of one in float differs from ours by 0.1 of the largest value" in result.output


PAGE = """\
| workload | X | RoIs | bins | samples | threads | average |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| old |

| operation | workload | threads | float |
| --- | --- | ---: | ---: |
| old |

kept
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "page.md"
    file.write_text(PAGE, "utf-8")
    return file


def test_a_run_writes_tables_chart_and_json(tmp_path: Path, page: Path) -> None:
    pytest.importorskip("matplotlib")
    files = tmp_path / "run.json", tmp_path / "run.svg"
    chosen = ("--operation", "avg", "--operation", "dX", "--peer", "onnxruntime", *ONE)
    result = run(*chosen, "--json", str(files[0]), "--chart", str(files[1]), "--write", str(page))
    assert result.exit_code == 0, result.output
    forward, gradient = json.loads(files[0].read_text("utf-8"))["cells"]
    assert (forward["operation"], forward["threads"], forward["facts"]["X"]) == ("avg", 1, "1x256x50x76")
    assert (set(forward["seconds"]), set(gradient["seconds"])) == (
        {"ortops", "copy", "onnxruntime"},
        {"ortops"},
    )
    heading, _, row = page.read_text("utf-8").splitlines()[:3]
    columns = "average | times the floor | onnxruntime | dX"
    assert heading == f"| workload | X | RoIs | bins | samples | threads | {columns} |"
    assert row.startswith("| one | 1x256x50x76 | 1 | 7 | 2 | 1 | 0.")
    assert all(f"\n{line}\n" in result.output for line in (heading, row))
    assert page.read_text("utf-8").endswith("| old |\n\nkept\n")
    light, dark = ((tmp_path / f"run-{theme}.svg").read_text("utf-8") for theme in ("light", "dark"))
    assert light != dark
    assert "1 RoI on 1x256x50x76" in light


def test_types_are_written_to_their_table(page: Path) -> None:
    result = run("types", "--operation", "avg", *ONE, "--write", str(page))
    assert result.exit_code == 0, result.output
    lines = page.read_text("utf-8").splitlines()
    assert lines[4] == "| operation | workload | threads | float | float16 | bfloat16 | double |"
    assert lines[6].startswith("| average | one | 1 | 0.")


def cell(operation: str, workload: Workload | Pyramid, threads: int, **milliseconds: float) -> Cell:
    return Cell(operation, workload, "float", threads, {name: [one / 1e3] for name, one in milliseconds.items()})


def test_tables_have_a_column_for_each_operation_and_peer() -> None:
    both = Pyramid("FPN", (TINY, TINY))
    slow = {"onnxruntime": 30.0, "openvino": 0.5}
    made = report.tables(
        [
            *(cell("avg", TINY, n, ortops=4 / n, copy=2, **slow) for n in (1, 2)),
            *(cell("max", TINY, n, ortops=9.96, copy=2, onnxruntime=30) for n in (1, 2)),
            cell("in-model", both, 1, ortops=10, **slow),
            cell("in-model with conversions", both, 1, ortops=20, **slow),
            *(cell("rotated", TINY, n, ortops=20, loops=100) for n in (1, 2)),
        ]
    )
    assert made == [
        """\
| workload | X | RoIs | bins | samples | threads | average | times the floor | onnxruntime | OpenVINO | max | onnxruntime |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| tiny | 2x3x12x16 | 5 | 3 | by size | 1 | 4.0 | 2.0 | 30 (7.5) | 0.50 (0.12) | 10 | 30 (3.0) |
| | | | | | 2 | 2.0 | 1.0 | 30 (15.0) | 0.50 (0.25) | 10 | 30 (3.0) |""",
        """\
| model | X of RoiAlign | RoIs | bins | samples | threads | RoiAlign | onnxruntime | OpenVINO | with conversions | \
onnxruntime | OpenVINO |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| FPN | 2 maps | 10 | 3 | by size | 1 | 10 | 30 (3.0) | 0.50 (0.05) | 20 | 30 (1.5) | 0.50 (0.03) |""",
        """\
| operation | workload | threads | ortops | loops |
| --- | --- | ---: | ---: | ---: |
| rotated | tiny | 1 | 20 | 100 (5.0) |
| | | 2 | 20 | 100 (5.0) |""",
    ]


def test_the_page_on_performance_has_one_table_of_each_kind(page: Path) -> None:
    document = (Path(__file__).parent.parent / "docs" / "performance.md").read_text("utf-8")
    headings = ["workload | X |", "operation | workload | threads | float |", "model | X of RoiAlign |"]
    for heading in [*headings, "operation | workload | threads | ortops |"]:
        assert f"| {heading} new |\n| new |\n" in report.replaced(document, [f"| {heading} new |\n| new |"])
    with pytest.raises(ValueError, match="must have one table with the headings"):
        report.replaced(page.read_text("utf-8"), ["| model | X of RoiAlign |"])

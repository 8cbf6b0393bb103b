"""The benchmarks: operations agree with their peers, what differs is not timed, a run writes tables. No time is asserted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from benchmarks import __main__ as command
from benchmarks import custom_calls, in_model, models, peers, report, start
from benchmarks.against import checkout
from benchmarks.measure import MAX_ROUNDS, MIN_ROUNDS, Call, Cell, Peer, interleave, measure
from benchmarks.workloads import (
    IN_MODEL,
    OPERATIONS,
    RESAMPLINGS,
    ROTATED,
    WORKLOADS,
    Array,
    Operation,
    Problem,
    Resampling,
    Rotated,
    Workload,
)

ROOT = Path(__file__).parents[1]
TINY = Workload("tiny", (2, 3, 12, 16), 5, 3, 0, 1 / 2, (4, 16))
TINY_ROTATED = Rotated("tiny", (2, 3, 12, 16), 5, 3, 0, 1 / 2, (4, 16))
TINY_OF: dict[object, Workload | Resampling]
TINY_OF = {RESAMPLINGS: Resampling("tiny", (1, 2, 5, 6), (1, 2, 10, 12)), ROTATED: TINY_ROTATED}
ONE = ("--workload", "one", "--threads", "1", "--rounds", "1")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, list(arguments))


def tiny(operation: Operation) -> Problem:
    return Problem(operation, TINY_OF.get(operation.workloads, TINY))


def measured(operation: Operation, found: dict[str, Peer]) -> list[Cell]:
    return measure("roi-align", tiny(operation), 1, found, rounds=1)


def altered(alter: Callable[[Array], Array], is_same: bool = True) -> Peer:
    """A peer whose answers are ours, altered."""

    def prepare(problem: Problem, threads: int) -> Call:
        call = models.ours(problem, threads)
        return Call(call.run, lambda answer: [alter(one) for one in call.arrays(answer)], is_same)

    return prepare


def off_by_a_tenth(array: Array) -> Array:
    return np.asarray(array + array.dtype.type(0.1) * np.abs(array).max())


def test_rois_of_a_workload_are_on_the_map() -> None:
    for workload in (*WORKLOADS, *IN_MODEL):
        images, _, height, width = workload.shape
        arrays = replace(workload, shape=(images, 1, height, width)).inputs()
        x1, y1, x2, y2 = arrays["rois"].T * workload.spatial_scale
        assert x1.size == arrays["batch_indices"].size == workload.rois
        assert ((x1 >= 0) & (x1 < x2) & (x2 <= width)).all(), workload.name
        assert ((y1 >= 0) & (y1 < y2) & (y2 <= height)).all(), workload.name
        assert set(arrays["batch_indices"].tolist()) <= set(range(images))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_an_operation_agrees_with_its_peers(operation: Operation) -> None:
    # OpenVINO computes other bins of whole pixels.
    names = ["ortops", "copy", "onnxruntime", *(["openvino"] if operation.name != "pixels" else [])]
    (cell,) = measured(operation, peers.load(names))
    assert cell.refused == []
    timed = {
        "copy": {one.name for one in OPERATIONS if one.outputs == ("Y",)},
        "onnxruntime": {"average", "max", "pixels", "linear", "nearest"},
        "openvino": {"average", "linear", "nearest"} if "openvino" in peers.load(names) else {},
    }
    assert set(cell.times) == {"ortops", *(name for name in names[1:] if operation.name in timed[name])}


def test_types_are_measured_in_turn() -> None:
    (cell,) = measured(OPERATIONS[3], peers.load(peers.TYPES))
    assert (cell.operation, cell.refused, list(cell.times)) == ("dX", [], list(peers.TYPES))
    assert measured(OPERATIONS[-1], peers.load(["bfloat16", "float"])) == []


def test_bodies_compute_the_same() -> None:
    (cell,) = measured(OPERATIONS[0], peers.load(["ortops", "bodies"]))
    assert (cell.refused, list(cell.times)) == ([], ["ortops", "bodies"])


def test_a_peer_with_wrong_numbers_is_not_timed() -> None:
    wrong = [off_by_a_tenth, lambda a: a[:-1], lambda a: a * np.float32(np.nan), lambda a: a * 0, lambda a: a * 1.001]
    found: dict[str, Peer] = {"ortops": models.ours}
    found |= {f"wrong {i}": altered(alter) for i, alter in enumerate(wrong)}
    found |= {"right": altered(lambda a: a), "known": altered(lambda a: a * 0, is_same=False)}
    (cell,) = measured(OPERATIONS[0], found)
    says = [f"wrong {i} is not compared: average of tiny differs from ours" for i in range(len(wrong))]
    assert [one.startswith(start) for one, start in zip(cell.refused, says, strict=True)] == [True] * len(wrong)
    assert list(cell.times) == ["ortops", "right", "known"]


@pytest.mark.parametrize("peer", ["ortops.torch", "torchvision"])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torchvision as it is imported
def test_roi_align_in_pytorch_agrees_where_it_is_installed(peer: str) -> None:
    try:
        found = peers.load(["ortops", peer], is_chosen=True)
    except click.UsageError as error:
        pytest.skip(str(error))
    cells = [cell for one in OPERATIONS for cell in measured(one, found)]
    assert [cell.refused for cell in cells if cell.refused] == []
    assert {cell.operation for cell in cells if peer in cell.times} == {"average", "dX"}


@pytest.mark.parametrize("peer", ["onnxruntime", "openvino"])
def test_a_model_has_a_row_for_the_node_alone_and_with_conversions(peer: str) -> None:
    pytest.importorskip(peer)
    alone, converted = in_model.measure(TINY, 1, ["ortops", peer], rounds=3)
    assert (alone.operation, alone.refused, list(alone.times)) == ("RoiAlign", [], ["ortops", peer])
    assert {len(times) for cell in (alone, converted) for times in cell.times.values()} == {3}
    # OpenVINO reports means in whole microseconds, of which the times of tiny maps are differences.
    assert all(a <= b for a, b in zip(alone.times["ortops"], converted.times["ortops"], strict=True))


def test_custom_calls_and_the_start_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_extensions")
    short, long = custom_calls.measure(rounds=2)
    assert (short.workload, long.workload) == ("float[1]", "float[1000000]")
    assert {len(times) for times in (*short.times.values(), *long.times.values())} == {2}
    assert all(float(number) >= 0 for number in start.run(str(tmp_path), "-c", "pass"))
    exec(start.CALL + start.GRADIENT, {})  # noqa: S102 - the calls that `make start` measures


def test_a_round_has_every_call_twice_and_none_always_follows_the_same() -> None:
    called: list[str] = []
    calls = {name: Call(partial(called.append, name)) for name in "abc"}
    assert {name: len(taken) for name, taken in interleave(calls, 12).items()} == {"a": 12, "b": 12, "c": 12}
    timed = called[1::2]
    assert called[::2] == timed
    assert all(sorted(timed[i : i + 3]) == ["a", "b", "c"] for i in range(0, 36, 3))
    for name in "abc":
        assert {before for before, after in pairwise(timed) if after == name} >= {*"abc"} - {name}
    assert len(interleave({"quick": Call(lambda: None)})["quick"]) == MAX_ROUNDS > MIN_ROUNDS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "'none' is not one of"),
        (["--operation", "none"], "--operation"),
        (["--threads", "0"], "--threads"),
        (["--json", "no/such/folder/run.json"], "No such file"),
        (["roi-align", "--operation", "linear", "--workload", "one"], "no chosen operation"),
        (["in-model", "--workload", "one"], "no chosen operation"),
        (["--against", str(ROOT / "docs")], "has no package ortops"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_package_that_is_not_installed_is_named_and_else_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("benchmarks.peers.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("openvino", "openvino.properties", "torch", "torchvision.ops"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("openvino", "torchvision"):
        result = run("--peer", name)
        assert (result.exit_code, f"{name!r}: must be installed" in result.output) == (2, True)
    assert "'ortops.torch': must be installed" in run("torch").output
    assert list(peers.load(peers.COMPARISONS["roi-align"].peers)) == ["ortops", "copy", "onnxruntime"]


def test_a_refused_peer_is_status_1_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "onnxruntime_own", altered(off_by_a_tenth))
    result = run("roi-align", "--operation", "average", "--peer", "onnxruntime", *ONE)
    assert result.exit_code == 1
    assert "onnxruntime is not compared: average of one differs from ours by" in result.output


OTHERS = f"""
import sys
sys.path[0] = {str(ROOT)!r}
del sys.modules["ortops"]
import ortops
class Session(ortops.InferenceSession):
    def run(self, *arguments):
        print("not an answer")
        return [2 * one for one in super().run(*arguments)]
ortops.InferenceSession = Session
"""


def test_the_operators_of_another_folder_are_called_in_turn(tmp_path: Path) -> None:
    (tmp_path / "ortops.py").write_text(OTHERS, "utf-8")
    with checkout(tmp_path) as others:
        (cell,) = measured(OPERATIONS[0], {"ortops": models.ours, "others": others})
        assert [one.partition(" where")[0] for one in cell.refused] == [
            f"others is not compared: average of tiny differs from ours by {np.abs(answer()).max():.2g}"
        ]
    result = run("--against", str(ROOT), "--operation", "average", *ONE)
    assert (result.exit_code, f"this | {ROOT} |" in " ".join(result.output.split())) == (0, True)


def answer() -> Array:
    call = models.ours(tiny(OPERATIONS[0]), 1)
    return np.asarray(call.run()[0])


def test_a_process_that_ends_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ortops.py").write_text("raise SystemExit(3)\n", "utf-8")
    with pytest.raises(click.ClickException, match="its process ended with status 3"), checkout(tmp_path) as others:
        others(tiny(OPERATIONS[0]), 1)


PAGE = """\
<!-- roi-align -->

| operation |
| --- |
| old |

<!-- types -->

| old |

kept
"""


def test_a_run_writes_tables_picture_and_json(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page, file, picture = (tmp_path / name for name in ("page.md", "run.json", "run.svg"))
    page.write_text(PAGE, "utf-8")
    chosen = ("roi-align", "--operation", "average", "--operation", "dX", "--peer", "onnxruntime", *ONE)
    result = run(*chosen, "--json", str(file), "--picture", str(picture), "--write", str(page))
    assert result.exit_code == 0, result.output
    forward, gradient = json.loads(file.read_text("utf-8"))["cells"]
    assert (forward["operation"], forward["threads"], list(forward["times"])) == (
        "average",
        1,
        ["ortops", "onnxruntime"],
    )
    assert (gradient["operation"], list(gradient["times"])) == ("dX", ["ortops"])
    heading, rules, first, second = page.read_text("utf-8").splitlines()[2:6]
    assert heading == "| operation | workload | threads | ortops | onnxruntime |"
    assert rules == "| --- | --- | ---: | ---: | ---: |"
    assert first.startswith("| average | one | 1 | ")
    assert second.startswith("| dX | one | 1 | ")
    assert page.read_text("utf-8").endswith("\n<!-- types -->\n\n| old |\n\nkept\n")
    assert "| average   | one " in result.output
    assert all(title in picture.read_text("utf-8") for title in ("Maximum", "ortops 0", ">one<"))


def cell(operation: str, workload: str, threads: int, **times: list[float]) -> Cell:
    return Cell(
        "roi-align", operation, workload, threads, {name: [one / 1e3 for one in each] for name, each in times.items()}
    )


def test_a_table_has_medians_and_medians_of_ratios() -> None:
    cells = [
        cell("average", "P2", 1, ortops=[4, 2, 8], onnxruntime=[30, 25, 40], openvino=[0.5, 0.5, 0.5]),
        cell("average", "P2", 2, ortops=[9.96], onnxruntime=[30]),
        cell("max", "P2", 1, ortops=[0.5]),
        cell("average", "P4", 1, ortops=[100], openvino=[1234]),
    ]
    assert report.tables(cells) == {
        "roi-align": report.Grid(
            ["operation", "workload", "threads", "ortops", "onnxruntime", "openvino"],
            [
                ["average", "P2", "1", "4.0", "30 (7.5)", "0.50 (0.12)"],
                ["", "", "2", "10", "30 (3.0)", ""],
                ["average", "P4", "1", "100", "", "1234 (12.3)"],
                ["max", "P2", "1", "0.50", "", ""],
            ],
        )
    }


@pytest.mark.parametrize(
    ("document", "comparisons"),
    [
        ("performance.md", ["roi-align", "types", "in-model", "others", "torch"]),
        ("gradients.md", ["networks"]),
        ("custom_operators.md", ["custom-calls"]),
    ],
)
def test_a_document_has_one_table_of_each_comparison(document: str, comparisons: list[str]) -> None:
    text = (ROOT / "docs" / document).read_text("utf-8")
    for comparison in comparisons:
        new = report.replaced(text, {comparison: report.Grid(["operation", "new"], [["a", "b"]])})
        assert f"<!-- {comparison} -->\n\n| operation | new |\n| --- | ---: |\n| a | b |\n\n" in new
    with pytest.raises(click.ClickException, match="must have one line <!-- none -->, not 0"):
        report.replaced(text, {"none": report.Grid([], [])})

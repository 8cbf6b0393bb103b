# SPDX-License-Identifier: MIT
"""The benchmarks: operations agree with their peers, what differs is not timed, a run writes tables. No time is asserted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from benchmarks import __main__ as command
from benchmarks import custom_calls, in_model, models, peers, report
from benchmarks.against import checkout
from benchmarks.measure import Call, Cell, Peer, measure
from benchmarks.workloads import (
    ATTENTIONS,
    OPERATIONS,
    RESAMPLINGS,
    ROTATED,
    AnyWorkload,
    Array,
    Attention,
    Operation,
    Problem,
    Resampling,
    Rotated,
    Workload,
)

ROOT = Path(__file__).parents[1]
TINY = Workload("tiny", (2, 3, 12, 16), 5, 3, 0, 1 / 2, (4, 16))
TINY_ROTATED = Rotated("tiny", (2, 3, 12, 16), 5, 3, 0, 1 / 2, (4, 16))
TINY_OF: dict[object, AnyWorkload]
TINY_OF = {RESAMPLINGS: Resampling("tiny", (1, 2, 5, 6), (1, 2, 10, 12)), ROTATED: TINY_ROTATED}
TINY_OF[ATTENTIONS] = Attention("tiny", ((5, 4), (3, 2)))
ONE = ("--workload", "one", "--threads", "1", "--rounds", "1")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, list(arguments))


def tiny(operation: Operation) -> Problem:
    return Problem(operation, TINY_OF.get(operation.workloads, TINY))


def measured(operation: Operation, chosen: dict[str, Peer]) -> list[Cell]:
    return measure("roi-align", tiny(operation), 1, chosen, rounds=1)


def altered(alter: Callable[[Array], Array], is_same: bool = True) -> Peer:
    """A peer whose answers are ours, altered."""

    def prepare(problem: Problem, threads: int) -> Call:
        call = models.ours(problem, threads)
        return Call(call.run, lambda answer: [alter(array) for array in call.arrays(answer)], is_same)

    return prepare


def off_by_a_tenth(array: Array) -> Array:
    return np.asarray(array + array.dtype.type(0.1) * np.abs(array).max())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_an_operation_agrees_with_its_peers(operation: Operation) -> None:
    # OpenVINO computes other bins of whole pixels.
    names = ["ortops", "copy", "onnxruntime", *(["openvino"] if operation.name != "pixels" else [])]
    (cell,) = measured(operation, peers.load(names))
    assert cell.refused == []
    timed = {
        "copy": {other.name for other in OPERATIONS if other.outputs == ("Y",)},
        "onnxruntime": {"average", "max", "pixels", "linear", "nearest", "attention"},
        "openvino": {"average", "linear", "nearest", "attention"} if "openvino" in peers.load(names) else {},
    }
    assert set(cell.times) == {"ortops", *(name for name in names[1:] if operation.name in timed[name])}


def test_a_peer_with_wrong_numbers_is_not_timed() -> None:
    wrong = [off_by_a_tenth, lambda a: a[:-1], lambda a: a * np.float32(np.nan), lambda a: a * 0, lambda a: a * 1.001]
    chosen: dict[str, Peer] = {"ortops": models.ours}
    chosen |= {f"wrong {i}": altered(alter) for i, alter in enumerate(wrong)}
    chosen |= {"right": altered(lambda a: a), "known": altered(lambda a: a * 0, is_same=False)}
    (cell,) = measured(OPERATIONS[0], chosen)
    messages = [f"wrong {i} is not compared: average of tiny differs from ours" for i in range(len(wrong))]
    assert [refusal.startswith(start) for refusal, start in zip(cell.refused, messages, strict=True)] == [True] * len(
        wrong
    )
    assert list(cell.times) == ["ortops", "right", "known"]


@pytest.mark.parametrize("peer", ["ortops.torch", "torchvision"])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torchvision as it is imported
def test_roi_align_in_pytorch_agrees_where_it_is_installed(peer: str) -> None:
    try:
        chosen = peers.load(["ortops", peer], is_chosen=True)
    except click.UsageError as error:
        pytest.skip(str(error))
    cells = [cell for operation in OPERATIONS for cell in measured(operation, chosen)]
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


def test_custom_calls_are_measured() -> None:
    short, long = custom_calls.measure(rounds=2)
    assert (short.workload, long.workload) == ("float[1]", "float[1000000]")
    assert {len(times) for times in (*short.times.values(), *long.times.values())} == {2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "'none' is not one of"),
        (["--operation", "none"], "--operation"),
        (["--threads", "0"], "--threads"),
        (["roi-align", "--operation", "linear", "--workload", "one"], "no chosen operation"),
        (["in-model", "--workload", "one"], "no chosen operation"),
        (["--against", str(ROOT / "docs")], "has no package ortops"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


OTHERS = f"""
import sys
sys.path[0] = {str(ROOT)!r}
del sys.modules["ortops"]
import ortops
class Session(ortops.InferenceSession):
    def run(self, *arguments):
        print("not an answer")
        return [2 * output for output in super().run(*arguments)]
ortops.InferenceSession = Session
"""


def test_the_operators_of_another_folder_are_called_in_turn(tmp_path: Path) -> None:
    (tmp_path / "ortops.py").write_text(OTHERS, "utf-8")
    with checkout(tmp_path) as others:
        (cell,) = measured(OPERATIONS[0], {"ortops": models.ours, "others": others})
        assert [refusal.partition(" where")[0] for refusal in cell.refused] == [
            f"others is not compared: average of tiny differs from ours by {np.abs(answer()).max():.2g}"
        ]


def answer() -> Array:
    call = models.ours(tiny(OPERATIONS[0]), 1)
    return np.asarray(call.run()[0])


PAGE = """\
<!-- roi-align -->

| operation |
| --- |
| old |

<!-- types -->

| old |

kept
"""


def test_a_run_writes_tables_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page, picture = tmp_path / "page.md", tmp_path / "run.svg"
    page.write_text(PAGE, "utf-8")
    chosen = ("roi-align", "--operation", "average", "--operation", "dX", "--peer", "onnxruntime", *ONE)
    result = run(*chosen, "--picture", str(picture), "--write", str(page))
    assert result.exit_code == 0, result.output
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
        "roi-align", operation, workload, threads, {name: [time / 1e3 for time in each] for name, each in times.items()}
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

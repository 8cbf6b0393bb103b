"""The benchmarks: what they measure, that nothing else is compared, and what they write. No time is asserted."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import onnx_models
from benchmarks import __main__ as command
from benchmarks import documented_tables, first_call, fresh_process, in_model, models, peers
from benchmarks.call import Call
from benchmarks.first_call import FirstCall
from benchmarks.interleave import LEAST_ROUNDS, MOST_ROUNDS, interleave
from benchmarks.measure import Cell, measure
from benchmarks.memory_copy import copy_call
from benchmarks.operations import BY_DEFAULT, IN_MODEL, OPERATIONS, Operation
from benchmarks.peers import NAMES, Peer
from benchmarks.problem import Problem
from benchmarks.sessions import our_call
from benchmarks.sweeps import sweeps
from benchmarks.workloads import (
    FPN,
    PYRAMIDS,
    RESAMPLINGS,
    ROTATED,
    WORKLOADS,
    Array,
    Pyramid,
    Resampling,
    Rotated,
    Workload,
)

TINY = Workload("tiny", (2, 3, 12, 16), 5, 3, 0, 1 / 2, (4, 16))
TINY_PYRAMID = Pyramid("mask", (TINY, replace(TINY, name="half", shape=(2, 3, 6, 8), spatial_scale=1 / 4)))
TINY_RESAMPLING = Resampling("tiny", (1, 2, 5, 6), (10, 12))
TINY_ROTATED = Rotated("tiny", (2, 20, 12, 16), 5, 3, 0, 1 / 2, (4, 16))
AVG, DX = (next(o for o in OPERATIONS if o.name == name) for name in ("avg", "dX"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, list(arguments))


def tiny(operation: Operation, element_type: str = "float") -> Problem:
    by_family: dict[str, Workload | Resampling]
    by_family = {"rotated": TINY_ROTATED, "resample": TINY_RESAMPLING}
    return Problem(operation, by_family.get(operation.family, TINY), element_type)


class Altered:
    """A peer whose answers are ours, altered."""

    PACKAGE = "numpy"

    def __init__(self, alter: Callable[[Array], Array], expected_difference: str | None = None) -> None:
        self._alter, self._departs = alter, expected_difference

    def prepare(self, problem: Problem, threads: int) -> Call | None:
        call = our_call(problem, threads)
        return Call(call.run, lambda answer: [self._alter(a) for a in call.arrays(answer)], self._departs)


def off_by_a_tenth(array: Array) -> Array:
    return np.asarray(array + array.dtype.type(0.1) * np.abs(array).max())


@pytest.mark.parametrize(
    "workload",
    [*WORKLOADS, *FPN.levels, *dict.fromkeys(workload for workload, _ in sweeps())],
    ids=lambda w: w.name,
)
def test_rows_are_roi_aligns_on_the_map(workload: Workload) -> None:
    images, _, height, width = workload.shape
    few = replace(workload, shape=(images, 1, height, width))
    arrays = few.inputs()
    x1, y1, x2, y2 = arrays["rois"].T * workload.spatial_scale
    assert x1.size == workload.rois
    assert (x1 >= 0).all()
    assert (x1 < x2).all()
    assert (x2 <= width).all()
    assert (y1 >= 0).all()
    assert (y1 < y2).all()
    assert (y2 <= height).all()
    assert arrays["batch_indices"].shape == (workload.rois,)
    assert set(arrays["batch_indices"].tolist()) <= set(range(images))
    assert few.gradient().shape == (workload.rois, 1, workload.bins, workload.bins)
    for kind in AVG.element_types:
        onnx.checker.check_model(models.ours(Problem(AVG, workload, kind)))


def test_names_are_unique_so_that_they_can_be_chosen() -> None:
    upright = (*WORKLOADS, *FPN.levels, *ROTATED)
    workloads = [*(w.name for w in upright), *(w.name for w in RESAMPLINGS), FPN.name]
    for names in (workloads, [pyramid.name for pyramid in PYRAMIDS], command.OPERATION_NAMES, NAMES):
        assert len(set(names)) == len(names)
    assert {*command.OPERATION_NAMES} - {first_call.NAME} >= {*BY_DEFAULT} > {IN_MODEL.name}


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o.family == "rotated"], ids=lambda o: o.name)
@pytest.mark.parametrize("threads", [1, 2])
def test_rotated_rois_agree_with_plain_loops(operation: Operation, threads: int) -> None:
    cell = measure(tiny(operation), threads, {"loops": peers.load("loops")}, rounds=1)
    assert cell.refused == []
    assert list(cell.differences) == ([] if operation.outputs == ("drois",) else ["loops"])


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o.family != "rotated"], ids=lambda o: o.name)
def test_every_operation_agrees_with_its_peers_and_with_its_bodies(operation: Operation) -> None:
    found = {name: peers.load(name) for name in ("onnxruntime", "bodies")}
    cell = measure(tiny(operation), 1, found, rounds=2)
    assert cell.refused == []
    has_standard = not operation.is_gradient and operation.mode != "max_interpolated"
    assert list(cell.differences) == (["onnxruntime", "bodies"] if has_standard else ["bodies"])
    references = {"copy", "forward"} if operation.is_gradient else {"copy"}
    assert set(cell.times) == {"ortops", *references, *cell.differences}
    assert all(len(times) == 2 for times in cell.times.values())
    assert cell.median("ortops") == sum(cell.times["ortops"]) / 2


@pytest.mark.parametrize("element_type", ["float16", "bfloat16", "double"])
def test_other_types_are_put_beside_float(element_type: str) -> None:
    cell = measure(tiny(DX, element_type), 1, {"bodies": peers.load("bodies")}, rounds=1)
    assert cell.refused == []
    assert set(cell.times) == {"ortops", "copy", "forward", "float", "bodies"}


def test_bfloat16_has_no_kernel_in_onnxruntime() -> None:
    assert peers.load("onnxruntime").prepare(tiny(AVG, "bfloat16"), 1) is None


@pytest.mark.parametrize(
    "alter",
    [off_by_a_tenth, lambda a: a[:-1], lambda a: a * np.float32(np.nan), lambda a: a * 0, lambda a: a * 1.001],
    ids=["off", "another shape", "nan", "zeros", "off by a thousandth"],
)
def test_a_peer_with_wrong_numbers_is_refused_and_not_timed(alter: Callable[[Array], Array]) -> None:
    wrong, right = Altered(alter), Altered(lambda a: a)
    cell = measure(tiny(AVG), 1, {"wrong": wrong, "right": right}, rounds=1)
    (message,) = cell.refused
    assert message.startswith("wrong is not compared: avg of tiny in float differs from ours by")
    assert "wrong" not in cell.times
    assert "right" in cell.times


def test_a_peer_that_is_known_to_differ_is_timed_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "present", lambda: {"odd": Altered(off_by_a_tenth, "its reasons")})
    result = run("--operation", "avg", "--workload", "one", "--threads", "1", "--rounds", "1")
    assert result.exit_code == 0, result.output
    assert "* odd: its reasons" in result.output.splitlines()
    assert ")*" in result.output


def test_a_refused_peer_is_status_1_and_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "present", lambda: {"odd": Altered(off_by_a_tenth)})
    file = tmp_path / "run.json"
    arguments = ("--operation", "avg", "--workload", "one", "--threads", "1", "--rounds", "1")
    result = run(*arguments, "--json", str(file))
    assert result.exit_code == 1
    assert "odd is not compared: avg of one in float differs from ours by 0.1 of the largest value" in result.output
    (cell,) = json.loads(file.read_text("utf-8"))["cells"]
    assert "odd" not in cell["seconds"]
    assert cell["differences"]["odd"]["is_refused"] is True


def test_a_small_run_writes_everything(tmp_path: Path) -> None:
    json_file = tmp_path / "run.json"
    chosen = ("--operation", "avg", "--operation", "dX", "--workload", "one", "--peer", "onnxruntime", "--threads", "1")
    result = run(*chosen, "--rounds", "3", "--json", str(json_file))
    assert result.exit_code == 0, result.output
    data = json.loads(json_file.read_text("utf-8"))
    assert set(data) == {"machine", "packages", "single", "cells", "first_calls"}
    assert data["single"] is False
    assert "each twice in a row, and the second one is timed" in result.output
    assert set(data["machine"]) == {"cpu", "cpus", "architecture", "system", "python", "load"}
    assert {"ortops", "onnxruntime", "numba", "numpy"} <= set(data["packages"])
    assert [(cell["operation"], cell["workload"], cell["threads"]) for cell in data["cells"]] == [
        ("avg", "one", 1),
        ("dX", "one", 1),
    ]
    forward, gradient = data["cells"]
    assert forward["facts"] == {"X": "1x256x50x76", "RoIs": "1", "bins": "7", "samples": "2"}
    assert (forward["element_type"], forward["rounds"]) == ("float", 3)
    assert set(forward["seconds"]) == {"ortops", "copy", "onnxruntime"}
    assert set(gradient["seconds"]) == {"ortops", "copy", "forward"}
    for call in forward["seconds"].values():
        assert len(call["all"]) == 3
        assert call["min"] == min(call["all"]) > 0
        assert call["median"] == sorted(call["all"])[1]
    difference = forward["differences"]["onnxruntime"]
    assert 0 <= difference["relative"] <= difference["allowed"] < 1e-3
    assert {"avg, float", "dX, float"} <= {line.strip() for line in result.output.splitlines()}
    (row, _) = (line.split() for line in result.output.splitlines() if line.strip().startswith("one "))
    times = forward["seconds"]
    ratio = times["onnxruntime"]["median"] / times["ortops"]["median"]
    shown = f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"
    assert row[-2:] == [f"{times['onnxruntime']['median'] * 1e3:.2f}", f"({shown})"]


def test_a_run_of_single_calls_says_so(tmp_path: Path) -> None:
    json_file = tmp_path / "run.json"
    chosen = ("--operation", "avg", "--workload", "one", "--peer", "onnxruntime", "--threads", "1")
    result = run(*chosen, "--rounds", "3", "--single", "--json", str(json_file))
    assert result.exit_code == 0, result.output
    assert "Calls are made in turn, and every one is timed" in result.output
    assert "twice in a row" not in result.output
    data = json.loads(json_file.read_text("utf-8"))
    assert data["single"] is True
    assert {len(call["all"]) for call in data["cells"][0]["seconds"].values()} == {3}


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("peer", ["onnxruntime", "openvino"])
def test_a_model_has_a_row_for_each_level_and_one_for_their_sum_with_and_without_conversions(
    peer: str, single: bool
) -> None:
    _load_or_skip(peer)
    cells = in_model.measure(TINY_PYRAMID, 1, [peer], rounds=3, single=single)
    assert [cell.operation for cell in cells] == [*["in-model"] * 3, *["in-model with conversions"] * 3]
    for first, second, both in (cells[:3], cells[3:]):
        assert [first.workload, second.workload, both.workload] == [*TINY_PYRAMID.levels, TINY_PYRAMID]
        assert both.workload.facts == {"X": "2 maps", "RoIs": "10", "bins": "3", "samples": "by size"}
        for cell in (first, second, both):
            assert (cell.element_type, cell.threads, cell.refused) == ("float", 1, [])
            assert {name: len(times) for name, times in cell.times.items()} == {"ortops": 3, peer: 3}
        for name, times in both.times.items():
            assert times == [a + b for a, b in zip(first.times[name], second.times[name], strict=True)]


def test_a_model_of_one_level_has_one_row_and_runs_without_peers() -> None:
    for cell in in_model.measure(Pyramid("alone", (TINY,)), 1, [], rounds=1):
        assert cell.workload == TINY
        assert (set(cell.times), cell.differences) == ({"ortops"}, {})


def test_openvinos_mean_times_of_a_node_are_turned_into_those_of_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    openvino = pytest.importorskip("openvino")
    profiled = importlib.import_module("benchmarks.peers.openvino").ProfiledModel
    pyramid = Pyramid("alone", (TINY,))
    model = profiled(in_model.model(pyramid), in_model.feeds(pyramid), 1)
    true_info = openvino.InferRequest.get_profiling_info
    for mean in (10, 15, 20):

        def info(request: Any, mean: int = mean) -> list[Any]:
            layers = true_info(request)
            return [SimpleNamespace(node_name=one.node_name, real_time=timedelta(microseconds=mean)) for one in layers]

        monkeypatch.setattr(openvino.InferRequest, "get_profiling_info", info)
        model.run()
    (times,) = model.seconds(["tiny"])
    np.testing.assert_allclose(times.alone, [10e-6, 20e-6, 30e-6])
    # The type of batch_indices is always converted, the layouts of X and Y only where the processor's convolutions need it.
    conversions = times.with_conversions[0] / times.alone[0] - 1
    assert round(conversions) in (1, 2, 3)
    np.testing.assert_allclose(times.with_conversions, [(1 + conversions) * taken for taken in times.alone])


def test_a_level_that_computes_something_else_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: onnx.ModelProto) -> onnx.ModelProto:
        made = convert(model)
        (node,) = (node for node in made.graph.node if node.name == "half/RoiAlign")
        next(attribute for attribute in node.attribute if attribute.name == "spatial_scale").f = 1 / 5
        return made

    convert = onnx_models.convert
    monkeypatch.setattr(onnx_models, "convert", wrong)
    cells = in_model.measure(TINY_PYRAMID, 1, ["onnxruntime"], rounds=1)
    for right, *others in (cells[:3], cells[3:]):
        assert right.refused == []
        assert set(right.times) == {"ortops", "onnxruntime"}
        for cell, name in zip(others, ("half", "mask"), strict=True):
            says = f"onnxruntime is not compared: {cell.operation} of {name} in float differs from ours by"
            assert cell.refused[0].startswith(says)
            assert set(cell.times) == {"ortops"}


def test_the_cases_of_first_calls_compute_what_they_say() -> None:
    workload = replace(fresh_process.WORKLOAD, rois=5)
    y, also_y, dx = (prepare(workload)() for prepare in fresh_process.CASES.values())
    assert y.shape == (5, 64, 7, 7)
    np.testing.assert_array_equal(also_y, y)
    assert dx.shape == workload.shape
    np.testing.assert_allclose(np.vdot(dx, workload.inputs()["X"]), np.vdot(workload.gradient(), y), rtol=1e-3)


def test_imports_are_those_that_a_call_needs_and_not_the_compiler() -> None:
    code = "import sys, benchmarks.fresh_process; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    imported = {*answer.stdout.split()}
    assert imported >= {"numpy", "onnxruntime", "ortops"}
    assert imported.isdisjoint({"numba", "onnx_models", "conformance"})


def test_first_calls_are_written_as_seconds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, int | None]] = []

    def measured(case: str, runs: int | None) -> FirstCall:
        asked.append((case, runs))
        return FirstCall(case, {"imports": [0.25, 0.5, 1.0], "cached": [1.0, 4.0, 2.0]})

    monkeypatch.setattr(first_call, "measure", measured)
    json_file = tmp_path / "run.json"
    result = run("--operation", "first-call", "--json", str(json_file))
    assert result.exit_code == 0, result.output
    assert asked == [(case, None) for case in fresh_process.CASES]
    data = json.loads(json_file.read_text("utf-8"))
    assert data["cells"] == []
    assert data["first_calls"][0] == {
        "case": "function",
        "seconds": {
            "imports": {"median": 0.5, "min": 0.25, "all": [0.25, 0.5, 1.0]},
            "cached": {"median": 2.0, "min": 1.0, "all": [1.0, 4.0, 2.0]},
        },
    }
    assert "processor seconds" in result.output
    assert "Milliseconds" not in result.output
    assert ["session", "0.50", "2.00"] in [line.split() for line in result.output.splitlines()]


def test_a_round_has_every_call_twice_and_none_always_follows_the_same() -> None:
    called: list[str] = []
    calls = {name: (lambda name=name: called.append(name)) for name in "abc"}
    times = interleave(calls, 12)
    assert {name: len(taken) for name, taken in times.items()} == {"a": 12, "b": 12, "c": 12}
    timed = called[1::2]
    assert called[::2] == timed
    rounds = [timed[i : i + 3] for i in range(0, 36, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    for name in "abc":
        assert {before for before, after in pairwise(timed) if after == name} >= {*"abc"} - {name}


def test_a_round_of_single_calls_has_every_call_once_and_none_after_itself() -> None:
    called: list[str] = []
    calls = {name: (lambda name=name: called.append(name)) for name in "abc"}
    times = interleave(calls, 12, single=True)
    assert {name: len(taken) for name, taken in times.items()} == {"a": 12, "b": 12, "c": 12}
    assert all(sorted(called[i : i + 3]) == ["a", "b", "c"] for i in range(0, 36, 3))
    assert all(before != after for before, after in pairwise(called))
    for name in "abc":
        assert {before for before, after in pairwise(called) if after == name} == {*"abc"} - {name}


def test_there_are_enough_rounds_where_nobody_says_and_not_too_many() -> None:
    assert len(interleave({"quick": lambda: None})["quick"]) == MOST_ROUNDS
    assert MOST_ROUNDS > LEAST_ROUNDS >= 7


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_copying_takes_parts_of_any_size(threads: int) -> None:
    call = copy_call([np.ones((5, 1), np.float16)], [np.ones(1, np.float32), np.ones(0)], threads)
    call.run()
    assert call.arrays(None) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--operation", "none"], "--operation"),
        (["--workload", "none"], "--workload"),
        (["--type", "int8"], "--type"),
        (["--peer", "none"], "--peer"),
        (["--threads", "0"], "--threads"),
        (["--threads", "1000000"], "--threads"),
        (["--rounds", "0"], "--rounds"),
        (["--json", "no/such/folder/run.json"], "is no folder"),
        (["--operation", "linear", "--workload", "one"], "no chosen operation"),
        (["--operation", "linear", "--type", "bfloat16"], "no chosen operation"),
        (["--operation", "in-model", "--workload", "one"], "no chosen operation"),
        (["--operation", "in-model", "--type", "float16"], "no chosen operation"),
        (["--chart", "no/such/folder/run.svg"], "is no folder"),
        (["tables", "no-such-report.json"], "REPORT"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    for name in [name for name in sys.modules if name.startswith(("benchmarks.chart", "benchmarks.peers."))]:
        monkeypatch.delitem(sys.modules, name)
    for package in packages:
        for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
            monkeypatch.setitem(sys.modules, name, None)


def test_a_chart_without_matplotlib_is_a_wrong_call_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "matplotlib")
    result = run("--chart", "run.svg")
    assert result.exit_code == 2
    assert "ortops[bench]" in result.output


def test_a_peer_that_is_not_installed_is_a_wrong_call_and_else_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "openvino", "torch", "torchvision")
    for name in ("openvino", "torch", "torchvision"):
        result = run("--peer", name)
        assert result.exit_code == 2
        assert f"{name!r}: must be installed" in result.output
    assert list(peers.present()) == ["onnxruntime", "loops"]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torchvision as it is imported
@pytest.mark.parametrize("operation", ["avg", "dX", "linear", "linear dX", "nearest", "nearest dX"])
def test_torch_and_torchvision_compute_the_same(operation: str) -> None:
    name = "torchvision" if operation in ("avg", "dX") else "torch"
    found: Mapping[str, Peer] = {name: _load_or_skip(name)}
    cell = measure(tiny(next(o for o in OPERATIONS if o.name == operation)), 1, found, rounds=1)
    assert cell.refused == []
    assert list(cell.differences) == [name]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_openvino_computes_the_same_except_for_negative_maxima(operation: Operation) -> None:
    peer = _load_or_skip("openvino")
    cell = measure(tiny(operation), 1, {"openvino": peer}, rounds=1)
    assert cell.refused == []
    supported = operation.name in ("avg", "max_interpolated", "pixels", "linear", "nearest")
    assert list(cell.differences) == (["openvino"] if supported else [])
    if supported:
        assert cell.differences["openvino"].is_known == (operation.name == "max_interpolated")


@pytest.mark.parametrize("threads", [1, 2])
def test_openvinos_maximum_is_that_of_interpolated_samples_and_zero(threads: int) -> None:
    problem = tiny(next(o for o in OPERATIONS if o.name == "max_interpolated"))
    ours, theirs = our_call(problem, threads), _load_or_skip("openvino").prepare(problem, threads)
    assert theirs is not None
    (expected,), (y,) = ours.arrays(ours.run()), theirs.arrays(theirs.run())
    assert (expected < 0).any()
    np.testing.assert_allclose(y, np.maximum(expected, 0), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("element_type", "is_supported"), [("float16", True), ("bfloat16", False), ("double", False)])
def test_openvino_takes_types_of_numpy_that_it_computes_in_no_smaller_one(
    element_type: str, is_supported: bool
) -> None:
    cell = measure(tiny(AVG, element_type), 1, {"openvino": _load_or_skip("openvino")}, rounds=1)
    assert cell.refused == []
    assert ("openvino" in cell.times) == is_supported


def test_openvinos_inputs_and_outputs_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    openvino = pytest.importorskip("openvino")
    requests: list[Any] = []
    true_infer = openvino.InferRequest.infer

    def infer(request: Any, *inputs: Any, **options: Any) -> Any:
        requests.append(request)
        return true_infer(request, *inputs, **options)

    monkeypatch.setattr(openvino.InferRequest, "infer", infer)
    problem = tiny(AVG)
    call = peers.load("openvino").prepare(problem, 1)
    assert call is not None
    y = call.run()["Y"]
    assert np.shares_memory(y, requests[0].get_tensor("Y").data)
    for name, array in problem.arrays.items():
        assert np.shares_memory(array, requests[0].get_tensor(name).data)


def _load_or_skip(name: str) -> Peer:
    try:
        return peers.load(name)
    except peers.MissingPeerError as error:
        pytest.skip(str(error))


def report_cell(operation: str, workload: str, threads: int, peer_seconds: float) -> dict[str, Any]:
    seconds = {"ortops": {"median": 0.5}, "onnxruntime": {"median": peer_seconds}}
    facts = {"X": "1x2x3x4", "RoIs": "1" if workload == "one" else "5"}
    shown = {"operation": operation, "workload": workload, "threads": threads, "facts": facts, "seconds": seconds}
    return {"element_type": "float", **shown}


REPORT = {
    "machine": {"cpu": "A <processor>", "cpus": 8},
    "packages": {"ortops": "0.1", "onnxruntime": "1.2", "numpy": "2.3"},
    "cells": [
        *(report_cell("avg", "P2", threads, threads + 0.5) for threads in (1, 4, 8)),
        report_cell("max", "one", 1, 11.5),
        report_cell("in-model", "FPN P2", 1, 21.5),
        report_cell("in-model", "FPN", 1, 31.5),
        report_cell("dX", "P4", 1, 41.5),
        report_cell("avg", "mask", 1, 51.5) | {"element_type": "double"},
        report_cell("avg", "C4", 1, 61.5) | {"seconds": {"ortops": {"median": 0.5}}},
    ],
}


def chart_texts(report: Mapping[str, Any], folder: Path, name: str = "speed") -> tuple[list[str], list[bytes]]:
    """The texts of the chart in the light theme, and the two files."""
    chart = pytest.importorskip("benchmarks.chart")
    files = chart.draw(report, folder / f"{name}.svg")
    assert files == [folder / f"{name}-light.svg", folder / f"{name}-dark.svg"]
    tree = ET.parse(files[0])  # noqa: S314 - we wrote it
    assert tree.getroot().get("width") == "600pt"
    return [text.strip() for text in tree.getroot().itertext() if text.strip()], [file.read_bytes() for file in files]


def test_a_chart_shows_the_ratios_of_roi_align_as_text_with_the_machine_and_the_versions(tmp_path: Path) -> None:
    texts, _ = chart_texts(REPORT, tmp_path)
    ratios = [text for text in texts if text.replace(".", "").isdigit()]
    assert ratios == ["3.0", "17.0", "23.0", "63.0"]
    assert {"P2", "one", "FPN", "5 RoIs on 1x2x3x4", "1 RoI on 1x2x3x4"} <= {*texts}
    assert {"Average", "Maximum", "Average, inside a model", "1 thread", "8 threads"} <= {*texts}
    assert {"FPN P2", "P4", "mask", "C4", "4 threads"}.isdisjoint(texts)
    assert "Medians of calls in float32 on A <processor>, 8 CPUs." in texts
    assert "ortops 0.1, onnxruntime 1.2, numpy 2.3." in texts


def test_a_chart_of_single_calls_says_so(tmp_path: Path) -> None:
    texts, _ = chart_texts({**REPORT, "single": True}, tmp_path)
    assert "Medians of single calls in float32 on A <processor>, 8 CPUs." in texts


def test_a_chart_has_the_same_bytes_each_time_and_two_themes(tmp_path: Path) -> None:
    _, once = chart_texts(REPORT, tmp_path)
    _, again = chart_texts(REPORT, tmp_path, "again")
    assert once == again
    light, dark = once
    assert light != dark
    assert b"dc:date" not in light


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chart", "run.png"], "must end in .svg"),
        (["--chart", "run.svg", "--operation", "dX"], "but none is chosen"),
        (["--chart", "run.svg", "--operation", "avg", "--type", "double"], "but none is chosen"),
        (["--chart", "run.svg", "--peer", "loops"], "but none is chosen"),
    ],
)
def test_a_chart_that_would_show_nothing_is_a_wrong_call(arguments: list[str], message: str) -> None:
    pytest.importorskip("matplotlib")
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_run_draws_a_chart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chosen = ("--operation", "avg", "--workload", "one", "--peer", "onnxruntime", "--threads", "1", "--rounds", "1")
    result = run(*chosen, "--chart", str(tmp_path / "run.svg"))
    assert result.exit_code == 0, result.output
    assert all((tmp_path / f"run-{theme}.svg").read_text("utf-8") for theme in ("light", "dark"))


def test_a_cell_keeps_no_arrays() -> None:
    cell: Cell = measure(tiny(AVG), 1, {}, rounds=1)
    assert not any(isinstance(value, np.ndarray) for value in vars(cell).values())


def cell(
    operation: str, workload: str, threads: int, seconds: Mapping[str, float], kind: str = "float"
) -> dict[str, Any]:
    return {
        "operation": operation,
        "workload": workload,
        "threads": threads,
        "element_type": kind,
        "facts": {"X": "1x2x3x4", "RoIs": "5", "bins": "7", "samples": "by size"},
        "seconds": {name: {"median": one / 1e3} for name, one in seconds.items()},
    }


PEERS = {"onnxruntime": 30.0, "openvino": 0.5}

TABLES = {
    "machine": {"cpus": 2},
    "cells": [
        *(cell("avg", "P2", n, {"ortops": 4 / n, "copy": 2, **PEERS}) for n in (1, 2)),
        *(cell("max", "P2", n, {"ortops": 9.96, "copy": 2, **PEERS}) for n in (1, 2)),
        *(cell("dX", "P2", n, {"ortops": 0.996, "copy": 2, "forward": 1}) for n in (1, 2)),
        cell("avg", "mask", 1, {"ortops": 0.06, "copy": 2}),
        cell("in-model", "FPN", 1, {"ortops": 10, **PEERS}),
        cell("in-model", "mask", 1, {"ortops": 10, "onnxruntime": 20}),
        cell("in-model with conversions", "FPN", 1, {"ortops": 20, **PEERS}),
        cell("in-model", "FPN", 2, {"ortops": 10, **PEERS}),
        *(cell("rotated", "P2 rotated", n, {"ortops": 20, "loops": 100}) for n in (1, 2)),
        cell("avg", "P2", 2, {"ortops": 3, "float": 4, "copy": 1}, "float16"),
        cell("avg", "P2", 2, {"ortops": 8, "float": 5, "copy": 1}, "double"),
        cell("drois", "P2", 2, {"ortops": 6, "float": 6, "copy": 1}, "bfloat16"),
    ],
}

MADE = [
    """\
| workload | X | RoIs | bins | samples | threads | average | times the floor | onnxruntime | OpenVINO | max | onnxruntime \
| dX | drois |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| P2 | 1x2x3x4 | 5 | 7 | by size | 1 | 4.0 | 2.0 | 30 (7.5) | 0.50 (0.12) | 10 | 30 (3.0) | 1.0 | |
| | | | | | 2 | 2.0 | 1.0 | 30 (15.0) | 0.50 (0.25) | 10 | 30 (3.0) | 1.0 | |
| mask | 1x2x3x4 | 5 | 7 | by size | 1 | 0.06 | 0.03 | | | | | | |""",
    """\
| operation | workload | threads | float | float16 | bfloat16 | double |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| average | P2 | 2 | 4.5 | 3.0 (0.75) | | 8.0 (1.6) |
| drois | P2 | 2 | 6.0 | | 6.0 (1.0) | |""",
    """\
| model | X of RoiAlign | RoIs | bins | samples | threads | RoiAlign | onnxruntime | OpenVINO | with conversions \
| onnxruntime | OpenVINO |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| FPN | 1x2x3x4 | 5 | 7 | by size | 1 | 10 | 30 (3.0) | 0.50 (0.05) | 20 | 30 (1.5) | 0.50 (0.03) |
| | | | | | 2 | 10 | 30 (3.0) | 0.50 (0.05) | | | |
| mask | 1x2x3x4 | 5 | 7 | by size | 1 | 10 | 20 (2.0) | | | | |""",
    """\
| operation | workload | threads | ortops | onnxruntime | OpenVINO | loops |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| rotated | P2 rotated | 1 | 20 | | | 100 (5.0) |
| | | 2 | 20 | | | 100 (5.0) |""",
]


def test_tables_of_the_documents_are_made_from_a_report() -> None:
    assert documented_tables.tables(TABLES) == MADE


def test_tables_are_printed_or_put_in_place_of_those_with_the_same_headings(tmp_path: Path) -> None:
    report, document = tmp_path / "report.json", tmp_path / "page.md"
    report.write_text(json.dumps(TABLES), "utf-8")
    assert run("tables", str(report)).output == "\n\n".join(MADE) + "\n"
    old = "\n\n".join("\n".join([*table.splitlines()[:2], "| old |"]) for table in MADE)
    document.write_text(f"# Page\n\n{old}\n\n| other |\n| --- |\n| kept |\n", "utf-8")
    result = run("tables", str(report), "--write", str(document))
    assert (result.exit_code, result.output) == (0, "")
    new = "\n\n".join(MADE)
    assert document.read_text("utf-8") == f"# Page\n\n{new}\n\n| other |\n| --- |\n| kept |\n"


@pytest.mark.parametrize(
    ("report", "document", "message"),
    [
        ({"cells": [], "machine": {"cpus": 1}}, "", "has no times for a table"),
        ({}, "", "must be one that"),
        ([], "", "must be one that"),
        (TABLES, "", "must have one table with the headings | workload"),
        (TABLES, "\n\n".join(2 * MADE), "not 2"),
    ],
    ids=["nothing", "empty", "list", "no table", "two tables"],
)
def test_tables_that_cannot_be_made_or_placed_are_an_error(
    report: Any, document: str, message: str, tmp_path: Path
) -> None:
    file, page = tmp_path / "report.json", tmp_path / "page.md"
    file.write_text(json.dumps(report), "utf-8")
    page.write_text(document, "utf-8")
    result = run("tables", str(file), "--write", str(page))
    assert result.exit_code == 1
    assert message in result.output.replace("\n", " ")
    assert page.read_text("utf-8") == document


def test_the_page_on_performance_has_all_these_tables() -> None:
    page = (Path(__file__).parent.parent / "docs" / "performance.md").read_text("utf-8")
    assert all(table.splitlines()[-1] in documented_tables.replaced(page, MADE) for table in MADE)


def test_other_types_are_measured_beside_float_without_peers(tmp_path: Path) -> None:
    file = tmp_path / "types.json"
    result = run("types", "--workload", "one", "--threads", "1", "--rounds", "1", "--json", str(file))
    assert result.exit_code == 0, result.output
    data = json.loads(file.read_text("utf-8"))
    assert [(cell["operation"], cell["element_type"]) for cell in data["cells"]] == [
        (operation, kind) for operation in ("avg", "max", "dX", "drois") for kind in ("float16", "bfloat16", "double")
    ]
    assert all({"ortops", "float"} <= set(cell["seconds"]) for cell in data["cells"])
    (table,) = documented_tables.tables(data)
    assert len(table.splitlines()) == 2 + 4

"""Gradients of whole networks against PyTorch's in float64; `make networks` compares all of them.

Where ReLU has an argument of nearly 0, float and float64 may take different branches, and all gradients before it differ, in
PyTorch as here. `errors` allows for that; a network without such branches is held to more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch", reason="needs the extra torch: pip install ortops[torch]")
pytest.importorskip("onnxscript", reason="needs the extra torch: pip install ortops[torch]")

import torch

from benchmarks import __main__ as command
from benchmarks.networks import step
from benchmarks.networks.step import errors
from benchmarks.networks.zoo import Network, build
from benchmarks.workloads import Array


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Others would wait for each other where tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_network_of_open_batches_has_the_gradients_of_pytorch() -> None:
    batch = build("gru", 4)
    other = Network(batch.module, (batch.args[0][:3],), batch.loss)
    (name,) = batch.inputs
    made = step.session(step.exported(batch, dynamic_shapes={name: {0: "N"}}), 1)
    for network in (batch, other):
        ours, truth = step.session_gradients(made, network), step.torch_gradients(network, wide=True)
        assert errors(ours, step.torch_gradients(network), truth)[2] == []


TRUTH = {"a": np.array([1.0, -2.0]), "b": np.array([[1e-9]]), "c": np.zeros(1)}


FAR = {"a": np.array([1.0, -2.01])}


@pytest.mark.parametrize(
    ("ours", "torchs", "wrong"),
    [
        ({}, {}, []),
        ({"a": np.array([1.0, -2.0001])}, {}, []),
        ({"a": np.array([1.0, 2.0])}, {}, ["a"]),
        ({"a": np.array([1.0, np.nan])}, {}, ["a"]),
        ({"a": np.array([1.0])}, {}, ["a"]),
        ({"b": np.array([[2e-9]])}, {}, []),
        ({"b": np.array([[1e-3]]), "c": np.array([1.0])}, {}, ["b", "c"]),
        ({"b": None}, {}, ["b"]),
        (FAR, FAR, []),
    ],
)
def test_errors_tell_wrong_gradients(ours: dict[str, Any], torchs: dict[str, Array], wrong: list[str]) -> None:
    given = {name: value for name, value in (TRUTH | ours).items() if value is not None}
    _, off_torch, found = errors(given, TRUTH | torchs, TRUTH)
    assert found == wrong
    assert (off_torch == 0) == (not torchs)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(
        command.main, ["networks", "--workload", "gru", "--threads", "1", "--rounds", "2", *arguments]
    )


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_network(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    result = run("--json", str(file))
    assert result.exit_code == 0, result.output
    (row,) = json.loads(file.read_text("utf-8"))["cells"]
    assert (row["workload"], row["threads"], row["refused"]) == ("gru", 1, [])
    assert {name: len(seconds) for name, seconds in row["times"].items()} == {"onnxruntime": 2, "torch": 2}
    assert list(row["more"]) == ["error", "error of torch", "nodes", "ms of gradient"]
    assert "| step      | gru      |       1 |" in result.output

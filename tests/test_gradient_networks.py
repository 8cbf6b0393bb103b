"""Gradients of whole networks against PyTorch's in float64; `make networks` compares all of them.

Where ReLU has an argument of nearly 0, float and float64 may take different branches, and all gradients before it differ, in
PyTorch as here. `errors` allows for that; a network without such branches is held to more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="needs the extra torch: pip install ortops[torch]")
pytest.importorskip("onnxscript", reason="needs the extra torch: pip install ortops[torch]")

import torch

from benchmarks.networks import __main__ as command
from benchmarks.networks import memory, step
from benchmarks.networks.__main__ import OURS, TORCH, errors
from benchmarks.networks.zoo import Network, build
from benchmarks.workloads import Array


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Others would wait for each other where tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torchvision") is None, reason="needs torchvision, which has the network")
def test_a_transformer_of_torchvision_has_the_gradients_of_pytorch() -> None:
    network = build("swin_v2_t", 64)
    made = memory.session(step.exported(network).SerializeToString(), 1, plain=True)
    found = {OURS: step.session_gradients(made, step.feeds(network)), TORCH: step.torch_gradients(network)}
    off, wrong = errors(found, step.torch_gradients(network, wide=True))
    assert wrong == []
    assert off[OURS] <= max(1e-5, 3 * off[TORCH])


def test_a_network_of_open_batches_has_the_gradients_of_pytorch() -> None:
    one = build("unet", 16)
    (arg,) = one.args
    batch = Network(one.module, (arg.repeat(3, *(1 for _ in arg.shape[1:])).roll(1, -1),), one.loss)
    other = Network(one.module, (batch.args[0][:2],), one.loss)
    (name_of_arg,) = step.input_names(one)
    model = step.exported(batch, dynamic_shapes={name_of_arg: {0: "N"}})
    made = memory.session(model.SerializeToString(), 1, plain=True)
    for network in (batch, other):
        found = {OURS: step.session_gradients(made, step.feeds(network)), TORCH: step.torch_gradients(network)}
        assert errors(found, step.torch_gradients(network, wide=True))[1] == []


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
    off, found = errors({OURS: given, TORCH: TRUTH | torchs}, TRUTH)
    assert found == wrong
    assert (off[TORCH] == 0) == (not torchs)


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_network(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    call = ["--network", "gpt", "--size", "16", "--threads", "1", "--rounds", "2"]
    result = CliRunner().invoke(command.main, [*call, "--json", str(file)])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(file.read_text("utf-8"))["rows"]
    assert (row["network"], row["threads"], row["plain"], row["wrong"]) == ("gpt", 1, True, [])
    assert {name: len(seconds) for name, seconds in row["seconds"].items()} == {OURS: 2, TORCH: 2}
    if sys.platform == "linux":
        # The weights, their gradients and what a step keeps take more than the weights alone.
        assert min(row["memory"].values()) > 4e6
    assert row["gradient_ms"] > 0
    assert "| gpt | 1 |" in result.output


def test_the_command_says_why_there_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_network: Network) -> None:
        raise ValueError("node 'it' (Scan) has no gradient rule")

    monkeypatch.setattr(step, "exported", refuse)
    result = CliRunner().invoke(command.main, ["--network", "gpt", "--threads", "1"])
    assert result.exit_code == 1
    assert "gpt: node 'it' (Scan) has no gradient rule" in result.output


def test_the_command_refuses_a_file_in_no_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(command.main, ["--json", str(tmp_path / "none" / "rows.json")])
    assert result.exit_code == 2
    assert "No such file" in result.output

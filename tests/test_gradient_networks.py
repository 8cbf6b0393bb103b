"""Gradients of whole networks against PyTorch's in float64; `make networks` compares all of them.

Where ReLU has an argument of nearly 0, float and float64 may take different branches, and all gradients before it differ, in
PyTorch as here. `errors` allows for that; a network without such branches is held to more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="needs the extra torch: pip install ortops[torch]")
pytest.importorskip("onnxscript", reason="needs the extra torch: pip install ortops[torch]")

import torch

from benchmarks.networks import __main__ as command
from benchmarks.networks import measure, memory, sessions, step
from benchmarks.networks.errors import errors
from benchmarks.networks.sessions import Array
from benchmarks.networks.zoo import Network, build

RELATIVE = 1e-4
"""To the largest element of the same gradient."""


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
    model = step.exported(network)
    assert sessions.is_plain(model)
    made = sessions.session(model.SerializeToString(), 1, plain=True)
    ours = sessions.session_gradients(made, step.feeds(network))
    found = errors(ours, step.torch_gradients(network), step.torch_gradients(network, wide=True))
    assert not found.wrong
    assert found.each <= max(RELATIVE, 3 * found.torch_each)


def test_a_network_of_open_batches_has_the_gradients_of_pytorch() -> None:
    one = build("unet", 16)
    (arg,) = one.args
    batch = Network(one.module, (arg.repeat(3, *(1 for _ in arg.shape[1:])).roll(1, -1),), one.loss)
    other = Network(one.module, (batch.args[0][:2],), one.loss)
    (name_of_arg,) = step.input_names(one)
    model = step.exported(batch, dynamic_shapes={name_of_arg: {0: "N"}})
    made = sessions.session(model.SerializeToString(), 1, plain=True)
    for network in (batch, other):
        found = sessions.session_gradients(made, step.feeds(network))
        truth = step.torch_gradients(network, wide=True)
        assert not errors(found, step.torch_gradients(network), truth).wrong


TRUTH = {"a": np.array([1.0, -2.0]), "b": np.array([[1e-9]]), "c": np.zeros(1)}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ()),
        ({"a": np.array([1.0, -2.0001])}, ()),
        ({"a": np.array([1.0, 2.0])}, ("a",)),
        ({"a": np.array([1.0, np.nan])}, ("a",)),
        ({"a": np.array([1.0])}, ("a",)),
        ({"b": np.array([[2e-9]])}, ()),
        ({"b": np.array([[1e-3]]), "c": np.array([1.0])}, ("b", "c")),
    ],
)
def test_errors_tell_wrong_gradients(change: dict[str, Array], wrong: tuple[str, ...]) -> None:
    found = errors({**TRUTH, **change}, TRUTH, TRUTH)
    assert found.wrong == wrong
    assert (found.torch_each, found.torch_of_all) == (0, 0)


def test_a_gradient_that_is_missing_is_wrong() -> None:
    assert errors({name: TRUTH[name] for name in "ac"}, TRUTH, TRUTH).wrong == ("b",)


def test_a_gradient_may_be_as_far_from_the_truth_as_those_of_pytorch() -> None:
    far = {**TRUTH, "a": np.array([1.0, -2.01])}
    assert errors(far, TRUTH, TRUTH).wrong == ("a",)
    assert not errors(far, far, TRUTH).wrong


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_network(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    call = ["--network", "gpt", "--size", "16", "--threads", "1", "--rounds", "2"]
    result = CliRunner().invoke(command.main, [*call, "--json", str(file)])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(file.read_text("utf-8"))["rows"]
    assert (row["network"], row["threads"], row["plain"], row["errors"]["wrong"]) == ("gpt", 1, True, [])
    assert {name: len(seconds) for name, seconds in row["seconds"].items()} == {measure.OURS: 2, measure.TORCH: 2}
    if memory.is_known():
        # The weights, their gradients and what a step keeps take more than the weights alone.
        assert min(row["memory"].values()) > row["size"]
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
    assert "is no folder" in result.output

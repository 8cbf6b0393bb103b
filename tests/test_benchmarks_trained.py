"""The table of trained models: what it says of models that are differentiated, and of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import onnx_models
from benchmarks import trained
from onnx_models.gradient import gradient

HEADER = '<ir_version: 10, opset_import: ["" : 18]>\n'


def written(path: Path, text: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEADER + text)
    rng = np.random.default_rng(0)
    for name, shape in weights.items():
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        )
    onnx.save(model, path)
    return model


def test_a_folder_of_models_becomes_a_table(tmp_path: Path) -> None:
    conv = "g (float[n,3,h,w] x) => (float[n,2,a,b] y) { c = Conv(x, k) y = Tanh(c) }"
    parts = (
        "g (float[n,4] x) => (float[n,4] y) { m = Mul(x, k) s = SplitToSequence(m) y = ConcatFromSequence<axis=0>(s) }"
    )
    written(tmp_path / "conv.onnx", conv, k=(2, 3, 3, 3))
    written(tmp_path / "parts.onnx", parts, k=(4, 4))
    options = ["--json", "--rounds", "1", "--length", "h=8", "--length", "x:3=9"]
    found = CliRunner().invoke(trained.main, [str(tmp_path), *options])
    assert found.exit_code == 0, found.output
    first, second = json.loads(found.stdout)
    assert (first["model"], first["nodes"], first["wrt"], first["refusal"]) == ("conv.onnx", 2, "parameters", "")
    assert first["off"] < 1e-3
    assert first["all_nodes"] > 2
    assert len(first["seconds"]) == 2
    assert second["model"] == "parts.onnx"
    assert "sequences and optional values are not differentiated" in second["refusal"]
    assert second["seconds"] is None


def test_the_table_names_models_and_refusals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trials = [
        trained.Trial("a.onnx", 3, "", "inputs", 9, 0.5, (0.001, 0.004), 1e-4),
        trained.Trial("b.onnx", refusal="took longer than 600 s"),
    ]
    (tmp_path / "a.onnx").touch()
    (tmp_path / "b.onnx").touch()
    monkeypatch.setattr(trained, "_tried", lambda path, *_: next(one for one in trials if one.model == path.name))
    for arguments in ([], ["--markdown"]):
        found = CliRunner().invoke(trained.main, [str(tmp_path), *arguments])
        assert found.exit_code == 0, found.output
        assert "4.0" in found.stdout
        assert "b.onnx: took longer than 600 s" in found.stdout


def test_wrong_gradients_are_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "wrong.onnx"
    written(path, "g (float[n,4] x) => (float[n,4] y) { m = MatMul(x, k) y = Tanh(m) }", k=(4, 4))
    right = trained.try_model(path, {}, {}, 1)

    def doubled(*arguments: Any) -> onnx.ModelProto:
        made = gradient(*arguments)
        last = made.graph.node[-1]
        last.CopyFrom(onnx.helper.make_node("Add", [last.input[0]] * 2, list(last.output)))
        return made

    monkeypatch.setattr(onnx_models, "gradient", doubled)
    wrong = trained.try_model(path, {}, {}, 1)
    assert right.off is not None
    assert wrong.off is not None
    assert right.off < 1e-3 < 0.1 < wrong.off


@pytest.mark.parametrize(
    ("declared", "lengths", "shape"),
    [
        ("float[n,3,h,w] x", {}, (1, 3, 64, 64)),
        ("float[n,c,h,w] x", {"n": 2, "x:2": 5}, (2, 3, 5, 64)),
        ("float[n,h,w,3] x", {}, (1, 64, 64, 3)),
        ("int64[n,t] x", {}, (1, 16)),
        ("bool x", {}, ()),
    ],
)
def test_inputs_have_the_declared_types_and_shapes(
    declared: str, lengths: dict[str, int], shape: tuple[int, ...]
) -> None:
    model = onnx.parser.parse_model(f"{HEADER} g ({declared}) => (float y) {{ y = Identity(x) }}")
    (made,) = trained.inputs(model, lengths, {}).values()
    assert made.shape == shape
    assert made.dtype == onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    (filled,) = trained.inputs(model, lengths, {"x": 1}).values()
    assert (filled == 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"), [([], "must have files *.onnx"), (["--length", "n"], "each must be NAME=NUMBER")]
)
def test_wrong_calls_are_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(trained.main, [str(tmp_path), *arguments])
    assert found.exit_code == 2
    assert message in found.stderr

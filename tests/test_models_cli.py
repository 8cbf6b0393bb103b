# SPDX-License-Identifier: MIT
"""`python -m onnx_models`: the files that it writes, and its errors."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result

import conformance.__main__
import onnx_models
import ortops.__main__
from conformance import backends
from onnx_models.__main__ import main
from onnx_models.gradient import coverage
from ortops.operators import BY_NAME, OPERATORS


def call(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_a_directory_gets_a_model_of_each_operator_in_each_type_and_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "mine.onnx").write_bytes(b"mine")
    (tmp_path / "roi_align_v10_float.onnx").write_bytes(b"stale")
    # A path is the directory to write to.
    done = call(f"{tmp_path}{os.sep}")
    assert done.exit_code == 0
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    entries = {entry["file"]: entry for entry in json.loads(first["manifest.json"])["models"]}
    assert f"{len(entries)} models and manifest.json in" in done.output
    assert first.keys() == {*entries, "manifest.json", "mine.onnx"}
    assert first["mine.onnx"] == b"mine"
    for file, entry in entries.items():
        assert hashlib.sha256(first[file]).hexdigest() == entry["sha256"]
        model = onnx.load_from_string(first[file])
        assert [node["operator"] for node in entry["nodes"]] == [node.op_type for node in model.graph.node]
        assert file.endswith(f"_{entry['element_type']}.onnx")
    of_ours = {(node["operator"], entry["element_type"]) for entry in entries.values() for node in entry["nodes"]}
    assert of_ours >= {
        (operator.name, kind) for operator in OPERATORS for kind in operator.element_types(operator.inputs[0])
    }
    entry = entries["standard_max_roi_pool_v22_double.onnx"]
    assert entry["nodes"] == [
        {
            "operator": "MaxRoiPool",
            "domain": "",
            "opset": 22,
            "attributes": {"pooled_shape": [7, 7], "spatial_scale": 1.0},
        }
    ]
    assert entry["inputs"][1:] == [{"name": "rois", "type": "double", "shape": ["num_rois", 5]}]
    assert entry["outputs"] == [{"name": "Y", "type": "double", "shape": ["num_rois", "C", 7, 7]}]
    call("write", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_an_unknown_command_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("info", "gradeint"):
        done = call(name)
        assert done.exit_code == 2
        assert f"No such command '{name}'" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("group", "shown"),
    [
        (main, "onnx_models of ortops {}"),
        (ortops.__main__.main, "ortops {}"),
        (conformance.__main__.main, "conformance of ortops {}"),
    ],
)
def test_the_version_is_that_of_the_package(group: click.Command, shown: str) -> None:
    done = CliRunner().invoke(group, ["--version"])
    assert (done.exit_code, done.output) == (0, f"{shown.format(ortops.__version__)}\n")


@pytest.mark.parametrize("width", [60, 79])
@pytest.mark.parametrize("group", [main, ortops.__main__.main, conformance.__main__.main])
def test_no_help_breaks_a_name(group: click.Group, width: int) -> None:
    names = {*BY_NAME, *backends.NAMES}
    for name in group.commands:
        shown = CliRunner().invoke(group, [name, "--help"], terminal_width=width).output
        assert shown.startswith("Usage: ")
        assert not re.search(r"\w-$", shown, re.MULTILINE), shown
        told = [one for one in names if one in "".join(shown.split())]
        assert [warning for warning in told if warning not in shown] == []


@pytest.mark.parametrize("group", [main, ortops.__main__.main, conformance.__main__.main])
def test_each_help_has_an_example_with_options_of_the_command(group: click.Group) -> None:
    for name, command in group.commands.items():
        words = shlex.split((command.epilog or "").partition("Example: python -m ")[2]) if not command.hidden else []
        package = group.callback.__module__.split(".")[0] if group.callback else ""
        assert command.hidden or words[:2] == [package, name], name
        options = {option for parameter in command.params for option in parameter.opts}
        assert [word for word in words if word.startswith("-") and word not in options] == []


@pytest.mark.parametrize("command", [["convert"], ["attach"], ["gradient", "--wrt", "X"]])
def test_a_model_is_overwritten_by_force_only(tmp_path: Path, command: list[str]) -> None:
    made = onnx_models.roi_align(16, standard=command[0] != "attach")
    path, link = save(tmp_path / "a.onnx", made), tmp_path / "link.onnx"
    link.symlink_to(path)
    before = path.read_bytes()
    for out in (path, link):
        done = call(command[0], path, *command[1:], "--out", out)
        assert (done.exit_code, path.read_bytes()) == (1, before)
        assert f"--out = {out}: must be another file than MODEL, unless --force is given" in done.output
    assert call(command[0], path, *command[1:], "--out", path, "--force").exit_code == 0
    assert onnx.load(path).graph.node


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = call("write", tmp_path / "file")
    assert done.exit_code == 2
    assert "is a file" in done.output
    done = call("write", tmp_path / "file" / "below")
    assert done.exit_code == 1
    assert done.output.startswith("Error: OUT_DIR = ")


def save(path: Path, model: onnx.ModelProto | None = None) -> Path:
    onnx.save(model or onnx_models.roi_align(16, standard=True), path)
    return path


@pytest.mark.parametrize("content", [b"", b"no model", b"\x0a\xff\xff"])
def test_a_file_without_a_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.onnx").write_bytes(content)
    done = call("convert", tmp_path / "broken.onnx", "--out", tmp_path / "out.onnx")
    assert done.exit_code == 1
    assert f"MODEL = {tmp_path / 'broken.onnx'}: must be an ONNX model" in done.output
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.filterwarnings("ignore:The onnxtxt format is experimental")
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("m.json", '{"graph": ', "Failed to load JSON"),
        ("m.json", '{"graph": {"node": [{"attribute": [{"g": ' * 50_000, r"recursion|Stack overflow"),
        ("m.textproto", "nonsense {", 'has no field named "nonsense"'),
        ("m.textproto", "graph { " + "node { attribute { g { " * 5000, "maximum recursion depth exceeded"),
        ("m.onnxtxt", "nonsense {", "ParseError"),
        # ONNX's parser would end the process.
        ("m.onnxtxt", 'g () => () { x = If (c) <s = "\\"}", t = # }\n' * 2000, "more than 500 deep"),
    ],
)
def test_a_text_without_a_model_is_refused(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    done = call("convert", tmp_path / name, "--out", tmp_path / "out.onnx")
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: MODEL = {tmp_path / name}: must be an ONNX model (")
    assert re.search(says, done.output)
    assert done.output.count("\n") == 1


def test_names_of_a_model_do_nothing_to_the_terminal(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(DETECTOR)
    model.graph.node[0].op_type = "\x1b[2J\nRoiAlign\x07"
    done = call("gradient", save(tmp_path / "model.onnx", model), "--wrt", "x", "--out", tmp_path / "out.onnx")
    assert done.exit_code == 1
    first, reason, advice = done.output.splitlines()
    assert first.endswith("model.onnx: the model cannot be differentiated:")
    assert r"\x1b[2J RoiAlign\x07" in reason
    assert advice.endswith("in stop_at (--stop-at): it is then treated as a constant.")
    assert f"{first}{reason}{advice}".isprintable()


def with_external_data(place: str) -> onnx.ModelProto:
    """A model with a tensor outside its file: an initializer, a node's attribute, or an initializer of a subgraph."""
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[3])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    model = onnx_models.roi_align(16, standard=True)
    if place == "initializer":
        model.graph.initializer.append(tensor)
    elif place == "attribute":
        model.graph.node.append(onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    else:
        branch = onnx.helper.make_graph([], "g", [], [], initializer=[tensor])
        model.graph.node.append(onnx.helper.make_node("If", ["c"], ["w"], then_branch=branch, else_branch=branch))
    return model


@pytest.mark.parametrize("place", ["initializer", "attribute", "subgraph"])
def test_external_data_is_neither_read_nor_left_behind(tmp_path: Path, place: str) -> None:
    model = save(tmp_path / "model.onnx", with_external_data(place))
    (tmp_path / "other").mkdir()
    done = call("convert", model, "--out", tmp_path / "other" / "out.onnx")
    assert done.exit_code == 1
    assert "external data" in done.output
    assert not (tmp_path / "other" / "out.onnx").exists()
    assert call("convert", model, "--out", tmp_path / "out.onnx").exit_code == 0
    assert b"w.bin" in (tmp_path / "out.onnx").read_bytes()


def test_convert_lists_the_nodes_of_other_projects_that_it_leaves(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 16, "mmcv" : 1, "mmdeploy" : 1, "own" : 1]>
        g (float[n, 4] boxes, float[n] scores) => (int64[m, 3] kept) {
            a = mmcv.NMSRotated (boxes, scores)
            b = own.Other (a)
            c = mmcv.Here (b)
            kept = mmdeploy.TRTBatchedNMS (c, scores)
        }
        <domain: "mmcv", opset_import: ["" : 16]>
        Here (x) => (y) { y = Identity (x) }""")
    path, out = save(tmp_path / "model.onnx", model), tmp_path / "out.onnx"
    done = call("convert", path, "--out", out)
    assert (done.exit_code, done.output.splitlines()) == (
        0,
        [
            f"0 nodes converted: {out}",
            "1 mmcv::NMSRotated unchanged: ortops has no such operator",
            "1 mmdeploy::TRTBatchedNMS unchanged: ortops has no such operator",
        ],
    )


DETECTOR = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1, 2, 8, 9] x, float[r, 4] boxes, int64[r] of) => (float loss) {
  y = RoiAlign <output_height = 2, output_width = 2> (x, boxes, of)
  loss = ReduceSum <keepdims = 0> (y)
}
"""


NEEDS = "needs ortops.InferenceSession, or {} for stock onnxruntime: 1 RoiAlignGrad\n"


@pytest.mark.parametrize(("opset", "bodies"), [(21, "1 body"), (22, "2 bodies")])
def test_gradients_are_added_to_a_file_that_runs_anywhere(tmp_path: Path, opset: int, bodies: str) -> None:
    text = DETECTOR.replace(": 21]", f": {opset}]")  # of RoiAlign of opset 22 ONNX Runtime has no kernel
    model = save(tmp_path / "model.onnx", onnx.parser.parse_model(text))
    names = ("--wrt", "x", "--wrt", "boxes")
    done = call("gradient", model, *names, "--out", tmp_path / "gradient.onnx")
    needs = NEEDS.format("--portable")
    assert (done.exit_code, done.output) == (0, f"2 gradients added: {tmp_path / 'gradient.onnx'}\n{needs}")
    done = call("attach", tmp_path / "gradient.onnx", "--out", tmp_path / "attached.onnx")
    assert (done.exit_code, done.output) == (0, f"{bodies} attached: {tmp_path / 'attached.onnx'}\n")
    done = call("gradient", model, *names, "--portable", "--out", tmp_path / "portable.onnx")
    assert (done.exit_code, done.output) == (0, f"2 gradients added: {tmp_path / 'portable.onnx'}\n")
    assert (tmp_path / "portable.onnx").read_bytes() == (tmp_path / "attached.onnx").read_bytes()
    session = onnxruntime.InferenceSession(tmp_path / "portable.onnx", providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["loss", "x_grad", "boxes_grad"]
    boxes = np.array([[1, 1, 6, 5], [0, 2, 3, 7]], np.float32)
    feeds = {"x": np.ones((1, 2, 8, 9), np.float32), "boxes": boxes, "of": np.zeros(2, np.int64)}
    _, dx, _ = session.run(None, feeds)
    assert dx.sum() == pytest.approx(16, abs=1e-4)  # of 2 boxes, 2 channels and 2 x 2 bins each


def test_each_command_of_training_tells_which_operators_a_step_needs(tmp_path: Path) -> None:
    model, out, step = (
        save(tmp_path / "model.onnx", onnx.parser.parse_model(DETECTOR)),
        tmp_path / "out",
        tmp_path / "s",
    )
    options = ["--name", "x", "dx", "--stop-at", "boxes", "--out", out]
    done = call("vjp", model, "--output", "loss", "--wrt", "x", *options)
    assert (done.exit_code, done.output) == (0, f"1 gradient added: {out}\n{NEEDS.format('--portable')}")
    assert outputs(out) == ["loss", "dx"]
    call("gradient", model, "--wrt", "x", "--out", out)
    done = call("with-optimizer", out, "--optimizer", "sgd", "--out", step)
    trained = "x: trained, although the model has no value; --parameter names others\n"
    needs = NEEDS.format("the command attach")
    assert (done.exit_code, done.output) == (0, f"1 output *_next: {step}\n{trained}{needs}")
    done = call("vjp", model, "--output", "loss", "--wrt", "x", "--portable", "--out", out)
    assert done.output == f"1 gradient added: {out}\n"


def test_nothing_to_attach_is_an_error(tmp_path: Path) -> None:
    relu = '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x) => (float[n] y) { y = Relu (x) }'
    model = save(tmp_path / "model.onnx", onnx.parser.parse_model(relu))
    done = call("attach", model, "--out", tmp_path / "out.onnx")
    assert done.exit_code == 1
    assert "there is nothing to attach: the model has no operator of ortops, and no RoiAlign or Max" in done.output
    assert not (tmp_path / "out.onnx").exists()


def test_lower_says_what_it_has_lowered(tmp_path: Path) -> None:
    model = save(tmp_path / "model.onnx", onnx.parser.parse_model(DETECTOR))
    done = call("lower", model, "--out", tmp_path / "out.onnx")
    assert done.exit_code == 0
    assert done.output.startswith(f"1 node lowered: {tmp_path / 'out.onnx'}\n1 RoiAlign_")
    made = onnx.load(tmp_path / "out.onnx")
    assert not made.functions
    assert {node.domain for node in made.graph.node} == {""}


def test_a_gradient_wants_a_loss_and_a_tensor(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(DETECTOR.replace("(float loss)", "(float[r, 2, 2, 2] y, float loss)"))
    path = save(tmp_path / "model.onnx", model)
    done = call("gradient", path, "--wrt", "x", "--out", tmp_path / "out.onnx")
    assert done.exit_code == 1
    assert "--loss is missing: must be given for a model with the outputs y, loss" in done.output
    assert call("gradient", path, "--wrt", "x", "--loss", "loss", "--out", tmp_path / "out.onnx").exit_code == 0
    assert call("gradient", path, "--out", tmp_path / "out.onnx").exit_code == 2


NET = """
<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
g (float[n, 3] x, float[n] free) => (float loss) <float[3] w = {1, 2, 3}, float[3] b = {0, 0, 1}> {
  scaled = Mul (x, w)
  moved = Add (scaled, b)
  rounded = Round (x)
  both = Mul (moved, rounded)
  loss = ReduceSum <keepdims = 0> (both)
}
"""


def outputs(path: Path) -> list[str]:
    return [output.name for output in onnx.load(path).graph.output]


def test_all_parameters(tmp_path: Path) -> None:
    model, out = save(tmp_path / "model.onnx", onnx.parser.parse_model(NET)), tmp_path / "out.onnx"
    done = call("gradient", model, "--wrt", "parameters", "--out", out)
    assert (done.exit_code, done.output) == (0, f"2 gradients added: {out}\n")
    assert outputs(out) == ["loss", "w_grad", "b_grad"]
    named = save(tmp_path / "named.onnx", onnx.parser.parse_model(NET.replace("moved", "parameters")))
    done = call("gradient", named, "--wrt", "parameters", "--out", out)
    assert done.exit_code == 1
    assert "--wrt parameters: must not also be the name of a tensor" in done.output


def test_names_of_the_outputs_are_any(tmp_path: Path) -> None:
    text = NET.replace("float[3] w", "float[3] weight").replace("(x, w)", "(x, weight)")
    model = onnx.parser.parse_model(text)
    model.graph.initializer[0].name = model.graph.node[0].input[1] = "fc/weight=1:0"
    path, out = save(tmp_path / "model.onnx", model), tmp_path / "out.onnx"
    wrt = ("--wrt", "fc/weight=1:0", "--wrt", "b")
    assert call("gradient", path, *wrt, "--name", "fc/weight=1:0", "d/w = 1", "--out", out).exit_code == 0
    assert outputs(out) == ["loss", "d/w = 1", "b_grad"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--wrt", "w", "--name", "x", "dx"], "--name x: must be one of --wrt, which has w"),
        (["--wrt", "w", "--name", "w", "a", "--name", "w", "b"], "--name: must name each tensor once"),
        (["--wrt", "w", "--wrt", "w", "--name", "w", "b"], "--wrt: must have each name once"),
        (["--wrt", "parameters", "--name", "w", "b"], "--wrt parameters: must be the only --wrt, without --name"),
        (["--wrt", "parameters", "--wrt", "w"], "--wrt parameters: must be the only --wrt, without --name"),
        (["--wrt", "w"], "Missing option '--out'"),
    ],
)
def test_a_wrong_call_has_status_2(tmp_path: Path, options: list[str], says: str) -> None:
    done = call("gradient", save(tmp_path / "model.onnx", onnx.parser.parse_model(NET)), *options)
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_dry_run_tells_and_writes_nothing(tmp_path: Path) -> None:
    model = save(tmp_path / "model.onnx", onnx.parser.parse_model(NET))
    done = call("gradient", model, "--wrt", "x", "--wrt", "free", "--dry-run", "--out", tmp_path / "out.onnx")
    assert done.exit_code == 0
    zero = "zero: the gradient with respect to 'free' is 0 for all inputs"
    for line in ("Round", "it is constant between its steps", zero):
        assert line in done.output
    assert re.search(r"^5 nodes of the model, \d+ with the gradient$", done.output, re.MULTILINE)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_a_dry_run_has_status_1_where_there_is_no_gradient(tmp_path: Path) -> None:
    text = NET.replace("Round (x)", "own.Unknown (x)").replace("Add (", "own.Other (")
    done = call("gradient", save(tmp_path / "model.onnx", onnx.parser.parse_model(text)), "--wrt", "x", "--dry-run")
    assert done.exit_code == 1
    for name in ("Unknown", "Other"):
        assert re.search(
            rf"^refused: node .* \({name}\) has no gradient rule \(domain own\)", done.output, re.MULTILINE
        )
    assert "5 nodes of the model, none with the gradient" in done.output


def test_the_rules_are_listed_as_a_table_and_as_json() -> None:
    done = call("rules")
    assert done.exit_code == 0
    for text in ("RoiAlign_22", "function of the specification", "it is constant between its steps"):
        assert text in done.output
    found = json.loads(call("rules", "--json").stdout)
    assert found == [dataclasses.asdict(row) for row in coverage()]


LAYER = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 18]> net (float[n, 4] x) => (float[n, 3] scores) '
    "<float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { scores = MatMul (x, w) }"
)


def test_a_training_step_needs_no_python(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.onnx" for name in ("net", "loss", "gradients", "step")]
    onnx.save(LAYER, files[0])
    for command, options in (
        ("with-loss", ["--loss", "cross_entropy", "--output", "scores", "--target", "classes"]),
        ("gradient", ["--wrt", "parameters", "--loss", "loss"]),
        ("with-optimizer", ["--optimizer", "sgd", "--momentum", 0.5, "--clip", 1]),
    ):
        done = call(command, files[0], *options, "--out", files[1])
        assert done.exit_code == 0, done.output
        files = files[1:]
    expected = onnx_models.with_optimizer(
        onnx_models.gradient(onnx_models.with_loss(LAYER, "cross_entropy", "scores", "classes"), "loss", "parameters"),
        "sgd",
        momentum=0.5,
        clip=1.0,
    )
    assert onnx.load(files[0]) == expected
    assert done.output == f"2 outputs *_next: {files[0]}\n"


def test_a_product_with_cotangents_is_added(tmp_path: Path) -> None:
    net, out = tmp_path / "net.onnx", tmp_path / "out.onnx"
    onnx.save(LAYER, net)
    assert call("vjp", net, "--output", "scores", "--wrt", "x", "--wrt", "w", "--out", out).output.startswith(
        "2 gradients"
    )
    assert onnx.load(out) == onnx_models.vjp(LAYER, ["scores"], ["x", "w"])
    assert call("vjp", net, "--output", "scores", "--wrt", "parameters", "--out", out).exit_code == 0
    assert onnx.load(out) == onnx_models.vjp(LAYER, ["scores"], ["w"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["with-loss", "--loss", "hinge", "--output", "scores"], "'hinge' is not one of"),
        (["with-loss", "--loss", "cross_entropy", "--output", "score"], "(scores?): must be the name of a tensor"),
        (["vjp", "--output", "scores", "--wrt", "z"], "wrt has 'z': must be the name of a tensor"),
        (
            ["with-optimizer", "--optimizer", "sgd", "--momentum", 1],
            "momentum = 1.0: must be 0 or more and less than 1",
        ),
        (["with-optimizer", "--optimizer", "sgd"], "must be a model with gradients"),
    ],
)
def test_training_commands_name_what_is_wrong(tmp_path: Path, options: list[object], says: str) -> None:
    net, out = tmp_path / "net.onnx", tmp_path / "out.onnx"
    onnx.save(LAYER, net)
    done = call(options[0], net, *options[1:], "--out", out)
    assert (done.exit_code > 0, says in " ".join(done.output.split()), out.exists()) == (True, True, False), done.output


def test_with_loss_warns_of_probabilities(tmp_path: Path) -> None:
    model = onnx.ModelProto.FromString(LAYER.SerializeToString())
    model.graph.node[0].output[0] = "logits"
    model.graph.node.append(onnx.helper.make_node("Softmax", ["logits"], ["scores"]))
    loss = ("--loss", "cross_entropy", "--output", "scores", "--out", tmp_path / "out.onnx")
    done = call("with-loss", save(tmp_path / "net.onnx", model), *loss)
    assert (
        done.stderr
        == "warning: 'scores' is the output of Softmax, which cross_entropy applies itself: name its input\n"
    )


def test_operators_of_the_command_line_bring_their_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators_of_a_test.py").write_text("""
import numpy as np
from numpy.typing import NDArray
import ortops

@ortops.operator(domain="example")
def CubeGrad(dy: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 3 * dy * x * x

@ortops.operator(domain="example", gradient=CubeGrad)
def Cube(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x ** 3
""")
    monkeypatch.syspath_prepend(tmp_path)
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    text = '<ir_version: 8, opset_import: ["" : 18, "example" : 1]> g (double x) => (double y) { y = example.Cube (x) }'
    onnx.save(onnx.parser.parse_model(text), model)
    done = call("gradient", model, "--wrt", "x", "--out", out, "--operators", "operators_of_a_test:Cube")
    assert done.output.startswith("1 gradient added"), done.output
    assert "CubeGrad" in [node.op_type for node in onnx.load(out).graph.node]
    done = call("check", model, "--operators", "operators_of_a_test:Cube")
    assert done.exit_code == 0, done.output

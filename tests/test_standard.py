# SPDX-License-Identifier: MIT
"""Nodes of ONNX, mmcv, mmdeploy and detectron2 in sessions as they are. `test_contracts` has their values and errors."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from ortops.engine.c_api import Domains
from ortops.engine.extensions import OrtError
from ortops.foreign import model_nodes, served
from ortops.foreign.model_nodes import served_nodes
from ortops.foreign.standard import STANDARD_NAMES
from ortops.foreign.third_party import THIRD_PARTY

TRIED = {(1, minor) for minor in (20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32)}
"""Releases of ONNX Runtime, by major and minor version, in which a custom operator was seen to replace ONNX's own."""

RELEASE = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
NEWEST = {20: 21, 21: 22, 22: 22, 23: 23}.get(RELEASE[1], 25)
"""The latest opset of the tests' models that the release reads."""

RNG = np.random.default_rng(0)
FEEDS = {
    "x": RNG.standard_normal((2, 3, 8, 8)).astype(np.float32),
    "boxes": np.array([[1, 1, 3, 3.5], [0, 2, 7, 6]], np.float32),
    "of": np.array([0, 1]),
}
SIZES = "output_height = 2, output_width = 2, sampling_ratio = 2"
ROI_ALIGN = f"RoiAlign <{SIZES}> (x, boxes, of)"
INPUTS = "(float[n, 3, h, w] x, float[r, 4] boxes, int64[r] of)"


def parse(body: str, opset: int = 22, *, imports: str = "", functions: str = "") -> onnx.ModelProto:
    if opset > NEWEST:
        pytest.skip(f"onnxruntime {onnxruntime.__version__} does not know opset {opset}")
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}{imports}]> '
        f"m {INPUTS} => (float[s, c, i, j] y) {{ {body} }} {functions}"
    )


def saved(model: onnx.ModelProto) -> bytes:
    return bytes(model.SerializeToString())


def names_of_served(model: Any) -> list[str]:
    return [operator.name for operator in served_nodes(model).definitions]


def run(model: onnx.ModelProto | bytes | Path, chosen: Any = None, **arguments: Any) -> NDArray[np.float32]:
    source = saved(model) if isinstance(model, onnx.ModelProto) else model
    session = ortops.InferenceSession(source, chosen or options(), **({"providers": [CPU]} | arguments))
    (y,) = session.run(None, FEEDS)
    return np.asarray(y)


def converted(model: onnx.ModelProto) -> NDArray[np.float32]:
    return run(onnx_models.convert(model))


def native(model: onnx.ModelProto, chosen: Any = None) -> NDArray[np.float32]:
    (y,) = onnxruntime.InferenceSession(saved(model), chosen or options(), providers=[CPU]).run(None, FEEDS)
    return np.asarray(y)


def test_this_release_of_onnxruntime_was_tried() -> None:
    assert RELEASE in TRIED


@pytest.mark.parametrize("opset", [10, 13, 16, 21, 22, 25])
def test_a_session_has_the_definition_of_the_models_opset(opset: int) -> None:
    model = parse(f"y = {ROI_ALIGN}", opset)
    expected = ortops.roi_align(
        *FEEDS.values(),
        output_height=2,
        output_width=2,
        sampling_ratio=2,
        coordinate_transformation_mode="output_half_pixel" if opset < 16 else "half_pixel",
    )
    assert run(model).tobytes() == expected.tobytes() == converted(model).tobytes()


@pytest.mark.parametrize("domains", [("", "ai.onnx"), ("ai.onnx", ""), ("", ""), ("ai.onnx", "ai.onnx")])
@pytest.mark.parametrize("opsets", [(10, 16), (16, 10), (10, 10)])
def test_of_two_imports_of_onnxs_domain_the_last_one_counts(domains: Any, opsets: Any) -> None:
    model = parse(f"y = {ROI_ALIGN}", opsets[1])
    expected, other = run(model), native(model)
    del model.opset_import[:]
    model.opset_import.extend(map(onnx.helper.make_opsetid, domains, opsets))
    assert run(model).tobytes() == expected.tobytes()
    assert native(model).tobytes() == other.tobytes()
    if len(set(opsets)) > 1:
        says = (
            rf"opset_import has versions \[10, 16\] of ONNX's domain: must be one; ONNX Runtime takes .*, {opsets[1]}$"
        )
        with pytest.raises(ValueError, match=says):
            onnx_models.convert(model)
    else:
        assert converted(model).tobytes() == expected.tobytes()


IF = f"""
    c = Constant <value = bool[1] {{1}}> ()
    y = If (c) <then_branch = a () => (t) {{ t = {ROI_ALIGN} }}, else_branch = b () => (e) {{ e = Identity (x) }}>"""
LOOP = f"""
    n = Constant <value = int64 {{2}}> ()
    c = Constant <value = bool {{1}}> ()
    o = Constant <value = float[1] {{0.0}}> ()
    y = Loop (n, c, o) <body = l (int64 i, bool go, v) => (going, w) {{
        going = Identity (go)
        p = {ROI_ALIGN}
        w = Add (v, p)
    }}>"""
SCAN = f"""
    s = Scan <num_scan_inputs = 1, body = l (float[4] box) => (q) {{
        a = Constant <value = int64[1] {{0}}> ()
        one = Unsqueeze (box, a)
        q = RoiAlign <{SIZES}> (x, one, a)
    }}> (boxes)
    axis = Constant <value = int64[1] {{1}}> ()
    y = Squeeze (s, axis)"""
FUNCTION = f'<domain: "f", opset_import: ["" : {{opset}}]> g (x, boxes, of) => (p) {{{{ p = {ROI_ALIGN} }}}}'


@pytest.mark.parametrize("opset", [16, 22])
@pytest.mark.parametrize("body", [IF, LOOP, SCAN, "y = f.g (x, boxes, of)"], ids=["If", "Loop", "Scan", "function"])
def test_nodes_in_graphs_of_nodes_and_in_functions_are_served(body: str, opset: int) -> None:
    is_call = "f.g" in body
    functions, imports = (FUNCTION.format(opset=opset), ', "f" : 1') if is_call else ("", "")
    model = parse(body, 22 if is_call else opset, imports=imports, functions=functions)
    assert names_of_served(saved(model)) == ["RoiAlign"]
    assert run(model).tobytes() == converted(model).tobytes()


@pytest.mark.parametrize(("body", "inner"), [(IF, "t"), (LOOP, "p"), ("y = f.g (x, boxes, of)", "p")])
def test_a_session_names_the_nodes_that_ortops_computes(body: str, inner: str, tmp_path: Path) -> None:
    imports, functions = (', "f" : 1', FUNCTION.format(opset=22)) if "f.g" in body else ("", "")
    model = parse(f"r = Relu (x) outer = RoiAlign (r, boxes, of) {body}", imports=imports, functions=functions)
    model.graph.output.append(onnx.ValueInfoProto(name="outer"))
    model.graph.node[1].name = "head"
    profiled = options()
    profiled.enable_profiling, profiled.profile_file_prefix = True, str(tmp_path / "profile")
    session = ortops.InferenceSession(saved(model), profiled, providers=[CPU])
    assert session.ortops_nodes() == [("head", "RoiAlign"), (inner, "RoiAlign")]
    session.run(None, FEEDS)
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    ran = [event["name"] for event in events if event.get("args", {}).get("op_name") == "RoiAlign"]
    assert any(name.startswith("head") for name in ran)
    assert len(set(ran)) == 2
    assert ortops.InferenceSession(saved(onnx_models.convert(model)), options()).ortops_nodes()[0] == (
        "head",
        "RoiAlign_22",
    )


def test_a_session_names_no_nodes_that_onnx_runtime_computes() -> None:
    model = parse(f"y = {ROI_ALIGN}", 16)
    assert ortops.InferenceSession(saved(model), options(), standard=False).ortops_nodes() == []


def in_own_format(body: str, opset: int, folder: Path, session: Any, *, imports: str = "") -> Path:
    """A model in ONNX Runtime's own format that a session wrote."""
    path, saving = folder / "model.ort", options()
    saving.optimized_model_filepath = str(path)
    saving.add_session_config_entry("session.save_model_format", "ORT")
    session(saved(parse(body, opset, imports=imports)), saving, providers=[CPU])
    return path


@pytest.mark.parametrize("opset", [10, 16, 22])
@pytest.mark.parametrize("body", [f"y = {ROI_ALIGN}", IF, LOOP])
def test_a_model_in_the_format_of_onnx_runtime_runs_by_its_opset(body: str, opset: int, tmp_path: Path) -> None:
    path = in_own_format(body, opset, tmp_path, ortops.InferenceSession)
    registered = options()
    ortops.register(registered, opset=16)
    for source, given in ((path, options()), (str(path), registered), (path.read_bytes(), options())):
        session = ortops.InferenceSession(source, given, providers=[CPU])
        assert [name for _, name in session.ortops_nodes()] == ["RoiAlign"]
        assert session.run(None, FEEDS)[0].tobytes() == run(parse(body, opset)).tobytes()
    with pytest.raises(Exception, match="RoiAlign"):  # releases of ONNX Runtime say different things
        run(path, standard=False)


def test_a_file_that_onnx_runtime_wrote_keeps_its_kernels(tmp_path: Path) -> None:
    body = f"y = {ROI_ALIGN}"
    path = in_own_format(body, 16, tmp_path, onnxruntime.InferenceSession)
    session = ortops.InferenceSession(path, options(), providers=[CPU], standard=True)
    assert session.ortops_nodes() == []
    assert session.run(None, FEEDS)[0].tobytes() == native(parse(body, 16)).tobytes()


def test_a_damaged_file_of_this_format_is_no_model(tmp_path: Path) -> None:
    content = in_own_format(IF, 22, tmp_path, ortops.InferenceSession).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = np.frombuffer(content, np.uint8).copy()
        damaged[rng.integers(8, damaged.size, 8)] = rng.choice([0, 1, 127, 128, 255], 8)
        served_nodes(damaged.tobytes()[: rng.integers(8, damaged.size)])


@pytest.mark.parametrize(("opset", "of_function"), [(22, 10), (10, 16)])
def test_a_function_of_an_opset_with_another_definition_is_refused(opset: int, of_function: int) -> None:
    """ONNX Runtime itself takes the definition of the model's opset for it."""
    functions = FUNCTION.format(opset=of_function)
    model = parse("y = f.g (x, boxes, of)", opset, imports=', "f" : 1', functions=functions)
    says = rf"in function g: its function imports opset {of_function}, the model {opset}: must be .*onnx_models.conv"
    with pytest.raises(ValueError, match=says):
        run(model)
    assert run(model, standard=False).tobytes() == native(model).tobytes() if opset < 22 else True
    converted(model)


def test_a_function_of_the_model_with_the_name_of_a_node_is_what_runs() -> None:
    function = '<domain: "mmcv", opset_import: ["" : 22]> MMCVRoiAlign (x, boxes, of) => (p) { p = Identity (x) }'
    model = parse("y = mmcv.MMCVRoiAlign (x, boxes, of)", imports=', "mmcv" : 1', functions=function)
    assert run(model).tobytes() == FEEDS["x"].tobytes()


def test_a_model_of_a_file_with_external_data_is_served(tmp_path: Path) -> None:
    model = parse("w = Add (x, k)  y = RoiAlign <output_height = 2, output_width = 2> (w, boxes, of)")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 3, 8, 8), np.float32), "k"))
    expected, path = converted(model), tmp_path / "modèle.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    for given in (path, str(path)):
        assert run(given).tobytes() == expected.tobytes()  # type: ignore[arg-type]


def test_what_is_no_model_gets_the_error_of_onnxruntime(tmp_path: Path) -> None:
    path, whole = tmp_path / "model.onnx", saved(parse(f"y = {ROI_ALIGN}"))
    for data in b"", bytes(99), b"\xff" * 99, whole[:-9], whole[:60], b"RoiAlign", b"B\1\xff", b":\xff\xff\xff\xff\x7f":
        path.write_bytes(data)
        for given in (data, path):
            assert not names_of_served(given) or data.startswith(whole[:9])
            with pytest.raises(Exception, match="ONNXRuntimeError"):
                run(given)
    with pytest.raises(Exception, match="NO_SUCHFILE"):
        run(tmp_path / "none")
    with pytest.raises(TypeError, match="Unable to load from type"):
        run(3)  # type: ignore[arg-type]


def test_a_release_that_takes_no_replacement_is_named_and_convert_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse(f"y = {ROI_ALIGN}", 16)
    add = Domains.add
    monkeypatch.setattr(Domains, "add", lambda self, o, domain, ops: add(self, o, domain, ops) if domain else None)
    served.check_override.cache_clear()
    says = r"onnxruntime .* does not let other operators replace its own RoiAlign: convert the model .*standard=False"
    with pytest.raises(OrtError, match=says):
        run(model)
    assert run(model, standard=False).tobytes() == native(model).tobytes()
    converted(model)
    monkeypatch.undo()
    run(model)


def test_a_model_without_such_nodes_gets_no_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session is made as it was before there were any."""
    monkeypatch.setattr(served.OperatorsInUse, "_add", None)
    assert run(parse("y = Relu (x)")).tobytes() == np.maximum(FEEDS["x"], 0).tobytes()
    assert run(onnx_models.convert(parse(f"y = {ROI_ALIGN}"))).size


def test_weights_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of initializers nor those of constants, though they contain the name of an operator."""
    weights = np.frombuffer(b"RoiAlign" * 20_000, np.float32)
    constant = onnx.helper.make_node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(weights))
    model = parse(f"y = {ROI_ALIGN}")
    model.graph.node.insert(0, constant)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    read: list[int] = []

    def parsed(data: bytes) -> Any:
        read.append(len(data))
        return onnx.NodeProto.FromString(data)

    protos = SimpleNamespace(NodeProto=SimpleNamespace(FromString=parsed), OperatorSetIdProto=onnx.OperatorSetIdProto)
    monkeypatch.setattr(model_nodes, "onnx", protos)
    assert names_of_served(saved(model)) == ["RoiAlign"]
    assert len(read) == 1
    assert read[0] < 1000


def test_every_name_is_looked_for() -> None:
    for name in (*STANDARD_NAMES, *(name for _, name in THIRD_PARTY)):
        assert any(part in name.encode() for part in model_nodes._PARTS)  # noqa: SLF001


ALIGN = f"{SIZES}, spatial_scale = 0.5"
POOLED = "pooled_h = 2, pooled_w = 3, sampling_ratio = 2, spatial_scale = 0.5"
OTHERS = [
    ("mmcv", f'MMCVRoiAlign <{ALIGN}, aligned = 1, mode = "avg">', 5),
    ("mmdeploy", f'MMCVRoiAlign <{ALIGN}, aligned = 0, mode = "max">', 5),
    ("mmcv", f"MMCVRoIAlignRotated <{ALIGN}, aligned = 1, clockwise = 1>", 6),
    ("mmdeploy", f"MMCVRoIAlignRotated <{ALIGN}, aligned = 0, clockwise = 0>", 6),
    ("org.pytorch._caffe2", f'RoIAlign <{POOLED}, aligned = 1, order = "NCHW">', 5),
    ("_caffe2", "RoIAlign <pooled_h = 2, pooled_w = 3>", 4),
    ("_caffe2", f"RoIAlignRotated <{POOLED}, aligned = 1>", 6),
    ("org.pytorch._caffe2", f"RoIAlignRotated <{POOLED}, sampling_ratio = -1>".replace(", sampling_ratio = 2", ""), 5),
]


def of_other(domain: str, node: str, columns: int, kind: str = "float", opset: int = 16) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}, "{domain}" : 1]>
        m ({kind}[n, 3, h, w] x, {kind}[r, {columns}] rois) => ({kind}[s, c, i, j] y) {{ y = {domain}.{node} (x, rois) }}""")


def rois_of(columns: int, coordinates: int) -> NDArray[np.float32]:
    corners = RNG.uniform(0, 6, (4, 2))
    boxes = np.hstack([corners, corners + RNG.uniform(1, 9, (4, 2)), RNG.uniform(-90, 90, (4, 1))])[:, :coordinates]
    index = np.array([[0], [1], [1], [0]])
    return np.hstack([index, boxes] if columns > coordinates else [boxes]).astype(np.float32)


@pytest.mark.parametrize("kind", ["float", "double", "float16"])
@pytest.mark.parametrize(("domain", "node", "columns"), OTHERS)
def test_nodes_of_other_projects_give_the_bits_of_converted_ones(
    domain: str, node: str, columns: int, kind: str
) -> None:
    model = of_other(domain, node, columns, kind)
    dtype = np.dtype({"float": np.float32}.get(kind, kind))
    feeds = {"x": FEEDS["x"].astype(dtype), "rois": rois_of(columns, 5 if "Rotated" in node else 4).astype(dtype)}
    results = []
    for variant in (model, onnx_models.convert(model)):
        session = ortops.InferenceSession(saved(variant), options(), providers=[CPU])
        results.append(session.run(None, feeds)[0])
    assert results[0].dtype == dtype
    assert results[0].shape == results[1].shape
    assert results[0].tobytes() == results[1].tobytes()


def test_the_shapes_of_nodes_of_other_projects_are_inferred() -> None:
    for domain, node, columns in OTHERS:
        model = of_other(domain, node, columns)
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
        session = ortops.InferenceSession(saved(model), options(), providers=[CPU])
        assert session.get_outputs()[0].shape == ["s", 3, 2, 3 if "pooled_w" in node else 2]


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (OTHERS[0][1].replace(", aligned = 1", ""), "mmcv::MMCVRoiAlign: aligned is missing: mmcv::MMCVRoiAlign req"),
        (OTHERS[0][1].replace('"avg"', '"max_interpolated"'), "mode = 'max_interpolated': must be one of"),
        (OTHERS[0][1].replace("aligned = 1", "aligned = 1, pool = 2"), "MMCVRoiAlign has no attribute 'pool'"),
    ],
)
def test_a_wrong_node_of_another_project_is_refused_when_a_session_is_made(node: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        ortops.InferenceSession(saved(of_other("mmcv", node, 5)), options(), providers=[CPU])


@pytest.mark.parametrize(
    ("rois", "says"),
    [
        *(
            (
                [[0, 0, 0, 1, 1], [index, 0, 0, 1, 1]],
                rf"rois\[1, 0\] = {re.escape(repr(index))}: the batch index must be a",
            )
            for index in (2.0, -1.0, 0.5, 1.5, -0.5, np.nan, np.inf, -np.inf, 2.0**63, -(2.0**63), 1e30, 2.0**-149)
        ),
        ([[0, np.inf, 0, 1, 1]], r"rois\[0\] = \[inf, .*: must be finite"),
        ([[0, 1, 1, 1, 1, 1]], r"rois has shape \[1, 6\]: must have 2 axes, and 4 or 5 columns"),
    ],
)
def test_wrong_rois_of_another_project_are_refused(rois: Any, says: str) -> None:
    model, feeds = of_other(*OTHERS[4], kind="double"), {"x": FEEDS["x"].astype(float), "rois": np.array(rois, float)}
    model.graph.input[1].type.tensor_type.shape.Clear()
    session = ortops.InferenceSession(saved(model), options(), providers=[CPU])
    with pytest.raises(Exception, match=says):
        session.run(None, feeds)


@pytest.mark.parametrize("opset", [9, 16])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_a_converted_model_refuses_a_batch_index_that_is_no_whole_number(kind: str, opset: int) -> None:
    model = of_other(*OTHERS[0], kind=kind.replace("float32", "float").replace("float64", "double"), opset=opset)
    session = ortops.InferenceSession(saved(onnx_models.convert(model)), options(), providers=[CPU])
    feeds = {"x": FEEDS["x"].astype(kind), "rois": np.array([[1, 0, 0, 1, 1]] * 2, kind)}
    assert session.run(None, feeds)
    for index in (0.5, -0.5, 1.5, np.nan, np.inf, -np.inf):
        feeds["rois"][1, 0] = index
        with pytest.raises(Exception, match=r"batch_indices\[1\] = -1: must be >= 0 and < 2"):
            session.run(None, feeds)
    if kind != "float16":
        feeds["rois"][1, 0] = 1e30
        with pytest.raises(Exception, match=r"batch_indices\[1\] = -?9223372036854775[0-9]+: must be >= 0 and < 2"):
            session.run(None, feeds)


def test_graphs_around_such_nodes_are_optimised(tmp_path: Path) -> None:
    model, chosen = parse("i = Identity (x)  j = Identity (i)  y = RoiAlign (j, boxes, of)"), options()
    chosen.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    assert run(model, chosen).tobytes() == converted(model).tobytes()
    optimised = onnx.load(tmp_path / "optimised.onnx")
    assert [node.op_type for node in optimised.graph.node] == ["RoiAlign"]
    assert run(optimised).tobytes() == converted(model).tobytes()


def check_on_threads_of_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any], expected: bytes) -> None:
    """Run a model's output y by `run` and by `run_async`, with nodes in parallel."""
    chosen = options()
    chosen.execution_mode, chosen.inter_op_num_threads = onnxruntime.ExecutionMode.ORT_PARALLEL, 2
    session = ortops.InferenceSession(saved(model), chosen, providers=[CPU])
    assert session.run(["y"], feeds)[0].tobytes() == expected
    reported: list[Any] = []
    done = threading.Event()

    def report(results: Any, _: Any, error: str) -> None:
        reported.extend([results[0].tobytes() == expected, error])
        done.set()

    session.run_async(["y"], feeds, report, None)
    assert done.wait(60)
    assert reported == [True, ""]


def test_threads_of_onnxruntime_run_such_nodes() -> None:
    model = parse(f"a = {ROI_ALIGN}  b = {ROI_ALIGN}  y = Add (a, b)")
    check_on_threads_of_onnxruntime(model, FEEDS, converted(model).tobytes())

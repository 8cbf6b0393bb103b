# SPDX-License-Identifier: MIT
"""grid_sampler and deformable convolutions of mmcv and mmdeploy, in sessions as they are and converted to ONNX's nodes."""

from __future__ import annotations

import gc
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import CPU, options
from onnx_models import convert
from ortops.foreign import onnx_equivalents
from ortops.foreign.onnx_equivalents import ONNX_EQUIVALENTS
from ortops.spec import ELEMENT_DTYPES

Array = NDArray[Any]

RELEASE = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
NEEDS_DEFORM_CONV = pytest.mark.skipif(RELEASE < (1, 25), reason="this onnxruntime has no DeformConv on the CPU")

RNG = np.random.default_rng(0)
FEEDS: dict[str, Array] = {
    "x": RNG.standard_normal((2, 4, 7, 6)).astype(np.float32),
    "grid": RNG.uniform(-1.7, 1.7, (2, 3, 5, 2)).astype(np.float32),
    "offset": RNG.uniform(-3, 3, (2, 24, 4, 4)).astype(np.float32),
    "mask": RNG.uniform(0, 1, (2, 12, 4, 4)).astype(np.float32),
    "weight": RNG.standard_normal((6, 2, 3, 2)).astype(np.float32),
    "bias": RNG.standard_normal(6).astype(np.float32),
}
"""For 2 groups and 2 groups of offsets, and the attributes of `CONVOLUTION`."""

INPUTS = (
    "float[n, 4, h, w] x, float[n, k, l, 2] grid, float[n, o, p, q] offset, float[n, s, p, q] mask, "
    "float[6, 2, 3, 2] weight, float[6] bias"
)
CONVOLUTION = "stride = [2, 1], padding = [1, 0], dilation = [1, 2], groups = 2, deform_groups = 2"
MODULATED = f"MMCVModulatedDeformConv2d <{CONVOLUTION}> (x, offset, mask, weight, bias)"
PLAIN = f"MMCVDeformConv2d <{CONVOLUTION}> (x, offset, weight)"
GRID = "grid_sampler <interpolation_mode = {}, padding_mode = {}, align_corners = {}> (x, grid)"
SAMPLED = GRID.format(0, 0, 0)
NODES = [
    pytest.param(SAMPLED, id="grid_sampler"),
    pytest.param(MODULATED, id="modulated", marks=NEEDS_DEFORM_CONV),
    pytest.param(MODULATED.replace(", bias", ""), id="without bias", marks=NEEDS_DEFORM_CONV),
    pytest.param(PLAIN, id="plain", marks=NEEDS_DEFORM_CONV),
]


def parse(
    node: str, opset: int = 11, domain: str = "mmdeploy", *, kind: str = "float", body: str = "", functions: str = ""
) -> onnx.ModelProto:
    imports = f'"": {opset}, "{domain}": 1' + ', "f": 1' * bool(functions)
    return onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: [{imports}]> g (bool c, {INPUTS.replace('float', kind)}) => "
        f"({kind}[a, b, d, e] y) {{ {body or f'y = {domain}.{node}'} }} {functions}"
    )


def run(model: onnx.ModelProto, feeds: dict[str, Array] | None = None) -> Array:
    session = ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    return np.asarray(session.run(["y"], {"c": np.array(True), **FEEDS, **(feeds or {})})[0])


def bilinear(image: Array, y: float, x: float) -> float:
    """The value of an image [H, W] between pixels; pixels off the image are 0."""
    total = 0.0
    for i, j in itertools.product((math.floor(y), math.floor(y) + 1), (math.floor(x), math.floor(x) + 1)):
        if 0 <= i < image.shape[0] and 0 <= j < image.shape[1]:
            total += (1 - abs(y - i)) * (1 - abs(x - j)) * float(image[i, j])
    return total


def convolved(mask: Array, bias: Array, groups: int = 2, offset_groups: int = 2) -> Array:
    """The convolution of `FEEDS` in loops, with the attributes of `CONVOLUTION`."""
    x, weight = FEEDS["x"], FEEDS["weight"]
    offset = FEEDS["offset"].reshape(2, offset_groups, 3, 2, 2, 4, 4)
    mask, result = mask.reshape(2, offset_groups, 3, 2, 4, 4), np.zeros((2, 6, 4, 4))
    for n, m, i, j in np.ndindex(result.shape):
        result[n, m, i, j] = bias[m]
        for c, u, v in np.ndindex(weight.shape[1:]):
            channel = m // (6 // groups) * weight.shape[1] + c
            part = channel // (4 // offset_groups)
            y_off, x_off = offset[n, part, u, v, :, i, j]
            value = bilinear(x[n, channel], i * 2 - 1 + u + y_off, j + v * 2 + x_off)
            result[n, m, i, j] += weight[m, c, u, v] * mask[n, part, u, v, i, j] * value
    return result


def reflected(at: float, length: int, align: bool) -> float:
    """A coordinate in pixels reflected at the centers of the outermost pixels, or at their edges."""
    low, period = (0.0, length - 1.0) if align else (-0.5, float(length))
    place = abs(at - low) % (2 * period)
    return low + min(place, 2 * period - place)


def sampled(nearest: bool, padding: int, align: bool) -> Array:
    """Samples of `FEEDS` in loops."""
    x, grid = FEEDS["x"], FEEDS["grid"].astype(np.float64)
    result = np.zeros((2, 4, 3, 5))
    for n, c, i, j in np.ndindex(result.shape):
        place = []
        for at, length in zip(grid[n, i, j, ::-1], x.shape[2:], strict=True):
            pixel = (at + 1) / 2 * (length - 1) if align else ((at + 1) * length - 1) / 2
            pixel = reflected(pixel, length, align) if padding == 2 else pixel
            place.append(pixel if padding == 0 else min(max(pixel, 0.0), length - 1.0))
        result[n, c, i, j] = bilinear(x[n, c], *(map(round, place) if nearest else place))
    return result


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sampler_is_what_loops_compute(mode: str, padding: int, align: bool) -> None:
    node = GRID.format(["bilinear", "nearest"].index(mode), padding, int(align))
    expected = sampled(mode == "nearest", padding, align)
    for model in (parse(node), convert(parse(node))):
        np.testing.assert_allclose(run(model), expected, rtol=1e-4, atol=1e-5)


@NEEDS_DEFORM_CONV
@pytest.mark.parametrize(
    ("node", "mask", "bias"),
    [
        (MODULATED, FEEDS["mask"], FEEDS["bias"]),
        (MODULATED.replace(", bias", ""), FEEDS["mask"], np.zeros(6)),
        (PLAIN, np.ones((2, 12, 4, 4)), np.zeros(6)),
    ],
)
@pytest.mark.parametrize("domain", ["mmcv", "mmdeploy"])
def test_a_convolution_is_what_loops_compute(domain: str, node: str, mask: Array, bias: Array) -> None:
    for model in (parse(node, 11, domain), convert(parse(node, 11, domain))):
        np.testing.assert_allclose(run(model), convolved(mask, bias), rtol=1e-4, atol=1e-5)


@NEEDS_DEFORM_CONV
def test_padding_is_read_as_each_exporter_writes_it() -> None:
    attributes = "stride = [2, 1], padding = [1, 1, 0, 0], dilation = [1, 2], groups = 2, deform_groups = 2"
    of_mmdeploy = parse(f"MMCVDeformConv2d <{attributes}> (x, offset, weight)")
    of_mmcv = parse(PLAIN.replace("deform_groups = 2", "deform_groups = 2, bias = 0, im2col_step = 32"), 11, "mmcv")
    assert run(of_mmdeploy).tobytes() == run(of_mmcv).tobytes()
    (pads,) = (a.ints for a in convert(of_mmdeploy).graph.node[0].attribute if a.name == "pads")
    assert list(pads) == [1, 0, 1, 0]


@pytest.mark.parametrize("opset", [9, 11, 16, 19, 20, 21])
@pytest.mark.parametrize("domain", ["mmcv", "mmdeploy"])
@pytest.mark.parametrize("node", NODES)
def test_a_session_gives_the_bits_of_the_converted_model(node: str, domain: str, opset: int) -> None:
    model = parse(node, opset, domain)
    converted = convert(model)
    onnx.checker.check_model(converted, full_check=True)
    since = 16 if "grid_sampler" in node else 19
    assert [(item.domain, item.version) for item in converted.opset_import] == [("", opset if opset >= since else 20)]
    assert {node.op_type for node in converted.graph.node} <= {"GridSample", "DeformConv"}
    assert convert(converted) == converted
    session = onnxruntime.InferenceSession(converted.SerializeToString(), options(), providers=[CPU])
    (native,) = session.run(["y"], {"c": np.array(True), **FEEDS})
    assert run(model).tobytes() == native.tobytes()


@pytest.mark.parametrize("kind", ["double", "float16"])
@pytest.mark.parametrize("node", NODES)
def test_other_types_are_computed(node: str, kind: str) -> None:
    feeds = {name: array.astype(ELEMENT_DTYPES[kind]) for name, array in FEEDS.items()}
    model = parse(node, kind=kind)
    y = run(model, feeds)
    assert y.dtype == ELEMENT_DTYPES[kind]
    np.testing.assert_allclose(y, run(parse(node)), rtol=1e-5, atol=1e-4 if kind == "double" else 0.1)
    assert run(convert(model), feeds).tobytes() == y.tobytes()


@pytest.mark.parametrize(
    ("opset", "modes"),
    [(16, ["bilinear", "nearest", "bicubic"]), (20, ["linear", "nearest", "cubic"])],
)
def test_modes_have_the_names_of_the_opset(opset: int, modes: list[str]) -> None:
    for number, mode in enumerate(modes):
        (node,) = convert(parse(GRID.format(number, 1, 1), opset)).graph.node
        values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        assert values == {"mode": mode.encode(), "padding_mode": b"border", "align_corners": 1}


BRANCHES = f"""
    y = If (c) <
        then_branch = t () => (u) {{ u = mmdeploy.{SAMPLED} }},
        else_branch = e () => (v) {{ i = Identity (x) v = Relu (i) }}
    >"""
FUNCTION = f"""
    <domain: "f", opset_import: ["": 11, "mmdeploy": 1]>
    sample (x, grid) => (y) {{ y = mmdeploy.{SAMPLED} }}
"""


@pytest.mark.parametrize(("body", "functions"), [(BRANCHES, ""), ("y = f.sample (x, grid)", FUNCTION)])
def test_nodes_in_branches_and_functions_are_found(body: str, functions: str) -> None:
    expected = run(parse(SAMPLED)).tobytes()
    model = parse("", body=body, functions=functions)
    assert run(model).tobytes() == expected
    converted = convert(model)
    assert run(converted).tobytes() == expected
    assert {item.domain for scope in (converted, *converted.functions) for item in scope.opset_import} <= {"", "f"}


def test_the_rest_of_an_upgraded_model_is_computed_alike() -> None:
    body = f"""
        zero = Constant <value = int64 {{0}}> ()
        many = Unsqueeze <axes = [0]> (zero)
        corner = Gather (x, many)
        rois = Constant <value = float[1, 5] {{0, 1, 1, 3, 3}}> ()
        pooled = mmdeploy.MMCVRoiAlign <output_height = 3, output_width = 5, spatial_scale = 1.0, sampling_ratio = 2,
            aligned = 0, mode = "avg"> (corner, rois)
        between = mmdeploy.{SAMPLED}
        y = Add (between, pooled)
    """
    model = parse("", body=body)
    converted = convert(model)
    assert {(item.domain, item.version) for item in converted.opset_import} == {("", 20), ("ai.onnx.contrib", 1)}
    assert run(model).tobytes() == run(converted).tobytes()


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (GRID.format(3, 0, 0), r"interpolation_mode = 3: must be >= 0 and <= 2"),
        (SAMPLED.replace(", align_corners = 0", ""), "align_corners is missing: mmdeploy::grid_sampler requires it"),
        (MODULATED.replace("[1, 0]", "[1, 0, 1, 0]"), r"padding = \(1, 0, 1, 0\): must be height and width"),
        (MODULATED.replace("[2, 1]", "[2]"), r"stride = \[2\]: must have 2 values"),
        (PLAIN.replace("groups = 2,", "groups = 0,"), r"groups = 0: must be >= 1"),
        (PLAIN.replace("deform_groups = 2", "deform_groups = 2, bias = 1"), r"bias = 1: must be >= 0 and <= 0"),
        (SAMPLED.replace("align_corners = 0", "align_corners = 0, scale = 2"), r"has no attribute '?scale"),
    ],
)
def test_a_wrong_attribute_is_refused_by_name(node: str, says: str) -> None:
    for refuse in (convert, run):
        with pytest.raises(Exception, match=says):
            refuse(parse(node))


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (SAMPLED.replace(", grid", ""), r"has the inputs \['x'\]: must have X, grid"),
        (PLAIN.replace("weight)", "weight, bias)"), r"has the inputs .*'bias'\]: must have X, offset, weight"),
    ],
)
def test_a_node_with_other_inputs_is_not_converted(node: str, says: str) -> None:
    with pytest.raises(ValueError, match=rf"node of 'y' \(\w+\): {says}"):
        convert(parse(node))


def test_a_model_that_cannot_be_upgraded_is_not_converted_and_the_error_says_why() -> None:
    with pytest.raises(ValueError, match=r"at opset 8: must be at 9 or a later one"):
        convert(parse(SAMPLED, 8))
    model = parse("", 11, body=f"y = mmdeploy.{SAMPLED} s = AveragePool <ceil_mode = 1, kernel_shape = [2, 2]> (x)")
    with pytest.raises(
        ValueError, match=r"^node of 'y' \(grid_sampler\) needs opset 16 of ONNX: .*ceil_mode must be 0"
    ):
        convert(model)


def test_a_reference_to_an_attribute_of_a_function_is_not_converted() -> None:
    functions = f"""
        <domain: "f", opset_import: ["": 11, "mmdeploy": 1]>
        sample <mode> (x, grid) => (y) {{
            y = mmdeploy.{SAMPLED.replace("interpolation_mode = 0", "interpolation_mode: int = @mode")}
        }}
    """
    model = parse("", body="y = f.sample <mode = 0> (x, grid)", functions=functions)
    says = "interpolation_mode refers to 'mode' of the function around it: must be a value, since GridSample"
    with pytest.raises(ValueError, match=says):
        convert(model)
    assert run(model).tobytes() == run(parse(SAMPLED)).tobytes()


@pytest.mark.parametrize(
    ("node", "feeds", "says"),
    [
        pytest.param(
            SAMPLED, {"x": np.zeros((2, 4, 0, 6), np.float32)}, r"X has shape \[2, 4, 0, 6\]: must have pixels"
        ),
        pytest.param(SAMPLED, {"grid": FEEDS["grid"][:1]}, "mmdeploy::grid_sampler: as GridSample of ONNX: .*"),
        pytest.param(
            MODULATED,
            {"mask": FEEDS["mask"][:, 1:]},
            "mmdeploy::MMCVModulatedDeformConv2d: as DeformConv of ONNX: .*",
            marks=NEEDS_DEFORM_CONV,
        ),
    ],
)
def test_wrong_inputs_are_refused(node: str, feeds: dict[str, Array], says: str) -> None:
    with pytest.raises(Exception, match=says):
        run(parse(node), feeds)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_no_coordinate_is_too_far_to_be_reflected(mode: int, align: int) -> None:
    grid = np.full_like(FEEDS["grid"], 1e10)
    grid[1] = -3e38
    y = run(parse(GRID.format(mode, 2, align)), {"grid": grid})
    assert (np.abs(y) <= 3 * np.abs(FEEDS["x"]).max()).all()


def test_nodes_with_the_same_attributes_share_a_session_that_ends_with_theirs() -> None:
    other = GRID.format(1, 0, 0)
    body = f"a = mmdeploy.{SAMPLED} b = mmdeploy.{SAMPLED} c = mmdeploy.{other} d = Add (a, b) y = Add (c, d)"
    model = parse("", body=body.replace("c = ", "e = ").replace("(c, d)", "(e, d)"))
    before = alive()
    sessions = [ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU]) for _ in range(2)]
    assert len(alive()) == len(before) + 2
    del sessions
    assert alive() == before


def alive() -> set[tuple[bytes, int]]:
    gc.collect()
    return {key for key, session in onnx_equivalents._sessions.items() if session() is not None}  # noqa: SLF001


@pytest.mark.parametrize("threads", [1, 2])
def test_a_node_has_as_many_threads_as_its_session(threads: int) -> None:
    chosen, before = options(), alive()
    chosen.intra_op_num_threads = threads
    session = ortops.InferenceSession(parse(SAMPLED).SerializeToString(), chosen, providers=[CPU])
    assert session.run(["y"], {"c": np.array(True), **FEEDS})[0].tobytes() == run(parse(SAMPLED)).tobytes()
    assert [number for _, number in alive() - before] == [threads]


class AlarmError(Exception):
    """What a signal handler raises."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, AlarmError, RecursionError, MemoryError])
def test_an_exception_of_python_leaves_a_call(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    session = ortops.InferenceSession(parse(SAMPLED).SerializeToString(), options(), providers=[CPU])
    feeds = {"c": np.array(True), **FEEDS}
    expected = session.run(["y"], feeds)[0].tobytes()
    (key,) = alive()
    inner = onnx_equivalents._sessions[key]()  # noqa: SLF001

    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(inner, "run", stop)
    with pytest.raises(error):
        session.run(["y"], feeds)
    monkeypatch.undo()
    assert session.run(["y"], feeds)[0].tobytes() == expected


def test_a_release_without_the_operator_of_onnx_says_which_has_it() -> None:
    (row,) = (row for row in ONNX_EQUIVALENTS if row.name == "MMCVDeformConv2d")
    unknown = replace(row, standard="NoSuchOperator")
    attributes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, "deform_groups": 1}
    says = rf"^onnxruntime {onnxruntime.__version__} cannot run it as ONNX's NoSuchOperator: must be 1\.25 or a later"
    with pytest.raises(RuntimeError, match=says):
        unknown.bind(unknown.definition, attributes, ["float"])

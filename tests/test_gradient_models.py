"""The gradient of a whole detector: a trunk with residual blocks, a pyramid of features, regions and a head."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, parsed, run
from onnx_models.gradient import gradient

CHANNELS, CLASSES, PIXELS = 4, 5, 64
LEVELS = (2, 3, 4, 5)
BOXES = {2: (0, 3), 3: (1, 5), 4: (4,), 5: (2, 3)}
"""Which boxes are read on which level; one of them on two."""

BLOCKS = ("two", "three", "four", "five")
WRT = [
    "image", "boxes", "w_stem", "b_stem", "scale_stem", "mean_stem", "var_stem", "w_two_0", "w_three_1", "w_three_2",
    "w_five_0", "offset_four", "w_lateral_2", "w_lateral_5", "w_hidden", "b_hidden", "w_classes", "b_classes",
]  # fmt: skip


def feeds() -> dict[str, Array]:
    """The image, the boxes and all weights."""
    rng = np.random.default_rng(3)

    def convolution(name: str, channels: int = CHANNELS) -> dict[str, Array]:
        weight = rng.normal(0, (9 * channels) ** -0.5, (CHANNELS, channels, 3, 3))
        return {f"w_{name}": weight, f"b_{name}": rng.uniform(-0.1, 0.1, CHANNELS)}

    def norm(name: str) -> dict[str, Array]:
        values = {"scale": (0.8, 1.2), "offset": (-0.2, 0.2), "mean": (-0.2, 0.2), "var": (0.5, 1.5)}
        return {f"{key}_{name}": rng.uniform(*ends, CHANNELS) for key, ends in values.items()}

    starts = rng.uniform(-3, PIXELS - 20, (6, 2))
    found = {
        "image": rng.uniform(-1, 1, (2, 3, PIXELS, PIXELS)),
        "boxes": np.concatenate([starts, starts + rng.uniform(6, 40, (6, 2))], axis=1),
        "w_hidden": rng.normal(0, 0.2, (8, CHANNELS * 9)),
        "b_hidden": rng.uniform(-0.1, 0.1, 8),
        "w_classes": rng.normal(0, 0.5, (8, CLASSES)),
        "b_classes": rng.uniform(-0.1, 0.1, CLASSES),
    }
    found |= convolution("stem", 3) | norm("stem")
    for block in BLOCKS:
        for i in range(3 if block != "two" else 2):
            found |= convolution(f"{block}_{i}")
        found |= norm(block)
    for level in LEVELS:
        found |= convolution(f"lateral_{level}")
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def _text(values: dict[str, Array], kind: str) -> str:
    """The detector. With double, for which ONNX Runtime has fewer kernels, its convolutions are functions."""
    conv = {stride: f"Conv <strides = [{stride}, {stride}], pads = [1, 1, 1, 1]>" for stride in (1, 2)}
    resize = 'Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
    resize, scales = f"{resize} ({{}}, , doubled)", "float[4] doubled = {1, 1, 2, 2}"
    if kind == "double":
        conv = {stride: f"detector.conv{stride}" for stride in (1, 2)}
        resize = (
            'ai.onnx.contrib.DmlResample <interpolation_mode = "nearest_neighbor", scales = [1.0, 1.0, 2.0, 2.0]> ({})'
        )

    def convolved(y: str, x: str, name: str, stride: int = 1) -> str:
        return f"{y} = {conv[stride]} ({x}, w_{name}, b_{name})"

    def normed(y: str, x: str, name: str) -> str:
        return f"{y} = BatchNormalization({x}, scale_{name}, offset_{name}, mean_{name}, var_{name})"

    lines = [
        convolved("stem", "image", "stem", 2),
        normed("stem_n", "stem", "stem"),
        "stem_r = Relu(stem_n)",
        "c1 = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (stem_r)",
    ]
    for level, block in zip(LEVELS, BLOCKS, strict=True):
        x, stride = f"c{level - 1}", 1 if block == "two" else 2
        lines += [
            convolved(f"{block}_a", x, f"{block}_0", stride),
            f"{block}_b = Relu({block}_a)",
            convolved(f"{block}_c", f"{block}_b", f"{block}_1"),
            normed(f"{block}_d", f"{block}_c", block),
            convolved(f"{block}_s", x, f"{block}_2", stride) if stride == 2 else f"{block}_s = Identity({x})",
            f"{block}_e = Add({block}_d, {block}_s)",
            f"c{level} = Relu({block}_e)",
        ]
    for level in reversed(LEVELS):
        lines.append(convolved(f"lateral_{level}", f"c{level}", f"lateral_{level}"))
        if level == max(LEVELS):
            lines.append(f"p{level} = Identity(lateral_{level})")
            continue
        lines += [f"up_{level} = {resize.format(f'p{level + 1}')}", f"p{level} = Add(lateral_{level}, up_{level})"]
    sizes = "output_height = 3, output_width = 3, sampling_ratio = 2"
    for level in LEVELS:
        lines += [
            f"boxes_{level} = Gather(boxes, chosen_{level})",
            f"images_{level} = Gather(images, chosen_{level})",
            f"r{level} = RoiAlign <{sizes}, spatial_scale = {2**-level}> (p{level}, boxes_{level}, images_{level})",
        ]
    lines += [
        f"regions = Concat <axis = 0> ({', '.join(f'r{level}' for level in LEVELS)})",
        "flat = Flatten(regions)",
        "hidden = Gemm <transB = 1> (flat, w_hidden, b_hidden)",
        "active = Relu(hidden)",
        "classes = Gemm(active, w_classes, b_classes)",
        "logarithms = LogSoftmax(classes)",
        "likely = Mul(logarithms, targets)",
        "sums = ReduceSum <keepdims = 0> (likely)",
        "total = Neg(sums)",
    ]
    inputs = []
    for name, value in values.items():
        shape = "N, 3, H, W" if name == "image" else "B, 4" if name == "boxes" else ", ".join(map(str, value.shape))
        inputs.append(f"{kind}[{shape}] {name}")
    count = sum(len(boxes) for boxes in BOXES.values())
    targets = ", ".join("1" if i % CLASSES == i // CLASSES else "0" for i in range(count * CLASSES))
    constants = [f"int64[{len(v)}] chosen_{k} = {{{', '.join(map(str, v))}}}" for k, v in BOXES.items()]
    constants += [scales, "int64[6] images = {0, 1, 1, 0, 0, 1}", f"{kind}[{count}, {CLASSES}] targets = {{{targets}}}"]
    opsets = '["" : 18, "ai.onnx.contrib" : 1, "detector" : 1]'
    return f"""<ir_version: 10, opset_import: {opsets}>
    detector ({", ".join(inputs)}) => ({kind} total) <{", ".join(constants)}> {{ {" ".join(lines)} }}"""


def _convolution(stride: int) -> onnx.FunctionProto:
    """A convolution of 3 by 3 pixels as one matrix product: of operators that have double kernels."""
    lines = [
        "pads = Constant <value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}> ()",
        "padded = Pad(x, pads)",
        "axes = Constant <value = int64[2] {2, 3}> ()",
        f"steps = Constant <value = int64[2] {{{stride}, {stride}}}> ()",
        "lengths = Shape <start = 2> (x)",
    ]
    places = list(itertools.product(range(3), range(3)))
    for i, j in places:
        lines += [
            f"start{i}{j} = Constant <value = int64[2] {{{i}, {j}}}> ()",
            f"end{i}{j} = Add(start{i}{j}, lengths)",
            f"part{i}{j} = Slice(padded, start{i}{j}, end{i}{j}, axes, steps)",
        ]
    lines += [
        f"patches = Concat <axis = 1> ({', '.join(f'part{i}{j}' for i, j in places)})",
        "rows = Transpose <perm = [0, 2, 3, 1]> (patches)",
        "turned = Transpose <perm = [2, 3, 1, 0]> (w)",
        f"shape = Constant <value = int64[2] {{-1, {CHANNELS}}}> ()",
        "matrix = Reshape(turned, shape)",
        "product = MatMul(rows, matrix)",
        "sum = Add(product, b)",
        "y = Transpose <perm = [0, 3, 1, 2]> (sum)",
    ]
    body = "\n".join(lines)
    return onnx.parser.parse_function(
        f"""<domain: "detector", opset_import: ["" : 18]> conv{stride} (x, w, b) => (y) {{ {body} }}"""
    )


def detector(values: dict[str, Array], kind: str) -> onnx.ModelProto:
    made = parsed(_text(values, kind))
    made.graph.output[0].type.tensor_type.shape.SetInParent()
    if kind == "double":
        made.functions.extend(_convolution(stride) for stride in (1, 2))
    return made


@pytest.fixture(scope="module")
def in_double() -> dict[str, Array]:
    """The gradients of the detector in double, which are those of finite differences."""
    values = feeds()
    return check(detector(values, "double"), values, WRT, step=1e-6, tolerance=1e-6)


def test_every_gradient_of_the_detector_is_its_derivative(in_double: dict[str, Array]) -> None:
    for name, by_it in in_double.items():
        assert np.isfinite(by_it).all()
        assert by_it.any(), name


@pytest.mark.parametrize("as_initializers", [False, True])
def test_the_detector_with_convolutions_of_onnx_has_the_same(
    in_double: dict[str, Array], as_initializers: bool
) -> None:
    values = {name: value.astype(np.float32) for name, value in feeds().items()}
    made = detector(values, "float")
    given = dict(values)
    if as_initializers:
        weights = [name for name in values if name not in ("image", "boxes")]
        inputs = [value for value in made.graph.input if value.name not in weights]
        del made.graph.input[:]
        made.graph.input.extend(inputs)
        made.graph.initializer.extend(onnx.numpy_helper.from_array(given.pop(name), name) for name in weights)
    differentiated = gradient(made, "total", WRT)
    onnx.checker.check_model(differentiated, full_check=True)
    found = run(differentiated, given)
    # The cotangent of the check in double is not 1.
    factor = np.random.default_rng(0).uniform(-1, 1, ())
    for name in WRT:
        expected = in_double[name] / factor
        np.testing.assert_allclose(found[f"{name}_grad"], expected, rtol=1e-3, atol=2e-5 * np.abs(expected).max())

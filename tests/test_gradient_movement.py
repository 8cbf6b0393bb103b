"""Gradient rules of operators that move elements: reshaping, slicing, gathering and scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, of_sum, parsed, run, with_loss
from gradient_nodes import not_of_old
from onnx_models.gradient import ZeroGradientWarning, gradient
from pairs import pairwise


def _model(
    operator: str,
    inputs: Sequence[Array | None],
    *,
    shapes: str = "lengths",
    constants: bool = True,
    opset: int = 18,
    outputs: int = 1,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node with inputs x0, x1, ... and outputs y0, y1, ..., and what to feed it.

    Args:
        inputs: values; None stands for an absent input.
        shapes: of the inputs: ``lengths``, ``names``, or of ``any`` rank.
        constants: inputs other than floats are initializers.
    """
    values, initializers, feeds = [], [], {}
    for i, value in enumerate(inputs):
        if value is None:
            continue
        if constants and value.dtype.kind != "f":
            initializers.append(onnx.numpy_helper.from_array(value, f"x{i}"))
            continue
        feeds[f"x{i}"] = value
        named: list[str | int] = [f"n{i}_{axis}" if shapes == "names" else n for axis, n in enumerate(value.shape)]
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        values.append(onnx.helper.make_tensor_value_info(f"x{i}", kind, None if shapes == "any" else named))
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    node = onnx.helper.make_node(operator, names, [f"y{i}" for i in range(outputs)], **attributes)
    made = [onnx.helper.make_tensor_value_info(f"y{i}", onnx.TensorProto.DOUBLE, None) for i in range(outputs)]
    graph = onnx.helper.make_graph([node], "g", values, made, initializers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10), feeds


def _verify(operator: str, inputs: Sequence[Array | None], **options: Any) -> None:
    """Check a node's gradients by all its float inputs, and by each alone."""
    made, feeds = _model(operator, inputs, **options)
    names = [name for name, value in feeds.items() if value.dtype.kind == "f"]
    check(made, feeds, names)
    for name in names if len(names) > 1 else ():
        check(made, feeds, [name])


def _random(*shape: int) -> Array:
    return np.asarray(np.random.default_rng(7).uniform(-1, 1, shape))


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


SHAPES = [("lengths", True), ("names", False), ("any", False)]
EVERY_SHAPE = pytest.mark.parametrize(("shapes", "constants"), SHAPES)


@EVERY_SHAPE
@pytest.mark.parametrize(("shape", "axis"), [((2, 3), 0), ((2, 3), -1), ((2, 0, 4), 1), ((4,), 0)])
def test_concat(shape: tuple[int, ...], axis: int, shapes: str, constants: bool) -> None:
    longer = list(shape)
    longer[axis] += 2
    inputs = [_random(*shape), _random(*longer), _random(*shape)]
    _verify("Concat", inputs, axis=axis, shapes=shapes, constants=constants)


def test_concat_of_one_tensor_with_itself() -> None:
    _verify("Concat", [_random(2, 3)], axis=1)
    check(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (double[N,M] a) => (double y) { y = Concat<axis=-2>(a, a, a) }""",
        {"a": _random(2, 3)},
        ["a"],
    )


@EVERY_SHAPE
@pytest.mark.parametrize(
    ("sizes", "attributes"),
    [(None, {"num_outputs": 3, "axis": 1}), (_ints(3, 0, 4), {"axis": -1}), (_ints(1, 1), {"axis": 0})],
)
def test_split(sizes: Array | None, attributes: dict[str, int], shapes: str, constants: bool) -> None:
    outputs = 3 if sizes is None else len(sizes)
    inputs = [_random(2, 7), *([] if sizes is None else [sizes])]
    _verify("Split", inputs, outputs=outputs, shapes=shapes, constants=constants, **attributes)


def test_split_of_which_one_part_is_used() -> None:
    made, feeds = _model("Split", [_random(2, 7)], num_outputs=3, axis=1, outputs=3, shapes="names")
    found = check(made, feeds, ["x0"], outputs=["y1"])["x0"]
    assert not found[:, :3].any()
    assert found[:, 3:6].all()
    assert not found[:, 6:].any()


@EVERY_SHAPE
@pytest.mark.parametrize(
    "where",
    [
        [_ints(1), _ints(3)],
        [_ints(0, 1), _ints(2, 100), _ints(0, -1)],
        [_ints(-1), _ints(-100), _ints(1), _ints(-1)],
        [_ints(-1, 0), _ints(-100, 5), _ints(-1, 0), _ints(-2, 2)],
        [_ints(1, 4), _ints(4, 0), None, _ints(2, -3)],
        [_ints(3), _ints(1), _ints(1)],
        [_ints(-3, 2**31), _ints(2**31, 1), _ints(-1, 0), _ints(1, 1)],
        [np.array([1], np.int32), np.array([3], np.int32), np.array([-1], np.int32)],
    ],
)
def test_slice(where: list[Array | None], shapes: str, constants: bool) -> None:
    _verify("Slice", [_random(4, 5), *where], shapes=shapes, constants=constants)


@EVERY_SHAPE
@pytest.mark.parametrize(
    ("shape", "indices", "axis"),
    [
        ((4, 3), _ints(0, 2, 2, -1), 0),
        ((4, 3), np.array([[0, -3], [1, 1]], np.int32), 1),
        ((4, 3, 2), np.array(-2), -1),
        ((4,), np.array(1), 0),
        ((2, 4, 3), _ints(2), -2),
        ((2, 4, 3), _ints(-1), 1),
        ((4, 3), np.zeros((0,), np.int64), 1),
        ((2, 3, 4), np.array([[1], [0], [1]]), -2),
    ],
)
def test_gather(shape: tuple[int, ...], indices: Array, axis: int, shapes: str, constants: bool) -> None:
    _verify("Gather", [_random(*shape), indices], axis=axis, shapes=shapes, constants=constants)


@pytest.mark.parametrize("part", ["Gather <axis = 1> (turned, one)", "Slice(turned, first, second, first)"])
def test_a_part_of_a_transpose(part: str) -> None:
    # ONNX Runtime moves the Transpose of the gradient past the Pad, and takes pads of some axes for those of the first.
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
    g (float[3,4,5] x) => (float y) <int64 one = {{1}}, int64[1] first = {{1}}, int64[1] second = {{2}}> {{
        turned = Transpose <perm = [2, 0, 1]> (x)
        part = {part}
        y = Mul(part, part)
    }}"""
    check(text, {"x": _random(3, 4, 5).astype(np.float32)}, ["x"], step=2**-7, tolerance=1e-5)


@EVERY_SHAPE
@pytest.mark.parametrize(
    ("indices", "axis"),
    [
        (np.array([[0, -1, 2], [2, 2, -4]]), 0),
        (np.array([[0, -1], [2, 2], [1, 1]]), 1),
        (np.array([[0, 0]], np.int32), -1),
    ],
)
def test_gather_elements(indices: Array, axis: int, shapes: str, constants: bool) -> None:
    _verify("GatherElements", [_random(4, 3), indices], axis=axis, shapes=shapes, constants=constants)


@EVERY_SHAPE
@pytest.mark.parametrize(
    ("shape", "indices", "batch_dims"),
    [
        ((4, 3), np.array([[0, 1], [-1, 2], [0, 1]]), 0),
        ((4, 3), np.array([[1], [-1], [1]]), 0),
        ((4, 3, 2), np.array([[[1], [-1]]]), 0),
        ((2, 3, 4), np.array([[1], [-1]]), 1),
        ((2, 3, 4), np.array([[[1], [3], [1]], [[0], [0], [-1]]]), 2),
    ],
)
def test_gather_nd(shape: tuple[int, ...], indices: Array, batch_dims: int, shapes: str, constants: bool) -> None:
    _verify("GatherND", [_random(*shape), indices], batch_dims=batch_dims, shapes=shapes, constants=constants)


@EVERY_SHAPE
@pytest.mark.parametrize("attributes", [{}, {"axis": 1}, {"axis": -2}])
def test_compress(attributes: dict[str, int], shapes: str, constants: bool) -> None:
    chosen = np.array([True, False, True, True][: 4 if attributes.get("axis") != 1 else 3])
    _verify("Compress", [_random(4, 3), chosen], shapes=shapes, constants=constants, **attributes)


def test_many_gradients_for_one_place() -> None:
    # Threads must not lose terms.
    made, feeds = _model("Gather", [_random(3, 8), np.zeros(20_000, np.int64)])
    made.graph.output[0].name = made.graph.node[0].output[0] = "y"
    found = of_sum(made, feeds, ["x0"])["x0"]
    np.testing.assert_array_equal(found, [[20_000] * 8, [0] * 8, [0] * 8])


@EVERY_SHAPE
@pytest.mark.parametrize(
    ("operator", "shape", "inputs", "attributes"),
    [
        ("Reshape", (2, 6), [_ints(3, -1)], {}),
        ("Reshape", (2, 6), [_ints(0, 2, 3)], {}),
        ("Reshape", (0, 6), [_ints(3, 0)], {"allowzero": 1}),
        ("Reshape", (1, 1), [_ints()], {}),
        ("Reshape", (), [_ints(1, -1)], {}),
        ("Flatten", (2, 3, 4), [], {}),
        ("Flatten", (2, 3, 4), [], {"axis": -1}),
        ("Flatten", (2, 0, 4), [], {"axis": 0}),
        ("Squeeze", (1, 3, 1), [_ints(0, -1)], {}),
        ("Squeeze", (1, 3, 1), [], {}),
        ("Squeeze", (1,), [], {}),
        ("Unsqueeze", (2, 3), [_ints(-1, 0)], {}),
        ("Unsqueeze", (), [_ints(0)], {}),
        ("Transpose", (2, 3, 4), [], {}),
        ("Transpose", (2, 3, 4), [], {"perm": [1, 2, 0]}),
        ("Transpose", (2, 0, 4), [], {"perm": [2, 0, 1]}),
        ("Transpose", (), [], {}),
        ("Identity", (2, 3), [], {}),
        ("Dropout", (2, 3), [], {}),
        ("Expand", (3, 1), [_ints(2, 1, 4)], {}),
        ("Expand", (3, 4), [_ints(1)], {}),
        ("Expand", (), [_ints(2, 2)], {}),
        ("Expand", (1, 3), [_ints(0, 3)], {}),
        ("Tile", (2, 3), [_ints(2, 3)], {}),
        ("Tile", (2, 1, 3), [_ints(1, 4, 1)], {}),
        ("Tile", (), [_ints()], {}),
        ("Tile", (0, 2), [_ints(2, 2)], {}),
        ("Tile", (2, 2), [_ints(0, 2)], {}),
        ("Trilu", (2, 3, 4), [np.array(1)], {}),
        ("Trilu", (3, 3), [], {"upper": 0}),
        ("ReverseSequence", (4, 3, 2), [_ints(1, 4, 2)], {}),
        ("ReverseSequence", (3, 4), [_ints(1, 4, 2)], {"batch_axis": 0, "time_axis": 1}),
        ("CumSum", (3, 4), [np.array(1)], {}),
        ("CumSum", (3, 4), [np.array(-2)], {"exclusive": 1, "reverse": 1}),
        ("CumSum", (3, 4), [np.array(0, np.int32)], {"exclusive": 1}),
    ],
)
def test_shapes(
    operator: str, shape: tuple[int, ...], inputs: list[Array], attributes: dict[str, Any], shapes: str, constants: bool
) -> None:
    _verify(operator, [_random(*shape), *inputs], shapes=shapes, constants=constants, **attributes)


@pairwise(
    {
        "shapes, constants": SHAPES,
        "shape": [(2, 12, 2, 3), (0, 4, 2, 2), (1, 8, 0, 3)],
        "mode": ["DCR", "CRD"],
    }
)
def test_depth_to_space(mode: str, shape: tuple[int, ...], shapes: str, constants: bool) -> None:
    _verify("DepthToSpace", [_random(*shape)], blocksize=2, mode=mode, shapes=shapes, constants=constants)


@EVERY_SHAPE
def test_space_to_depth(shapes: str, constants: bool) -> None:
    _verify("SpaceToDepth", [_random(2, 3, 4, 6)], blocksize=2, shapes=shapes, constants=constants)


@EVERY_SHAPE
@pytest.mark.parametrize(
    ("condition", "a", "b"),
    [((2, 3), (2, 3), (2, 3)), ((2, 1), (3,), ()), ((3,), (2, 1), (1, 3)), ((0, 1), (1, 2), (2,))],
)
def test_where(
    condition: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...], shapes: str, constants: bool
) -> None:
    chosen = np.asarray(_random(*condition) > 0)
    _verify("Where", [chosen, _random(*a), _random(*b)], shapes=shapes, constants=constants)


@pairwise(
    {
        "shapes, constants": SHAPES,
        "pads, axes": [
            (_ints(1, 2, 0, 2), None),
            (_ints(2, 1), _ints(-1)),
            (_ints(-1, 2, 1, -2), None),
            (_ints(0, -1, -2, -1), _ints(1, 0)),
        ],
        "mode": ["constant", "reflect", "edge", "wrap"],
    }
)
def test_pad(mode: str, pads: Array, axes: Array | None, shapes: str, constants: bool) -> None:
    tail = [] if axes is None else [None, axes]
    _verify("Pad", [_random(4, 5), pads, *tail], mode=mode, opset=19, shapes=shapes, constants=constants)


@EVERY_SHAPE
@pytest.mark.parametrize(
    ("pads", "axes"), [(_ints(1, 2, 0, 2), None), (_ints(3, -2), _ints(0)), (_ints(-3, -1), _ints(1))]
)
def test_pad_with_a_value(pads: Array, axes: Array | None, shapes: str, constants: bool) -> None:
    _verify("Pad", [_random(4, 4), pads, np.array(0.5), axes], shapes=shapes, constants=constants)


def test_pad_of_an_empty_tensor() -> None:
    _verify("Pad", [_random(0, 2), _ints(2, 0, 0, 1), np.array(0.5)])
    _verify("Pad", [_random(2, 2), _ints(-2, 0, 0, 1), np.array(0.5)])


@EVERY_SHAPE
@pytest.mark.parametrize("attributes", [{}, {"axis": 0, "largest": 0}, {"axis": -2, "sorted": 0}])
def test_top_k(attributes: dict[str, int], shapes: str, constants: bool) -> None:
    made, feeds = _model("TopK", [_random(3, 4), _ints(2)], outputs=2, shapes=shapes, constants=constants, **attributes)
    made.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    check(made, feeds, ["x0"], outputs=["y0"])


@EVERY_SHAPE
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter(reduction: str, shapes: str, constants: bool) -> None:
    options: dict[str, Any] = {"reduction": reduction, "shapes": shapes, "constants": constants}
    _verify("ScatterElements", [_random(3, 4), np.array([[0, -1], [1, 2]]), _random(2, 2)], axis=1, **options)
    _verify("ScatterElements", [_random(3, 4), np.array([[0, -1, 1, 2]]), _random(1, 4)], **options)
    _verify("ScatterND", [_random(3, 4), np.array([[0], [-1]]), _random(2, 4)], **options)
    _verify("ScatterND", [_random(3, 4), np.array([[0, 1], [2, -1]]), _random(2)], **options)


@EVERY_SHAPE
@pytest.mark.parametrize("reduction", ["mul", "min", "max", "add"])
def test_scatter_to_places_that_are_taken_more_than_once(reduction: str, shapes: str, constants: bool) -> None:
    options: dict[str, Any] = {"reduction": reduction, "shapes": shapes, "constants": constants}
    updates = np.random.default_rng(3).uniform(-1, 1, (3, 4))
    _verify("ScatterElements", [_random(3, 4), np.array([[0, -1, 0, 3], [1, 2, 1, 1]]), updates[:2]], axis=1, **options)
    _verify("ScatterElements", [_random(3, 4), np.array([[0, -1, 1, 2], [0, 2, 1, 2]]), updates[:2]], **options)
    _verify("ScatterND", [_random(3, 4), np.array([[0], [-1], [0]]), updates], **options)
    _verify("ScatterND", [_random(3, 4), np.array([[0, 1], [2, -1], [-3, 1]]), updates[0, :3]], **options)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [("ScatterElements", np.float64), ("ScatterND", np.float64), ("ScatterElements", np.float16)],
)
@pytest.mark.parametrize(
    ("reduction", "by_x", "by_updates"),
    [
        # x is 2, 0, 3, 1; updates at 0 are 0, 5; at 1: 4; at 2: 3, 3; at 3: 0, 0.
        ("mul", [0, 4, 9, 0], [10, 0, 0, 9, 9, 0, 0]),
        ("max", [0, 0, 1 / 3, 1], [0, 1, 1, 1 / 3, 1 / 3, 0, 0]),
        ("min", [0, 1, 1 / 3, 0], [1, 0, 0, 1 / 3, 1 / 3, 1 / 2, 1 / 2]),
    ],
)
def test_scatter_with_zeros_and_ties_is_as_in_pytorch(
    operator: str, reduction: str, by_x: list[float], by_updates: list[float], kind: type
) -> None:
    if kind is np.float16 and reduction == "mul":
        pytest.skip("ONNX Runtime's CPU has no products of float16 here")
    places = np.array([0, 0, 1, 2, 2, 3, 3])
    indices = places if operator == "ScatterElements" else places[:, None]
    inputs = [np.array([2, 0, 3, 1], kind), indices, np.array([0, 5, 4, 3, 3, 0, 0], kind)]
    made, feeds = _model(operator, inputs, reduction=reduction)
    made.graph.output[0].name = made.graph.node[0].output[0] = "y"
    made.graph.output[0].type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    found = of_sum(made, feeds, ["x0", "x2"])
    np.testing.assert_allclose(found["x0"], by_x, rtol=1e-3 if kind is np.float16 else 1e-12)
    np.testing.assert_allclose(found["x2"], by_updates, rtol=1e-3 if kind is np.float16 else 1e-12)


@EVERY_SHAPE
@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": -1, "sorted": 0}])
@pytest.mark.parametrize("outputs", [1, 4])
def test_unique(attributes: dict[str, int], outputs: int, shapes: str, constants: bool) -> None:
    made, feeds = _model("Unique", [_random(3, 4)], outputs=outputs, shapes=shapes, constants=constants, **attributes)
    for value in made.graph.output[1:]:
        value.type.tensor_type.elem_type = onnx.TensorProto.INT64
    check(made, feeds, ["x0"], outputs=["y0"])


def test_the_first_of_equal_elements_has_the_gradient_of_unique() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (double[N] x) => (double y) { u = Unique(x) y = Mul(u, u) }"""
    np.testing.assert_array_equal(of_sum(text, {"x": np.array([2.0, 1, 2, 3, 1])}, ["x"])["x"], [4, 2, 0, 6, 0])


@not_of_old
@EVERY_SHAPE
@pytest.mark.parametrize(
    ("mode", "axis", "update", "places"),
    [
        ("linear", 1, (2, 2, 3), _ints(1, 3)),
        ("circular", 1, (2, 4, 3), _ints(4, 2)),
        ("circular", -2, (2, 5, 3), _ints(0, 3)),
        ("linear", -1, (2, 5, 2), None),
    ],
)
def test_tensor_scatter(
    mode: str, axis: int, update: tuple[int, ...], places: Array | None, shapes: str, constants: bool
) -> None:
    inputs = [_random(2, 5, 3), _random(*update) + 2, *([] if places is None else [places])]
    _verify("TensorScatter", inputs, opset=24, mode=mode, axis=axis, shapes=shapes, constants=constants)


@not_of_old
@EVERY_SHAPE
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("zeros", [[], [5], [1, 6], [0, 5, 9, 10]])
def test_cumulative_product(
    axis: int, exclusive: int, reverse: int, zeros: list[int], shapes: str, constants: bool
) -> None:
    x = _random(3, 4)
    x.ravel()[zeros] = 0
    options: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse, "shapes": shapes, "constants": constants}
    _verify("CumProd", [x, np.array(axis)], opset=26, **options)


def test_one_hot() -> None:
    # ONNX Runtime's CPU has no OneHot of doubles.
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (int64[N] i, float[2] values) => (float y) <int64[1] depth = {4}> { y = OneHot<axis=0>(i, depth, values) }"""
    feeds: dict[str, Array] = {"i": _ints(0, 3, -1), "values": np.array([0.5, 2.0], np.float32)}
    check(text, feeds, ["values"], step=2**-7, tolerance=1e-4)


def test_range() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (double start, double limit, double delta) => (double y) { y = Range(start, limit, delta) }"""
    feeds = {"start": np.array(0.5), "limit": np.array(3.0), "delta": np.array(0.75)}
    with pytest.warns(ZeroGradientWarning, match="'limit' is 0: .*how many numbers there are"):
        found = check(text, feeds, ["start", "limit", "delta"])
    assert found["limit"] == 0


@pytest.mark.parametrize("like", [False, True])
def test_cast(like: bool) -> None:
    other = np.zeros((), np.float32)
    made, feeds = _model("CastLike", [_random(3), other]) if like else _model("Cast", [_random(3)], to=1)
    made.graph.node[0].output[0] = "single"
    made.graph.node.append(onnx.helper.make_node("Cast", ["single"], ["y0"], to=onnx.TensorProto.DOUBLE))
    check(made, feeds, ["x0"], step=2**-6, tolerance=1e-5)
    if like:
        with pytest.warns(ZeroGradientWarning, match="only its type is read"):
            assert not check(made, feeds, ["x1"], step=2**-6, tolerance=1e-5)["x1"].any()


def test_cast_to_integers_has_no_gradient() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (double[N] x) => (double y) { i = Cast<to=7>(x)
            whole = Cast<to=11>(i)
            y = Mul(whole, x) }"""
    found = of_sum(text, {"x": np.array([1.5, -2.5])}, ["x"])
    np.testing.assert_array_equal(found["x"], [1, -2])


@pytest.mark.parametrize("outputs", ["y", "y, mask"])
@pytest.mark.parametrize("ratio", ["", "r", "constant"])
@pytest.mark.parametrize("training", ["t", "true", "false", ""])
def test_dropout_passes_what_it_keeps(outputs: str, ratio: str, training: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[N, M] x, float r, bool t) => (double {outputs.replace(" mask", " bool mask")}) {{
          constant = Constant <value_float = 0.25> ()
          true = Constant <value = bool {{1}}> ()
          false = Constant <value = bool {{0}}> ()
          {outputs} = Dropout <seed = 3> (x, {ratio}, {training}) }}"""
    weights = np.random.default_rng(1).uniform(1, 2, (40, 50))
    made = parsed(text)
    differentiated = gradient(with_loss(made, {"y": weights}), "loss", ["x"])
    assert [one.name for one in differentiated.graph.output if "mask" in one.name] == (
        ["mask"] if "m" in outputs else []
    )
    for in_training in [True, False] if training == "t" else [training == "true"]:
        feeds = {"x": _random(40, 50) + 1, "r": np.asarray(np.float32(0.75)), "t": np.array(in_training)}
        found, alone = run(differentiated, feeds), run(made, feeds)
        np.testing.assert_array_equal(found["y"], alone["y"])
        kept = found["y"] != 0
        share = {"": 0.5, "r": 0.25, "constant": 0.75}[ratio] if in_training else 1
        assert abs(kept.mean() - share) < 0.05
        np.testing.assert_allclose(found["x_grad"], kept * weights / share, rtol=1e-12)


def test_the_ratio_of_dropout_has_no_gradient() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (double[N] x, double r, bool t) => (double y) { y = Dropout(x, r, t) }"""
    with pytest.warns(ZeroGradientWarning, match="it only determines the random mask"):
        gradient(with_loss(parsed(text), {"y": np.ones(1)}), "loss", ["r"])


@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("Slice", [_ints(1), _ints(3)], {}),
        ("Gather", [_ints(1, 1)], {}),
        ("Pad", [_ints(1, 1, 0, 0), np.array(1.0)], {}),
        ("Pad", [_ints(1, 1, 0, 0)], {"mode": "edge"}),
        ("Tile", [_ints(2, 2)], {}),
        ("Compress", [np.array([True, False, True])], {"axis": 1}),
        ("ScatterElements", [np.array([[1]]), np.array([[0.5]])], {}),
        ("Concat", [_random(2, 4)], {"axis": 0}),
    ],
)
def test_other_types(kind: str, operator: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    values = [value.astype(kind) if value.dtype.kind == "f" else value for value in (_random(4, 4), *inputs)]
    made, feeds = _model(operator, values, **attributes)
    made.graph.output[0].name = made.graph.node[0].output[0] = "y"
    made.graph.output[0].type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    for name, by_it in of_sum(made, feeds, list(feeds)).items():
        assert (by_it.dtype, by_it.shape) == (np.dtype(kind), feeds[name].shape)


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_where_of_other_types(kind: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (bool[N] c, {kind.replace("32", "")}[N] a, {kind.replace("32", "")} b) => ({kind.replace("32", "")} y)
        {{ y = Where(c, a, b) }}"""
    feeds: dict[str, Array] = {"c": np.array([True, False]), "a": np.ones(2, kind), "b": np.ones((), kind)}
    found = of_sum(text, feeds, ["a", "b"])
    assert (found["a"].tolist(), found["b"].dtype) == ([1, 0], np.dtype(kind))

"""Gradient rules of normalizations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, run, with_loss
from gradient_nodes import node_model, not_of_old, uniform
from onnx_models.gradient import gradient
from pairs import pairwise


def tensors(shapes: Mapping[str, Sequence[int]], dtype: type = np.float64) -> dict[str, Array]:
    return uniform(shapes, dtype, 0.5, 2)


def _batch(x: Sequence[int]) -> dict[str, Array]:
    return tensors({"x": x, "scale": (3,), "b": (3,), "mean": (3,), "var": (3,)})


@pairwise(
    {
        "x": [(5, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2), pytest.param((0, 3, 4, 5), marks=not_of_old)],
        "opened": [False, True],
        "attributes": [{}, {"epsilon": 0.25, "momentum": 0.5}],
    }
)
def test_batch_normalization(x: tuple[int, ...], opened: bool, attributes: dict[str, float]) -> None:
    feeds = _batch(x)
    check(node_model("BatchNormalization", feeds, attributes, opened=opened), feeds, list(feeds))


@pytest.mark.parametrize("name", ["x", "scale", "b", "mean", "var"])
def test_batch_normalization_by_each_input_alone(name: str) -> None:
    feeds = _batch((2, 3, 4, 5))
    check(node_model("BatchNormalization", feeds, opened=True), feeds, [name])


@pairwise(
    {
        "x": [(5, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)],
        "opened": [False, True],
        "attributes": [{}, {"epsilon": 0.25, "momentum": 0.5}],
        "outputs": [["y"], ["y", "running_mean", "running_var"], ["running_mean"], ["running_var"]],
    }
)
def test_batch_normalization_in_training(
    x: tuple[int, ...], opened: bool, attributes: dict[str, float], outputs: list[str]
) -> None:
    feeds, names = _batch(x), ["y", "running_mean", "running_var"]
    behind = {"x": names, "scale": names[:1], "b": names[:1], "mean": names[1:2], "var": names[2:]}
    wrt = [name for name, readers in behind.items() if not set(readers).isdisjoint(outputs)]
    check(_training(feeds, attributes, opened=opened), feeds, wrt, outputs=outputs)


@pytest.mark.parametrize("name", ["x", "scale", "b", "mean", "var"])
def test_batch_normalization_in_training_by_each_input_alone(name: str) -> None:
    feeds = _batch((2, 3, 4, 5))
    check(_training(feeds, {}, opened=True), feeds, [name])


def _training(feeds: Mapping[str, Array], attributes: Mapping[str, float], *, opened: bool) -> onnx.ModelProto:
    names = ["y", "running_mean", "running_var"]
    made = node_model("BatchNormalization", feeds, {"training_mode": 1, **attributes}, opened=opened, outputs=names)
    kind = onnx.helper.np_dtype_to_tensor_dtype(feeds["mean"].dtype)
    made.graph.output.extend(onnx.helper.make_tensor_value_info(name, kind, ["c"]) for name in names[1:])
    return made


@pairwise(
    {
        "axis, scale": [
            (None, (5,)),
            (-1, (5,)),
            (3, (5,)),
            (2, (4, 5)),
            (-3, (3, 4, 5)),
            pytest.param(-2, (1, 5), marks=not_of_old),
            pytest.param(1, (3, 1, 5), marks=not_of_old),
        ],
        "opened": [False, True],
        "with_bias": [False, True],
    }
)
def test_layer_normalization(axis: int | None, scale: tuple[int, ...], opened: bool, with_bias: bool) -> None:
    shapes = {"x": (2, 3, 4, 5), "scale": scale} | ({"b": scale} if with_bias else {})
    attributes = {} if axis is None else {"axis": axis, "epsilon": 0.01}
    feeds = tensors(shapes)
    check(node_model("LayerNormalization", feeds, attributes, opened=opened), feeds, list(feeds))


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("outputs", [["mean"], ["inverse"], ["y", "mean", "inverse"]])
def test_the_statistics_of_layer_normalization_have_gradients(axis: int, outputs: list[str]) -> None:
    # ONNX Runtime's CPU has these outputs of type float alone.
    line = (5,) if axis == -1 else (3, 5)
    feeds = tensors({"x": (2, 3, 5), "scale": line, "b": line}, np.float32)
    names = ["y", "mean", "inverse"]
    made = node_model("LayerNormalization", feeds, {"axis": axis, "epsilon": 0.01}, opened=True, outputs=names)
    made.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names[1:]
    )
    wrt = list(feeds) if "y" in outputs else ["x"]
    check(made, feeds, wrt, outputs=outputs, step=1e-2, tolerance=2e-3)


@pairwise({"x": [(2, 6, 4), (2, 6, 4, 3)], "groups": [1, 2, 3, 6], "opened": [False, True]})
def test_group_normalization(x: tuple[int, ...], groups: int, opened: bool) -> None:
    feeds = tensors({"x": x, "scale": (6,), "bias": (6,)})
    made = _in_double(feeds, opened=opened, num_groups=groups)
    check(made, feeds, list(feeds))


def _in_double(feeds: Mapping[str, Array], *, opened: bool, num_groups: int) -> onnx.ModelProto:
    """A GroupNormalization. With the stash_type that is the default, 1, ONNX Runtime would compute in float."""
    more = {"num_groups": num_groups, "stash_type": onnx.TensorProto.DOUBLE, "epsilon": 0.01}
    return node_model("GroupNormalization", feeds, more, opened=opened, opset=21)


@pairwise({"x": [(2, 6, 4), (2, 6, 4, 3)], "groups": [1, 2, 6], "opened": [False, True]})
@pytest.mark.parametrize("wrt", [["x", "scale", "bias"], ["bias"], ["scale"]])
def test_group_normalization_before_opset_21_has_a_scale_for_each_group(
    x: tuple[int, ...], groups: int, opened: bool, wrt: list[str]
) -> None:
    feeds = tensors({"x": x, "scale": (groups,), "bias": (groups,)})
    made = node_model("GroupNormalization", feeds, {"num_groups": groups, "epsilon": 0.01}, opened=opened)
    made.graph.output[0].type.tensor_type.ClearField("shape")  # the checker refuses an operator that is deprecated
    check(made, feeds, wrt)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("opened", [False, True])
def test_lp_normalization(axis: int, p: int, opened: bool) -> None:
    feeds = uniform({"x": (3, 4, 2)})
    check(node_model("LpNormalization", feeds, {"axis": axis, "p": p}, opened=opened), feeds, ["x"])


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_of_zeros_has_a_gradient_of_0(p: int) -> None:
    feeds = {"x": np.array([[0.0, 0.0], [3.0, -4.0]])}
    made = node_model("LpNormalization", feeds, {"p": p}, opened=True)
    found = run(gradient(with_loss(made, {"y": np.array([[1.0, 2.0], [3.0, 5.0]])}), "loss", ["x"]), feeds)["x_grad"]
    np.testing.assert_array_equal(found[0], 0)
    assert found[1].all()


@pytest.mark.parametrize("axes", [None, [1], [0, 2]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    feeds = uniform({"x": (3, 4, 2, 2)}, np.float32)  # ONNX Runtime has it in float only
    made = node_model("MeanVarianceNormalization", feeds, {} if axes is None else {"axes": axes}, opened=True)
    made.graph.output[0].type.tensor_type.ClearField(
        "shape"
    )  # the checker does not find the default of axes in the body
    check(made, feeds, ["x"], step=1e-2, tolerance=1e-3)


@pytest.mark.parametrize("x", [(2, 3, 7), (2, 3, 4, 5), (2, 3, 2, 3, 2)])
@pytest.mark.parametrize("opened", [False, True])
def test_instance_normalization(x: tuple[int, ...], opened: bool) -> None:
    # ONNX Runtime's CPU kernel has float alone, which leaves little of a difference of nearby values: as groups of one
    # channel each the gradient is checked in double.
    feeds = tensors({"x": x, "scale": (3,), "b": (3,)}, np.float32)
    made = node_model("InstanceNormalization", feeds, {"epsilon": 0.01}, opened=opened)
    found = check(made, feeds, list(feeds), step=1e-2, tolerance=1e-3)
    doubles = {name: value.astype(np.float64) for name, value in feeds.items()}
    groups = _in_double(doubles, opened=opened, num_groups=3)
    for name, by_it in check(groups, doubles, list(doubles)).items():
        np.testing.assert_allclose(found[name], by_it, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["LayerNormalization", "GroupNormalization", "MeanVarianceNormalization"])
def test_half_precision_is_computed_in_float(operator: str) -> None:
    count = 8 if operator == "LayerNormalization" else 6
    by_operator: dict[str, dict[str, Any]] = {
        "GroupNormalization": {"num_groups": 2},
        "MeanVarianceNormalization": {"axes": [2]},
    }
    attributes = by_operator.get(operator, {})
    feeds = tensors({"x": (2, 6, 8), "scale": (count,), "b": (count,)}, np.float16)
    if operator == "MeanVarianceNormalization":
        feeds = {"x": feeds["x"]}
    cotangent = np.random.default_rng(2).uniform(-1, 1, (2, 6, 8)).astype(np.float32)
    found = []
    for dtype in (np.float16, np.float32):
        typed = {name: value.astype(dtype) for name, value in feeds.items()}
        made = node_model(operator, typed, attributes, opened=True, opset=21)
        made.graph.node.append(onnx.helper.make_node("Cast", ["y"], ["wide"], to=onnx.TensorProto.FLOAT))
        by = run(gradient(with_loss(made, {"wide": cotangent}), "loss", list(feeds)), typed)
        assert all(by[f"{name}_grad"].dtype == dtype for name in feeds)
        found.append([by[f"{name}_grad"].astype(np.float64) for name in feeds])
    for half, single in zip(*found, strict=True):
        np.testing.assert_allclose(half, single, rtol=4e-3, atol=4e-3)

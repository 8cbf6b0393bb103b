"""Calls of operators at points where they are smooth, for tests of second derivatives and of forward mode."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from gradient_checks import Array, declared, parsed
from ortops.spec import ELEMENT_DTYPES

BOXES = np.array(
    [[0.3131, 1.2717, 5.1391, 6.7193], [-1.4371, 2.1577, 3.3119, 9.8617], [2.6231, 0.7639, 2.9417, 1.1853]]
)
"""Regions of a map of 8 x 9 pixels, of which some reach beyond it; no sample lies on a pixel."""

_MAKES_Y = re.compile(r"(?:^|[\s,])y(?:, \w+)* = ")


@dataclass(frozen=True)
class Call:
    """Nodes that make y.

    lines: the nodes, in ONNX's textual syntax; a call alone makes y.
    inputs: a tuple is the shape of floating-point numbers between two `ends`; "boxes" are `BOXES`; anything else is a value.
    kind: double, or float where ONNX Runtime has no kernel of double.
    step, tolerance: of differences; None for what suits the kind.
    opened: how much is declared where as little as possible is, see `gradient_checks.declared`.
    needs_new: whether ONNX Runtime 1.20 computes it wrong or not at all.
    """

    lines: str
    inputs: Mapping[str, Any] = field(default_factory=lambda: {"x": (2, 3)})
    ends: tuple[float, float] = (0.25, 0.75)
    kind: str = "double"
    opset: int = 21
    step: float | None = None
    tolerance: float | None = None
    opened: str = "names"
    needs_new: bool = False

    def __str__(self) -> str:
        shapes = [str(value) for name, value in self.inputs.items() if isinstance(value, tuple) and name != "boxes"]
        return f"{_MAKES_Y.split(self.lines)[-1][:50]} {' '.join(shapes)[:30]}"

    @property
    def feeds(self) -> dict[str, Array]:
        """Values of all inputs; those of an input are evenly spaced, so that no finite difference changes a maximum."""
        rng = np.random.default_rng(4)
        dtype = ELEMENT_DTYPES[self.kind]
        drawn: dict[str, Array] = {}
        for name, given in self.inputs.items():
            if not isinstance(given, tuple):
                drawn[name] = np.asarray(given, getattr(given, "dtype", np.int64))
                continue
            count = math.prod(given)
            parts = (rng.permutation(count) + rng.uniform(0.25, 0.75)) / max(count, 1)
            value = BOXES if name == "boxes" else (self.ends[0] + parts * (self.ends[1] - self.ends[0])).reshape(given)
            drawn[name] = np.asarray(value, dtype)
        return drawn

    @property
    def wrt(self) -> list[str]:
        """The floating-point inputs."""
        return [name for name, given in self.inputs.items() if isinstance(given, tuple)]

    @property
    def differences(self) -> tuple[float, float]:
        """The step of finite differences, and the tolerance."""
        step, tolerance = (1e-5, 1e-7) if self.kind == "double" else (2.0**-7, 1e-3)
        return self.step or step, self.tolerance or tolerance

    def model(self, shapes: str) -> onnx.ModelProto:
        """The declared shapes, see `gradient_checks.declared`; with ``lengths`` all but `wrt` are initializers."""
        feeds = self.feeds
        fed = self.wrt if shapes == "lengths" else list(feeds)
        inputs = ", ".join(
            f"{_kind(feeds[name])}"
            f"{declared(name, feeds[name].shape, shapes if name in self.wrt or shapes == 'any' else 'lengths')} {name}"
            for name in fed
        )
        lines = self.lines if _MAKES_Y.search(self.lines) else f"y = {self.lines}"
        made = parsed(
            f"""<ir_version: 10, opset_import: ["" : {self.opset}, "ai.onnx.contrib" : 1]>
            g ({inputs}) => ({self.kind} y) {{ {lines} }}"""
        )
        others = (onnx.numpy_helper.from_array(value, name) for name, value in feeds.items() if name not in fed)
        made.graph.initializer.extend(others)
        return made


def _kind(value: Array) -> str:
    return str(onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))).lower()


def _alone(names: str, kind: str, ends: tuple[float, float] = (0.25, 0.75)) -> list[Call]:
    return [Call(f"y = {name}(x)", ends=ends, kind=kind) for name in names.split()]


_MAP = {"x": (2, 3, 8, 9), "boxes": (3, 4)}
_INDICES = "i = Constant<value = int64[3] {0, 1, 1}> ()"
_ONE = "a = Constant<value = int64[1] {1}> ()"
_IMAGE = {"x": (2, 3, 5, 4), "w": (4, 3, 3, 2), "b": (4,)}

CALLS = [
    *_alone("Neg Sqrt Exp Log Abs Reciprocal Sin Cos Tanh Sigmoid Relu Softmax LogSoftmax", "double"),
    *_alone("Tan Asin Acos Atan Sinh Cosh Asinh Atanh Erf LeakyRelu Elu Celu Selu Softplus Softsign", "float"),
    *_alone("HardSigmoid HardSwish Gelu Mish", "float"),
    Call("y = Acosh(x)", ends=(1.5, 2.5), kind="float"),
    *[Call(f"y = {name}(x, z)", {"x": (2, 3), "z": (3,)}) for name in ("Add", "Sub", "Mul", "Div", "Pow", "Max")],
    Call("y = Mean(x, z)", {"x": (2, 3), "z": (3,)}, kind="float"),
    Call("y = PRelu(x, z)", {"x": (2, 3), "z": (3,)}, (-0.75, -0.25), kind="float"),
    Call("c = Less(x, z) y = Where(c, x, z)", {"x": (2, 3), "z": (3,)}),
    Call("y = Clip(x, z)", {"x": (2, 3), "z": ()}),
    *[
        Call(f"{_ONE} y = {name}<keepdims = {keep}> (x, a)")
        for name in (
            "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
            "ReduceMax", "ReduceProd",
        )
        for keep in (0, 1)
    ],
    Call("y = MatMul(x, z)", {"x": (2, 3, 4), "z": (4, 2)}),
    Call("y = MatMul(x, z)", {"x": (3, 4), "z": (2, 4, 3)}),
    Call("y = Gemm<alpha = 0.5, beta = 2.0, transA = 1> (x, z, b)", {"x": (4, 2), "z": (4, 3), "b": (3,)}),
    Call("y = Conv<pads = [1, 0, 1, 1], strides = [2, 1]> (x, w, b)", _IMAGE, kind="float"),
    Call("y = Conv<group = 3, dilations = [2, 1]> (x, w)", {"x": (2, 3, 5, 4), "w": (6, 1, 2, 2)}, kind="float"),
    Call(
        "y = ConvTranspose<pads = [1, 0, 1, 1], strides = [2, 1]> (x, w)",
        {"x": (2, 3, 5, 4), "w": (3, 2, 3, 2)},
        kind="float",
    ),
    Call("y = MaxPool<kernel_shape = [2, 2], strides = [2, 1]> (x)", {"x": (2, 3, 5, 4)}),
    Call("y = AveragePool<kernel_shape = [2, 2], pads = [1, 0, 0, 1]> (x)", {"x": (2, 3, 5, 4)}, kind="float"),
    Call("y = GlobalAveragePool(x)", {"x": (2, 3, 5, 4)}, kind="float"),
    Call("y = GlobalMaxPool(x)", {"x": (1, 2, 3, 4)}, kind="float"),
    Call("y = GlobalLpPool(x)", {"x": (2, 3, 5, 4)}, kind="float"),
    Call("y = LpPool<kernel_shape = [2, 2], p = 3> (x)", {"x": (2, 3, 5, 4)}, kind="float"),
    Call("y = LRN<size = 3, alpha = 0.9, beta = 1.5> (x)", {"x": (2, 5, 3, 4)}, kind="float"),
    *[
        Call(
            "r = Constant<value = float[2, 5] {0, 0, 0, 3, 3, 0, 1, 1, 5, 4}> ()"
            f" y = {name}<pooled_shape = [2, 2]> (x, r)",
            {"x": (1, 2, 5, 6)},
            kind="float",
        )
        for name in ("MaxRoiPool", "ai.onnx.contrib.MaxRoiPool_1", "ai.onnx.contrib.MaxRoiPool_22")
    ],
    Call("y = LayerNormalization(x, s, b)", {"x": (3, 5), "s": (5,), "b": (5,)}),
    Call("y = InstanceNormalization(x, s, b)", {"x": (2, 3, 5), "s": (3,), "b": (3,)}, (-1.5, 1.5), kind="float"),
    Call(
        "y = GroupNormalization<num_groups = 2> (x, s, b)",
        {"x": (2, 4, 5), "s": (4,), "b": (4,)},
        (-1.5, 1.5),
        kind="float",
    ),
    Call(
        "y = BatchNormalization(x, s, b, mean, var)", {"x": (2, 3, 5), "s": (3,), "b": (3,), "mean": (3,), "var": (3,)}
    ),
    Call("i = Constant<value = int64[3] {2, 0, 2}> () y = Gather<axis = 1> (x, i)"),
    Call("i = Constant<value = int64[2,2] {2, 0, 1, 1}> () y = GatherElements<axis = 1> (x, i)"),
    Call(
        'i = Constant<value = int64[1,3] {1, 0, 1}> () y = ScatterElements<reduction = "add"> (x, i, u)',
        {"x": (2, 3), "u": (1, 3)},
    ),
    Call("i = Constant<value = int64[1,1] {1}> () y = ScatterND(x, i, u)", {"x": (2, 3), "u": (1, 3)}),
    Call(f"{_ONE} e = Constant<value = int64[1] {{3}}> () y = Slice(x, a, e, a)"),
    Call("p = Constant<value = int64[4] {0, 1, 2, -1}> () y = Pad(x, p)"),
    Call('p = Constant<value = int64[4] {0, 1, 1, 2}> () y = Pad<mode = "reflect"> (x, p)'),
    Call("s = Constant<value = int64[3] {4, 1, 3}> () y = Expand(x, s)"),
    Call("s = Constant<value = int64[2] {2, 3}> () y = Tile(x, s)"),
    Call("y = Transpose(x)"),
    Call("y = Trilu(x)"),
    Call("s = Constant<value = int64[2] {-1, 2}> () y = Reshape(x, s)"),
    Call("y = Concat<axis = 1> (x, z)", {"x": (2, 3), "z": (2, 2)}),
    Call("p, q = Split<axis = 1, num_outputs = 2> (x) y = Mul(p, q)", {"x": (2, 4)}),
    Call(f"{_ONE} y, i = TopK(x, a)"),
    Call("a = Constant<value = int64 {1}> () y = CumSum(x, a)"),
    Call("i = Constant<value = int64[3] {2, 0, 1}> () y = SoftmaxCrossEntropyLoss(x, i)", {"x": (3, 4)}, kind="float"),
    Call(
        "z = Constant<value = double {0}> () t = ReduceMax<keepdims = 0> (x) c = Greater(t, z) y = If (c) <"
        "then_branch = one () => (double[A,B] p) { p = Mul(x, x) },"
        " else_branch = other () => (double[A,B] q) { q = Neg(x) }>"
    ),
    Call(
        "n = Constant<value = int64 {3}> () c = Constant<value = bool {1}> () y = Loop (n, c, x) <"
        "body = once (int64 i, bool go, double[A,B] s) => (bool on, double[A,B] t)"
        " { on = Identity(go) h = Sin(s) t = Mul(h, x) }>"
    ),
    Call(
        "y, z = Scan <num_scan_inputs = 1, "
        "body = once (double[B] a, double[B] b) => (double[B] c, double[B] d) { c = Mul(a, b) d = Exp(c) }> (s, x)",
        {"x": (2, 3), "s": (3,)},
    ),
    Call(
        "n = Constant<value = int64 {2}> () y = Loop (n, , x) <body = once (int64 i, bool go, s) => (on, t)"
        " { on = Identity(go) p = Mul(s, s) t = Concat<axis = 0> (s, p) }>"
    ),
    *[
        Call(
            f"y = {name}<hidden_size = 2> (x, w, r, b)",
            {"x": (3, 2, 2), "w": (1, gates * 2, 2), "r": (1, gates * 2, 2), "b": (1, gates * 4)},
            (-1, 1),
            kind="float",
        )
        for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    ],
    Call('y = Einsum<equation = "bij,bjk->ik"> (x, z)', {"x": (2, 3, 4), "z": (2, 4, 2)}),
    Call("y = LRN<size = 3, alpha = 0.5> (x)", {"x": (1, 4, 2, 2)}, kind="float"),
    Call("y = DepthToSpace<blocksize = 2> (x)", {"x": (1, 8, 2, 3)}),
    Call(
        'f = Constant<value = float[4] {1, 1, 2, 1.5}> () y = Resize<mode = "linear"> (x, , f)',
        {"x": (1, 2, 3, 4)},
        kind="float",
    ),
    Call(
        'f = Constant<value = float[4] {1, 1, 2, 1.5}> () y = Resize<mode = "cubic"> (x, , f)',
        {"x": (1, 2, 3, 4)},
        kind="float",
    ),
    Call(
        'y = GridSample<mode = "cubic", padding_mode = "reflection"> (x, grid)', {"x": (1, 2, 4, 5), "grid": (1, 2, 3, 2)}
    ),
    Call("y = GridSample(x, grid)", {"x": (2, 2, 3, 4, 3), "grid": (2, 2, 1, 2, 3)}),
    Call(
        "y = DeformConv<pads = [0, 1, 0, 0]> (x, w, offset, b, mask)",
        {"x": (2, 3, 4, 3), "w": (2, 3, 2, 2), "offset": (2, 8, 3, 3), "b": (2,), "mask": (2, 4, 3, 3)},
    ),
    Call("a = Constant<value_int = 1> () y = DFT<onesided = 1> (x, , a)", {"x": (2, 5, 1)}),
    Call("s = Constant<value_int = 3> () y = STFT(x, s, w)", {"x": (2, 17, 1), "w": (8,)}),
    Call(f"{_INDICES} y = RoiAlign<output_height = 3, output_width = 2> (x, boxes, i)", _MAP),
    *[
        Call(
            f"{_INDICES} y = ai.onnx.contrib.{name}<output_height = 2, output_width = 3, sampling_ratio = 2>"
            " (x, boxes, i)",
            _MAP,
        )
        for name in ("RoiAlign_16", "RoiAlign_22")
    ],
    Call(
        f"{_INDICES} y = ai.onnx.contrib.RoiAlign_10<output_height = 3, output_width = 2, spatial_scale = 0.5>"
        " (x, boxes, i)",
        _MAP,
    ),
    Call(
        f"{_INDICES} y = ai.onnx.contrib.DmlRoiAlign<output_height = 3, output_width = 2,"
        " out_of_bounds_input_value = 2.0, align_regions_to_corners = 1> (x, boxes, i)",
        _MAP,
    ),
    Call(
        f"{_INDICES} y = ai.onnx.contrib.RoIAlignRotated<output_height = 3, output_width = 2, spatial_scale = 8.0>"
        " (x, rotated, i)",
        {"x": _MAP["x"], "rotated": (3, 5)},
    ),
    Call("y = ai.onnx.contrib.DmlResample<scales = [1.0, 2.5]> (x)", {"x": (2, 5)}),
    Call('y = ai.onnx.contrib.DmlResample<interpolation_mode = "nearest_neighbor", scales = [0.5]> (x)', {"x": (7,)}),
]  # fmt: skip

# SPDX-License-Identifier: MIT
"""Samples of operators whose derivatives are compared with finite differences: forward, in reverse and twice."""

from __future__ import annotations

import re
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import onnx

from gradient_checks import IS_OLD, Call

of_rank = partial(Call, opened="any")
"""Of an operator whose rule takes tensors of unknown rank."""

BOTH = (-0.75, 0.75)


def booleans(*values: object) -> Any:
    return np.array(values, bool)


def nodes(operator: str, attributes: dict[str, Any] | str = "", inputs: str = "x") -> str:
    """A call with attributes."""
    if not isinstance(attributes, str):
        attributes = ", ".join(f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in attributes.items())
    return f"{operator}<{attributes}>({inputs})" if attributes else f"{operator}({inputs})"


BROADCAST: list[dict[str, Any]] = [
    {"a": (3,), "b": (2, 3)}, {"a": (2, 1, 4), "b": (3, 1)}, {"a": (), "b": (2, 2)}, {"a": (1, 1), "b": (2, 0)},
]  # fmt: skip

ELEMENTWISE = [
    *(
        of_rank(f"{name}(a, b)", shapes)
        for shapes in BROADCAST for name in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min")
    ),
    *(of_rank(f"{name}(x)", {"x": shape}) for name in ("Exp", "Sqrt", "Sigmoid", "Softmax") for shape in ((2, 3, 4),
        (0, 2))),
    *(of_rank(f"{name}(x)", {"x": ()}) for name in ("Neg", "Log", "Abs", "Relu", "Reciprocal")),
    *(
        of_rank(call, {"x": (3, 5)}, (-3.9, 3.9))
        for call in (
            "LeakyRelu<alpha=0.25>(x)", "ThresholdedRelu<alpha=0.0>(x)", "Elu<alpha=0.5>(x)", "Celu<alpha=2.0>(x)",
            "Selu<alpha=1.5, gamma=2.0>(x)", "HardSigmoid<alpha=0.5, beta=0.25>(x)", 'Gelu<approximate="tanh">(x)',
            "Shrink<lambd=2.5, bias=0.25>(x)", "Mish(x)", "Softplus(x)",
        )
    ),
    *(of_rank(f"{name}(x)", {"x": (3, 5)}, (-0.8, 0.8)) for name in ("Atanh", "Acos", "Tan",
        "Cosh")),
    *(Call(f"{name}<axis={axis}>(x)", {"x": (2, 3, 4)}) for name in ("Softmax", "LogSoftmax") for axis in (0, -2)),
    *(
        of_rank("PRelu(a, b)", {"a": a, "b": b}, BOTH)
        for a, b in (((2, 3, 4), (3, 1)), ((2, 3), (1,)), ((0, 2), (2,)), ((4,), ()))
    ),
    *(of_rank(f"{name}(b, a, c, a)", {"a": (2, 3), "b": (3,), "c": (2, 1)}) for name in ("Max", "Min", "Sum")),
    *(
        of_rank(f"{name}(x)")
        for name in ("Sin", "Cos", "Tanh", "Asin", "Atan", "Sinh", "Asinh", "Erf", "Softsign", "HardSwish")
    ),
    of_rank("Acosh(x)", ends=(1.5, 2.5)),
    of_rank("Swish<alpha=1.5>(x)", {"x": (3, 5)}, (-3.9, 3.9), opset=24, needs_new=True),
    of_rank("Mean(b, a, c, a)", {"a": (2, 3), "b": (3,), "c": (2, 1)}),
    *(of_rank(f"{name}(a)", {"a": (2, 3)}) for name in ("Max", "Sum")),
    of_rank("Pow(x, i)", {"x": (3,), "i": np.array([3], np.int32)}),
    *(
        of_rank(f"Clip({of})", {"x": shape, "low": (), "high": ()}, BOTH)
        for of in ("x, low, high", "x, high, low", "x, low", "x, , high", "x")
        for shape in ((3, 4), ())
    ),
    *(
        of_rank("Where(c, a, b)", {"c": np.random.default_rng(7).uniform(size=c) > 0.5, "a": a, "b": b})
        for c, a, b in (((2, 3), (2, 3), (2, 3)), ((2, 1), (3,), ()), ((3,), (2, 1), (1, 3)), ((0, 1), (1, 2), (2,)))
    ),
]  # fmt: skip

REDUCTIONS = [
    *(
        of_rank(nodes(operator, {"keepdims": keepdims, "noop_with_empty_axes": noop}, inputs), {"x": shape, **axes},
            (0.2, 1))
        for operator in (
            "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare",
                "ReduceLogSum",
            "ReduceLogSumExp", "ReduceProd",
        )
        for inputs, shape, axes, keepdims, noop in (
            ("x, axes", (2, 3, 4), {"axes": [-1, 0]}, 0, 0), ("x, axes", (2, 3, 4), {"axes": [1]}, 1, 0), ("x", (2,
                3), {}, 0, 0),
            ("x, axes", (2, 3), {"axes": []}, 1, 0), ("x, axes", (2, 3), {"axes": []}, 0, 1), ("x", (), {}, 1, 0),
        )
    ),
]  # fmt: skip

ADDED: list[dict[str, Any]] = [{}, {"c": ()}, {"c": (2, 1)}, {"c": (1, 4)}]

PRODUCTS = [
    # ONNX Runtime fuses a Gemm and a Sum of two, and fails if a factor is the third output of a node.
    Call("o, p, q, r = Split<axis = 1, num_outputs = 4>(x) s = MatMul(q, w) t = MatMul(r, w) y = Mul(s, t)",
         {"x": (3, 12), "w": (3, 5)}),
    *(
        Call("MatMul(a, b)", {"a": a, "b": b}, needs_new=not min(a))
        for a, b in (
            ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((5, 2, 3), (3,)),
            ((5, 2, 3), (3, 4)), ((3,), (5, 3, 2)), ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)),
            ((4, 1, 2, 3), (5, 3, 4)), ((1, 3, 3, 3), (3, 1, 3, 3)), ((0, 2, 3), (1, 3, 4)), ((2, 0), (0, 4)),
        )
    ),
    *(
        Call(f"Gemm<alpha = 0.5, beta = -1.5, transA = {i}, transB = {j}>({', '.join(c)})", c)
        for (i, j), last in zip(product((0, 1), (0, 1)), ADDED, strict=True)
        for c in ({"a": (3, 2) if i else (2, 3), "b": (4, 3) if j else (3, 4), **last},)
    ),
    Call("Gemm(a, b, c)", {"a": (2, 3), "b": (3, 4), "c": (4,)}),
    *(Call("Det(x)", {"x": shape}, (-1, 1), opened="last") for shape in ((2, 3, 3), (1, 1), (2, 1, 4, 4))),
    *(
        Call(f"turned = Transpose<perm = {perm}>(w) y = MatMul(a, turned)", {"a": (2, 3, 4), "w": w})
        for perm, w in (([1, 0], (5, 4)), ([0, 1], (4, 5)))
    ),
]  # fmt: skip

EQUATIONS: dict[str, list[tuple[int, ...]]] = {
    # One operand: turned, summed, its diagonal, its trace.
    "ij->ji": [(2, 3)], "ij->": [(2, 3)], "ba": [(2, 3)], "iij->j": [(3, 3, 2)], "iii->i": [(3, 3, 3)],
    "ijji->j": [(2, 3, 3, 2)], "...ii->...i": [(2, 3, 3)],
    # Two and more.
    "i,j": [(3,), (2,)], " i j , j k -> i k ": [(2, 3), (3, 4)], "aB,Bc->ca": [(2, 3), (3, 4)],
    "ij,jk->k": [(2, 3), (3, 4)], "ii,ij->j": [(3, 3), (3, 2)], "...ij,...jk": [(2, 1, 2, 3), (2, 3, 3, 2)],
    "i...,i...->...i": [(3, 2), (3, 1)], "i,ij,j->": [(2,), (2, 3), (3,)], ",ij->ij": [(), (2, 3)],
}  # fmt: skip

EINSUMS = [
    Call('Einsum<equation = "ij,jk->ik">(x, x)', {"x": (3, 3)}),
    *(
        Call(
            f'Einsum<equation = "{equation}">({", ".join("abc"[: len(shapes)])})',
            dict(zip("abc", shapes, strict=False)),
        )
        for equation, shapes in EQUATIONS.items()
    ),
]

MOVEMENT = [
    *(
        # ONNX Runtime moves the Transpose of the gradient past the Pad, and takes pads of some axes for those of the first.
        Call(f"turned = Transpose<perm = [2, 0, 1]>(x) p = {part} y = Mul(p, p)", {"x": (3, 4, 5), **given})
        for part, given in (
            ("Gather<axis = 1>(turned, i)", {"i": np.array(1)}), ("Slice(turned, i, k, i)", {"i": [1], "k": [2]}),
        )
    ),
    of_rank("Concat<axis = -1>(x, z, x)", {"x": (2, 3), "z": (2, 5)}),
    of_rank("Concat<axis = 1>(x, z, x)", {"x": (2, 0, 4), "z": (2, 2, 4)}),
    of_rank("p, q, r = Split<axis = 1, num_outputs = 3>(x) s = Sin(p) y = Concat<axis = 1>(r, s)", {"x": (2, 7)}),
    of_rank("p, q, r = Split<axis = -1>(x, n) s = Sin(p) y = Concat<axis = 1>(r, q, s)", {"x": (2, 7), "n": [3, 0, 4]}),
    *(
        of_rank(f"Slice({', '.join(['x', *given])})", {"x": (4, 5), **given})
        for given in (
            {"b": [1], "e": [3]}, {"b": [-1, 0], "e": [-100, 5], "a": [-1, 0], "s": [-2, 2]},
            {"b": [3], "e": [1], "a": [1]}, {"b": [-3, 2**31], "e": [2**31, 1], "a": [-1, 0], "s": [1, 1]},
            {name: np.array([n], np.int32) for name, n in (("b", 1), ("e", 3), ("a", -1))},
        )
    ),
    of_rank("Slice(x, b, e, , s)", {"x": (4, 5), "b": [1, 4], "e": [4, 0], "s": [2, -3]}),
    *(
        of_rank(f"Gather<axis = {axis}>(x, i)", {"x": x, "i": i})
        for x, i, axis in (
            ((4, 3), [0, 2, 2, -1], 0), ((4, 3), np.array([[0, -3], [1, 1]], np.int32), 1),
            ((4, 3, 2), np.array(-2), -1), ((4, 3), [], 1),
        )
    ),
    of_rank("GatherElements<axis = 0>(x, i)", {"x": (4, 3), "i": [[0, -1, 2], [2, 2, -4]]}),
    of_rank("GatherElements<axis = -1>(x, i)", {"x": (4, 3), "i": np.array([[0, 0]], np.int32)}),
    *(
        of_rank(f"GatherND<batch_dims = {batch}>(x, i)", {"x": x, "i": i})
        for x, i, batch in (
            ((4, 3), [[0, 1], [-1, 2], [0, 1]], 0), ((4, 3, 2), [[[1], [-1]]], 0),
            ((2, 3, 4), [[[1], [3], [1]], [[0], [0], [-1]]], 2),
        )
    ),
    of_rank("Compress(x, c)", {"x": (4, 3), "c": booleans(1, 0, 1, 1)}),
    of_rank("Compress<axis = -2>(x, c)", {"x": (4, 3), "c": booleans(1, 0, 1, 1)}),
    *(
        of_rank(call, {"x": x, "n": n})
        for call, x, n in (
            ("Reshape(x, n)", (2, 6), [0, 2, 3]), ("Reshape<allowzero = 1>(x, n)", (0, 6), [3, 0]),
            ("Squeeze(x, n)", (1, 3, 1), [0, -1]), ("Unsqueeze(x, n)", (2, 3), [-1, 0]),
            ("Expand(x, n)", (3, 1), [2, 1, 4]), ("Expand(x, n)", (), [2, 2]), ("Expand(x, n)", (1, 3), [0, 3]),
            ("Tile(x, n)", (2, 1, 3), [1, 4, 1]), ("Tile(x, n)", (2, 2), [0, 2]),
            ("Trilu(x, n)", (2, 3, 4), np.array(1)), ("ReverseSequence(x, n)", (4, 3, 2), [1, 4, 2]),
            ("ReverseSequence<batch_axis = 0, time_axis = 1>(x, n)", (3, 4), [1, 4, 2]),
            ("CumSum<exclusive = 1, reverse = 1>(x, n)", (3, 4), np.array(-2)),
        )
    ),
    *(
        of_rank(call, {"x": x})
        for call, x in (
            ("Flatten<axis = -1>(x)", (2, 3, 4)), ("Flatten<axis = 0>(x)", (2, 0, 4)), ("Squeeze(x)", (1, 3, 1)),
            ("Transpose<perm = [1, 2, 0]>(x)", (2, 3, 4)), ("Transpose(x)", ()), ("Trilu<upper = 0>(x)", (3, 3)),
            ("Dropout(x)", (2, 3)), ("SpaceToDepth<blocksize = 2>(x)", (2, 3, 4, 6)),
            ('DepthToSpace<blocksize = 2, mode = "CRD">(x)', (2, 12, 2, 3)),
            ("DepthToSpace<blocksize = 2>(x)", (0, 4, 2, 2)),
        )
    ),
    *(
        of_rank(f'Pad<mode = "{mode}">({", ".join(["x", "p", *([] if axes is None else ["", "a"])])})',
                {"x": (4, 5), "p": pads} | ({} if axes is None else {"a": axes}))
        for mode in ("constant", "reflect", "edge", "wrap")
        for pads, axes in (([-1, 2, 1, -2], None), ([0, -1, -2, -1], [1, 0]))
    ),
    of_rank("Pad(x, p, value, a)", {"x": (4, 4), "p": [3, -2], "value": (), "a": [0]}),
    of_rank("Pad(x, p, value)", {"x": (0, 2), "p": [2, 0, 0, 1], "value": ()}),
    of_rank("y, i = TopK<axis = -2, largest = 0, sorted = 0>(x, k)", {"x": (3, 4), "k": [2]}),
    *(
        of_rank(f'{call}<{more}reduction = "{reduction}">(x, i, u)', {"x": (3, 4), "i": i, "u": u}, BOTH)
        for reduction in ("none", "add", "mul", "min", "max")
        for call, more, i, u in (
            ("ScatterElements", "axis = 1, ", [[0, -1], [1, 2]], (2, 2)), ("ScatterND", "", [[0], [-1]], (2, 4)),
            *((
                ("ScatterElements", "", [[0, -1, 1, 2], [0, 2, 1, 2]], (2, 4)),
                ("ScatterND", "", [[0, 1], [2, -1], [-3, 1]], (3,)),
            ) if reduction != "none" else ()),  # with indices that occur several times
        )
    ),
    *(of_rank(f"{y} = Unique<{more}>(x)", {"x": (3, 4)}) for y, more in (("y", "sorted = 1"), ("y, i, j, n", "axis = -1"))),
    *(
        of_rank(f'TensorScatter<mode = "{mode}", axis = {axis}>({", ".join(["x", "u", *i])})',
                {"x": (2, 5, 3), "u": u, **i}, opset=24, needs_new=True)
        for mode, axis, u, i in (("circular", -2, (2, 5, 3), {"i": [0, 3]}), ("linear", -1, (2, 5, 2), {}))
    ),
    *(
        of_rank(f"z = Mul(x, w) y = CumProd<exclusive = {exclusive}, reverse = {reverse}>(z, i)",
                {"x": (3, 4), "w": zeros, "i": np.array(axis)}, opset=26, needs_new=True)
        for exclusive, reverse, axis in ((0, 0, 0), (1, 1, -1))
        for zeros in (np.array([[0.0, 1, 1, 1], [1, 0, 1, 1], [1, 0, 0, 1]]), np.ones((3, 4)))
    ),
    Call("OneHot<axis = 0>(i, d, x)", {"x": (2,), "i": [0, 3, -1], "d": [4]}),
]  # fmt: skip

POOL = {1: (2, 3, 9), 2: (2, 3, 7, 8), 3: (1, 2, 5, 6, 7)}
POOLS: list[dict[str, Any]] = [
    {"kernel_shape": [2], "strides": [2], "pads": [1, 0]},
    {"kernel_shape": [1, 1], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 4], "strides": [3, 1], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 3], "dilations": [2, 3], "strides": [2, 2], "pads": [1, 2, 0, 1]},
    {"kernel_shape": [2, 3, 2], "strides": [2, 2, 3], "pads": [1, 1, 0, 0, 1, 1], "ceil_mode": 1},
]
POOLED = np.array(
    [[0, 0, 0, 5, 4], [1, 2, 1, 6, 6], [1, 3, 3, 3, 3], [0, 6, 5, 9, 9], [0, 1.4, 0.6, 4.2, 5.5], [1, 20, 20, 30, 30]],
    np.float32,
)
"""RoIs of a map of 6 x 7 pixels, of which some reach beyond it."""

POOLING = [
    Call("y, i = MaxPool<kernel_shape = [2, 2]>(x)", {"x": POOL[2]}),
    *(
        Call(f"{y} = {nodes('MaxPool', pool | more)}", {"x": POOL[len(pool["kernel_shape"])]}, opset=opset,
            needs_new="ceil_mode" in pool)
        for pool in POOLS
        for y, more, opset in (("y", {}, 22), ("y, i", {"storage_order": 1}, 22 if "ceil_mode" in pool else 18))
    ),
    *(
        Call(nodes("AveragePool", pool | {"count_include_pad": i}), {"x": POOL[len(pool["kernel_shape"])]},
            opset=22 if i or "ceil_mode" in pool else 19,
               needs_new="ceil_mode" in pool)
        for pool in POOLS
        for i in (0, 1)
    ),
    *(
        Call(nodes("LpPool", one | {"p": i % 3 + 1}), {"x": POOL[len(one["kernel_shape"])]}, (0.2, 2), opset=22,
            needs_new=True)
        for i, one in enumerate(POOLS)
    ),
    *(Call(f"GlobalLpPool<p = {p}>(x)", {"x": POOL[2]}, (0.2, 2)) for p in (1, 3)),
    *(Call("GlobalAveragePool(x)", {"x": x}) for x in (POOL[1], POOL[3])),
    Call("GlobalMaxPool(x)", {"x": (1, 2, 3, 4)}),
    *(
        Call(f"{name}<pooled_shape = [2, 3], spatial_scale = 0.5>(x, r)", {"x": (2, 3, 6, 7), "r": POOLED}, (-2, 10))
        for name in ("MaxRoiPool", "ai.onnx.contrib.MaxRoiPool_1", "ai.onnx.contrib.MaxRoiPool_22")
    ),
    Call("ai.onnx.contrib.MaxRoiPoolGrad<spatial_scale = 0.5>(dy, x, r)",
         {"dy": (6, 3, 2, 3), "x": (2, 3, 6, 7), "r": POOLED}),
    Call("LRN<size = 5, alpha = 0.5, beta = 2.5, bias = 0.7>(x)", {"x": (2, 6, 3, 4)}, (-2, 2)),
    *(
        Call(nodes("MaxUnpool", "kernel_shape = [2, 2], strides = [2, 2]", "x, i" + ", n" * bool(n)),
               {"x": (2, 3, 3, 3), "i": np.random.default_rng(1).permutation(216)[:54].reshape(2, 3, 3, 3), **n},
                   needs_new=True)
        for n in ({}, {"n": [2, 3, 7, 6]}, {"n": [2, 3, 6, 9]})
    ),
    *(
        Call(nodes(operator, more), {"x": (0, 3, 4, 5)}, needs_new=True)
        for operator, more in (("MaxPool", "kernel_shape = [2, 2]"), ("AveragePool", "kernel_shape = [2, 2]"),
            ("GlobalMaxPool", ""))
    ),
]  # fmt: skip

CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    # X, W and attributes
    ((2, 3, 9), (4, 3, 2), {"strides": [3], "dilations": [2], "pads": [2, 1]}),
    ((2, 3, 6, 7), (4, 3, 1, 1), {"strides": [3, 2], "pads": [1, 2, 1, 0]}),
    ((2, 3, 7, 10), (4, 3, 3, 2), {"strides": [2, 3], "dilations": [1, 2], "pads": [1, 2, 0, 3]}),
    ((2, 4, 6, 7), (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ((2, 6, 5, 5), (2, 3, 3, 3), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((2, 3, 6, 7), (4, 3, 2, 2), {"auto_pad": "SAME_LOWER", "strides": [3, 4]}),
    ((2, 4, 5, 6, 4), (4, 2, 3, 2, 2), {"group": 2, "auto_pad": "SAME_UPPER"}),
    # a matrix product for each pixel of the kernel
    ((2, 5, 7, 10), (3, 5, 3, 2), {"strides": [2, 3], "dilations": [1, 2], "pads": [1, 2, 0, 3]}),
    ((1, 5, 6, 7), (4, 5, 1, 1), {}),
    ((1, 8, 6, 7), (2, 4, 2, 2), {"group": 2, "auto_pad": "SAME_LOWER"}),
    # a product of rows for each row of the kernel
    ((2, 3, 9), (3, 1, 11), {"group": 3, "pads": [5, 6]}),
    ((1, 3, 9, 8), (3, 1, 3, 3), {"group": 3, "strides": [3, 2], "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    ((2, 2, 9, 8), (2, 1, 3, 2), {"group": 2, "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    ((2, 2, 4, 5, 6), (2, 1, 2, 3, 3), {"group": 2, "pads": [1, 0, 1, 1, 1, 0]}),
]
TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4, 5), (3, 4, 3, 2), {"strides": [1, 2], "dilations": [2, 3], "pads": [0, 2, 1, 0]}),
    ((2, 4, 4, 5), (4, 3, 3, 2), {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ((2, 3, 4, 5), (3, 4, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    ((2, 3, 4, 5), (3, 4, 4, 3), {"output_shape": [7, 9], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((2, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [1, 2, 2], "pads": [0, 1, 0, 1, 0, 1]}),
    # a matrix product for each pixel of the kernel
    ((2, 3, 4, 5), (3, 5, 3, 3), {"strides": [2, 3], "pads": [1, 1, 1, 0], "output_padding": [1, 2]}),
    # a product of rows for each row of the kernel
    ((2, 3, 4, 5), (3, 1, 3, 4), {"group": 3, "strides": [2, 1], "output_padding": [1, 0]}),
    ((2, 3, 4, 5), (3, 1, 3, 2), {"group": 3, "output_shape": [9, 11], "strides": [2, 2]}),
]

CONVOLVING = [
    *(
        Call(nodes(operator, attributes, "x, w" + ", b" * (i % 2)), {"x": x, "w": w} | ({"b": bias} if i % 2 else {}),
            BOTH, opset=22 if i % 2 else 18)
        for operator, rows in (("Conv", CONVOLUTIONS), ("ConvTranspose", TRANSPOSED))
        for i, (x, w, attributes) in enumerate(rows)
        for bias in ((w[0] if operator == "Conv" else w[1] * attributes.get("group", 1),),)
    ),
    *(
        # A session can turn a constant kernel round beforehand.
        Call(nodes(operator, attributes, "x, w"),
            {"x": x, "w": np.random.default_rng(3).uniform(-1, 1, w).astype(np.float32)})
        for operator, rows in (("Conv", CONVOLUTIONS[2::4]), ("ConvTranspose", TRANSPOSED[3:4]))
        for x, w, attributes in rows
    ),
]  # fmt: skip

NORMALIZATIONS = [
    *(
        Call(f"{y} = {nodes('BatchNormalization', more, 'x, s, b, mean, var')}",
             {"x": x, **dict.fromkeys(("s", "b", "mean", "var"), (3,))}, (0.5, 2), needs_new=not x[0])
        for y, more, shapes in (
            ("y", "", ((5, 3), (0, 3, 4, 5))), ("y", "epsilon = 0.25, momentum = 0.5", ((2, 3, 2, 3, 2),)),
            ("y, m, v", "training_mode = 1", ((5, 3), (4, 3, 5))), ("m, y, v", "training_mode = 1, momentum = 0.5",
                ((2, 3, 4, 5),)),
            ("m, v, y", "training_mode = 1, momentum = 0.5", ((2, 3, 4, 5),)),
        )
        for x in shapes
    ),
    *(
        Call(f"LayerNormalization<axis = {axis}, epsilon = 0.01>({', '.join(['x', *more])})",
             {"x": (2, 3, 4, 5), **dict.fromkeys(more, s)}, (0.5, 2), needs_new=s[0] == 1)
        for axis, s, more in ((-1, (5,), "s"), (2, (4, 5), "sb"), (-3, (3, 4, 5), "sb"), (-2, (1, 5), "s"))
    ),
    *(
        Call(f"{y} = LayerNormalization<axis = {axis}, epsilon = 0.01>(x, s, b)", {"x": (2, 3, 5), "s": s, "b": s},
            (0.5, 2))
        for y, axis, s in (("p, y", -1, (5,)), ("p, q, y", 1, (3, 5)))
    ),
    *(
        # With the stash_type that is the default, 1, ONNX Runtime would compute in float.
        Call(f"GroupNormalization<num_groups = {groups}, stash_type = 11, epsilon = 0.01>(x, s, b)", {"x": x,
            "s": (6,), "b": (6,)}, (0.5, 2))
        for x, groups in (((2, 6, 4), 1), ((2, 6, 4, 3), 3), ((2, 6, 4), 6))
    ),
    *(
        # Before opset 21 there is a scale for each group.
        Call(f"GroupNormalization<num_groups = {groups}, epsilon = 0.01>(x, s, b)", {"x": x, "s": (groups,),
            "b": (groups,)}, (0.5, 2), opset=18)
        for x, groups in (((2, 6, 4), 2), ((2, 6, 4, 3), 6))
    ),
    *(Call(f"LpNormalization<axis = {axis}, p = {p}>(x)", {"x": (3, 4, 2)}, BOTH) for axis, p in ((-1, 1), (0, 2))),
    *(Call(nodes("MeanVarianceNormalization", more), {"x": (3, 4, 2, 2)}, (-1, 1)) for more in ("", "axes = [0, 2]")),
    Call("RMSNormalization<axis = 1>(x, s)", {"x": (2, 3, 5), "s": (3, 5)}, (0.5, 2), opset=23),
    Call("InstanceNormalization<epsilon = 0.01>(x, s, b)", {"x": (2, 3, 2, 3, 2), "s": (3,), "b": (3,)}, (0.5, 2)),
]  # fmt: skip

LOSSES = [
    Call(
        nodes(operator, {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored}),
            "x, t" + ", w" * weighted),
        {"x": (5, 4, *places), "t": np.where(np.arange(5 * int(np.prod(places))) % 3 == 0, ignored or 0, 2).reshape(5,
            *places)}
        | ({"w": (4,)} if weighted else {}),
        (0.5, 2),
        opset=18,
    )
    for i, (reduction, weighted, ignored) in enumerate(product(("none", "sum", "mean"), (0, 1), (None, 1, -100)))
    for operator in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    for places in (((), (3,), (2, 3))[i % 3],)
] + [
    Call(f'{y} = SoftmaxCrossEntropyLoss<reduction = "{reduction}", ignore_index = 7>(x, t, w){more}',
         {"x": (3, 4, 2), "t": [[0, 3], [7, 1], [1, 1]], "w": (4,)}, opset=18)
    for y, more in (("p, y", ""), ("p, q", " s = Sin(q) l = ReduceSum<keepdims = 0>(s) y = Mul(l, p)"))
    for reduction in ("none", "mean")
]  # fmt: skip

SAMPLING = [
    *(
        Call(nodes("GridSample", {"mode": mode, "padding_mode": padding, "align_corners": align}, "x, grid"),
             {"x": x, "grid": (x[0], *points, len(x) - 2)}, (-1.9, 1.9), opset=20)
        for (mode, x, points), padding, align in zip(
            [("linear", (2, 3, 4, 5), (2, 6)), ("cubic", (2, 3, 4, 5), (2, 6)), ("linear", (2, 2, 3, 4, 2), (2, 3, 2)),
             ("linear", (1, 2, 1, 5), (3, 2)), ("cubic", (1, 2, 3, 1), (3, 2)), ("cubic", (2, 3, 4, 5), (2, 6)),
             ("linear", (2, 3, 4, 5), (2, 6)), ("linear", (2, 2, 3, 4, 2), (2, 3, 2))],
            ["zeros", "border", "reflection", "zeros", "border", "reflection", "reflection", "zeros"], [0, 1, 0, 1, 0,
                1, 1, 1], strict=True)
    ),
    *(
        Call(f'GridSample<mode = "{mode}", padding_mode = "border">(x, grid)', {"x": (2, 3, 4, 5), "grid": (2, 2, 6,
            2)}, (-0.9, 0.9), opset=18)
        for mode in ("bilinear", "bicubic")
    ),
    Call("GridSample(x, grid)", {"x": (0, 3, 4, 5), "grid": (0, 2, 2, 2)}, opset=20, needs_new=True),
    Call("GridSample(x, grid)", {"x": (1, 3, 4, 5), "grid": (1, 0, 2, 2)}, opset=20, needs_new=True),
    Call("DFT<onesided = 1>(x, n, a)", {"x": (2, 5, 3, 1), "n": np.array(4), "a": np.array(1)}, opset=20),
    *(
        Call(nodes("DeformConv", more, "x, w, o, b, m"), shapes, BOTH, opset=opset, needs_new=opset > 21)
        for more, shapes, opset in (
            ({"pads": [1, 0, 1, 1], "strides": [2, 1]},
             {"x": (2, 4, 5, 4), "w": (4, 4, 3, 2), "o": (2, 12, 3, 4), "b": (4,), "m": (2, 6, 3, 4)}, 19),
            ({"group": 2, "offset_group": 2, "dilations": [1, 2]},
             {"x": (1, 4, 5, 5), "w": (2, 2, 2, 2), "o": (1, 16, 4, 3), "b": (2,), "m": (1, 8, 4, 3)}, 22),
        )
    ),
    *(
        Call(f"AffineGrid<align_corners = {align}>(x, n)", {"x": (2, len(n) - 2, len(n) - 1), "n": n}, opset=20)
        for n, align in (([2, 3, 4, 5], 0), ([2, 3, 1, 5], 1), ([2, 3, 2, 3, 4], 1))
    ),
    *(
        Call(nodes("DFT", more, f"x, {'n' * (length is not None)}, a"),
            {"x": x} | ({} if length is None else {"n": np.array(length)})
             | {"a": np.array(axis)}, BOTH, opset=20, opened="last")
        for x, axis, length, more in (
            ((2, 7, 3, 1), 1, None, ""), ((2, 7, 3, 2), 1, None, "inverse = 1"), ((2, 8, 3, 2), 1, 5, ""),
            ((2, 5, 3, 1), 1, 9, "inverse = 1"), ((2, 3, 8, 1), 2, None, "onesided = 1"), ((2, 3, 7, 1), -2, 6,
                "onesided = 1"),
            ((2, 3, 7, 1), 2, 9, "onesided = 1"), ((2, 3, 5, 2), 2, 8, "onesided = 1, inverse = 1"),
            *(((2, 5, 3, 2), 1, length, "onesided = 1, inverse = 1") for length in (3, 7, 12)),
        )
    ),
    *(
        Call(nodes("DFT", more, "x, n"), {"x": x, "n": np.array(6)}, BOTH, opset=18,
            opened="last")
        for x, more in (((2, 7, 3, 1), "axis = 1"), ((2, 3, 7, 1), "axis = 2, onesided = 1"))
    ),
    *(
        Call(nodes("STFT", more, f"x, s, {'w' * ('w' in shapes)}" + ", n" * ("n" in shapes)), {"s": np.array(3),
            **shapes}, BOTH, opened="last")
        for shapes, more in (
            ({"x": (2, 23, 1), "w": (7,), "n": np.array(7)}, "onesided = 1"), ({"x": (2, 23, 1), "n": np.array(8)},
                "onesided = 1"),
            ({"x": (2, 23, 2), "w": (6,), "n": np.array(6)}, "onesided = 0"),
        )
    ),
    *(
        Call(nodes("Col2Im", more, "x, image, block"), {"x": x, "image": image, "block": block}, opset=18)
        for x, image, block, more in (
            ((2, 12, 4), [5, 5], [2, 2], "strides = [3, 3]"), ((1, 6, 20), [5, 4], [2, 3],
                "pads = [1, 0, 0, 2], strides = [1, 1]"),
            ((1, 6, 12), [7, 8], [2, 3], "dilations = [3, 2], strides = [1, 1], pads = [0, 0, 0, -1]"), ((2, 6, 3),
                [8], [3], "strides = [2]"),
        )
    ),
    *(
        Call(nodes("CenterCropPad", more, "x, n"), {"x": (4, 6, 5), "n": n}, needs_new=True)
        for n, more in (([3, 9, 6], ""), ([8, 3], "axes = [-1, 0]"), ([6, 5], "axes = [1, 2]"), ([1], "axes = [1]"))
    ),
]  # fmt: skip

CROPPED = 'coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 3.0'


def scales(*given: float) -> dict[str, Any]:
    return {"s": np.array(given, np.float32)}


def sizes(*given: int) -> dict[str, Any]:
    return {"n": np.array(given)}


def resize(
    attributes: str, given: dict[str, Any], x: tuple[int, ...] = (2, 3, 4, 6), opset: int = 19, opened: str = "names"
) -> Call:
    """A Resize by roi (r), scales (s) or sizes (n)."""
    inputs = ", ".join(["x", "r" * ("r" in given), "s" * ("s" in given), *(["n"] if "n" in given else [])])
    return Call(nodes("Resize", attributes, inputs), {"x": x, **given}, opset=opset, opened=opened, needs_new=True)


def region(*given: float) -> dict[str, Any]:
    return {"r": np.array(given, np.float32)}


GIVEN = [
    scales(1, 1, 2, 0.55),
    sizes(2, 3, 8, 3),
    sizes(2, 3, 1, 7),
    scales(1, 1, 1.5, 3),
    scales(1, 1, 2.6, 0.6),
    scales(1, 1, 1.2, 1.1),
]

RESIZING = [
    *(
        resize(f'{mode}, coordinate_transformation_mode = "{coordinates}"', GIVEN[(i + 2 * j) % 6],
               opset=18 if (i + j) % 2 and i < 4 else 19)
        for i, coordinates in enumerate(
            ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")
        )
        for j, mode in enumerate(
            ('mode = "linear"', *(f'mode = "nearest", nearest_mode = "{rounding}"' for rounding in (
                "round_prefer_floor", "floor", "ceil", "round_prefer_ceil")))
        )
    ),
    resize('mode = "linear", coordinate_transformation_mode = "align_corners", axes = [2, 3]', sizes(3, 7)),
    *(
        resize(f'mode = "linear", axes = [2, 3], keep_aspect_ratio_policy = "{policy}"', sizes(7, 8), opened="lengths")
        for policy in ("not_larger", "not_smaller")
    ),
    resize('mode = "linear", axes = [3, 2]', scales(2, 0.5), opened="last"),
    # growth by integers
    *(
        resize(f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}"', scales(*growth), x)
        for mode, coordinates, growth, x in (
            ("linear", "half_pixel", (1, 1, 3, 4), (2, 3, 3, 1)), ("linear", "align_corners", (1, 1, 1, 5), (2, 1, 1, 2)),
            ("nearest", "half_pixel_symmetric", (1, 2, 1, 3), (1, 2, 2, 3)), ("nearest", "asymmetric", (4,), (3,)),
            ("nearest", "tf_half_pixel_for_nn", (1, 2, 1, 2, 2), (2, 1, 1, 1, 2)),
        )
    ),
    # by matrices
    resize('mode = "cubic"', scales(1, 1, 2, 0.6)),
    resize('mode = "cubic", cubic_coeff_a = -0.5, exclude_outside = 1', sizes(2, 3, 3, 9)),
    resize('mode = "linear", antialias = 1', scales(1, 1, 0.5, 0.6)),
    resize('mode = "cubic", antialias = 1', sizes(2, 3, 2, 7)),
    resize(f'mode = "linear", {CROPPED}', region(0, 0, -0.2, 0.9, 1, 1, 0.75, 0.3) | sizes(2, 3, 5, 5)),
    resize(f'mode = "cubic", {CROPPED}', region(0, 0, 0.2, 0.1, 1, 1, 0.8, 1.1) | scales(1, 1, 1.5, 1)),
    resize(f'mode = "nearest", {CROPPED}, axes = [3, 2]', region(0.3, 0.1, 1.2, 0.9) | sizes(5, 4)),
    resize('mode = "linear"', scales(1, 1, 2, 0.5, 1.5), (1, 2, 3, 4, 5)),
    resize('mode = "cubic"', scales(1, 1, 2, 2), (0, 3, 4, 6)),
    # A runtime copies what keeps its shape.
    resize('mode = "cubic"', scales(1, 1, 1.2, 1.1)),
    resize(f'mode = "linear", {CROPPED}', region(0, 0, 0.2, 0.1, 1, 1, 0.8, 0.7) | sizes(2, 3, 4, 6)),
]  # fmt: skip

MAP: dict[str, Any] = {"x": (2, 3, 8, 9)}
SIZES = "output_height = 3, output_width = 2"
ATTENTION: dict[str, Any] = {
    "v": (1, 8, 2, 2), "s": [[2, 3], [1, 2]], "first": [0, 6], "l": (1, 3, 2, 2, 2, 2), "w": (1, 3, 2, 2, 2)
}  # fmt: skip
"""The inputs of MSDeformAttn."""

REGIONS = [
    *(
        Call(f"ai.onnx.contrib.{operator}<{SIZES}{more}>(x, {rois}, i)", MAP | {rois: (3, len_of), "i": [0, 1, 1]},
            (-1, 1))
        for operator, rois, len_of, options in (
            ("RoiAlign_10", "boxes", 4, ("", 'mode = "max_interpolated"')),
            ("RoiAlign_16", "boxes", 4, ('coordinate_transformation_mode = "output_half_pixel", spatial_scale = 0.5',)),
            ("RoiAlign_22", "boxes", 4, ('mode = "max", sampling_ratio = 2', 'mode = "max_interpolated"')),
            ("DmlRoiAlign", "boxes", 4, (
                'reduction_function = "max", minimum_samples_per_output = 2',
                    "input_pixel_offset = 0.0, output_pixel_offset = 0.25",
                'interpolation_mode = "nearest_neighbor", spatial_scale_x = 0.5, spatial_scale_y = 1.5',
            )),
            ("RoIAlignRotated", "rotated", 5, (
                "sampling_ratio = 2, spatial_scale = 6.0", "aligned = 0, spatial_scale = 4.0",
                    "clockwise = 1, spatial_scale = 8.0",
            )),
        )
        for option in options
        for more in (f", {option}" if option else "",)
    ),
    *(
        Call(f"ai.onnx.contrib.PSRoIAlign<{SIZES}{more}>(x, boxes, i)",
            {"x": (2, 12, 8, 9), "boxes": (3, 4), "i": [0, 1, 1]}, (-1, 1))
        for more in ("", ", sampling_ratio = 2, spatial_scale = 0.5")
    ),
    *(
        Call(f"RoiAlign<{SIZES}{more}>(x, boxes, i)", MAP | {"boxes": (3, 4), "i": [0, 1, 1]}, opset=opset)
        for more, opset in (
            ("", 16), (', mode = "max", sampling_ratio = 2', 18),
                (', coordinate_transformation_mode = "output_half_pixel"', 21),
        )
    ),
    *(
        Call(f"ai.onnx.contrib.MSDeformAttn({inputs})", ATTENTION)
        for inputs in ("v, s, first, l, w", "v, s, , l, w")
    ),
    *(
        Call(f"ai.onnx.contrib.DmlResample<{more}>(x)", {"x": (2, 3, 6, 7)}, (-1, 1))
        for more in (
            "output_sizes = [2, 3, 5, 11]",
                "scales = [1.0, 1.0, 1.7, 0.6], output_pixel_offsets = [-0.5, -0.5, 0.0, 0.125]",
            'scales = [1.0, 1.0, 1.7, 0.6], interpolation_mode = "nearest_neighbor", rounding_direction = "decreasing"',
            "output_sizes = [2, 3, 5, 11], scales = [1.0, 1.0, 2.0, 0.6], input_pixel_offsets = [0.0, 0.0, 0.25, 0.5]",
        )
    ),
]  # fmt: skip


def region_gradient(operator: str, attributes: str = "", *, whole: bool = False, bins: bool = False) -> Call:
    """A gradient over `REGIONS`: y is dX, or `whole`, dX and the gradient of the regions one after the other."""
    rotated, x = operator.startswith("RoIAlignRotated"), (2, 12, 8, 9) if bins else (2, 3, 8, 9)
    rois = "rotated" if rotated else "boxes"
    node = nodes(f"ai.onnx.contrib.{operator}", attributes, f"dy, {rois}, i, n, x")
    lines = f"""line = Constant<value = int64[1] {{-1}}> () d, r = {node} d1 = Reshape(d, line) r1 = Reshape(r, line)
        y = Concat<axis = 0>(d1, r1)"""
    dy = (3, 2, 3, 2) if bins else (3, 3, 3, 2)
    inputs = {"dy": dy, rois: (3, 5 if rotated else 4), "i": [0, 1, 1], "n": list(x), "x": x}
    return Call(lines if whole else node, inputs, (-1, 1))


AVERAGES = [
    ("RoiAlignGrad", 'coordinate_transformation_mode = "output_half_pixel", sampling_ratio = 2'),
    ("DmlRoiAlignGrad", "spatial_scale_x = 0.5"),
    ("DmlRoiAlignGrad", 'interpolation_mode = "nearest_neighbor"'),
    ("DmlRoiAlignGrad", "align_regions_to_corners = 1, minimum_samples_per_output = 2"),
    ("PSRoIAlignGrad", "sampling_ratio = 2"),
    ("RoIAlignRotatedGrad", "aligned = 0, spatial_scale = 6.0, sampling_ratio = 2, clockwise = 1"),
]
GRADIENTS_OF_REGIONS = [
    *(region_gradient(*row, whole=whole, bins="PS" in row[0]) for row in AVERAGES for whole in (False, True)),
    region_gradient("RoiAlignGrad", 'mode = "max"', whole=True),
    region_gradient("DmlRoiAlignGrad", 'reduction_function = "max"', whole=True),
    *(
        Call(f"{outputs} = ai.onnx.contrib.MSDeformAttnGrad(dy, v, s, first, l, w)", {"dy": (1, 3, 4), **ATTENTION})
        for outputs in ("y", ", y", ", , y")
    ),
    *(
        Call(nodes("ai.onnx.contrib.DmlResampleGrad", more, "dy, n"), {"dy": (2, 8), "n": [2, 5]})
        for more in (
            "scales = [1.0, 1.6]",
            'scales = [0.4, 2.0], interpolation_mode = "nearest_neighbor", rounding_direction = "decreasing"',
            "input_pixel_offsets = [0.0, 0.25], output_pixel_offsets = [0.0, -0.75]",
        )
    ),
]
"""Second derivatives of `REGIONS`."""

CONTROL = [
    Call(
        "z = Constant<value = float {0}> () t = ReduceMax<keepdims = 0> (x) c = Greater(t, z) y = If (c) <"
        "then_branch = one () => (float[A,B] p) { p = Mul(x, x) },"
        " else_branch = other () => (float[A,B] q) { q = Neg(x) }>"
    ),
    Call(
        "n = Constant<value = int64 {3}> () c = Constant<value = bool {1}> () y = Loop (n, c, x) <"
        "body = once (int64 i, bool go, float[A,B] s) => (bool on, float[A,B] t)"
        " { on = Identity(go) h = Sin(s) t = Mul(h, x) }>"
    ),
    of_rank(
        "y, z = Scan <num_scan_inputs = 1, "
        "body = once (float[B] a, float[B] b) => (float[B] c, float[B] d) { c = Mul(a, b) d = Exp(c) }> (s, x)",
        {"x": (2, 3), "s": (3,)},
    ),
]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(
    operator: str, attributes: str = "", names: str = "bhcp", lengths: list[int] | None = None, **more: Any
) -> Call:
    """A layer of size 3 on 4 steps of 3 sequences; y has all outputs.

    Args:
        operator: LSTM, GRU or RNN.
        attributes: others than hidden_size.
        names: b for the bias, h and c for initial states, p for peepholes.
        lengths: of the sequences.
        more: fields of the Call.
    """
    d, rows = 2 if "bidirectional" in attributes else 1, 3 * GATES[operator]
    inputs: dict[str, Any] = {"x": (4, 3, 2), "w": (d, rows, 2), "r": (d, rows, 3), "b": (d, 2 * rows)}
    inputs |= {} if lengths is None else {"n": np.array(lengths, np.int32)}
    inputs |= {"h": (d, 3, 3)} | ({"c": (d, 3, 3), "p": (d, 9)} if operator == "LSTM" else {})
    inputs = {name: value for name, value in inputs.items() if name in f"xwrn{names}"}
    given = ", ".join(name if name in inputs else "" for name in ("xwrbnhcp" if operator == "LSTM" else "xwrbnh"))
    outputs = ["o", "oh", "oc"][: 3 if operator == "LSTM" else 2]
    attributes = f"hidden_size = 3, {attributes}" if attributes else "hidden_size = 3"
    flat = " ".join(f"{one}1 = Reshape({one}, line)" for one in outputs)
    return Call(
        f"line = Constant<value = int64[1] {{-1}}> () {', '.join(outputs)} = {nodes(operator, attributes, given)} {flat} "
        f"y = Concat<axis = 0>({', '.join(f'{one}1' for one in outputs)})",
        inputs, (-0.95, 0.95), **more,
    )  # fmt: skip


BOTH_WAYS = 'direction = "bidirectional"'
AT = "p = Constant<value = int64 {{{}}}>() s = SplitToSequence<{}>({}) e = SequenceAt(s, p) y = Mul(e, e)"
EDITED = """none = SequenceEmpty() p = Constant<value = int64 {0}>() s = SequenceInsert(none, a) t = SequenceInsert(s, b, p)
           same = Identity(t) u = SequenceInsert(same, c) v = SequenceErase(u) w = SequenceErase(u, p)
           j = ConcatFromSequence<axis = 0>(v) k = ConcatFromSequence<axis = 0>(w) n = SequenceLength(v)"""
SEQUENCES = [
    *(
        Call(AT.format(place, attributes, "x, n" if sizes else "x"), {"x": (5, 3, 4), **sizes}, opset=opset)
        for opset, place, attributes, sizes in (
            (11, 2, "axis = 0", {}), (13, -1, "axis = -1, keepdims = 0", {}), (12, 1, "axis = 0", {"n": 2}),
            (17, -1, "axis = 0", {"n": 2}), (23, -2, "axis = 0, keepdims = 0", {"n": np.array([1, 3, 1], np.int32)}),
            (21, -1, "axis = -2", {"n": [3]}), (24, -2, "axis = -2", {"n": np.array(1, np.int32)}),
        )
    ),
    *(
        Call(f"s = SplitToSequence<{attributes}>({inputs}) e = SequenceAt(s, i) y = Mul(e, e)",
             {"x": (5, 3), "i": -2} | ({"n": sizes} if sizes else {}))
        for attributes, inputs, sizes in (
            ("axis = 0", "x", 0), ("axis = 1, keepdims = 0", "x", 0), ("axis = 0", "x, n", 2),
            ("axis = 0", "x, n", [2, 2, 1]),
        )
    ),
    Call("p = Constant<value_int = 1>() m = Neg(p) s = SplitToSequence<axis = 1, keepdims = 0>(x) a = SequenceAt(s, p)"
         " b = SequenceAt(s, m) t = SequenceConstruct(a, b, c) d = SequenceAt(t, m) e = Mul(d, b) y = Mul(e, a)",
         {"x": (2, 3), "c": (2,)}),
    *(
        Call(f"s = SplitToSequence<axis = -1, keepdims = {1 - new}>(x) e = ConcatFromSequence<axis = 0, new_axis = {new}>(s)"
             " y = Mul(e, e)", {"x": (2, 2, 3)}, opened="last")
        for new in (0, 1)
    ),
    Call(f"{EDITED} f = CastLike(n, j) g = Mul(j, f) y = Mul(g, k)", {"a": (1, 2), "b": (1, 2), "c": (1, 2)}),
    Call("s = SequenceConstruct(x, w) n = SequenceLength(s) g = Constant<value = bool {1}>() y = Loop (n, g, x) <body = once"
         " (int64 i, bool go, float[A,B] a) => (bool on, float[A,B] b) { on = Identity(go) q = Constant<value_int = -1>()"
         " d = SequenceAt(s, q) t = SplitToSequence<axis = 1>(a) e = SequenceAt(t, i) f = Mul(d, e) b = Add(a, f) }>",
         {"x": (2, 3), "w": (2, 3)}),
]  # fmt: skip

RECURRENT = [
    *(recurrent(operator, way) for operator in GATES for way in ("", 'direction = "reverse"', BOTH_WAYS)),
    *(recurrent(operator, way, lengths=[2, 0, 4]) for operator in GATES for way in ("", 'direction = "reverse"',
        BOTH_WAYS)),
    *(recurrent(operator, names=names, lengths=[4, 3, 1]) for operator in GATES for names in ("hcp", "bhc", "")),
    *(recurrent(operator, "", lengths=[2, 4, 3], opened="any") for operator in GATES),
    *(
        Call(f"{outputs} = LSTM<hidden_size = 3>(x, w, r, b)",
             {"x": (4, 3, 2), "w": (1, 12, 2), "r": (1, 12, 3), "b": (1, 24)})
        for outputs in ("y", "o, y", "o, oh, y")
    ),
    recurrent("LSTM", "clip = 0.4"),
    recurrent("LSTM", "input_forget = 1"),
    recurrent("GRU", "linear_before_reset = 1"),
    recurrent("GRU", f"linear_before_reset = 1, clip = 0.4, {BOTH_WAYS}"),
    *(
        recurrent(operator, f"activations = [{before}{one}{after}]{numbers}")
        for operator, before, after in (("LSTM", '"Sigmoid", ', ', "Tanh"'), ("GRU", '"Sigmoid", ', ""), ("RNN", "", ""))
        for one, numbers in (
            ('"Affine"', ", activation_alpha = [0.7], activation_beta = [0.2]"), ('"Elu"', ", activation_alpha = [0.6]"),
            ('"HardSigmoid"', ", activation_alpha = [0.3], activation_beta = [0.4]"), ('"Softplus"', ""),
            ('"LeakyRelu"', ", activation_alpha = [0.2]"), ('"Softsign"', ""),
            ('"ScaledTanh"', ", activation_alpha = [0.8], activation_beta = [1.2]"),
        )
    ),
    recurrent("RNN", 'activations = ["Relu"]'),
    recurrent("RNN", 'activations = ["ThresholdedRelu"], activation_alpha = [0.1]'),
    recurrent(
        "LSTM",
        f'activations = ["hardSigmoid", "SCALEDTANH", "leakyrelu", "hardSigmoid", "SCALEDTANH", "leakyrelu"], {BOTH_WAYS}, '
        "activation_alpha = [0.3, 0.9, 0.2, 0.25, 0.8, 0.1], activation_beta = [0.45, 1.1, 0.55, 0.7]",
    ),
]  # fmt: skip

LINEAR = "coefficients = [0.5, -0.25, 1.0, 0.75, -0.5, 0.25, 1.5, 0.5, -1.0], intercepts = [0.1, 0.2, 0.3]"
BINARY = "coefficients = [0.5, -0.25, 1.0], intercepts = [0.1], classlabels_ints = [3, 4]"
SUPPORT = (
    "n_supports = 2, coefficients = [0.75, -0.5], rho = [0.25], support_vectors = [0.1, 0.2, 0.3, 0.6, 0.5, 0.4], "
    "kernel_params = [0.5, 0.25, 2.0]"
)
MACHINE_LEARNING = [
    *(
        of_rank(f"ai.onnx.ml.{call}(x)", {"x": shape}, (0.5, 2.5))
        for shape in ((2, 3), (3,))
        for call in (
            "Scaler<offset = [0.5, 1.0, -1.5], scale = [2.0, 0.25, -1.0]>", "Scaler<offset = [0.5], scale = [2.0]>",
            "Normalizer", 'Normalizer<norm = "L1">', 'Normalizer<norm = "L2">',
            "Imputer<imputed_value_floats = [7.0, 8.0, 9.0], replaced_value_float = 1.5>",
            f'LinearRegressor<targets = 3, {LINEAR}, post_transform = "SOFTMAX">',
            "LinearRegressor<targets = 1, coefficients = [0.5, -0.25, 1.0]>",
            f"SVMRegressor<{SUPPORT}>", f'SVMRegressor<{SUPPORT}, kernel_type = "RBF">',
            f'SVMRegressor<{SUPPORT}, kernel_type = "POLY">', f'SVMRegressor<{SUPPORT}, kernel_type = "SIGMOID">',
            "SVMRegressor<coefficients = [0.5, -0.25, 1.0], rho = [0.25], kernel_params = [0.0, 0.0, 0.0]>",
        )
    ),
    of_rank("ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(x)", {"x": (2, 3, 2)}),
    of_rank("ai.onnx.ml.Scaler<offset = [0.5, 1.0, 0.0], scale = [2.0, 3.0, 4.0]>(x)", {"x": (2, 3, 2)}),
    *(
        of_rank(f'label, y = ai.onnx.ml.LinearClassifier<{LINEAR}, classlabels_ints = [3, 4, 5], '
                f'post_transform = "{transform}">(x)')
        for transform in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    ),
    *(
        of_rank(f'label, y = ai.onnx.ml.LinearClassifier<{BINARY}, post_transform = "{transform}">(x)')
        for transform in ("NONE", "SOFTMAX", "LOGISTIC")
    ),
    *(
        of_rank(f'ai.onnx.ml.LinearRegressor<targets = {n}, coefficients = [0.25, 0.5, 0.125, 0.25], '
                'intercepts = [0.25, 0.125], post_transform = "PROBIT">(x)', {"x": (3, 4 // n)})
        for n in (1, 2)
    ),
    of_rank("ai.onnx.ml.FeatureVectorizer<inputdimensions = [3, 2, 3]>(a, b, a)", {"a": (4, 3), "b": (4, 2)}),
    Call("ai.onnx.ml.ArrayFeatureExtractor(x, i)", {"x": (2, 3), "i": [[2, 0, 2]]}),
    Call("ai.onnx.ml.ArrayFeatureExtractor(x, i)", {"x": (3,), "i": [2, 0, 2]}),
]  # fmt: skip

NORMED = {"x": (2, 3, 4), "s": (2, 3, 4), "g": (4,), "b": (4,), "c": (4,)}
FUSED = [
    *(
        of_rank(f"com.microsoft.{call}", {"x": (2, 3), "b": (3,)} if "b" in call.partition("(")[2] else {"x": (2, 3)},
                (-2.0, 2.0))
        for call in ("Gelu(x)", "BiasGelu(x, b)", "FastGelu(x)", "FastGelu(x, b)", "QuickGelu(x)",
                     "QuickGelu<alpha = 0.5>(x)")
    ),
    *(
        Call(f"com.microsoft.FusedMatMul<alpha = 0.5, {flags}>(a, b)", {"a": a, "b": b})
        for flags, a, b in (
            ("transA = 0", (2, 3), (3, 4)), ("transA = 1", (3, 2), (3, 4)), ("transB = 1", (5, 2, 3), (4, 3)),
            ("transA = 1, transB = 1", (2, 3, 4), (2, 5, 3)), ("transBatchA = 1", (4, 2, 3), (2, 3, 5)),
            ("transA = 1, transBatchA = 1", (4, 2, 3), (2, 4, 5)), ("transB = 1, transBatchB = 1", (2, 4, 3), (5, 2, 3)),
        )
    ),
    Call("com.microsoft.TransposeMatMul<transB = 1>(a, b)", {"a": (2, 3), "b": (4, 3)}),
    *(
        Call(f"com.microsoft.FusedGemm<{flags}>(a, b, c)", {"a": a, "b": (3, 4), "c": (4,)}, BOTH)
        for flags, a in (('activation = "Tanh"', (2, 3)),
                         ('transA = 1, alpha = 0.5, beta = 2.0, activation = "Elu", activation_alpha = 0.5', (3, 2)))
    ),
    *(
        Call(f"com.microsoft.FusedConv<pads = [1, 1, 1, 1], {activation}>({inputs})",
             {"x": (1, 2, 4, 5), "w": (3, 2, 3, 3), "b": (3,)} | ({"z": (1, 3, 4, 5)} if "z" in inputs else {}), BOTH)
        for activation, inputs in (
            ('activation = "Sigmoid"', "x, w, b"), ('activation = "LeakyRelu", activation_params = [0.25]', "x, w, b, z"),
            ('activation = "HardSigmoid", activation_params = [0.1, 0.5]', "x, w, b"),
            ('activation = "Clip", activation_params = [-0.5, 0.5]', "x, w, b"),
        )
    ),
    Call("com.microsoft.SkipLayerNormalization<epsilon = 0.01>(x, s, g, b, c)", NORMED),
    Call("y1, , , y2 = com.microsoft.SkipLayerNormalization(x, s, g) y = Mul(y1, y2)",
         {name: NORMED[name] for name in "xsg"}),
    Call("com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.01>(x, s, g, c)",
         {name: NORMED[name] for name in "xsgc"}),
    Call("y1, , , y2 = com.microsoft.SkipSimplifiedLayerNormalization(x, s, g) y = Mul(y1, y2)",
         {name: NORMED[name] for name in "xsg"}),
    *(Call(f"SimplifiedLayerNormalization<axis = {axis}, epsilon = 0.01, stash_type = 1>(x, g)",
           {"x": (2, 3, 4), "g": (4,)}) for axis in (-1, 2)),
]  # fmt: skip

SAMPLES = [
    *ELEMENTWISE, *REDUCTIONS, *PRODUCTS, *EINSUMS, *MOVEMENT, *POOLING, *CONVOLVING, *NORMALIZATIONS, *LOSSES, *SAMPLING,
    *RESIZING, *REGIONS, *CONTROL, *SEQUENCES, *RECURRENT, *MACHINE_LEARNING, *FUSED,
]  # fmt: skip


def _one_each() -> list[Call]:
    found: dict[tuple[str, ...], Call] = {}
    runs_here = (sample for sample in SAMPLES if not (IS_OLD and (sample.needs_new or sample.opset > 21)))
    for one in runs_here:
        key = tuple(re.findall(r"((?:\w+\.)*[A-Z]\w+)[ <(]|[ <]mode = \"(\w+)\"", one.lines))
        if all(feed.size for feed in one.feeds.values()) and len(one.wrt) > len(found[key].wrt if key in found else ()):
            found[key] = one
    return list(found.values())


ONE_EACH = _one_each()
"""A sample of each operator, in each of its modes: the first of those with the most inputs."""


ROUNDED = [
    *(
        Call(f"s = Constant<value = {scale}>() q = {nodes('QuantizeLinear', of_q, 'x, s')} "
             f"d = {nodes('DequantizeLinear', of_d, 'q, s')} y = Add(d, x)", {"x": (2, 4)}, BOTH,
             needs_new="output_dtype" in of_q)
        for scale, of_q, of_d in (
            ("float {0.004}", "", ""), ("float[4] {0.1, 0.2, 0.3, 0.004}", "axis = -1", "axis = -1"),
            ("float[2,2] {0.1, 0.2, 0.3, 0.004}", *["axis = 1, block_size = 2"] * 2),
            ("float {0.1}", "output_dtype = 17", ""), ("float {0.1}", "output_dtype = 22", ""),
        )
    ),
    Call("z = Constant<value = int8 {100}>() q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
         {"x": (2, 3), "s": ()}, (0.01, 1)),
    Call("q = Cast<to = 17>(x) y = Cast<to = 1>(q)", needs_new=True),
    Call(
        "t = ReduceSum<keepdims = 0>(x) c = Cast<to = 9>(t) y = If (c) <"
        "then_branch = one () => (float[A,B] p) { q = QuantizeLinear(x, s) p = DequantizeLinear(q, s) },"
        " else_branch = other () => (float[A,B] r) { r = Neg(x) }>", {"x": (2, 3), "s": ()},
    ),
    Call(
        "n = Constant<value = int64 {3}> () c = Constant<value = bool {1}> () y = Loop (n, c, x) <"
        "body = once (int64 i, bool go, float[A,B] a) => (bool on, float[A,B] b)"
        " { on = Identity(go) h = Sin(a) q = QuantizeLinear(h, s) d = DequantizeLinear(q, s) b = Mul(d, x) }>",
        {"x": (2, 3), "s": ()}, (0.05, 0.9),
    ),
]  # fmt: skip
"""Gradients pass these straight through, which finite differences do not."""


def opened(sample: Call) -> onnx.ModelProto:
    """The model of a sample with open lengths, except those that the operator's rule must know."""
    return sample.model("last" if sample.opened == "last" else "names")


_AS_FLOAT = {
    "Exp", "Softmax", "Tanh", "Erf", "Elu", "Gelu", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp",
    "ReduceProd", "LayerNormalization", "GroupNormalization", "MeanVarianceNormalization", "Slice", "Gather", "Pad", "Tile",
    "Compress", "ScatterElements", "Concat", "Resize", "com.microsoft.FastGelu", "com.microsoft.QuickGelu",
    "com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization",
}  # fmt: skip
HALVES = [sample for sample in ONE_EACH if sample.lines.partition("(")[0].partition("<")[0] in _AS_FLOAT]
"""Samples that ONNX Runtime computes in float16 as well."""

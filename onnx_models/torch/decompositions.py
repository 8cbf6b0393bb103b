# SPDX-License-Identifier: MIT
"""Decompositions of functions that are not exported, or whose exported nodes have a gradient of NaN, or not PyTorch's.

Source: PyTorch 2.13, ``torch.nn.functional``, ``derivatives.yaml`` and its formulas.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch._decomp import decomposition_table

from onnx_models.torch.custom_gradients import with_derivatives, with_gradient_of

aten = torch.ops.aten

_NONE, _MEAN = 0, 1
"""PyTorch's numbers for the reductions of a loss; the third is the sum."""

COMPOSED = (aten.conv3d, aten.cross_entropy_loss, aten.relu6, aten.std, aten.std_mean)
"""Operators that PyTorch decomposes, since the exporter's own translations are wrong for some arguments."""


def _std(x: Any, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    """The root of the variance; where it is 0, the derivative is 0."""
    variance = aten.var.correction(x, dim, correction=correction, keepdim=keepdim)
    root = variance.sqrt()
    return with_derivatives(root, (variance, torch.where(root == 0, 0, 0.5 / root)))


def _std_mean(
    x: Any, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    mean = x.mean() if dim is None else x.mean(dim, keepdim)
    return _std(x, dim, correction=correction, keepdim=keepdim), mean


def _vector_norm(
    x: Any, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """(sum of |x|^p)^(1/p), with a gradient of 0 for a vector of zeros; orders 0, 1, 2 and inf need no decomposition."""
    if order in (0, 1, 2, math.inf, -math.inf):
        return NotImplemented
    x = x if dtype is None else x.to(dtype)
    axes = list(range(x.dim())) if dim is None else list(dim)
    size = x.abs()
    norm = (size**order).sum(axes, keepdim=True) ** (1 / order)
    power = torch.where(size == 0, 0, size ** (order - 1))
    derivative = torch.where(norm == 0, 0, x.sign() * power * norm ** (1 - order))
    surrogate = (x * derivative.detach()).sum(axes, keepdim=True)
    value = with_gradient_of(norm, surrogate)
    return value if keepdim else value.squeeze(axes)


def _atan2(y: Any, x: Any) -> Any:
    """The angle of (x, y), signed zeros included."""
    both = torch.isinf(x) & torch.isinf(y)
    over = torch.where(both, y.sign() * x.sign(), y / x)
    turn = torch.where(_is_negative(y), -math.pi, math.pi)
    near = torch.where(_is_negative(x), over.atan() + turn, over.atan())
    value = torch.where((x == 0) & (y == 0), torch.where(_is_negative(x), turn, y), near)
    # At (0, 0), where y / x is NaN, the derivatives are 0.
    square = x * x + y * y
    scale = torch.where(square == 0, 0, 1 / square)
    return with_derivatives(value, (y, x * scale), (x, -y * scale))


def _is_negative(x: Any) -> Any:
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _hypot(x: Any, y: Any) -> Any:
    """sqrt(x^2 + y^2) without overflow of the squares."""
    long, short = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    ratio = torch.where((long == 0) | torch.isinf(long), 0, short / long)
    value = long * torch.sqrt(1 + ratio * ratio)
    return with_derivatives(value, (x, x / value), (y, y / value))


def _log_add(power: Callable[[Any], Any], log1p: Callable[[Any], Any], a: Any, b: Any) -> Any:
    """The logarithm of the sum of two powers."""
    larger = torch.maximum(a, b)
    value = torch.where(torch.isinf(a) & (a == b), larger, larger + log1p(power(-(a - b).abs())))
    return with_derivatives(value, (a, 1 / (1 + power(b - a))), (b, 1 / (1 + power(a - b))))


def _x_times(logarithm: Callable[[Any], Any], pole: float, x: Any, y: Any) -> Any:
    """The product x * log(y), 0 where x is 0, also at and below the pole; one of x and y may be a Python number."""
    x, y = (factor if isinstance(factor, torch.Tensor) else torch.full((), float(factor)) for factor in (x, y))
    log = logarithm(y)
    value = torch.where(y.isnan(), y, torch.where(x == 0, 0, x * log))
    by_x = torch.where((x == 0) & (y <= pole), 0, log)
    return with_derivatives(value, (x, by_x), (y, x / (y - pole)))


def _entropy(x: Any) -> Any:
    """-x log(x), and -inf for x < 0."""
    value = torch.where(x == 0, 0, torch.where(x < 0, -math.inf, -x * torch.log(x)))
    return with_derivatives(value, (x, -(torch.log(x) + 1)))


def _hard_tanh(x: Any, low: float = -1, high: float = 1) -> Any:
    """A clamp with derivative 0 at its bounds too."""
    return with_derivatives(torch.clamp(x, low, high), (x, torch.where((x <= low) | (x >= high), 0.0, 1.0)))


def _cum_prod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    """Cumulative products without a division, which fails at zeros; takes n times the memory for an axis of length n."""
    x = x if dtype is None else x.to(dtype)
    if x.dim() == 0:
        return x.clone()
    length = x.shape[dim]
    rows = x.movedim(dim, -1).unsqueeze(-2)
    places = torch.arange(length)
    return torch.where(places <= places.unsqueeze(-1), rows, 1).prod(-1).movedim(-1, dim)


def _maximum(a: Any, b: Any) -> Any:
    """The maximum; two equal arguments get half of the gradient each, while clamp gives all of it to the first."""
    return _of_two(torch.clamp_min(a, b), a, b, a < b, a > b) if a.is_floating_point() else NotImplemented


def _minimum(a: Any, b: Any) -> Any:
    return _of_two(torch.clamp_max(a, b), a, b, a > b, a < b) if a.is_floating_point() else NotImplemented


def _of_two(value: Any, a: Any, b: Any, not_a: Any, not_b: Any) -> Any:
    share = torch.where(a == b, 0.5, 1.0)
    return with_derivatives(value, (a, torch.where(not_a, 0.0, share)), (b, torch.where(not_b, 0.0, share)))


def _extreme(value: Any, place: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The maximum or minimum along an axis and its first index, which gets the whole gradient."""
    if x.dim() == 0:
        return NotImplemented
    index = place(x, dim, True)
    extreme = with_gradient_of(value(x, [dim], True), x.gather(dim, index))
    return (extreme, index) if keepdim else (extreme.squeeze(dim), index.squeeze(dim))


def _sort(x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:  # noqa: ARG001
    """ONNX's TopK, by which the exporter sorts, is stable."""
    return aten.sort.default(x, dim, descending)


def _binary_cross_entropy(x: Any, y: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    """-y log x - (1 - y) log(1 - x), with logarithms clamped to -100 or more.

    The derivative with respect to x is always (x - y) / (x (1 - x)), with a denominator of 1e-12 or more.
    """
    yes, no = torch.log(x), torch.log1p(-x)
    value = (y - 1) * no.clamp(min=-100) - y * yes.clamp(min=-100)
    by_x = (x - y) / ((1 - x) * x).clamp(min=1e-12)
    loss = with_derivatives(value, (x, by_x), (y, no - yes))
    loss = loss if weight is None else loss * weight
    return loss if reduction == _NONE else loss.mean() if reduction == _MEAN else loss.sum()


def _log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)) without overflow: exp is only applied to negative numbers."""
    small = torch.exp(-x.abs())
    value = torch.clamp(x, max=0) - torch.log1p(small)
    share = small / (1 + small)
    return with_derivatives(value, (x, torch.where(x < 0, 1 - share, share)))


def _embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,  # noqa: ARG001 - a matter of memory
) -> Any:
    """Rows of a table. Padding gets no gradient; `scale_grad_by_freq` divides the gradient of a row by its frequency."""
    rows, share = weight[indices], (indices != padding_idx).to(weight.dtype)
    if scale_grad_by_freq:
        flat = indices.flatten()
        counts = weight.new_zeros(weight.shape[0]).index_add(0, flat, weight.new_ones(flat.shape[0]))
        share = share / counts[indices]
    elif padding_idx < 0:
        return rows
    return with_derivatives(rows, (rows, share.unsqueeze(-1)))


def _dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """Dropout with a new mask in each run: a share p of the elements is 0, the rest is divided by 1 - p. Also the mask.

    Not ONNX's Dropout: two of these for one x would be merged into one.
    """
    kept = (torch.rand(x.shape) >= (p if train else 0)).to(x.dtype)
    return x * kept * (1 / (1 - p) if p < 1 else 0.0) if train else x, kept.bool()


def _attention(
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q k^T) v, with the dropout that the exporter omits, and 0 where a mask excludes everything."""
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.arange(k.shape[-2]) <= torch.arange(q.shape[-2]).unsqueeze(-1)
    if attn_mask is not None:
        is_bool = attn_mask.dtype == torch.bool
        scores = torch.where(attn_mask, scores, float("-inf")) if is_bool else scores + attn_mask
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:
        weights = torch.where((scores == float("-inf")).all(-1, keepdim=True), 0, weights)
    return (_dropout(weights, dropout_p, True)[0] if dropout_p else weights) @ v


def _bernoulli(share: Any, *, generator: Any = None) -> Any:  # noqa: ARG001 - always None in an exported program
    """1 with the given probabilities. ONNX's Bernoulli of constants would be drawn only once, at export."""
    return (torch.rand(share.shape) < share).to(share.dtype)


@contextlib.contextmanager
def visible_statistics() -> Iterator[None]:
    """Make batch normalization increment the running statistics' version; PyTorch's own changes them without that."""
    batch_norm = torch.batch_norm

    def counting(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *rest: Any) -> Any:
        y = batch_norm(x, weight, bias, mean, variance, training, *rest)
        if training and mean is not None:
            torch.autograd.graph.increment_version([mean, variance])
        return y

    with mock.patch.object(torch, "batch_norm", counting):
        yield


_OF_BATCH = aten._native_batch_norm_legit_functional.default  # noqa: SLF001
"""Batch normalization with the batch's own mean and variance, which PyTorch decomposes."""

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.atan2.default: _atan2,
    aten.binary_cross_entropy.default: _binary_cross_entropy,
    aten.cumprod.default: _cum_prod,
    aten.embedding.default: _embedding,
    aten.hardtanh.default: _hard_tanh,
    aten.hypot.default: _hypot,
    aten.linalg_vector_norm.default: _vector_norm,
    aten.log_sigmoid.default: _log_sigmoid,
    aten.logaddexp.default: partial(_log_add, torch.exp, torch.log1p),
    aten.logaddexp2.default: partial(_log_add, torch.exp2, lambda x: torch.log1p(x) / math.log(2)),
    aten.max.dim: partial(_extreme, aten.amax.default, aten.argmax.default),
    aten.maximum.default: _maximum,
    aten.min.dim: partial(_extreme, aten.amin.default, aten.argmin.default),
    aten.minimum.default: _minimum,
    aten.sort.stable: _sort,
    aten.special_entr.default: _entropy,
    aten.special_xlog1py.default: partial(_x_times, torch.log1p, -1),
    aten.special_xlog1py.other_scalar: partial(_x_times, torch.log1p, -1),
    aten.special_xlog1py.self_scalar: partial(_x_times, torch.log1p, -1),
    aten.std.correction: _std,
    aten.std_mean.correction: _std_mean,
    aten.xlogy.Tensor: partial(_x_times, torch.log, 0),
    aten.xlogy.Scalar_Other: partial(_x_times, torch.log, 0),
    aten.xlogy.Scalar_Self: partial(_x_times, torch.log, 0),
    _OF_BATCH: decomposition_table[_OF_BATCH],
    aten.native_dropout.default: _dropout,
    aten.bernoulli.default: _bernoulli,
    aten.scaled_dot_product_attention.default: _attention,
}
"""Decompositions by operator."""

"""Scatters with a reduction, which PyTorch's exporter translates wrongly or in part.

Source: PyTorch 2.13, ``torch.Tensor.scatter_reduce`` and ``derivatives.yaml``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from onnx_models.torch.custom_gradients import with_gradient_of

aten = torch.ops.aten


def _scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    """Elements of src [same rank as x] reduced into x at the indices along an axis.

    The exporter has no mean, takes a finite number for the maximum of nothing, and requires a src as large as the index.
    """
    if x.dim() == 0:
        lines = (one.reshape(1) for one in (index, src))
        return aten.scatter_reduce.two(x.reshape(1), 0, *lines, reduce, include_self=include_self).reshape(())
    src = _as_long_as(index, src)
    if reduce == "mean":
        return _mean(x, dim, index, src, include_self=include_self)
    if include_self:
        return NotImplemented
    started = x.scatter(dim, index, _neutral(reduce, x.dtype))
    value = aten.scatter_reduce.two(started, dim, index, src, reduce)
    if reduce not in ("amax", "amin") or not x.is_floating_point():
        return value
    # PyTorch divides the gradient by the number of equal maxima and counts x among these, although it has no part.
    is_x, is_src = (x == value).to(x.dtype), (src == value.gather(dim, index)).to(x.dtype)
    share = 1 / is_x.scatter_add(dim, index, is_src)
    kept = (x * is_x.detach()).scatter(dim, index, 0)
    return with_gradient_of(value, kept.scatter_add(dim, index, src * (is_src * share.gather(dim, index)).detach()))


def _mean(x: Any, dim: int, index: Any, src: Any, *, include_self: bool) -> Any:
    counts = (torch.ones_like(x) if include_self else torch.zeros_like(x)).scatter_add(dim, index, torch.ones_like(src))
    started = x if include_self else x.scatter(dim, index, 0)
    total, counts = started.scatter_add(dim, index, src), counts.clamp(min=1)
    return total / counts if x.is_floating_point() else torch.div(total, counts, rounding_mode="floor")


def _neutral(reduce: str, dtype: Any) -> float:
    """What a reduction starts from."""
    if reduce in ("sum", "prod"):
        return float(reduce == "prod")
    if dtype.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    limits = torch.iinfo(dtype)
    limit: int = limits.min if reduce == "amax" else limits.max
    return limit


def _as_long_as(index: Any, src: Any) -> Any:
    """The part of src that an index of known lengths covers."""
    for axis, (length, whole) in enumerate(zip(index.shape, src.shape, strict=True)):
        if isinstance(length, int) and isinstance(whole, int) and length != whole:
            src = src.narrow(axis, 0, length)
    return src


def _scatter(x: Any, dim: int, index: Any, src: Any) -> Any:
    part = _as_long_as(index, src)
    return NotImplemented if part is src else x.scatter(dim, index, part)


def _scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    part = _as_long_as(index, src)
    return NotImplemented if part is src else x.scatter_add(dim, index, part)


def _scatter_with(x: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    src = src if isinstance(src, torch.Tensor) else torch.full(index.shape, src, dtype=x.dtype)
    return x.scatter_reduce(dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


def _index_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    shape = [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    return x.scatter_reduce(dim, index.reshape(shape).expand(src.shape), src, reduce, include_self=include_self)


SCATTERS: dict[Any, Callable[..., Any]] = {
    aten.index_reduce.default: _index_reduce,
    aten.scatter.reduce: _scatter_with,
    aten.scatter.src: _scatter,
    aten.scatter.value_reduce: _scatter_with,
    aten.scatter_add.default: _scatter_add,
    aten.scatter_reduce.two: _scatter_reduce,
}
"""Decompositions by operator."""

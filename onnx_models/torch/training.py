"""Layers in training mode: batch normalization and dropout; and attention with dropout.

Source: PyTorch 2.13, ``torch.nn.functional`` and ``derivatives.yaml``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch._decomp import decomposition_table

aten = torch.ops.aten


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

TRAINING: dict[Any, Callable[..., Any]] = {
    _OF_BATCH: decomposition_table[_OF_BATCH],
    aten.native_dropout.default: _dropout,
    aten.bernoulli.default: _bernoulli,
    aten.scaled_dot_product_attention.default: _attention,
}
"""Decompositions by operator."""

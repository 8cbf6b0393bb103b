"""Layers in training mode: batch normalization, dropout and fake quantization; and attention with dropout.

Source: PyTorch 2.13, ``torch.nn.functional`` and ``derivatives.yaml``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch._decomp import decomposition_table

from onnx_models.torch.custom_gradients import with_derivatives
from onnx_models.torch.losses import gaussian_nll_loss

aten = torch.ops.aten

_SCALE, _ALPHA = 1.0507009873554805, 1.6732632423543772
"""The constants of SELU."""


def _dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """Dropout, drawn anew in each run: a share p of the elements is 0, the rest is divided by 1 - p; and the mask."""
    kept = _kept(x, p if train else 0, x.shape)
    return x * kept * _inverse(1 - p) if train else x, kept.bool()


def _feature_dropout(x: Any, p: float, train: bool) -> Any:
    """Dropout of whole channels of x [N, C, ...]."""
    return x if not train or p == 0 else x * _kept(x, p, _channels(x)) * _inverse(1 - p)


def _alpha_dropout(x: Any, p: float, train: bool) -> Any:
    """Dropout for SELU, which keeps mean 0 and variance 1."""
    return x if not train or p == 0 else _with_alpha(x, p, x.shape)


def _feature_alpha_dropout(x: Any, p: float, train: bool) -> Any:
    return x if not train or p == 0 else _with_alpha(x, p, _channels(x))


def _with_alpha(x: Any, p: float, shape: Sequence[Any]) -> Any:
    least = -_SCALE * _ALPHA
    factor = _inverse(((1 - p) * (1 + p * least**2)) ** 0.5)
    kept = _kept(x, p, shape)
    return (x * kept + least * (1 - kept) - p * least) * factor if p < 1 else x * 0


def _kept(x: Any, p: float, shape: Sequence[Any]) -> Any:
    """A random mask, 0 with probability p. Not ONNX's Dropout: two of these for one x would be merged into one."""
    return (torch.rand(shape) >= p).to(x.dtype)


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


def _bernoulli_like(x: Any, p: float = 0.5, *, generator: Any = None) -> Any:  # noqa: ARG001
    return (torch.rand(x.shape) < p).to(x.dtype)


def _channels(x: Any) -> list[Any]:
    return [*x.shape[:2], *[1] * (x.dim() - 2)]


def _inverse(share: float) -> float:
    return 1 / share if share else 0.0


def _fake_quantize(x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """Rounds x to a multiple of the scale, and clamps it; the derivative is 1 inside the range, and 0 outside."""
    number = torch.round(x * (1 / scale)) + zero_point
    value = (number.clamp(quant_min, quant_max) - zero_point) * scale
    inside = (number >= quant_min) & (number <= quant_max)
    return with_derivatives(value.to(x.dtype), (x, inside.to(x.dtype)))


def _fake_quantize_channels(x: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int) -> Any:
    shape = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    return _fake_quantize(x, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


@contextlib.contextmanager
def traceable_layers(module: Any) -> Iterator[None]:
    """Make layers traceable whose own forward has branches on values of tensors, or changes buffers unnoticed.

    Raises:
        ValueError: the observer of a fake quantization layer is enabled.
    """
    with _average_of_all_batches(), visible_statistics(), _without_validation(), _fixed_fake_quantization(module):
        yield


@contextlib.contextmanager
def _without_validation() -> Iterator[None]:
    """Distributions and losses that do not look at the values of their arguments."""
    with (
        mock.patch.object(torch.distributions.Distribution, "_validate_args", False),
        mock.patch.object(torch.nn.functional, "gaussian_nll_loss", gaussian_nll_loss),
    ):
        yield


@contextlib.contextmanager
def visible_statistics() -> Iterator[None]:
    """Batch normalization that counts a new version of the running statistics, which PyTorch's own changes unnoticed."""
    batch_norm = torch.batch_norm

    def counting(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *rest: Any) -> Any:
        y = batch_norm(x, weight, bias, mean, variance, training, *rest)
        if training and mean is not None:
            torch.autograd.graph.increment_version([mean, variance])
        return y

    with mock.patch.object(torch, "batch_norm", counting):
        yield


@contextlib.contextmanager
def _average_of_all_batches() -> Iterator[None]:
    """Batch normalization with ``momentum=None``, with the number of batches as a tensor."""
    layer = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - the base class of all
    forward = layer.forward

    def traceable(self: Any, x: Any) -> Any:
        if self.momentum is not None or not self.training or self.running_mean is None:
            return forward(self, x)
        self._check_input_dim(x)
        self.num_batches_tracked.add_(1)
        axes, values = [0, *range(2, x.dim())], x.detach()
        for running, new in ((self.running_mean, values.mean(axes)), (self.running_var, values.var(axes))):
            running.add_((new.to(running.dtype) - running) / self.num_batches_tracked)
        return torch.nn.functional.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)

    with mock.patch.object(layer, "forward", traceable):
        yield


@contextlib.contextmanager
def _fixed_fake_quantization(module: Any) -> Iterator[None]:
    """Layers of ``torch.ao.quantization.FakeQuantize``, without branches that depend on buffers."""
    kinds = sys.modules.get("torch.ao.quantization.fake_quantize")
    found = [(name, layer) for name, layer in module.named_modules() if kinds and isinstance(layer, kinds.FakeQuantize)]
    with contextlib.ExitStack() as stack:
        for name, layer in found:
            if layer.observer_enabled[0]:
                raise ValueError(
                    f"{name!r} observes its input: must not, call torch.ao.quantization.disable_observer on it"
                )
            stack.enter_context(
                mock.patch.object(layer, "forward", _traceable(layer, bool(layer.fake_quant_enabled[0])))
            )
        yield


def _traceable(layer: Any, enabled: bool) -> Callable[[Any], Any]:
    def forward(x: Any) -> Any:
        limits = (layer.activation_post_process.quant_min, layer.activation_post_process.quant_max)
        if not enabled:
            return x
        if layer.is_per_channel:
            return torch.fake_quantize_per_channel_affine(x, layer.scale, layer.zero_point, layer.ch_axis, *limits)
        return torch.fake_quantize_per_tensor_affine(x, layer.scale, layer.zero_point, *limits)

    return forward


BATCH_NORMALIZATION: dict[Any, Callable[..., Any]] = {
    operator: decomposition_table[operator]
    for operator in (aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit.no_stats)  # noqa: SLF001
}
"""PyTorch's decompositions of batch normalization with the batch's own mean and variance."""

TRAINING: dict[Any, Callable[..., Any]] = {
    aten.native_dropout.default: _dropout,
    aten.bernoulli.default: _bernoulli,
    aten.bernoulli.p: _bernoulli_like,
    aten.feature_dropout.default: _feature_dropout,
    aten.alpha_dropout.default: _alpha_dropout,
    aten.scaled_dot_product_attention.default: _attention,
    aten.feature_alpha_dropout.default: _feature_alpha_dropout,
    aten.fake_quantize_per_tensor_affine.default: _fake_quantize,
    aten.fake_quantize_per_tensor_affine.tensor_qparams: _fake_quantize,
    aten.fake_quantize_per_channel_affine.default: _fake_quantize_channels,
}
"""Decompositions by operator."""

"""PyTorch's losses, with PyTorch's values and gradients.

Source: PyTorch 2.13, ``torch.nn.functional`` and ``derivatives.yaml``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from onnx_models.torch.custom_gradients import with_derivatives, with_gradient_of

_NONE, _MEAN = 0, 1
"""PyTorch's numbers for the reductions of a loss; the third is the sum."""

aten = torch.ops.aten

COMPOSED = (
    aten.binary_cross_entropy_with_logits,
    aten.cosine_embedding_loss,
    aten.cosine_similarity,
    aten.cross_entropy_loss,
    aten.hinge_embedding_loss,
    aten.kl_div,
    aten.l1_loss,
    aten.margin_ranking_loss,
    aten.nll_loss,
    aten.nll_loss2d,
    aten.nll_loss_nd,
    aten.pairwise_distance,
    aten.poisson_nll_loss,
    aten.triplet_margin_loss,
)
"""Losses that PyTorch decomposes; the exporter would translate some of them to loss operators of ONNX."""


def binary_cross_entropy(x: Any, y: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    """-y log x - (1 - y) log(1 - x), with logarithms clamped to -100 or more.

    The derivative with respect to x is always (x - y) / (x (1 - x)), with a denominator of 1e-12 or more.
    """
    yes, no = torch.log(x), torch.log1p(-x)
    value = (y - 1) * no.clamp(min=-100) - y * yes.clamp(min=-100)
    by_x = (x - y) / ((1 - x) * x).clamp(min=1e-12)
    loss = with_derivatives(value, (x, by_x), (y, no - yes))
    return _reduced(loss if weight is None else loss * weight, reduction)


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)) without overflow: exp is only applied to negative numbers."""
    small = torch.exp(-x.abs())
    value = torch.clamp(x, max=0) - torch.log1p(small)
    share = small / (1 + small)
    return with_derivatives(value, (x, torch.where(x < 0, 1 - share, share)))


def multi_margin_loss(
    x: Any, target: Any, p: int = 1, margin: float = 1, weight: Any = None, reduction: int = _MEAN
) -> Any:
    """The sum over all classes c except the target y of max(0, margin - x_y + x_c)^p, divided by the number of classes.

    The derivative at the kink is 0.

    Args:
        x: [N, C] or [C].
        target: [N] or [].
        p: 1 or 2.
        margin: the margin by which x_y should exceed the others.
        weight: [C] or None.
        reduction: PyTorch's number.
    """
    classes = x.shape[-1]
    index = target.unsqueeze(-1)
    above = torch.relu(margin - x.gather(-1, index) + x)
    terms = torch.where(torch.arange(classes) == index, 0, above if p == 1 else above * above)
    terms = terms if weight is None else terms * weight[index]
    return _reduced(terms.sum(-1) / classes, reduction)


def multilabel_margin_loss(x: Any, target: Any, reduction: int = _MEAN) -> Any:
    """The sum over targets t and non-target classes c of max(0, 1 - x_t + x_c), divided by the number of classes.

    Args:
        x: [N, C] or [C].
        target: in the same shape, the target classes up to the first -1.
        reduction: PyTorch's number.
    """
    classes = x.shape[-1]
    valid = (target < 0).long().cumsum(-1) == 0
    index = torch.where(valid, target, 0)
    is_target = ((index.unsqueeze(-1) == torch.arange(classes)) & valid.unsqueeze(-1)).any(-2)
    above = torch.relu(1 - x.gather(-1, index).unsqueeze(-1) + x.unsqueeze(-2))
    terms = torch.where(valid.unsqueeze(-1) & ~is_target.unsqueeze(-2), above, 0)
    return _reduced(terms.sum((-1, -2)) / classes, reduction)


def gaussian_nll_loss(
    x: Any, target: Any, variance: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """Half of log(variance) + (x - target)^2 / variance; a variance below eps is eps, and has the gradient at eps.

    Args:
        x: [N, ...].
        target: in the same shape, or one that broadcasts to it.
        variance: likewise, or without the last axis, or a Python number.
        full: whether to add the constant log(2 pi) / 2.
        eps: see above.
        reduction: PyTorch's name.
    """
    if not isinstance(variance, torch.Tensor):
        variance = torch.full_like(x, variance)
    if variance.shape != x.shape and variance.shape == x.shape[:-1]:
        variance = variance.unsqueeze(-1)
    variance = with_gradient_of(variance.clamp(min=eps), variance)
    losses = 0.5 * (torch.log(variance) + (x - target) ** 2 / variance)
    return _reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, ("none", "mean", "sum").index(reduction))


def _reduced(losses: Any, reduction: int) -> Any:
    if reduction == _NONE:
        return losses
    return losses.mean() if reduction == _MEAN else losses.sum()


_library = torch.library.Library("ortops", "FRAGMENT")
_library.define(
    "multi_margin_loss(Tensor x, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int reduction=1) -> Tensor"
)
torch.library.register_fake("ortops::multi_margin_loss", multi_margin_loss, lib=_library)

RENAMED = {aten.multi_margin_loss.default: torch.ops.ortops.multi_margin_loss.default}
"""Operators to rename, because PyTorch decomposes them before it looks up a decomposition."""

LOSSES: dict[Any, Callable[..., Any]] = {
    aten.binary_cross_entropy.default: binary_cross_entropy,
    aten.log_sigmoid.default: log_sigmoid,
    torch.ops.ortops.multi_margin_loss.default: multi_margin_loss,
    aten.multilabel_margin_loss.default: multilabel_margin_loss,
}
"""Decompositions by operator."""

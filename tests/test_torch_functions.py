# SPDX-License-Identifier: MIT
"""Losses and functions at points where PyTorch's gradient differs from that of the exported nodes: saturation, 0, ties."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import tensor
from torch.nn import functional

import onnx_models
from torch_checks import QUIET, Case, check

pytestmark = QUIET


LOGITS = tensor([20.0, 100.0, 0.0, 1.5, -3.0, 88.0])
YES_AND_NO = tensor([1.0, 1.0, 0.0, 0.5, 0.3, 0.0])
ENDS, TARGETS = tensor([0.0, 1.0, 0.0, 1.0, 0.5]), tensor([0.0, 1.0, 1.0, 0.0, 0.2])
SCORES = tensor([[100.0, -100.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1e3, 1e3, -1e3, 0.0], [-3.0, 2.0, 1.0, 0.5]])
SHARES = tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.5, 0.5, 0.0], [0.1, 0.2, 0.3, 0.4]])
CLASSES, IGNORED = tensor([0, 1, 2, 3]), tensor([0, -100, 2, 1])
WEIGHTS = tensor([0.5, 1.0, 2.0, 0.0])
X = tensor([1.0, 0.0, 0.0, -2.0, 3.0, 0.5, -1.0])
Y = tensor([1.0, 0.0, 1.0, 2.0, 3.0, 0.75, 0.0])
SIGNS = tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
ROWS = tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 3.0], [2.0, 2.0, 2.0], [0.0, 3.0, 0.0]])
OTHER_ROWS = tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [0.0, 1.0, 0.0], [1.0, 2.0, 2.0]])
MAPS, MAP_CLASSES = 30 * torch.sin(torch.arange(48.0)).reshape(2, 4, 2, 3), torch.arange(12).reshape(2, 2, 3) % 4


def log_softmax(x: Any) -> Any:
    return functional.log_softmax(x, 1)


def _with(function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    return lambda *x: function(*x, **arguments)


LOSSES = (
    Case("bce_of_sigmoid", lambda x, y: functional.binary_cross_entropy(torch.sigmoid(x), y), (LOGITS, YES_AND_NO)),
    Case("bce", functional.binary_cross_entropy, (ENDS, TARGETS)),
    Case("bce_logits", functional.binary_cross_entropy_with_logits, (LOGITS, YES_AND_NO), 2),
    Case("bce_logits_weights", functional.binary_cross_entropy_with_logits, (-LOGITS, Y[:6], Y[1:])),
    Case("log_sigmoid", functional.logsigmoid, (torch.cat([LOGITS, -LOGITS]),)),
    Case("cross_entropy_all", _with(functional.cross_entropy, label_smoothing=0.1), (SCORES, IGNORED, WEIGHTS)),
    Case("cross_entropy_shares", _with(functional.cross_entropy, label_smoothing=0.1), (SCORES, SHARES, WEIGHTS), 2),
    Case("cross_entropy_sum", _with(functional.cross_entropy, reduction="sum"), (SCORES, IGNORED)),
    Case("nll_map", lambda x, y: functional.nll_loss(log_softmax(x), y, ignore_index=1), (MAPS, MAP_CLASSES)),
    Case("kl", lambda x, y: functional.kl_div(log_softmax(x), y, reduction="batchmean"), (SCORES, SHARES), 2),
    Case("kl_log", lambda x, y: functional.kl_div(x, y, reduction="sum", log_target=True), (SCORES / 50, -SCORES / 50), 2),
    Case("huber", _with(functional.huber_loss, delta=1.0), (X, Y), 2),
    Case("smooth_l1", _with(functional.smooth_l1_loss, beta=0.25), (X, Y), 2),
    Case("smooth_l1_sharp", _with(functional.smooth_l1_loss, beta=0.0, reduction="none"), (X, Y), 2),
    Case("l1", functional.l1_loss, (X, Y), 2),
    Case("mse", functional.mse_loss, (X, Y), 2),
    Case("hinge", functional.hinge_embedding_loss, (X, SIGNS)),
    Case("cosine", _with(functional.cosine_embedding_loss, margin=0.2), (ROWS, OTHER_ROWS, SIGNS[:4]), 2),
    Case("ranking", _with(functional.margin_ranking_loss, margin=0.25), (X, Y, SIGNS), 2),
    Case("multilabel_soft", functional.multilabel_soft_margin_loss, (SCORES, SHARES.round()), 2),
    Case("soft_margin", functional.soft_margin_loss, (X, SIGNS)),
    Case("triplet_3", _with(functional.triplet_margin_loss, p=3, eps=0.0), (ROWS, OTHER_ROWS, ROWS.flip(0)), 3),
    Case("triplet_swap", _with(functional.triplet_margin_loss, swap=True), (ROWS, OTHER_ROWS, ROWS.flip(0)), 3),
    Case("poisson", _with(functional.poisson_nll_loss, full=True), (X, Y)),
    Case("poisson_rate", _with(functional.poisson_nll_loss, log_input=False), (Y, X.abs()), 2),
    Case("normal", lambda m, s, x: torch.distributions.Normal(m, s, validate_args=False).log_prob(x), (X, Y + 1, Y), 3),
    Case("similarity", functional.cosine_similarity, (ROWS, OTHER_ROWS), 2),
)  # fmt: skip

V = tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-20, 30.0, -30.0])
WITH_ZEROS = tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0], [-1.0, 0.0, 2.0]])
ANGLES = tensor([0.0, 0.0, -0.0, 1.0, 0.0, -1.0, -0.0, 2.0]), tensor([0.0, 1.0, -1.0, 0.0, -0.0, 0.0, 3.0, -2.0])
LARGE = tensor([1000.0, -1000.0, 0.0, 3.0]), tensor([1000.0, 1000.0, 0.0, -2.0])
PRODUCTS = tensor([0.0, 0.0, 2.0, 0.0]), tensor([1.0, 2.0, 3.0, 0.5])

FUNCTIONS = (
    Case("std", lambda x: x.std(1), (ROWS,)),
    Case("std_of_equal", lambda x: x.std((0, 1), correction=0, keepdim=True), (0 * ROWS,)),
    Case("std_mean", lambda x: torch.cat(torch.std_mean(x, 1)), (ROWS,)),
    *(Case(f"norm_{p}", lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1), (ROWS,)) for p in (0, 1, 2, 0.5)),
    Case("norm_inf", lambda x: torch.linalg.vector_norm(x, math.inf, dim=1), (ROWS,)),
    Case("sinc", torch.sinc, (V,)),
    Case("atan2", torch.atan2, ANGLES, 2),
    Case("xlogy", torch.xlogy, PRODUCTS, 2),
    Case("xlogy_pole", torch.xlogy, (tensor([0.0, 0.0]), tensor([0.0, -1.0]))),
    Case("entropy", torch.special.entr, (tensor([0.5, 1.0, 1e-20, 2.0, 0.0, -1.0]),)),
    Case("hypot", torch.hypot, (tensor([0.0, 3.0, -1e30]), tensor([1.0, 4.0, 1e30])), 2),
    Case("logaddexp", torch.logaddexp, LARGE, 2),
    Case("logsumexp", lambda x: torch.logsumexp(x, 1), (300 * ROWS,)),
    Case("prod", lambda x: x.prod(1), (WITH_ZEROS,)),
    Case("cumprod", lambda x: x.cumprod(1), (WITH_ZEROS,)),
    *(Case(f"power_{p}", lambda x, p=p: x.abs() ** p, (V,)) for p in (0.0, 1.5)),
    Case("clamp", lambda x: x.clamp(-1, 1), (V,)),
    Case("clamp_between", torch.clamp, (V, 0 * V - 1, 0 * V + 1), 3),
    Case("maximum", torch.maximum, (V, V.flip(0)), 2),
    Case("minimum", torch.minimum, (V, V.flip(0)), 2),
    Case("max", lambda x: x.max(1)[0] * x.min(0, keepdim=True)[0].sum(), (ROWS,)),
    Case("amax", lambda x: x.amax(1), (ROWS,)),
)  # fmt: skip

TABLE = torch.sin(torch.arange(18.0)).reshape(6, 3)
INDICES = tensor([[0, 1, 1], [2, 2, 2], [5, 1, 0]])
EMBEDDINGS = (
    Case("embedding", lambda w, i: functional.embedding(i, w), (TABLE, INDICES)),
    Case("padding", lambda w, i: functional.embedding(i, w, padding_idx=-5) ** 2, (TABLE, INDICES)),
    Case("by_counts", lambda w, i: functional.embedding(i, w, scale_grad_by_freq=True), (TABLE, INDICES)),
    Case("both", lambda w, i: functional.embedding(i, w, 2, scale_grad_by_freq=True), (TABLE, INDICES)),
)

LEVELS = tensor([0.0, 0.1, -0.1, 0.25, 0.75, 30.0, -30.0, 12.7, -12.8, 12.75, -12.85])
STEPS, ZERO_POINTS = tensor([0.1, 0.2, 0.05]), tensor([0, 10, -5], dtype=torch.int32)
QUANTIZED = (
    Case("all", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), (LEVELS,)),
    Case("shifted", lambda x: torch.fake_quantize_per_tensor_affine(x, STEPS[1], ZERO_POINTS[1], 0, 255), (LEVELS,)),
    Case("channels", lambda x: torch.fake_quantize_per_channel_affine(x, STEPS, ZERO_POINTS, 1, -128, 127), (9 * ROWS,)),
)  # fmt: skip

Q, K = torch.sin(torch.arange(24.0)).reshape(2, 3, 4), torch.cos(torch.arange(40.0)).reshape(2, 5, 4)
MASK = tensor([[True, False, True, True, False], [False] * 5, [True] * 5])
ATTENTION = (
    Case("attention", functional.scaled_dot_product_attention, (Q, K, K + 1), 3),
    Case("masked", functional.scaled_dot_product_attention, (Q, K, K + 1, MASK), 3),
    Case("biased", _with(functional.scaled_dot_product_attention, scale=0.3), (Q, K, K + 1, MASK.float()), 3),
    Case("causal", _with(functional.scaled_dot_product_attention, is_causal=True), (Q[:, None], K[:, None], K[:, None]), 3),
)  # fmt: skip

PLACES, UPDATES = (
    tensor([[0, 1, 0], [2, 0, 0], [0, 1, 2]]),
    tensor([[3.0, 0.0, 2.0], [2.0, 3.0, 0.0], [3.0, -1.0, 1.0]]),
)
SCATTERS = (
    *(
        Case(
            f"{reduce}_{include_self}",
            lambda x, y, i, r=reduce, s=include_self: x.scatter_reduce(0, i, y, r, include_self=s),
            (ROWS, UPDATES, PLACES),
            2,
        )
        for reduce in ("sum", "prod", "amax", "amin")
        for include_self in (True, False)
        if include_self or reduce in ("sum", "prod")
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    "cases",
    [LOSSES, FUNCTIONS, EMBEDDINGS, (*QUANTIZED, *ATTENTION), SCATTERS],
    ids=["losses", "functions", "embeddings", "quantization and attention", "scatters"],
)
def test_values_and_gradients_are_pytorchs_where_they_are_hard_to_have(cases: tuple[Case, ...]) -> None:
    check(cases)


class Call(torch.nn.Module):  # type: ignore[misc]
    """A function of the rows and of their places."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.rows = function, torch.nn.Parameter(ROWS)

    def forward(self, x: Any) -> Any:
        return self.function(self.rows, x)


REFUSED = (
    (torch.nn.Embedding(5, 3, max_norm=1.0), "has max_norm"),
    (torch.nn.EmbeddingBag(6, 3), "cannot be differentiated"),
    (Call(lambda x, i: functional.multi_margin_loss(x[:3], i[:, 0] % 3)), "has aten.multi_margin_loss"),
    (Call(lambda x, i: functional.multilabel_margin_loss(x[:3], i % 3)), "has aten.multilabel_margin_loss"),
    *(
        (
            Call(lambda x, i, r=reduce, s=own, p=place: getattr(x.clone(), p)(0, i, x, r, include_self=s)),
            "has reduce = ",
        )
        for reduce, own in (("mean", True), ("mean", False), ("amax", False), ("amin", False))
        for place in ("scatter_reduce", "scatter_reduce_")
    ),
)


@pytest.mark.parametrize(("module", "message"), REFUSED)
def test_what_would_have_another_gradient_is_refused(module: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        onnx_models.torch.export(module, (INDICES % 4,), loss=lambda y: y.sum())

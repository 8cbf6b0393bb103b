"""What PyTorch's exporter translates: outputs and gradients of the exported model are PyTorch's.

The rows are functions of the exporter's list that read floating-point numbers, where they are hard to translate: several
axes, negative axes, ties, indices that occur twice, no or all options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import tensor
from torch.nn import functional

from torch_checks import QUIET, Case, check

pytestmark = QUIET


def numbers(*shape: int, phase: float = 0.3) -> Any:
    """Different numbers between -2 and 2."""
    count = torch.Size(shape).numel()
    return (2 * torch.sin(torch.arange(count) * 2.4 + phase)).reshape(shape)


A, B, C = numbers(3, 4), numbers(3, 4, phase=1.1), numbers(2, 3, 4)
POSITIVE, TIES = A.abs() + 0.1, tensor([[1.0, 2.0, 2.0, 0.0], [3.0, 3.0, 3.0, 3.0], [-1.0, 0.0, 0.0, -2.0]])
ROW, COLUMN = numbers(4, phase=0.7), numbers(3, 1, phase=0.9)
TWICE, MASK = tensor([2, 0, 2]), A > 0
ACROSS = tensor([[0, 1, 0, 2], [2, 2, 1, 0]])


def of(function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    return lambda *x: function(*x, **arguments)


def case(name: str, function: Callable[..., Any], *inputs: Any) -> Case:
    """A function that has gradients by all its floating-point inputs."""
    return Case(name, function, inputs, sum(x.is_floating_point() for x in inputs))


AXES: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"dim": (0, -1)}, C),
    ({"dim": (1,), "keepdim": True}, C),
    ({"dim": (-1,)}, TIES),
)
REDUCTIONS = (
    *(
        case(f"{name}_{i}", of(getattr(torch, name), **options), x)
        for name in ("var", "std", "amax", "logsumexp")
        for i, (options, x) in enumerate(AXES)
        if not (name == "std" and x is TIES)
    ),
    case("var_mean", lambda x: torch.cat(torch.var_mean(x, (0, 2), correction=0)), C),
    case("std_3", lambda x: x.std((0, 2), correction=3, keepdim=True), C),
    case("prod_axis", lambda x: x.prod(-1, keepdim=True), TIES),
    case("max_all", lambda x: x.max() * x.min(), TIES),
    case("max_axis", lambda x: x.max(1).values, TIES),
    case("max_place", lambda x: x * x.max(1, keepdim=True).indices + x.argmin(1, keepdim=True), A),
    case("aminmax", lambda x: torch.cat(torch.aminmax(x, dim=1)), TIES),
    case("nansum", lambda x: torch.nansum(torch.where(MASK, x, torch.nan), 1), A),
    case("nanmean", lambda x: torch.nanmean(torch.where(MASK, x, torch.nan)), A),
    case("logcumsumexp", lambda x: x.logcumsumexp(1), A),
    case("count", lambda x: x * torch.count_nonzero(x, 1)[:, None], TIES),
    case("norm_1", lambda x: x.norm(1, dim=(0, 1)), C),
    case("dist", lambda x, y: torch.dist(x, y, 3), A, B),
    case("renorm", lambda x: torch.renorm(x, 2, 0, 1.5), A),
)  # fmt: skip

INDEXED = (
    case("scatter", lambda x, y: x.scatter(1, tensor([[3, 1], [0, 2], [1, 0]]), y), A, B[:, :2]),
    case("scatter_add", lambda x, y, i: x.scatter_add(0, i, y), A, B[:2], ACROSS),
    case("gather_part", lambda x, i: x.gather(1, i[:, :3]), A, ACROSS),
    case("take", torch.take, A, tensor([[11, 0], [-1, 0]])),
    case("index_two", lambda x, i: x[i, :, i], numbers(3, 2, 4), TWICE),
    case("index_pair", lambda x, i: x[i, i.flip(0)], A, TWICE),
    case("index_mask", lambda x: x[MASK].sum(), A),
    case("index_copy", lambda x, y: x.index_copy(1, tensor([3, 1]), y), A, B[:, :2]),
    case("index_put_add", lambda x, y, i: x.index_put((i,), y, accumulate=True), A, B, TWICE),
    case("index_put_pair", lambda x, y, i: x.index_put((i, i), y, accumulate=True), A, ROW[:3], TWICE),
    case("index_put_mask", lambda x: x.index_put((MASK,), tensor(2.0)), A),
    case("masked_fill_tensor", lambda x, v: x.masked_fill(MASK, v), A, tensor(2.0)),
    case("masked_scatter", lambda x, y: x.masked_scatter(MASK, y), A, B),
    case("slice_scatter", lambda x, y: x.slice_scatter(y, 1, 1, 4, 2), A, B[:, :2]),
    case("topk", lambda x: x.topk(2, 1).values, A),
    case("sort_stable", lambda x: torch.sort(x, dim=0, stable=True).values, TIES),
    case("argsort", lambda x: x.gather(1, x.argsort(1, descending=True)), A),
    case("unique_back", lambda x: x * x.detach().unique(return_inverse=True)[1], TIES),
    case("bucketize", lambda x: x * torch.bucketize(x.detach(), ROW.sort().values, right=True), A),
)  # fmt: skip

PRODUCTS = (
    case("addbmm", torch.addbmm, A[:, :3], C.mT.contiguous().mT, C.mT.contiguous()),
    case("bilinear", functional.bilinear, A, B, numbers(2, 4, 4)),
    case("cross", torch.linalg.cross, A[:, :3], B[:, :3]),
    case("einsum", lambda x, y: torch.einsum("bij,ij->bi", x, y), C, A),
    case("det", torch.linalg.det, A[:, :3]),
)  # fmt: skip

GROUPS = {"reductions": REDUCTIONS, "indices": INDEXED, "products": PRODUCTS}


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_outputs_and_gradients_are_pytorchs(group: str) -> None:
    check(GROUPS[group])

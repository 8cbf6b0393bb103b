"""What PyTorch's exporter translates: outputs and gradients of the exported model are PyTorch's.

The rows are functions of the exporter's list that read floating-point numbers, where they are hard to translate: several
axes, negative axes, ties, indices that occur twice, no or all options; and layers in two and three dimensions.
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

MOVED = (
    case("roll", lambda x: x.roll((1, -2), (0, 1)), A),
    case("rot90", lambda x: torch.rot90(x, 1, (1, 2)), C),
    case("diagonal", lambda x: x.diagonal(-1, 0, 2), numbers(4, 3, 4)),
    case("diag_embed", lambda x: torch.diag_embed(x, 1), A),
    case("unfold", lambda x: x.unfold(1, 3, 1), A),
    case("as_strided", lambda x: torch.as_strided(x, (2, 3), (4, 1), 1), A),
    case("repeat_interleave", lambda x: x.repeat_interleave(2, 1), A),
    case("pixel_shuffle", lambda x: functional.pixel_shuffle(x, 2), numbers(1, 4, 2, 3)),
    case("fold", lambda x: functional.fold(x, (3, 4), (2, 2), padding=1), numbers(1, 8, 20)),
    case("im2col", lambda x: functional.unfold(x, (2, 3), stride=2, padding=1, dilation=1), numbers(1, 2, 4, 5)),
    *(
        case(f"pad_{mode}_{rank}", lambda x, m=mode, p=(1, 2) * rank: functional.pad(x, p, m), numbers(1, 2, *[4] * rank))
        for mode in ("reflect", "replicate", "circular", "constant")
        for rank in (1, 3)
    ),
)  # fmt: skip

POINTWISE = (
    *(
        case(name, getattr(torch, name), A)
        for name in (
            "erfc", "exp2", "expm1", "square", "trunc", "frac", "deg2rad", "sinc",
        )
    ),
    *(
        case(name, getattr(torch, name), POSITIVE / 3)
        for name in (
            "log2", "log1p", "rsqrt", "logit",
        )
    ),
    case("acosh", torch.acosh, POSITIVE + 1),
    *(
        case(name, getattr(functional, name), TIES)
        for name in (
            "gelu", "glu", "relu6", "silu", "hardshrink", "softshrink", "tanhshrink",
        )
    ),
    case("gelu_tanh", of(functional.gelu, approximate="tanh"), A),
    case("softplus_3", of(functional.softplus, beta=3.0, threshold=2.0), A),
    case("threshold", lambda x: functional.threshold(x, 0.5, 7.0), A),
    case("prelu", functional.prelu, A, ROW),
    case("softmax", lambda x: x.softmax(0) + x.log_softmax(-1), A),
    case("round_2", lambda x: x * torch.round(x.detach(), decimals=2), A),
    case("pow", torch.pow, POSITIVE, B),
    case("remainder", torch.remainder, A, B.abs() + 0.3),
    case("fmod", torch.fmod, A, B),
    case("floor_divide", lambda x: x * torch.div(x.detach(), 0.3, rounding_mode="floor"), A),
    case("lerp", torch.lerp, A, B, ROW),
    case("addcdiv", of(torch.addcdiv, value=0.5), A, B, ROW),
    case("nan_to_num", lambda x: torch.nan_to_num(torch.where(MASK, x, torch.inf), 0.5, 2.0, -2.0), A),
    case("polar", lambda x, y: torch.view_as_real(torch.polar(x, y)), POSITIVE, B),
    case("logit_eps", of(torch.logit, eps=0.3), POSITIVE / 3),
)  # fmt: skip

PRODUCTS = (
    case("addbmm", torch.addbmm, A[:, :3], C.mT.contiguous().mT, C.mT.contiguous()),
    case("bilinear", functional.bilinear, A, B, numbers(2, 4, 4)),
    case("cross", torch.linalg.cross, A[:, :3], B[:, :3]),
    case("einsum", lambda x, y: torch.einsum("bij,ij->bi", x, y), C, A),
    case("det", torch.linalg.det, A[:, :3]),
)  # fmt: skip

MAPS = {2: numbers(2, 4, 6, 7), 3: numbers(2, 4, 4, 5, 6)}
CHANNELS, OTHER = numbers(4).abs() + 0.5, numbers(4, phase=2.0)

LINEAR = {2: "bilinear", 3: "trilinear"}


def sized(name: str, rank: int) -> Any:
    return getattr(functional, f"{name}{rank}d")


LAYERS = (
    *(
    one
    for rank, x in MAPS.items()
    for one in (
        case(f"conv_{rank}", of(sized("conv", rank), stride=2, padding=1), x, numbers(3, 4, *[3] * rank), numbers(3)),
        case(f"conv_groups_{rank}", of(sized("conv", rank), groups=2), x, numbers(6, 2, *[2] * rank)),
        case(f"conv_same_{rank}", of(sized("conv", rank), padding="same"), x, numbers(3, 4, *[3] * rank)),
        case(
            f"transposed_{rank}",
            of(sized("conv_transpose", rank), stride=2, padding=1, output_padding=1),
            x,
            numbers(4, 3, *[3] * rank),
            numbers(3),
        ),
        case(f"max_pool_{rank}", of(sized("max_pool", rank), kernel_size=2, stride=2, ceil_mode=True), x),
        case(f"avg_pool_{rank}", of(sized("avg_pool", rank), kernel_size=2, stride=2, padding=1), x),
        case(
            f"avg_pool_ceil_{rank}",
            of(sized("avg_pool", rank), kernel_size=3, stride=2, ceil_mode=True, count_include_pad=False, padding=1),
            x,
        ),
        case(f"avg_pool_all_{rank}", of(sized("adaptive_avg_pool", rank), output_size=1), x),
        case(f"batch_norm_{rank}", lambda x, w, b: functional.batch_norm(x, OTHER, CHANNELS, w, b), x, CHANNELS, OTHER),
        case(f"batch_norm_own_{rank}", lambda x, w, b: functional.batch_norm(x, None, None, w, b, True), x, CHANNELS, OTHER),
        case(f"instance_norm_{rank}", lambda x, w, b: functional.instance_norm(x, None, None, w, b), x, CHANNELS, OTHER),
        case(f"group_norm_{rank}", lambda x, w, b: functional.group_norm(x, 2, w, b), x, CHANNELS, OTHER),
        case(
            f"layer_norm_{rank}",
            lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
            x,
            numbers(x.shape[-1]),
            numbers(x.shape[-1], phase=1.0),
        ),
        case(f"local_response_norm_{rank}", of(functional.local_response_norm, size=3, alpha=0.5, k=2.0), x),
        case(f"nearest_{rank}", of(functional.interpolate, scale_factor=2), x),
        case(f"linear_{rank}", of(functional.interpolate, size=[5] * rank, mode=LINEAR[rank], align_corners=True), x),
        case(f"linear_half_{rank}", of(functional.interpolate, size=[8] * rank, mode=LINEAR[rank]), x),
    )
),
    case("rms_norm", lambda x, w: functional.rms_norm(x, (4,), w, 1e-5), A, ROW),
    case("adaptive_parts", lambda x: functional.adaptive_avg_pool2d(x, (3, 2)), numbers(1, 2, 6, 4)),
    case("grid_sample", of(functional.grid_sample, align_corners=False), MAPS[2], 0.9 * torch.sin(numbers(2, 3, 3, 2))),
    case("bicubic", of(functional.interpolate, size=(9, 5), mode="bicubic"), MAPS[2]),
)  # fmt: skip

GROUPS = {
    "reductions": REDUCTIONS,
    "indices": INDEXED,
    "movement": MOVED,
    "pointwise": POINTWISE,
    "products": PRODUCTS,
    "layers": LAYERS,
}


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_outputs_and_gradients_are_pytorchs(group: str) -> None:
    check(GROUPS[group], atol=3e-5 if group == "layers" else 1e-6)

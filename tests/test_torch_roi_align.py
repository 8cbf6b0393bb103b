"""`ortops.torch`: RoIAlign, also rotated and position-sensitive, and RoIPool as operators of PyTorch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchvision_operators", reason="needs torchvision")

import torch
import torchvision
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.library import opcheck

from ortops.torch import (
    PSRoIAlign,
    RoIAlign,
    RoIAlignRotated,
    RoIPool,
    patch_torchvision,
    ps_roi_align,
    roi_align,
    roi_align_rotated,
    roi_pool,
)
from ortops.torch.operators import array
from test_torch_memory import CALLS
from torchvision_operators import IS_COMPILED, compiled_or_not

ORTOPS = torch.ops.ortops


# Of PyTorch's own rules for the forward mode, when it is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def numbers(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.sin(torch.arange(math.prod(shape)) * 2.4 + 0.3).reshape(shape).to(dtype)


X = numbers(2, 3, 7, 8)
BOXES = torch.tensor([[0.7, 1.1, 5.3, 4.9], [-2.3137, 1.2, 7.7, 9.1413], [3.1, 2.2, 3.4, 2.3]], dtype=torch.float64)
"""One inside the map, one partly off it, and one of less than a pixel; no sample is near a pixel's centre."""
TURNED = torch.tensor([[3.7, 3.1, 5.3, 4.9, 0.3], [2.3, 4.2, 7.7, 5.1, -1.2], [3.1, 2.2, 0.4, 0.3, 2.0]]).double()
IMAGES = torch.tensor([[0.0], [1.0], [1.0]], dtype=torch.float64)
ROIS = torch.cat([IMAGES, BOXES], 1)
AT_EDGES = torch.tensor(
    [
        [0, -1, -1, 1, 1],  # a sample a pixel before the map
        [1, 7.5, 6.5, 9.5, 8.5],  # and one a pixel after it
        [0, -9, -9, -3, -3],
        [0, 3, 3, 3, 3],
        [1, 5, 4, 2, 1],
        [1, 0, 0, 30, 30],
    ],
    dtype=torch.float64,
)
"""Off the map in part and wholly, empty, mirrored, larger than the map."""


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


def with_images(function: Callable[..., Any], *options: Any) -> Callable[[Any, Any], Any]:
    """A function of maps and of RoIs without the index of an image, which has no derivative."""
    return lambda x, rois: function(x, torch.cat([IMAGES, rois], 1), (2, 3), 0.9, *options)


def pooled(x: Any) -> Any:
    return roi_pool(x, ROIS, (2, 3), 0.9)


def on_both(x: Any, *arguments: Any) -> Any:
    """Position-sensitive pooling with six bins of three channels and of their cosines."""
    return ps_roi_align(torch.cat([x, x.cos()], 1), *arguments)


DIFFERENTIABLE = [
    *((with_images(roi_align, ratio, aligned), (X, BOXES)) for ratio, aligned in ((-1, False), (2, True))),
    (with_images(roi_align_rotated, 0, False, True), (X, TURNED)),
    (with_images(roi_align_rotated, 2, True, False), (X, TURNED)),
    *((with_images(on_both, ratio), (X, BOXES)) for ratio in (-1, 2)),
    (pooled, (X,)),
    (lambda x: pooled(x) ** 2, (X,)),
]


@pytest.mark.parametrize(("function", "at"), DIFFERENTIABLE)
def test_first_and_second_derivatives_are_those_of_finite_differences(function: Any, at: Any) -> None:
    """Of averages by maps and RoIs, of maxima by maps alone."""
    inputs = [tensor.clone().requires_grad_() for tensor in at]
    assert gradcheck(function, inputs, fast_mode=True, check_forward_ad=True, check_batched_forward_grad=True)
    assert gradgradcheck(function, inputs, fast_mode=True, check_fwd_over_rev=True)


DY = numbers(3, 3, 2, 3)
SIX = numbers(2, 12, 7, 8)


@pytest.mark.parametrize("name", CALLS)
def test_operators_pass_the_checks_of_pytorch(name: str) -> None:
    # A maximum has no derivative by its RoIs, and its derivatives have none by the map that has the maximum. Second
    # derivatives of averages have none.
    constants = (
        (1,) if name == "roi_pool" else (1, 2) if "roi_pool" in name else range(9) if "drois_grad" in name else ()
    )
    arguments = [
        value.clone().requires_grad_(i not in constants) if isinstance(value, torch.Tensor) else value
        for i, value in enumerate(CALLS[name])
    ]
    opcheck(getattr(ORTOPS, name).default, tuple(arguments))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 0, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_averages_are_torchvisions(dtype: Any, ratio: int, aligned: bool) -> None:
    rois = torch.cat([ROIS, AT_EDGES])
    x, arguments = X.to(dtype), ((2, 3), 0.5, ratio, aligned)
    with compiled_or_not():
        wanted = torchvision.ops.roi_align(X, rois.to(dtype).double(), *arguments)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(roi_align(x, rois.to(dtype), *arguments).double(), wanted, rtol=0, atol=tolerance)


def positional(x: Any, rois: Any, ratio: int) -> Any:
    """torchvision's PSRoIAlign in bins of 2 x 3; where that is not compiled, the bin of each channel of its RoIAlign."""
    if IS_COMPILED:
        return torchvision.ops.ps_roi_align(x, rois, (2, 3), 0.5, ratio)
    with compiled_or_not():
        every = torchvision.ops.roi_align(x, rois, (2, 3), 0.5, ratio, True)
    return every.unflatten(1, (-1, 6)).flatten(3).diagonal(dim1=2, dim2=3).unflatten(2, (2, 3))


@pytest.mark.parametrize("ratio", [-1, 0, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_averages_of_bins_with_channels_of_their_own_are_torchvisions(dtype: Any, ratio: int) -> None:
    rois = torch.cat([ROIS, AT_EDGES])
    # Without samples, torchvision's mean is 0 divided by 0.
    wanted = positional(SIX, rois.to(dtype).double(), ratio).nan_to_num()
    found = ps_roi_align(SIX.to(dtype), rois.to(dtype), (2, 3), 0.5, ratio)
    assert found.shape == (len(rois), 2, 2, 3)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=tolerance)
    x = SIX.clone().requires_grad_()
    pooled = ps_roi_align(x, ROIS, (2, 3), 0.5, ratio), positional(x, ROIS, ratio)
    found, wanted = (grad(y, x, DY[:, :2])[0] for y in pooled)
    torch.testing.assert_close(found, wanted)


def test_the_gradient_by_the_maps_is_torchvisions() -> None:
    x = X.clone().requires_grad_()
    with compiled_or_not():
        (wanted,) = grad(torchvision.ops.roi_align(x, ROIS, (2, 3), 0.9, 2), x, DY)
    torch.testing.assert_close(grad(roi_align(x, ROIS, (2, 3), 0.9, 2), x, DY)[0], wanted)


def test_a_list_of_boxes_has_one_of_each_image_and_modules_call_the_functions() -> None:
    as_list = [BOXES[:1], BOXES[1:]]
    assert torch.equal(roi_align(X, as_list, 2), roi_align(X, ROIS, (2, 2)))
    assert torch.equal(RoIAlign(2, 0.5, 1, aligned=True)(X, as_list), roi_align(X, ROIS, 2, 0.5, 1, True))
    assert torch.equal(RoIPool((2, 3), 0.5)(X, as_list), roi_pool(X, ROIS, (2, 3), 0.5))
    assert torch.equal(PSRoIAlign((2, 3), 0.5, 1)(SIX, as_list), ps_roi_align(SIX, ROIS, (2, 3), 0.5, 1))
    rois = torch.cat([IMAGES, TURNED], 1)
    assert torch.equal(
        RoIAlignRotated(2, 0.5, clockwise=True)(X, rois), roi_align_rotated(X, rois, 2, 0.5, 0, True, True)
    )
    assert repr(RoIPool(2, 0.5)) == "RoIPool(output_size=2, spatial_scale=0.5)"


def derivatives(x: Any, rois: Any, ratio: int = 2) -> list[Any]:
    """The average, its gradients, and those of a sum of these."""
    x, rois = x.clone().requires_grad_(), rois.clone().requires_grad_()
    y = roi_align(x, rois, (2, 3), 0.9, ratio)
    first = grad(y.square().sum(), (x, rois), create_graph=True)
    return [y, *first, *grad(sum(gradient.square().sum() for gradient in first), (x, rois))]


def test_any_number_of_threads_gives_the_same_bits_also_under_deterministic_algorithms() -> None:
    x, rois = numbers(2, 40, 30, 32, dtype=torch.float32), 3 * ROIS.float() * torch.tensor([1 / 3, 1, 1, 1, 1])
    results = []
    for threads, is_deterministic in ((1, False), (2, True), (5, False)):
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(is_deterministic)
        results.append([*derivatives(x, rois.repeat(20, 1)), *derivatives(x[:, :3], rois[:2], 80)])
    for other in results[1:]:
        assert all(torch.equal(actual, same) for actual, same in zip(results[0], other, strict=True))


def test_contiguous_memory_is_shared_and_strides_do_not_matter() -> None:
    assert np.shares_memory(array(X), X.numpy())
    bfloat = X.bfloat16()
    assert array(bfloat).ctypes.data == bfloat.data_ptr()
    wanted = derivatives(X, ROIS)
    for x in (X.contiguous(memory_format=torch.channels_last), X.mT.contiguous().mT):
        for expected, actual in zip(wanted, derivatives(x, ROIS.T.contiguous().T), strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: Any) -> None:
    x, rois = X.to(dtype), ROIS.to(dtype)
    for actual, wanted in zip(derivatives(x, rois)[:3], derivatives(x.float(), rois.float())[:3], strict=True):
        assert actual.dtype == dtype
        torch.testing.assert_close(
            actual, wanted.to(dtype), rtol=4 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps
        )


def test_autocast_computes_in_float32_and_keeps_the_type_of_the_maps() -> None:
    x = X.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = roi_align(x, ROIS.float(), 2)
    assert torch.equal(y, roi_align(x.float(), ROIS.float(), 2).bfloat16())
    assert grad(y.sum(), x)[0].dtype == torch.bfloat16


def test_it_compiles_as_one_graph_of_any_lengths() -> None:
    def loss(x: Any, *boxes: Any) -> Any:
        return (roi_align(x, list(boxes), (2, 3), 0.5, -1, True) ** 2).sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for x, boxes in ((X, (BOXES[:1], BOXES[1:])), (numbers(2, 3, 9, 5), (BOXES, BOXES[:2]))):
        inputs = [tensor.clone().requires_grad_() for tensor in (x, *boxes)]
        actual, wanted = (grad(function(*inputs), inputs) for function in (compiled, loss))
        assert all(map(torch.equal, actual, wanted))


@pytest.mark.parametrize(
    ("module", "rois"),
    [
        (RoIAlign(2, 0.5, 1, aligned=True), ROIS),
        (RoIAlign((2, 3), 0.5, -1), [BOXES[:1], BOXES[1:]]),
        (RoIPool(2, 0.5), ROIS),
        (PSRoIAlign((2, 3), 0.5, 1), ROIS),
        (RoIAlignRotated(2, 0.5), torch.cat([IMAGES, TURNED], 1)),
    ],
)
@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_fx_and_jit_trace_record_a_call(module: Any, rois: Any) -> None:
    x = SIX if isinstance(module, PSRoIAlign) else X
    traced = torch.fx.symbolic_trace(module)
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "placeholder", "call_function", "output"]
    assert torch.equal(traced(x, rois), module(x, rois))
    assert torch.equal(torch.jit.trace(module, (x, rois))(x + 1, rois), module(x + 1, rois))


def test_fx_records_boxes_in_a_list_and_arguments_by_name() -> None:
    traced = torch.fx.symbolic_trace(lambda x, boxes: roi_align(x[:1], boxes=[boxes + 1], output_size=2) * 2)
    assert torch.equal(traced(X, BOXES), roi_align(X[:1], [BOXES + 1], 2) * 2)


def test_jit_script_compiles_the_operators() -> None:
    @torch.jit.script  # type: ignore[untyped-decorator]
    def scripted(x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
        return torch.ops.ortops.roi_align(x, rois, 1.0, 2, 2, 2, True)

    assert torch.equal(scripted(X, ROIS), roi_align(X, ROIS, 2, 1.0, 2, True))


ERRORS: tuple[tuple[Callable[[], Any], type[Exception], str], ...] = (
    (lambda: torch.jit.script(RoIPool(2, 1.0)), TypeError, r"cannot compile RoIPool: call torch.ops.ortops.roi_pool w"),
    (lambda: roi_align(X, BOXES, 2), ValueError, r"boxes.shape = \[3, 4\]: must be \[K, 5\]"),
    (lambda: roi_align(X[0], ROIS, 2), ValueError, r"input.shape = \[3, 7, 8\]: must be \[N, C, H, W\]"),
    (lambda: roi_align(X, ROIS.float(), 2), TypeError, "boxes.dtype = torch.float32: must be torch.float64"),
    (lambda: roi_align(X.int(), ROIS.int(), 2), TypeError, "input.dtype = torch.int32: must be one of torch.float32"),
    (lambda: roi_align(X, ROIS + 1, 2), ValueError, r"boxes\[1\] = \[2.0, .*a whole number >= 0 and < 2"),
    (lambda: roi_align(X, ROIS + 0.5, 2), ValueError, r"boxes\[0\] = \[0.5, .*a whole number"),
    (lambda: roi_pool(X, ROIS * math.nan, 2), ValueError, r"boxes\[0\] = \[nan, .*must be finite"),
    (lambda: roi_align(X[:, :, :0], ROIS, 2), ValueError, r"input.shape = \[2, 3, 0, 8\]: must have pixels"),
    (lambda: roi_align(X, ROIS, (2, 0)), ValueError, r"output_size = \(2, 0\): must be an int >= 1, or two"),
    (lambda: roi_align(X, ROIS, 2, 0.0), ValueError, "spatial_scale = 0.0: must be finite and > 0"),
    (lambda: roi_align(X, [], 2), ValueError, r"boxes = \[\]: must be a tensor \[K, 5\] or a list"),
    (lambda: roi_align(X, [ROIS], 2), ValueError, r"boxes\[0\] = torch.float64 \[3, 5\]: must be a floating-point te"),
    (lambda: roi_align(X, [BOXES, [1, 2]], 2), ValueError, r"boxes\[1\] = \[1, 2\]: must be .* tensor \[L, 4\]"),
    (lambda: roi_align(X, [BOXES.bfloat16()] * 300, 2), ValueError, "boxes has 300 images"),
    (lambda: roi_align_rotated(X, ROIS, 2, 1.0), ValueError, r"rois.shape = \[3, 5\]: must be \[K, 6\]"),
    (lambda: ps_roi_align(X, ROIS, 2), ValueError, r"input.shape = \[2, 3, 7, 8\]: C must be a multiple of 4, the"),
    (lambda: ps_roi_align(X.to("meta"), ROIS.to("meta"), 2), ValueError, "C must be a multiple of 4, the number of"),
    (lambda: ORTOPS.roi_align(X, BOXES, 1.0, 2, 2, 2, True), ValueError, r"boxes.shape = \[3, 4\]"),
    (lambda: second(roi_align, BOXES * 1e9, 1), ValueError, r"rois\[0\] has .* samples: must have at most"),
    (lambda: second(roi_align, BOXES, 2), NotImplementedError, "roi_align has no third derivatives"),
)


def second(function: Any, boxes: Any, times: int) -> None:
    """Differentiate by the boxes, and then so many times again."""
    by = boxes.clone().requires_grad_()
    value = function(X, torch.cat([IMAGES, by], 1), 2).square().sum()
    for _ in range(times):
        value = grad(value, by, create_graph=True)[0].square().sum()
    grad(value, by)


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors_name_the_argument_its_value_and_the_rule(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_torchvision_calls_it_while_it_is_patched() -> None:
    module = torchvision.ops.MultiScaleRoIAlign(["0"], 2, 2)
    features, shapes = {"0": X}, [(14, 16)] * 2
    theirs = torchvision.ops.roi_align
    with patch_torchvision():
        assert torchvision.ops.roi_align is roi_align
        assert torchvision.models.detection.roi_heads.roi_align is roi_align
        found = module(features, [BOXES[:1], BOXES[1:]], shapes)
        assert torch.equal(torchvision.ops.RoIAlign(2, 0.5, 2)(X, ROIS), found)
    assert torchvision.ops.roi_align is torchvision.ops.poolers.roi_align is theirs
    assert torch.equal(found, roi_align(X, ROIS, 2, 0.5, 2))


def called_by_torchvision() -> Any:
    """What all of torchvision calls, which must be one function."""
    detection = torchvision.models.detection
    (function,) = {torchvision.ops.roi_align, torchvision.ops.poolers.roi_align, detection.roi_heads.roi_align}
    return function


def test_many_threads_may_patch_torchvision() -> None:
    theirs = called_by_torchvision()
    start = threading.Barrier(8)

    def patch(_: int) -> bool:
        start.wait()
        found = []
        for _ in range(50):
            with patch_torchvision():
                found.append(called_by_torchvision() is roi_align)
        return all(found)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(patch, range(8)))
    assert called_by_torchvision() is theirs


def test_what_others_put_into_torchvision_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, poolers = called_by_torchvision(), torchvision.ops.poolers
    monkeypatch.setattr(poolers, "roi_align", theirs)

    def other() -> None: ...

    with patch_torchvision():
        poolers.roi_align = other
        with patch_torchvision():
            assert poolers.roi_align is other
            monkeypatch.setattr(torchvision.ops, "imported_meanwhile", torchvision.ops.roi_align, raising=False)
    assert poolers.roi_align is other
    assert torchvision.ops.roi_align is torchvision.ops.imported_meanwhile is theirs
    with pytest.raises(ZeroDivisionError), patch_torchvision():
        raise ZeroDivisionError
    assert torchvision.ops.roi_align is theirs

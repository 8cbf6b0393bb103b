# SPDX-License-Identifier: MIT
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
from torch.autograd import grad
from torch.testing import assert_close

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
from torchvision_operators import IS_COMPILED, compiled_or_not

# Of newer releases of PyTorch; docs/pytorch.md says what torch.jit.script takes.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def numbers(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.sin(torch.arange(math.prod(shape)) * 2.4 + 0.3).reshape(shape).to(dtype)


X, SIX = numbers(2, 3, 7, 8), numbers(2, 12, 7, 8)
BOXES = torch.tensor([[0.7, 1.1, 5.3, 4.9], [-2.3137, 1.2, 7.7, 9.1413], [3.1, 2.2, 3.4, 2.3]], dtype=torch.float64)
"""One inside the map, one partly off it, and one of less than a pixel."""
TURNED = torch.tensor([[3.7, 3.1, 5.3, 4.9, 0.3], [2.3, 4.2, 7.7, 5.1, -1.2], [3.1, 2.2, 0.4, 0.3, 2.0]]).double()
IMAGES = torch.tensor([[0.0], [1.0], [1.0]], dtype=torch.float64)
ROIS, ROTATED = torch.cat([IMAGES, BOXES], 1), torch.cat([IMAGES, TURNED], 1)
LIST = [BOXES[:1], BOXES[1:]]
"""The boxes of each image."""
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


def positional(x: Any, rois: Any, ratio: int) -> Any:
    """torchvision's PSRoIAlign in bins of 2 x 3; where that is not compiled, the bin of each channel of its RoIAlign."""
    if IS_COMPILED:
        # Without samples, torchvision's mean is 0 divided by 0.
        return torchvision.ops.ps_roi_align(x, rois, (2, 3), 0.5, ratio).nan_to_num()
    every = torchvision.ops.roi_align(x, rois, (2, 3), 0.5, ratio, True)
    return every.unflatten(1, (-1, 6)).flatten(3).diagonal(dim1=2, dim2=3).unflatten(2, (2, 3))


AVERAGES: dict[str, tuple[Any, Any, Any]] = {
    # a function of maps, RoIs and the number of samples, torchvision's, and maps
    **{
        f"roi_align, aligned {aligned}": (
            lambda x, rois, ratio, a=aligned: roi_align(x, rois, (2, 3), 0.5, ratio, a),
            lambda x, rois, ratio, a=aligned: torchvision.ops.roi_align(x, rois, (2, 3), 0.5, ratio, a),
            X,
        )
        for aligned in (False, True)
    },
    "ps_roi_align": (lambda x, rois, ratio: ps_roi_align(x, rois, (2, 3), 0.5, ratio), positional, SIX),
}
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 2e-3}
each_average = pytest.mark.parametrize(("ours", "theirs", "x"), AVERAGES.values(), ids=AVERAGES)
each_ratio = pytest.mark.parametrize("ratio", [-1, 0, 2])


@pytest.mark.parametrize("dtype", TOLERANCES)
@each_ratio
@each_average
def test_averages_are_torchvisions(ours: Any, theirs: Any, x: Any, ratio: int, dtype: Any) -> None:
    rois = torch.cat([ROIS, AT_EDGES]).to(dtype)
    with compiled_or_not():
        wanted = theirs(x, rois.double(), ratio)
    assert_close(ours(x.to(dtype), rois, ratio).double(), wanted, rtol=0, atol=TOLERANCES[dtype])


@each_ratio
@each_average
def test_gradients_by_the_maps_are_torchvisions(ours: Any, theirs: Any, x: Any, ratio: int) -> None:
    x = x.clone().requires_grad_()
    with compiled_or_not():
        wanted = theirs(x, ROIS, ratio)
        dy = numbers(*wanted.shape)
        (dx,) = grad(wanted, x, dy)
    assert_close(grad(ours(x, ROIS, ratio), x, dy)[0], dx)


def gradients(x: Any, rois: Any, ratio: int = 2) -> list[Any]:
    """The average and its gradients."""
    x, rois = x.clone().requires_grad_(), rois.clone().requires_grad_()
    y = roi_align(x, rois, (2, 3), 0.9, ratio)
    return [y, *grad(y.square().sum(), (x, rois))]


def test_any_number_of_threads_gives_the_same_bits_also_under_deterministic_algorithms() -> None:
    x, rois = numbers(2, 40, 30, 32, dtype=torch.float32), 3 * ROIS.float() * torch.tensor([1 / 3, 1, 1, 1, 1])
    results = []
    for threads, is_deterministic in ((1, False), (2, True), (5, False)):
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(is_deterministic)
        results.append([*gradients(x, rois.repeat(20, 1)), *gradients(x[:, :3], rois[:2], 80)])
    for other in results[1:]:
        assert all(torch.equal(actual, same) for actual, same in zip(results[0], other, strict=True))


def test_contiguous_memory_is_shared_and_strides_do_not_matter() -> None:
    assert np.shares_memory(array(X), X.numpy())
    bfloat = X.bfloat16()
    assert array(bfloat).ctypes.data == bfloat.data_ptr()
    wanted = gradients(X, ROIS)
    for x in (X.contiguous(memory_format=torch.channels_last), X.mT.contiguous().mT):
        assert all(map(torch.equal, gradients(x, ROIS.T.contiguous().T), wanted))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: Any) -> None:
    x, rois = X.to(dtype), ROIS.to(dtype)
    eps = torch.finfo(dtype).eps
    for actual, wanted in zip(gradients(x, rois), gradients(x.float(), rois.float()), strict=True):
        assert_close(actual, wanted.to(dtype), rtol=4 * eps, atol=eps)


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
    for x, boxes in ((X, LIST), (numbers(2, 3, 9, 5), (BOXES, BOXES[:2]))):
        inputs = [tensor.clone().requires_grad_() for tensor in (x, *boxes)]
        actual, wanted = (grad(function(*inputs), inputs) for function in (compiled, loss))
        assert all(map(torch.equal, actual, wanted))


MODULES: tuple[tuple[Any, Any, Any, Callable[[Any], Any]], ...] = (
    # module, maps, boxes, the function that it calls
    (RoIAlign(2, 0.5, 1, aligned=True), X, ROIS, lambda x: roi_align(x, ROIS, 2, 0.5, 1, True)),
    (RoIAlign((2, 3), 0.5, -1), X, LIST, lambda x: roi_align(x, ROIS, (2, 3), 0.5, -1, False)),
    (RoIPool(2, 0.5), X, LIST, lambda x: roi_pool(x, ROIS, (2, 2), 0.5)),
    (PSRoIAlign((2, 3), 0.5, 1), SIX, LIST, lambda x: ps_roi_align(x, ROIS, (2, 3), 0.5, 1)),
    (
        RoIAlignRotated(2, 0.5, clockwise=True),
        *(X, ROTATED),
        lambda x: roi_align_rotated(x, ROTATED, 2, 0.5, 0, True, True),
    ),
)


@pytest.mark.parametrize(("module", "x", "boxes", "function"), MODULES)
@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_module_calls_its_function_which_fx_and_jit_trace_record(
    module: Any, x: Any, boxes: Any, function: Callable[[Any], Any]
) -> None:
    traced = torch.fx.symbolic_trace(module)
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "placeholder", "call_function", "output"]
    for call in (module, traced, torch.jit.trace(module, (x, boxes))):
        assert torch.equal(call(x + 1, boxes), function(x + 1))


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
    (lambda: roi_align(X, ROIS.to("meta"), 2), ValueError, "boxes.device = meta: must be cpu, the device of input"),
    (
        lambda: roi_align(X, [BOXES, BOXES.to("meta")], 2),
        ValueError,
        r"boxes\[1\].device = meta: must be cpu, the device of boxes\[0\]",
    ),
    (lambda: torch.ops.ortops.roi_align(X, BOXES, 1.0, 2, 2, 2, True), ValueError, r"boxes.shape = \[3, 4\]"),
)


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors_name_the_argument_its_value_and_the_rule(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def called_by_torchvision() -> Any:
    """What all of torchvision calls, which must be one function."""
    detection = torchvision.models.detection
    (function,) = {torchvision.ops.roi_align, torchvision.ops.poolers.roi_align, detection.roi_heads.roi_align}
    return function


def test_torchvision_calls_it_while_it_is_patched() -> None:
    module = torchvision.ops.MultiScaleRoIAlign(["0"], 2, 2)
    with patch_torchvision():
        assert called_by_torchvision() is roi_align
        pooled = module({"0": X}, LIST, [(14, 16)] * 2)
        assert torch.equal(torchvision.ops.RoIAlign(2, 0.5, 2)(X, ROIS), pooled)
    assert torch.equal(pooled, roi_align(X, ROIS, 2, 0.5, 2))


def test_many_threads_may_patch_torchvision() -> None:
    theirs = called_by_torchvision()
    start = threading.Barrier(8)

    def patch(_: int) -> bool:
        start.wait()
        is_patched = []
        for _ in range(50):
            with patch_torchvision():
                is_patched.append(called_by_torchvision() is roi_align)
        return all(is_patched)

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

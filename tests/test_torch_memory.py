# SPDX-License-Identifier: MIT
"""The operators of `ortops.torch` by PyTorch's checks, and the memory that they read: device, type and alignment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.library import opcheck

from ortops.compute import Bound
from ortops.torch import operators, roi_align

ORTOPS = torch.ops.ortops
X, DY = torch.rand(1, 3, 6, 7), torch.rand(2, 3, 2, 2)
BOXES = torch.tensor([[0, 1.0, 1, 5, 4], [0, 0, 2, 6, 5]])
TURNED = torch.cat([BOXES, torch.tensor([[0.3], [-1.2]])], 1)

VALUE, WEIGHTS = torch.rand(2, 14, 2, 3), torch.rand(2, 5, 2, 2, 3)
POINTS = (VALUE, torch.rand(2, 5, 2, 2, 3, 2), WEIGHTS, torch.tensor([[3, 4], [2, 1]]), torch.tensor([2, 0]))

CALLS: dict[str, tuple[Any, ...]] = {
    "roi_align": (X, BOXES, 0.9, 2, 2, 2, True),
    "roi_align_dx": (DY, BOXES, list(X.shape), 0.9, 2, True),
    "roi_align_drois": (DY, BOXES, X, 0.9, 2, True),
    "roi_align_rotated": (X, TURNED, 0.9, 2, 2, 2, True, False),
    "roi_align_rotated_dx": (DY, TURNED, list(X.shape), 0.9, 2, True, False),
    "roi_align_rotated_drois": (DY, TURNED, X, 0.9, 2, True, False),
    "ps_roi_align": (X, BOXES, 0.9, 3, 1, 2),
    "ps_roi_align_dx": (DY[:, :1, :, :1], BOXES, [1, 2, 6, 7], 0.9, 2),
    "ps_roi_align_drois": (DY[:, :1, :, :1], BOXES, X[:, :2], 0.9, 2),
    "roi_pool": (X, BOXES, 0.9, 2, 2),
    "roi_pool_dx": (DY, BOXES, X, 0.9),
    "ms_deform_attn": POINTS,
    "ms_deform_attn_grad": (torch.rand(2, 5, 6), *POINTS),
    "roi_pool_at_maxima": (X, BOXES, X, 0.9, 2, 2),
}
each_operator = pytest.mark.parametrize("name", CALLS)


def positions(arguments: Sequence[Any]) -> list[int]:
    return [i for i, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]


def test_every_operator_has_a_row() -> None:
    defined = {str(operator).rpartition("::")[2] for operator in operators.library._op_defs}  # noqa: SLF001
    assert defined == set(CALLS)


@each_operator
def test_operators_pass_the_checks_of_pytorch(name: str) -> None:
    # A maximum has no derivative by its RoIs, and its derivatives have none by the map that has the maximum. An average's
    # gradient by RoIs has no derivatives.
    constants: Sequence[int] = (
        (1,) if name == "roi_pool" else (1, 2) if "roi_pool" in name else (0, 1, 2) if "drois" in name else ()
    )
    if name == "ms_deform_attn_grad":  # it has no derivatives
        constants = (0, 1, 2, 3)
    arguments = [
        value.clone().requires_grad_(value.is_floating_point() and i not in constants)
        if isinstance(value, torch.Tensor)
        else value
        for i, value in enumerate(CALLS[name])
    ]
    opcheck(getattr(ORTOPS, name).default, tuple(arguments))


@each_operator
def test_tensors_of_the_cpu_and_of_meta_are_not_mixed(name: str) -> None:
    arguments, places = CALLS[name], positions(CALLS[name])
    for chosen in itertools.product([False, True], repeat=len(places)):
        moved = list(arguments)
        for place, is_meta in zip(places, chosen, strict=True):
            moved[place] = moved[place].to("meta" if is_meta else "cpu")
        if 0 < sum(chosen) < len(chosen):
            with pytest.raises(ValueError, match=r"\w+\.device = (meta|cpu): must be (meta|cpu), the device of \w+"):
                getattr(ORTOPS, name)(*moved)
        else:
            outputs = (getattr(ORTOPS, name)(*given) for given in (moved, arguments))
            # The gradient of deformable attention has several outputs.
            for actual, wanted in zip(*(y if isinstance(y, tuple) else (y,) for y in outputs), strict=True):
                assert actual.device.type == ("meta" if all(chosen) else "cpu")
                assert actual.shape == wanted.shape


@each_operator
def test_tensors_of_different_types_are_refused(name: str) -> None:
    for place in positions(CALLS[name]):
        arguments = list(CALLS[name])
        arguments[place] = arguments[place].double()
        rule = r"\w+\.dtype = torch.float(32|64): must be torch.(float(32|64), the type of|int64)"
        with pytest.raises(TypeError, match=rule):
            getattr(ORTOPS, name)(*arguments)


def unaligned(tensor: Any) -> Any:
    """A copy a byte after an aligned address."""
    memory = np.empty(tensor.nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16 + 1
    memory[start : start + tensor.nbytes] = tensor.view(torch.uint8).numpy().ravel()
    return torch.frombuffer(memory, dtype=tensor.dtype, offset=start, count=tensor.numel()).reshape(tensor.shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_unaligned_memory_is_copied(dtype: Any) -> None:
    tensor = unaligned(X.to(dtype))
    assert tensor.data_ptr() % 2
    assert operators.array(tensor).flags.aligned
    assert torch.equal(roi_align(tensor, unaligned(BOXES.to(dtype)), 2), roi_align(X.to(dtype), BOXES.to(dtype), 2))


@pytest.mark.parametrize("name", [name for name in CALLS if "roi" in name])
def test_kernels_read_a_copy_of_the_rois_since_other_threads_may_write_to_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rois = (TURNED if "rotated" in name else BOXES).clone()
    given: list[Any] = []
    call = Bound.__call__

    def recording(bound: Bound, inputs: Sequence[Any], *others: Any) -> None:
        given.extend(tensor for tensor in inputs if tensor is not None)
        call(bound, inputs, *others)

    monkeypatch.setattr(Bound, "__call__", recording)
    first, _, *others = CALLS[name]
    getattr(ORTOPS, name)(first, rois, *others)
    assert len(given) >= 2
    assert not any(np.shares_memory(tensor, rois.numpy()) for tensor in given)

"""Embedding and EmbeddingBag, whose padding row gets no gradient.

Source: PyTorch 2.13, ``torch.nn.functional.embedding`` and ``embedding_bag``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnx_models.torch.custom_gradients import with_derivatives

aten = torch.ops.aten

_SUM, _MEAN = 0, 1
"""PyTorch's numbers for the modes of an EmbeddingBag; the third is the maximum."""


def _embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,  # noqa: ARG001 - a matter of memory
) -> Any:
    """Rows of a table. Padding gets no gradient; `scale_grad_by_freq` divides the gradient of a row by its frequency."""
    rows = weight[indices]
    share = None
    if scale_grad_by_freq:
        flat = indices.flatten()
        counts = weight.new_zeros(weight.shape[0]).index_add(0, flat, weight.new_ones(flat.shape[0]))
        share = 1 / counts[indices]
    if padding_idx >= 0:
        kept = (indices != padding_idx).to(weight.dtype)
        share = kept if share is None else share * kept
    return rows if share is None else with_derivatives(rows, (rows, share.unsqueeze(-1)))


def _embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,  # noqa: ARG001
    mode: int = _SUM,
    sparse: bool = False,  # noqa: ARG001
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Sums, means or maxima of bags of rows; padding is ignored, and an empty bag is 0.

    Args:
        weight: [V, D].
        indices: [n], those of all bags one after another.
        offsets: [B], the start of each bag in indices; one more at the end if include_last_offset.
        scale_grad_by_freq: always False, see `capture`.
        mode: PyTorch's number.
        sparse: ignored.
        per_sample_weights: [n] or None.
        include_last_offset: see offsets.
        padding_idx: a row of weight.

    Returns:
        The bags [B, D], and three tensors that only PyTorch's gradient reads.
    """
    bags = offsets.shape[0] - int(include_last_offset)
    starts = torch.zeros(indices.shape[0] + 1, dtype=torch.int64)
    starts = starts.index_add(0, offsets[:bags].long(), torch.ones(bags, dtype=torch.int64))
    bag = starts.cumsum(0)[:-1] - 1
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    rows = _embedding(weight, indices.long(), padding)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    kept = indices != padding
    counts = torch.zeros(bags, dtype=torch.int64).index_add(0, bag, kept.long()).unsqueeze(-1)
    if mode in (_SUM, _MEAN):
        rows = torch.where(kept.unsqueeze(-1), rows, 0)
        found = weight.new_zeros(bags, weight.shape[1]).index_add(0, bag, rows)
        found = found if mode == _SUM else found / counts.clamp(min=1).to(weight.dtype)
    else:
        found = _maxima(rows, bag, kept, bags)
    return found, bag, counts, counts


def _maxima(rows: Any, bag: Any, kept: Any, bags: Any) -> Any:
    """The maximum of each bag; the gradient goes to the first of equal ones."""
    columns = bag.unsqueeze(-1).expand(rows.shape)
    known = torch.where(kept.unsqueeze(-1), rows, float("-inf")).detach()
    least = known.new_full((bags, rows.shape[1]), float("-inf"))
    largest = least.scatter_reduce(0, columns, known, "amax")
    number = torch.arange(rows.shape[0]).unsqueeze(-1)
    is_largest = (known == largest.gather(0, columns)) & kept.unsqueeze(-1)
    place = torch.where(is_largest, number, rows.shape[0])
    none = torch.full((bags, rows.shape[1]), rows.shape[0])
    first = none.scatter_reduce(0, columns, place, "amin")
    found = rows.gather(0, torch.where(first < rows.shape[0], first, 0))
    return torch.where(first < rows.shape[0], found, 0)


EMBEDDINGS: dict[Any, Callable[..., Any]] = {
    aten.embedding.default: _embedding,
    aten.embedding_bag.default: _embedding_bag,
    aten.embedding_bag.padding_idx: _embedding_bag,
}
"""Decompositions by operator."""

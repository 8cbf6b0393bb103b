# SPDX-License-Identifier: MIT
"""Deformable attention of standard nodes as one node, MSDeformAttn."""

from __future__ import annotations

import onnx

from onnx_models.tools.protos import accepted, copy_model
from ortops.custom.operator import check_domain
from ortops.foreign import deformable_attention
from ortops.spec import DOMAIN


def fuse(model: onnx.ModelProto, domain: str = DOMAIN) -> onnx.ModelProto:
    """Return a copy of `model` with MSDeformAttn in place of deformable attention that is written in standard nodes.

    These are the nodes that PyTorch exports of Deformable DETR, DINO, Grounding DINO, RT-DETR, D-FINE, Mask2Former,
    OneFormer and mmdetection: a GridSample for each level, the product with the weights, and the sum. The number of levels
    and all lengths are free, and may depend on the model's inputs. `ortops.InferenceSession` does the same for its model.

    Nodes in subgraphs and functions stay as they are. So does an attention that differs from the operator in anything, or
    whose samples or products something else reads. External data is not read. The locations get the type of the value. At a
    location that is NaN or infinite, MSDeformAttn samples 0, and ONNX Runtime's GridSample any pixel.

    Args:
        model: a model; not modified.
        domain: the domain of the nodes, as for `convert`.

    Raises:
        ValueError: the domain is no name, or as `convert`.
        TypeError: `model` is not a ModelProto.

    Source: as `ortops.foreign.deformable_attention`.
    """
    check_domain(domain)
    fused = copy_model(accepted(model))
    deformable_attention.fuse(fused, domain)
    return fused

"""A rule for each operator: from the gradients by its outputs to those by its inputs.

A new rule is a function under ``@rule("Operator")`` in the file of its kin: it takes the graph to write nodes into, the
node and the name of the gradient by its output, and returns for each input that is wanted (`Node.wants`) the name of its
gradient, or a `Zero` with the reason, and None for one that is not wanted. An operator that is a composition of others may
have a function under ``@decomposition("Operator")`` instead, which writes it out in these. A new file is named here.
"""

from onnx_models.gradient.rules import (
    activations,
    arithmetic,
    control,
    convolution,
    creation,
    detection,
    einsum,
    elementary,
    indexing,
    linear,
    losses,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduce,
    resizing,
    sampling,
    shapes,
    spectral,
)
from onnx_models.gradient.rules.registry import DECOMPOSITIONS, REFUSED, RULES, ZEROS

__all__ = [
    "DECOMPOSITIONS",
    "REFUSED",
    "RULES",
    "ZEROS",
    "activations",
    "arithmetic",
    "control",
    "convolution",
    "creation",
    "detection",
    "einsum",
    "elementary",
    "indexing",
    "linear",
    "losses",
    "movement",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reduce",
    "resizing",
    "sampling",
    "shapes",
    "spectral",
]

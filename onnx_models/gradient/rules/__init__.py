"""A rule for each operator: from the gradients by its outputs to those by its inputs.

A new rule is a function under ``@rule("Operator")`` in the file of its kin: it takes the graph to write nodes into, the
node and the name of the gradient by its output, and returns the name of the gradient by each input, None for one that has
none or is not wanted (`Node.wants`); at the end it may leave inputs out. A new file is named here.
"""

from onnx_models.gradient.rules import (
    activations,
    arithmetic,
    convolution,
    creation,
    detection,
    elementary,
    indexing,
    linear,
    losses,
    movement,
    normalization,
    pooling,
    reduce,
    resizing,
    shapes,
)
from onnx_models.gradient.rules.table import RULES, STOPS

__all__ = [
    "RULES",
    "STOPS",
    "activations",
    "arithmetic",
    "convolution",
    "creation",
    "detection",
    "elementary",
    "indexing",
    "linear",
    "losses",
    "movement",
    "normalization",
    "pooling",
    "reduce",
    "resizing",
    "shapes",
]

# SPDX-License-Identifier: MIT
"""The differentiation rules of operators: from the gradients of the outputs to the gradients of the inputs.

The gradient of an elementwise operator is a line of `elementwise.GRADIENTS`, and that of an operator that moves elements
may be a line of `movement.ADJOINTS`. Any other rule is a function decorated with ``@rule("Operator")`` in the module of
similar operators. It takes the graph to add nodes to, the node and the name of the gradient of its output. For each input
it returns the name of the gradient, a `Zero` with the reason, or None if the gradient is not needed (`Node.wants`). An
operator that is a composition of others may instead have a function decorated with ``@decomposition("Operator")``, which
adds these. A new module must be imported here.
"""

from onnx_models.gradient.registry import DECOMPOSITIONS, REFUSED, RULES, ZEROS
from onnx_models.gradient.rules import (  # noqa: F401 -- each module registers its rules
    control,
    convolution,
    elementwise,
    indexing,
    movement,
    normalization,
    own,
    pooling,
    products,
    quantization,
    recurrent,
    reduce,
    resizing,
    sampling,
    spectral,
)

__all__ = ["DECOMPOSITIONS", "REFUSED", "RULES", "ZEROS"]

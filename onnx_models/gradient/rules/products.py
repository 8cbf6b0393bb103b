"""The product of all factors but one: for each factor its derivative."""

from __future__ import annotations

from collections.abc import Callable

from onnx_models.gradient.expression import Expr

Reduction = Callable[[Expr], Expr]
"""From a number for each factor to what all those that are multiplied with it have together, at each of them."""


def product_of_others(factors: Expr, product: Reduction, total: Reduction) -> Expr:
    """The products of the others, 0 where there is a 0 among those.

    The product over the factor itself, but a 0 is left out of the product, and joined again where it is among the others.
    So these nodes have the right derivative too, unless more than one factor is 0.

    Args:
        factors: those of one or more products.
        product: the product of all.
        total: the sum of all.
    """
    is_zero = factors.op("Equal", 0.0)
    others = factors.of(1.0).where(is_zero, factors)
    zeros, counts = factors.where(is_zero, 0.0), is_zero.op("CastLike", factors)
    without = product(others) / others
    number, left = total(counts) - counts, total(zeros) - zeros
    return without.where(number.op("Equal", 0.0), (without * left).where(number.op("Equal", 1.0), 0.0))

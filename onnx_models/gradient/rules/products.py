"""The derivatives of a product: the products of all factors but one."""

from __future__ import annotations

from collections.abc import Callable

from onnx_models.gradient.graph import Expr

Reduction = Callable[[Expr], Expr]
"""Reduces a tensor with an element for each factor over each product, and broadcasts the result back to the factors."""


def product_of_others(factors: Expr, product: Reduction, total: Reduction) -> Expr:
    """The product of the other factors for each factor; 0 if one of these is 0.

    It is the whole product divided by the factor. Zeros are left out of the product and multiplied again, so that the second
    derivative is right too, unless several factors are 0.

    Args:
        factors: the factors of one or more products.
        product: reduces by products.
        total: reduces by sums.
    """
    is_zero = factors.op("Equal", 0.0)
    others = factors.of(1.0).where(is_zero, factors)
    zeros, counts = factors.where(is_zero, 0.0), is_zero.op("CastLike", factors)
    without = product(others) / others
    number, left = total(counts) - counts, total(zeros) - zeros
    return without.where(number.op("Equal", 0.0), (without * left).where(number.op("Equal", 1.0), 0.0))

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The expected values of cases: their own, or the float64 reference's, which are computed at first use and cached.

A runtime may have chosen another reading of the specification, whose values are then expected.

Generated cases store no expected values, so listing them is fast and a new case needs no new file.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import ortops
from conformance.case import Array, Case, Source
from conformance.error_terms import Floats
from conformance.formula import Computed
from conformance.stored_results import stored
from ortops.operators.asked import BY_NAME
from ortops.reference import evaluate
from ortops.spec import Operator

CONVENTIONS = ("max_interpolated", "float16_arithmetic")
"""Readings of the specification that a runtime can choose instead of the suite's.

    max_interpolated      `max` is the largest interpolated sample, as ONNX's text can be read, and not the largest weighted
                          pixel as in ONNX's vectors
    float16_arithmetic    float16 and bfloat16 tensors are computed in their own type, and not at least in float32
"""

_cache: dict[Hashable, Mapping[str, Floats]] = {}


def reference(
    operator: Operator, attributes: Mapping[str, object], inputs: Mapping[str, Array], outputs: Sequence[str]
) -> Mapping[str, Floats]:
    """The named outputs of `operator` by the float64 reference, unrounded. They are cached and shared: do not write to them.

    Raises:
        TypeError: an attribute is unknown or has a wrong type.
        ValueError: the operator refuses the value of an attribute, or the data.
    """
    return shared(
        call_key(operator, attributes, inputs, outputs), lambda: evaluated(operator, attributes, inputs, outputs)
    )


def evaluated(
    operator: Operator, attributes: Mapping[str, object], inputs: Mapping[str, Array], outputs: Sequence[str]
) -> dict[str, Floats]:
    """The same as `reference`, without the cache, which would keep large arrays."""
    wanted = tuple(tensor.name in outputs for tensor in operator.outputs)
    values = evaluate(operator, _widened(operator, inputs), attributes, wanted)
    return {t.name: y for t, y in zip(operator.outputs, values, strict=True) if y is not None}


def by_reference(function: str) -> Source:
    """The source of expected values that the reference computes."""
    return Source(f"ortops/reference/{function.removesuffix('_grad')}.py", f"ortops {ortops.__version__}", function)


def call_key(
    operator: Operator, attributes: Mapping[str, object], inputs: Mapping[str, Array], outputs: Sequence[str]
) -> Hashable:
    """A key for the unrounded outputs: equal for versions and element types with the same numbers.

    Raises:
        TypeError, ValueError: the operator refuses an attribute.
    """
    arguments = _arguments(operator.name, tuple(attributes.items()))
    wanted = tuple(tensor.name in outputs for tensor in operator.outputs)
    given = [
        None if a is None else (a.dtype.str, a.shape, hashlib.sha256(a.tobytes()).hexdigest())
        for a in _widened(operator, inputs)
    ]
    return operator.function, arguments, tuple(given), wanted


@functools.lru_cache(1024)
def _arguments(operator: str, attributes: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """The arguments of an operator, sorted, for the attributes of a node, which many cases share."""
    return tuple(sorted(BY_NAME[operator].check_attributes(dict(attributes)).items()))


def shared(key: Hashable, compute: Callable[[], Mapping[str, Floats]]) -> Mapping[str, Floats]:
    """The result of `compute`, which runs once for each key. The result is cached and shared: do not write to it."""
    if key not in _cache:
        _cache[key] = stored(key, compute)
    return _cache[key]


def clear_cache() -> None:
    """Empty the cache, as endless runs of cases must."""
    _cache.clear()


def expected_outputs(case: Case) -> Mapping[str, Floats]:
    """The expected outputs by name in float64: the case's own, or else the reference's.

    For a large case, each access computes them again, and they may be in float32.
    """
    if case.formula is not None and case.expected is not None:
        return case.expected
    if case.expected is None:
        return reference(case.definition, case.attributes, case.inputs, case.outputs)
    return {name: value.astype(np.float64) for name, value in case.expected.items()}


def _widened(operator: Operator, inputs: Mapping[str, Array]) -> list[Array | None]:
    """The inputs in the operator's order, in float64 and int64."""
    exact: list[type[Any]] = [np.int64, np.float64]
    given = [inputs.get(tensor.name) for tensor in operator.inputs]
    return [a if a is None else a.astype(exact[a.dtype.kind not in "iu"], copy=False) for a in given]


def check_conventions(conventions: Collection[str]) -> None:
    """Raise ValueError if a convention is unknown."""
    for name in conventions:
        if name not in CONVENTIONS:
            raise ValueError(f"convention {name!r}: must be one of {', '.join(CONVENTIONS)}")


def with_conventions(case: Case, conventions: Collection[str]) -> Case:
    """The case with the values that these conventions expect. The runtime itself gets the original case."""
    if conventions and case.before:
        case = replace(case, before=tuple(with_conventions(call, conventions) for call in case.before))
    if "max_interpolated" in conventions and case.attributes.get("mode") == "max" and not case.expects_error:
        mode = "max_interpolated"
        case = replace(
            case, attributes={**case.attributes, "mode": mode}, expected=None, decimals=None, input_error=0.0
        )
        if case.formula is not None:
            formula = case.formula.with_mode(mode)
            case = replace(case, inputs=Computed(formula), expected=Computed(formula, are_inputs=False))
    if "float16_arithmetic" in conventions:
        case = replace(case, is_in_own_type=True)
    return case

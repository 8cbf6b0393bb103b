# SPDX-License-Identifier: MIT OR Apache-2.0
"""A conformance case, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from conformance.formula import Array, Computed, Formula, TensorType, types_of
from ortops.operators.asked import BY_NAME, OPERATORS
from ortops.spec import DOMAIN_VERSION, ELEMENT_DTYPES, AttributeValue, Operator

__all__ = [
    "DTYPES",
    "MAX_SAMPLES",
    "Array",
    "Basis",
    "Case",
    "Level",
    "Source",
    "element_type_of",
    "group_of",
    "scenario_of",
    "weakest",
]

DTYPES = {
    name: dtype
    for name, dtype in ELEMENT_DTYPES.items()
    if any(name in definition.element_types(tensor) for definition in OPERATORS for tensor in definition.inputs)
}
"""The NumPy type of each ONNX element type that the suite's operators have."""

MAX_SAMPLES = 10**6
"""Samples of all RoIs in one channel. A runtime that visits more samples takes seconds, or fills memory."""


@dataclass(frozen=True, slots=True)
class Source:
    """The document from which the expected values of a case follow."""

    document: str
    version: str
    section: str

    def __str__(self) -> str:
        return f"{self.document}, {self.version}, {self.section}"


class Basis(StrEnum):
    """The authority behind a case, the strongest first.

    TEXT: the operator's specification, ONNX's or DirectML's, or a derivative that follows from it.
    VECTORS: numbers that ONNX or another implementation has published.
    REFERENCE: what ONNX's reference evaluator computes and the text does not say, such as the border of the map.
    OURS: this project's reading of what all others leave open: most refusals, empty and negative RoIs, ties.
    """

    TEXT = "text"
    VECTORS = "vectors"
    REFERENCE = "reference"
    OURS = "ours"


class Level(StrEnum):
    """Whose rules a runtime has to follow to conform.

    CORE: those of the operator's text.
    STANDARD: also published vectors and what ONNX's reference evaluator computes.
    STRICT: also this project's own.
    """

    CORE = "core"
    STANDARD = "standard"
    STRICT = "strict"

    def asks(self, basis: Basis) -> bool:
        """Whether the rules of this authority count."""
        return self is Level.STRICT or basis is Basis.TEXT or (self is Level.STANDARD and basis is not Basis.OURS)


OLD_LEVELS = {"text": Level.CORE, "vectors": Level.STANDARD, "reference": Level.STANDARD, "all": Level.STRICT}
"""The levels by the values of the deprecated option `--strict`."""


def chosen_level(level: str | None, strict: str | None, *listed: Level | None) -> Level:
    """The level of a run: that of the option `--level`, else of `--strict`, else of a list of expected failures."""
    return Level(next(filter(None, (level, OLD_LEVELS.get(strict or ""), *listed)), Level.STANDARD))


def weakest(*bases: Basis) -> Basis:
    """The weakest of several bases."""
    return max(bases, key=list(Basis).index)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One node with its inputs, and the outputs or the error that a conforming runtime gives.

    id: stable and unique, `function/group/scenario/variant/type`; the first two parts name the row of a report.
    source: the document from which the expected values follow.
    operator: the name of the definition in `ortops.OPERATORS`, with the version if ONNX has several.
    attributes: the node's attributes; others have their defaults.
    inputs: by name; the node leaves out others. A large case's inputs are `conformance.formula.Computed`.
    outputs: the names of the node's outputs.
    note: the statement that this case checks.
    expected: outputs by name, in float64; None if the reference computes them or the case expects an error.
    expects_error: what makes the node invalid, or None for a valid node. A runtime may refuse it when it loads the model
        or when it runs it.
    decimals: digits after the decimal point to which `expected` is printed; None if it is exact.
    input_error: the largest difference between an element of the feature map (or of the output's gradient) and the number
        from which `expected` was computed, which was printed or rounded to its type as well.
    basis: the authority behind the case.
    twin: for a case that expects an error, the same model and shapes with the one fault corrected. A refusal counts only
        if the backend answers the twin correctly; else the case is unsupported.
    before: earlier calls of the same session, as cases that differ in inputs and expected values. All answers are compared.
    is_at_once: whether two threads make the calls, this one included: each makes every second one.
    named_axes: (tensor, axis) pairs whose length is symbolic in the model: a name instead of a number.
    initializers: the names of inputs that are constants of the model.
    is_in_own_type: whether the backend may compute in the tensors' type, such as float16, instead of in float32 at least.
    """

    id: str
    source: Source
    operator: str
    attributes: Mapping[str, AttributeValue]
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    note: str
    expected: Mapping[str, Array] | None = None
    expects_error: Literal["attribute", "data"] | None = None
    decimals: int | None = None
    input_error: float = 0.0
    basis: Basis = Basis.TEXT
    twin: Case | None = None
    before: tuple[Case, ...] = ()
    is_at_once: bool = False
    named_axes: frozenset[tuple[str, int]] = frozenset()
    initializers: tuple[str, ...] = ()
    is_in_own_type: bool = False

    def __post_init__(self) -> None:
        unknown_inputs = set(self.inputs) - {tensor.name for tensor in self.definition.inputs}
        unknown_outputs = set(self.outputs) - {tensor.name for tensor in self.definition.outputs}
        if unknown_inputs or unknown_outputs:
            raise ValueError(f"{self.id}: {self.operator} has no tensor {sorted(unknown_inputs | unknown_outputs)}")
        if self.expected is not None and (self.expects_error or set(self.expected) != set(self.outputs)):
            raise ValueError(f"{self.id}: expected {sorted(self.expected)} does not go with outputs {self.outputs}")

    @property
    def definition(self) -> Operator:
        """The operator."""
        return BY_NAME[self.operator]

    @property
    def version(self) -> int:
        """ONNX's opset if the operator is one of ONNX's, else the version of its domain."""
        return self.definition.standard[1] if self.definition.standard else DOMAIN_VERSION

    @property
    def group(self) -> str:
        """The row of a report that counts this case."""
        return group_of(self.id)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy type of the operator's floating-point tensors in this case."""
        first = next(t for t in self.definition.inputs if t.type in self.definition.types and t.name in self.inputs)
        return self.types[first.name].dtype

    @property
    def compute_dtype(self) -> np.dtype[Any]:
        """The least precise type in which a runtime may compute the case: float32, or double for double tensors."""
        return self.dtype if self.is_in_own_type or self.dtype == np.float64 else np.dtype(np.float32)

    @property
    def types(self) -> Mapping[str, TensorType]:
        """The type and the shape of each input, without computing arrays."""
        return types_of(self.inputs)

    @property
    def nbytes(self) -> int:
        """The size of all inputs."""
        return sum(tensor.nbytes for tensor in self.types.values())

    @property
    def formula(self) -> Formula | None:
        """For a large case, the formula that computes the inputs."""
        return self.inputs.formula if isinstance(self.inputs, Computed) else None

    @property
    def element_type(self) -> str:
        """ONNX's name of `dtype`."""
        return element_type_of(self.dtype)


def element_type_of(dtype: np.dtype[Any]) -> str:
    """ONNX's name of a NumPy type."""
    return next(name for name, known in DTYPES.items() if known == dtype)


def group_of(case_id: str) -> str:
    """The first two parts of an id, which name the row of a report."""
    return "/".join(case_id.split("/")[:2])


def scenario_of(case_id: str) -> str:
    """The first three parts of an id, which all types, opsets and variants of one scenario share."""
    return "/".join(case_id.split("/")[:3])

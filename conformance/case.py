"""A conformance case, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ortops.operators import BY_NAME
from ortops.spec import DOMAIN_VERSION, ELEMENT_DTYPES, AttributeValue, Operator

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the expected values of a case follow from."""

    document: str
    version: str
    section: str

    def __str__(self) -> str:
        return f"{self.document}, {self.version}, {self.section}"


class Basis(str, Enum):
    """Whose rule a case checks, the strongest first.

    TEXT: the operator's specification, ONNX's or DirectML's, or a derivative that follows from it.
    VECTORS: numbers that ONNX or another implementation has published.
    REFERENCE: what ONNX's reference evaluator computes and no text says, such as the border of the map.
    OURS: this project's own reading, where all others leave it open: most refusals, empty and negative RoIs, ties.
    """

    TEXT = "text"
    VECTORS = "vectors"
    REFERENCE = "reference"
    OURS = "ours"

    def is_weaker_than(self, other: Basis) -> bool:
        """Whether a rule of this basis binds a runtime less than one of the other."""
        order = list(Basis)
        return order.index(self) > order.index(other)


def weakest(*bases: Basis) -> Basis:
    """The weakest of several."""
    return max(bases, key=list(Basis).index)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One node with its inputs, and what a conforming runtime answers.

    id: stable and unique, `function/family/fact/variant/type`; the first two parts name the line of a report.
    source: where the expected values follow from.
    operator: name of the definition in `ortops.OPERATORS`, its version included where ONNX has several.
    attributes: those written on the node; an absent one has its default.
    inputs: by name, an absent one is not connected.
    outputs: names of the outputs that the node has.
    note: the fact that this case discriminates.
    expected: by name, in float64; None where the reference computes them, or an error is due.
    expects_error: what is wrong with the case, or None where it is right. A wrong attribute is refused when the model
        is loaded, wrong data when it is run; the suite takes either at either time.
    decimals: digits after the point to which `expected` is printed; None where it is exact.
    input_error: the most that an element of the feature map or of the output's gradient differs from that of which
        `expected` was computed, because it too was printed or has been rounded to its type.
    basis: whose rule it is.
    twin: of a case that expects an error, the same model and shapes with the one fault mended. A backend refuses the case
        only if it answers the twin right; else it does not support the operator.
    before: inputs that the same session has been run with before; the answer to `inputs` counts.
    named_axes: tensors and axes whose lengths have a name in the model, and no value.
    initializers: names of inputs that are constants of the model.
    watches_inputs: whether the case fails where the backend writes to its inputs.
    is_in_own_type: whether the backend may compute in the tensors' type, float16 for one; not in float32 at least.
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
    before: tuple[Mapping[str, Array], ...] = ()
    named_axes: frozenset[tuple[str, int]] = frozenset()
    initializers: tuple[str, ...] = ()
    watches_inputs: bool = False
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
        """ONNX's opset where the operator is one of ONNX's, else the version of its domain."""
        return self.definition.standard[1] if self.definition.standard else DOMAIN_VERSION

    @property
    def family(self) -> str:
        """The line of a report that counts this case."""
        return family_of(self.id)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the operator's floating-point tensors in this case."""
        first = next(t for t in self.definition.inputs if t.type in self.definition.types and t.name in self.inputs)
        return self.inputs[first.name].dtype

    @property
    def element_type(self) -> str:
        """ONNX's name of `dtype`."""
        return element_type_of(self.dtype)


def element_type_of(dtype: np.dtype[Any]) -> str:
    """ONNX's name of a NumPy type."""
    return next(name for name, known in ELEMENT_DTYPES.items() if known == dtype)


def family_of(case_id: str) -> str:
    """The first two parts of an id, which name the line of a report."""
    return "/".join(case_id.split("/")[:2])


def scenario_of(case_id: str) -> str:
    """The first three parts of an id, which the types, opsets and variants of one fact have in common."""
    return "/".join(case_id.split("/")[:3])

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The suite's part of an operator that is another operator with rearranged inputs or outputs.

Below, the operator itself is called "own" and the one that it resembles "other". An `Analogy` has two functions. The first
turns calls of the other operator into calls of the own operator, which gives cases, refusals and random cases. The second
locates the own operator's tensors in the other one's. So error bounds, numbers of samples, drawings and the question whether
a case is well-posed follow from the other operator's case.

If the other operator's case has printed numbers, so does the own one. The own reference computes all other expected values.
A test compares them with the other operator's reference, so the two check each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.error_terms import ErrorTerms
from conformance.expected_values import by_reference
from conformance.families import Family, family_of
from conformance.families.roundings import Perturbed
from conformance.families.view import Element, View
from ortops.operators.asked import OPERATORS
from ortops.shapes import output_shapes
from ortops.spec import AttributeValue, Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw

Inputs = Mapping[str, Array]

Changes = Mapping[str, Callable[[Array], Array]]
"""The changes of tensors, by name."""


MAX_BYTES = 2**19
"""A case whose inputs become larger than this is left out."""


class Places(NamedTuple):
    """The places of a tensor's elements in the other operator's tensor.

    shape: the shape of the other tensor.
    at: an array of indices for each axis of the other tensor. They broadcast to the own tensor's shape.
    """

    shape: tuple[int, ...]
    at: tuple[Array, ...]

    def taken(self, values: Array | float) -> Array:
        """The own tensor, from the other tensor or from values that broadcast to it."""
        return np.asarray(np.broadcast_to(values, self.shape)[self.at])

    def put(self, values: Array, others: Array) -> Array:
        """The other tensor, from the own tensor and values for all other elements, which may broadcast."""
        tensor = np.array(np.broadcast_to(others, self.shape).astype(values.dtype, copy=False))
        tensor[self.at] = values
        return tensor

    @property
    def share(self) -> float:
        """The share of the other tensor's elements that belong to the own tensor."""
        size = math.prod(np.broadcast_shapes(*(axis.shape for axis in self.at)))
        return size / math.prod(self.shape) if size else 1.0


class Analogy(NamedTuple):
    """How an operator and its gradient follow from others with rearranged tensors. All names are the same.

    family: the family of the other operators. The newest version of an operator counts.
    changes: takes the attributes and the inputs of a call of the other operator. It returns the changes of the call's
        tensors, or None if the own operator cannot express the call. Inputs that it does not name do not change. Printed
        numbers of outputs that it does not name are dropped.
    places: for each rearranged tensor, a function that takes its shape and returns its places.
    """

    family: str
    changes: Callable[[Mapping[str, AttributeValue], Inputs], Changes | None]
    places: Mapping[str, Callable[[Sequence[int]], Places]]


class FamilyByAnalogy(Family):
    """A family that has only its own mutants; everything else follows from another family.

    Args:
        package: the package of the family.
        analogy: how its operators follow from the other family's.
    """

    def __init__(self, package: str, analogy: Analogy) -> None:
        super().__init__(package)
        self.analogy, self.like = analogy, analogy.family
        self.modules = {"mutants": self.modules["mutants"]}

    @property
    def _family(self) -> Family:
        return family_of(next(operator for operator in OPERATORS if operator.family == self.analogy.family))

    def _own(self, other: Operator) -> Operator:
        of_family = (operator for operator in OPERATORS if operator.family == self.name)
        return next(operator for operator in of_family if operator.is_gradient == other.is_gradient)

    def _other(self, operator: Operator) -> Operator:
        of_family = (operator for operator in reversed(OPERATORS) if operator.family == self.analogy.family)
        return next(known for known in of_family if known.is_gradient == operator.is_gradient)

    def places(self, case: Case) -> dict[str, Places]:
        """The places of the rearranged inputs and outputs of a valid case."""
        operator, shapes = case.definition, {name: array.shape for name, array in case.inputs.items()}
        values = {t.name: case.inputs[t.name].tolist() for t in operator.inputs if t.element_axes}
        lengths = output_shapes(operator, shapes, values, operator.check_attributes(case.attributes))
        shapes |= {tensor.name: shape for tensor, shape in zip(operator.outputs, lengths, strict=True)}
        return {name: places(shapes[name]) for name, places in self.analogy.places.items() if name in shapes}

    def other(self, case: Case) -> Case:
        """The case of the other operator that has a valid case's outputs at their places."""
        places = self.places(case)
        inputs = {n: places[n].put(a, np.zeros((), a.dtype)) if n in places else a for n, a in case.inputs.items()}
        return replace(case, operator=self._other(case.definition).name, inputs=inputs, expected=None, decimals=None)

    def cases_like(self, cases: Iterable[Case]) -> Iterator[Case]:
        """The cases that follow from those of the other family."""
        for case in cases:
            if case.definition.family == self.analogy.family and case.formula is None:
                similar = self._case(case) if case.definition is self._other(case.definition) else None
                if similar is not None and similar.nbytes <= MAX_BYTES:
                    yield similar

    def _case(self, case: Case) -> Case | None:
        """The own case that follows from a case of the other operator; None if none does."""
        operator, valid = self._own(case.definition), case.twin or case
        known = {attribute.name for attribute in operator.attributes}
        # An attribute that the own operator lacks cannot be wrong.
        if any(valid.attributes.get(name) != value for name, value in case.attributes.items() if name not in known):
            return None
        changes = self.analogy.changes(valid.attributes, valid.inputs)
        earlier = [call for call in map(self._case, case.before) if call is not None]
        if changes is None or len(earlier) < len(case.before):
            return None
        numbers = case.expected if set(case.expected or ()) <= changes.keys() else None
        version = f"v{case.version}" if case.definition.standard else None
        similar = replace(
            case,
            id="/".join([operator.function, *(part for part in case.id.split("/")[1:] if part != version)]),
            operator=operator.name,
            attributes={name: value for name, value in case.attributes.items() if name in known},
            inputs=_changed(changes, case.inputs),
            before=tuple(earlier),
            expected=_changed(changes, numbers) if numbers else None,
            twin=case.twin and self._case(case.twin),
        )
        if similar.expected is None and not similar.expects_error:
            return replace(similar, source=by_reference(operator.function), decimals=None, input_error=0.0)
        return similar

    def samples(self, case: Case) -> float:
        """See `PARTS`."""
        return float(self._family.samples(self.other(case)))

    def error_terms(self, case: Case) -> dict[str, ErrorTerms]:
        """See `PARTS`: the other case's terms, at the places of the own outputs."""
        places, terms = self.places(case), dict[str, ErrorTerms](self._family.error_terms(self.other(case)))
        for name in places.keys() & terms.keys():
            each, taken = terms[name], places[name].taken
            terms[name] = ErrorTerms(*map(taken, (each.magnitude, each.terms, each.coordinate_error, each.condition)))
        return terms

    def random_case(self, draw: RandomDraw, operator: Operator) -> DrawnCase:
        """See `PARTS`: a random case of the other operator, with new numbers for tensors whose shape changes."""
        known, changes = {attribute.name for attribute in operator.attributes}, None
        while changes is None:
            attributes, inputs, outputs = self._family.random_case(draw, self._other(operator))
            changes = self.analogy.changes(attributes, inputs)
        tensors = _changed(changes, inputs)
        tensors |= {n: draw.values(a.shape) for n, a in tensors.items() if n in changes and a.dtype.kind == "f"}
        return {name: value for name, value in attributes.items() if name in known}, tensors, outputs

    def work(self, case: Case) -> float:
        """See `PARTS`: the other case's work, times the share of elements that the own reference computes."""
        share = max((places.share for places in self.places(case).values()), default=1.0)
        return float(share * self._family.work(self.other(case)))

    def perturbed(self, case: Case) -> Perturbed | None:
        """See `PARTS`: the other case, all of whose elements must be stable, and its perturbations."""
        return self._family.perturbed(self.other(case))  # type: ignore[no-any-return]

    def explanation(self, case: Case, worst: Element | None) -> View:
        """See `PARTS`: the explanation of the other case, with the elements of all channels of the RoI."""
        other, places = self.other(case), self.places(case)
        if worst is not None and worst[0] in places:
            at = np.broadcast_arrays(*places[worst[0]].at)
            worst = worst[0], tuple(int(axis[worst[1]]) for axis in at)
        view: View = self._family.explanation(other, worst)
        note = f"{case.operator} is drawn as {other.operator}, some of whose elements are its own."
        return view._replace(part=view.part[:1], notes=(note, *view.notes))


def _changed(changes: Changes, tensors: Mapping[str, Array]) -> dict[str, Array]:
    return {name: changes[name](array) if name in changes else array for name, array in tensors.items()}

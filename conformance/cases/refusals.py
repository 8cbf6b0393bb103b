# SPDX-License-Identifier: MIT OR Apache-2.0
"""Invalid cases, which a backend must refuse, each with one fault. Every error of the backend counts as a refusal.

No specification says what a runtime does with invalid data. This project's rule is that it refuses them.

The faults are in the file `refusals.json` of each family of operators. It has

    inputs      sets of tensors by name
    wrong       lists of faults by name. A fault is [scenario, note, change]: a part of the id, a description, and the
                changes to a valid case: attributes by name, and tensors by name, null to leave one out
    right       valid cases: function, attributes, the name of a set of `inputs`, outputs, a further part of the id
                (`variant`), and under `wrong` the names of the lists of faults that are applied to it: those of attributes
                (`attribute`), and those of data or of attributes that do not fit the data (`data`)

A tensor is a list of numbers, or an object with `numbers`, or `zeros` or `ones` with a shape, and a `type`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import ortops
from conformance.case import Array, Basis, Case, Source
from conformance.cases.make import expand
from conformance.cases.scenes import tuples
from conformance.families import families
from ortops.operators.asked import BY_NAME

MAKE: dict[str, Callable[..., Array]] = {"numbers": np.array, "zeros": np.zeros, "ones": np.ones}


def cases() -> Iterator[Case]:
    """Yield each fault of each valid case; everything else in the case is valid."""
    for family in families():
        data = family.refusals
        for right in data.get("right", ()):
            tensors = {name: _tensor(tensor) for name, tensor in data["inputs"][right["inputs"]].items()}
            for what, lists in right["wrong"].items():
                for wrong in (wrong for name in lists for wrong in data["wrong"][name]):
                    yield from _refused(right, tensors, what, *wrong)


def _tensor(tensor: Any) -> Array:
    if not isinstance(tensor, dict):
        return np.array(tensor)
    ((how, value),) = ((key, value) for key, value in tensor.items() if key != "type")
    return MAKE[how](value, tensor.get("type"))


def _refused(
    right: Mapping[str, Any],
    inputs: Mapping[str, Array],
    what: str,
    scenario: str,
    note: str,
    change: Mapping[str, Any],
) -> Iterator[Case]:
    known = {tensor.name for definition in BY_NAME.values() for tensor in definition.inputs}
    changed = {name: _tensor(tensor) for name, tensor in change.items() if name in known and tensor is not None}
    kept = {name: tensor for name, tensor in inputs.items() if change.get(name, ...) is not None}
    attributes = tuples(right["attributes"])
    common: dict[str, Any] = {
        "function": right["function"],
        "source": Source("ortops/operators", f"ortops {ortops.__version__}", "the rules of attributes and shapes"),
        "outputs": right["outputs"],
        "types": ["float"],
        "variant": right.get("variant", ""),
        "basis": Basis.OURS,
    }
    scenario = f"refusal/{scenario}"
    valid = expand(
        f"{scenario}/valid", note="the same without the fault", attributes=attributes, inputs=inputs, **common
    )
    twins = {case.operator: case for case in valid}
    corrupted = expand(
        scenario,
        note=note,
        attributes={**attributes, **tuples({name: v for name, v in change.items() if name not in known})},
        inputs={**kept, **changed},
        expects_error=what,
        **common,
    )
    for case in corrupted:
        # `expand` converts tensors to types that the operator has, but a wrong type may be the fault.
        typed = {
            name: array for name, array in changed.items() if isinstance(change[name], dict) and "type" in change[name]
        }
        yield _with_twin(replace(case, inputs={**case.inputs, **typed}), twins[case.operator])


def of_equations(cases: Iterable[Case]) -> Iterator[Case]:
    """For each operator whose definition has equations between lengths, a case with a length that breaks each of them."""
    valid = {case.operator: case.twin for case in cases if case.twin and case.definition.equations}
    for twin in valid.values():
        for equation in twin.definition.equations:
            changed = {}
            for tensor in twin.definition.inputs:
                array = twin.inputs.get(tensor.name)
                if array is not None and equation.of in tensor.shape:
                    changed[tensor.name] = np.insert(array, 0, 1, axis=tensor.shape.index(equation.of))
                if array is not None and equation.of in tensor.element_axes:
                    changed[tensor.name] = array + (np.array(tensor.element_axes) == equation.of)
            if not changed:  # the axis `of` is a product
                continue
            scenario = f"{twin.definition.function}/refusal/{equation.axis}_not_whole"
            fault = replace(
                twin,
                id=f"{scenario}/{twin.element_type}",
                note=f"{equation}, and this is not a whole number",
                inputs={**twin.inputs, **changed},
                expects_error="data",
            )
            yield _with_twin(fault, replace(twin, id=f"{scenario}/valid/{twin.element_type}"))


def _with_twin(case: Case, twin: Case) -> Case:
    """The case with this twin, and with symbolic lengths where their tensors differ."""
    # Wrong lengths, and those of outputs, are symbolic in both models: these differ in nothing but the data.
    named = frozenset(
        (name, axis)
        for name, array in case.inputs.items()
        for axis, (length, of_twin) in enumerate(zip(array.shape, twin.inputs[name].shape, strict=False))
        if array.ndim == twin.inputs[name].ndim and length != of_twin
    )
    of_outputs = {(t.name, axis) for t in case.definition.outputs for axis in range(len(t.shape))}
    return replace(case, named_axes=named, twin=replace(twin, named_axes=named | of_outputs))

"""What has to be refused: one wrong thing a case. Any error of the backend is a refusal; a result is not.

No specification says what a runtime does with wrong data: that it refuses them is this project's rule.

The wrong things are in JSON files in the folder `refusals`, one for each family of operators. A file has

    inputs      sets of tensors by name
    wrong       lists of wrong things by name. A wrong thing is [fact, note, change]: the last part of the id, the same in
                words, and what is changed in a right case: attributes by name, and tensors by name, null to leave one out
    right       right cases: function, attributes, the name of a set of `inputs`, outputs, a further part of the id
                (`variant`), and under `wrong` the names of the lists that are tried on it: those of wrong attributes
                (`attribute`), and those of attributes that do not go with the data, or of wrong data (`data`)

A tensor is its numbers, or an object with `numbers`, with `zeros` or with `ones` (which give a shape) and a `type`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np

import ortops
from conformance.case import Array, Basis, Case, Source
from conformance.vectors.expand import expand
from ortops.operators import BY_NAME

MAKE: dict[str, Callable[..., Array]] = {"numbers": np.array, "zeros": np.zeros, "ones": np.ones}


def cases() -> Iterator[Case]:
    """For every right case each of its wrong things by itself; all else of the case is right."""
    files = [file for file in (resources.files(__package__) / "refusals").iterdir() if file.name.endswith(".json")]
    for file in sorted(files, key=lambda file: file.name, reverse=True):
        data = json.loads(file.read_text("utf-8"))
        for right in data["right"]:
            tensors = {name: _tensor(tensor) for name, tensor in data["inputs"][right["inputs"]].items()}
            for what, lists in right["wrong"].items():
                for wrong in (wrong for name in lists for wrong in data["wrong"][name]):
                    yield from _refused(right, tensors, what, *wrong)


def _tensor(tensor: Any) -> Array:
    if not isinstance(tensor, dict):
        return np.array(tensor)
    ((how, value),) = ((key, value) for key, value in tensor.items() if key != "type")
    return MAKE[how](value, tensor.get("type"))


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _refused(
    right: Mapping[str, Any],
    inputs: Mapping[str, Array],
    what: str,
    scenario: str,
    note: str,
    change: Mapping[str, Any],
) -> Iterator[Case]:
    """The cases in which one thing is wrong, each with the right one as its twin."""
    known = {tensor.name for definition in BY_NAME.values() for tensor in definition.inputs}
    changed = {name: _tensor(tensor) for name, tensor in change.items() if name in known and tensor is not None}
    kept = {name: tensor for name, tensor in inputs.items() if change.get(name, ...) is not None}
    attributes = _attributes(right["attributes"])
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
    spoiled = expand(
        scenario,
        note=note,
        attributes={**attributes, **_attributes({name: v for name, v in change.items() if name not in known})},
        inputs={**kept, **changed},
        expects_error=what,
        **common,
    )
    for case in spoiled:
        # `expand` gives tensors a type that the operator has, and that one has none of these may be what is wrong.
        typed = {
            name: array for name, array in changed.items() if isinstance(change[name], dict) and "type" in change[name]
        }
        twin, tensors = twins[case.operator], {**case.inputs, **typed}
        # Lengths that are wrong have names in both models, so that nothing but the data tells them apart.
        named = frozenset(
            (name, axis)
            for name, array in tensors.items()
            for axis, (length, of_twin) in enumerate(zip(array.shape, twin.inputs[name].shape, strict=False))
            if array.ndim == twin.inputs[name].ndim and length != of_twin
        )
        yield replace(case, inputs=tensors, named_axes=named, twin=replace(twin, named_axes=named))

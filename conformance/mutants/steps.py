# SPDX-License-Identifier: MIT OR Apache-2.0
"""Steps that mutants of several families share: changes of the inputs, outputs and attributes of any operator."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Steps, call, edit, is_gradient, narrowed, rounded
from ortops.reference import arguments_of, evaluate
from ortops.spec import Operator

X = ("X", "InputTensor")
ROIS = ("rois", "ROITensor")
IMAGES = ("batch_indices", "BatchIndicesTensor")
DY = ("dY", "InputGradientTensor")
DX = ("dX", "OutputGradientTensor")
Inputs = dict[str, Array]


def asked(change: Any) -> Steps:
    """The inputs are changed, before they are checked."""

    def replaced(operator: Operator, inputs: Any, attributes: Any, wanted: Any) -> Any:
        given = {t.name: a for t, a in zip(operator.inputs, inputs, strict=False) if a is not None}
        changed = change(given)
        return evaluate(operator, [changed.get(t.name) for t in operator.inputs], attributes, wanted)

    return {evaluate: replaced}


def before_checks(statement: str) -> Steps:
    """A statement runs before the inputs `arrays`, by name, are checked."""
    return edit(evaluate, "check_types(operator, arrays)", f"{statement}\n    check_types(operator, arrays)")


def refused_where(condition: str) -> Steps:
    """A call is refused where an expression with its inputs `arrays` is true."""
    return before_checks(f"if {condition}: raise ValueError")


def on(names: Collection[str], change: Any) -> Steps:
    """The inputs of these names are changed."""
    return asked(lambda given: {name: change(a) if name in names else a for name, a in given.items()})


def on_images(change: Any) -> Steps:
    """The image of each RoI is changed; `change` takes the indices and the number of images."""

    def changed(given: Inputs) -> Inputs:
        name = next((name for name in IMAGES if name in given), "rois")
        if name in IMAGES:
            return given | {name: change(given[name], call().x_shape[0])}
        rois = given["rois"].copy()
        rois[:, 0] = change(rois[:, 0], call().x_shape[0])
        return given | {"rois": rois}

    return asked(changed)


def answered(change: Any) -> Steps:
    """The results are changed; `change` takes the name of an output and its values."""

    def replaced(operator: Operator, *arguments: Any) -> Any:
        results = zip(operator.outputs, evaluate(operator, *arguments), strict=True)
        return [None if y is None else change(t.name, y) for t, y in results]

    return {evaluate: replaced}


def result(change: Any) -> Steps:
    """The result of the forward operator is changed."""
    return answered(lambda _, y: y if is_gradient() else change(y))


def of_dx(change: Any) -> Steps:
    """The gradient by the map is changed."""
    return answered(lambda name, y: change(y) if name in DX else y)


def cleared(part: Callable[[Array], Any]) -> Steps:
    """Some results are 0 and pass no gradient back. `part` takes an array and returns their index."""

    def without(values: Array) -> Any:
        kept = values.copy()
        if values.ndim >= 4:
            kept[part(kept)] = 0
        return kept

    def replaced(operator: Operator, inputs: Any, attributes: Any, wanted: Any) -> Any:
        if not operator.is_gradient:
            return [without(y) for y in evaluate(operator, inputs, attributes, wanted) if y is not None]
        return evaluate(operator, [without(inputs[0]), *inputs[1:]], attributes, wanted)

    return {evaluate: replaced}


def unread(part: Callable[[Array], Any]) -> Steps:
    """Some pixels are neither read nor get a gradient. `part` takes an image [H, W] and returns their index."""

    def kept(array: Array) -> Array:
        kept: Array = array.copy()
        if kept.ndim == 4 and kept.size:
            for image in kept.reshape(-1, *kept.shape[2:]):
                image[part(image)] = 0
        return kept

    read = on(X, kept)[evaluate]

    def replaced(operator: Operator, *arguments: Any) -> Any:
        results = zip(operator.outputs, read(operator, *arguments), strict=True)
        return [y if y is None or t.name not in DX else kept(y) for t, y in results]

    return {evaluate: replaced}


def pixels_in_16_bits(x: Array) -> Array:
    """A map whose pixels from 2^16 on are those 2^16 earlier."""
    flat = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    return flat[:, :, np.arange(flat.shape[2]) % 2**16].reshape(x.shape)


def given(change: Any) -> Steps:
    """The attributes that the node has are changed, before they are checked."""
    return {arguments_of: lambda operator, a: arguments_of(operator, _known(operator, change(dict(a))))}


def meant(change: Any) -> Steps:
    """The values of the attributes are changed, after they are checked."""
    return {arguments_of: lambda operator, a: _known(operator, change(arguments_of(operator, a)))}


def by_default(**values: object) -> Steps:
    """These are the defaults of attributes."""
    return given(lambda a: values | a)


def renamed(attribute: str, **names: str) -> Steps:
    """The values `names` of an attribute are taken for others."""
    return meant(lambda a: a | {attribute: names.get(a[attribute], a[attribute])})


def _known(operator: Operator, attributes: dict[str, Any]) -> dict[str, Any]:
    names = {attribute.name for attribute in operator.attributes} | operator.constants.keys()
    return {name: value for name, value in attributes.items() if name in names}


def in_type(*functions: Callable[..., Any], dtype: Any = None) -> Steps:
    """The results of these functions are rounded to a type, by default to that of the tensors."""
    return {
        function: lambda *a, function=function, **named: narrowed(function(*a, **named), dtype)
        for function in functions
    }


def refused_if(function: Callable[..., Any], refuses: Callable[..., bool]) -> Steps:
    """A call is refused if `refuses` is true of the arguments of a function."""

    def replaced(*arguments: Any, **named: Any) -> Any:
        if refuses(*arguments):
            raise ValueError("refused")
        return function(*arguments, **named)

    return {function: replaced}


def flushed(y: Array, dtype: Any) -> Array:
    """A result with 0 in place of subnormal numbers."""
    least = 2.0**-1022 if dtype == np.float64 else 2.0**-14 if dtype == np.float16 else 2.0**-126
    return rounded(np.where(np.abs(y) < least, 0.0, y), dtype)


def of_the_last_call(*names: str) -> Steps:
    """These inputs are replaced by those of the previous call, if all inputs had the same sizes."""

    def changed(inputs: Inputs) -> Inputs:
        last, call().memory["last"] = call().memory.get("last", inputs), inputs
        fits = all(last[name].shape == inputs[name].shape for name in inputs)
        return {name: last[name] if fits and name in names else array for name, array in inputs.items()}

    return asked(changed)


def with_last_rows(name: str, y: Array) -> Array:
    """A result with the last rows of the one before, if that has more rows and else the same sizes."""
    memory = call().memory
    last, memory[name] = memory.get(name, y), y
    return np.concatenate([y, last[len(y) :]]) if last.shape[1:] == y.shape[1:] else y


def second_of_its_shape(name: str, y: Array) -> Array:
    """A result, or from the third one of a shape on the second."""
    earlier = call().memory.setdefault(f"{name} {y.shape}", [])
    earlier.append(y)
    return earlier[min(len(earlier), 2) - 1]  # type: ignore[no-any-return]


def of_another_thread(operator: Operator, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The results of inputs that are kept where another thread may replace them."""
    memory = call().memory
    memory["inputs"] = inputs
    time.sleep(0.02)
    return evaluate(operator, memory["inputs"], attributes, wanted)

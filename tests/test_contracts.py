# SPDX-License-Identifier: MIT
"""What every operator keeps: as a function, in a session and in the reference, for the calls of `samples`."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ortops
from conformance.backends.session import CPU, options
from ortops import from_ort, runtime, to_ort
from ortops.foreign.standard import onnx_definition
from ortops.operators import OPERATORS
from ortops.reference import evaluate
from ortops.spec import Operator
from samples import Refusal, Sample, by_operator, edges, every, open_ranks, refusals, right, samples, with_attributes


@functools.cache
def _session(model: bytes, *, by_library: bool = False) -> Any:
    chosen = options()
    if not by_library:
        return ortops.InferenceSession(model, chosen, providers=[CPU])
    chosen.register_custom_ops_library(runtime.library().path)
    return onnxruntime.InferenceSession(model, chosen, providers=[CPU])


def session(model: onnx.ModelProto, *, by_library: bool = False) -> Any:
    """A session of this project, or one of ONNX Runtime alone that has its library."""
    return _session(model.SerializeToString(deterministic=True), by_library=by_library)


def run(runner: Any, sample: Sample) -> list[Any]:
    """All outputs; bfloat16 goes in and out as ONNX Runtime's own values, since NumPy has none that it knows."""
    values = {name: to_ort(array) for name, array in sample.inputs.items()}
    return [from_ort(value) for value in runner.run_with_ort_values(None, values)]


def of_every_type(operator: Operator) -> list[Sample]:
    """An ordinary call and the edges in every element type, and the other ordinary calls in one."""
    kinds = operator.types[operator.inputs[0].type]
    return [
        *samples(operator)[1:],
        *(sample for kind in kinds for sample in (samples(operator, kind)[0], *edges(operator, kind))),
    ]


@pytest.mark.parametrize(**by_operator(of_every_type, of_onnx=True))
def test_sessions_give_bits_of_function(calls: list[Sample]) -> None:
    for sample in calls:
        before = {name: array.tobytes() for name, array in sample.inputs.items()}
        expected = [(y.dtype, y.shape, y.tobytes()) for y in sample.function()]
        for by_library in (False,) if sample.is_of_onnx else (False, True):
            outputs = run(session(sample.model(), by_library=by_library), sample)
            assert [(y.dtype, y.shape, y.tobytes()) for y in outputs] == expected, str(sample)
        assert {name: array.tobytes() for name, array in sample.inputs.items()} == before


@pytest.mark.parametrize(**by_operator(refusals))
def test_function_and_reference_refuse_calls(calls: list[Refusal]) -> None:
    for call in calls:
        with pytest.raises(ValueError, match=re.escape(call.says)):
            call.function()
        with pytest.raises(ValueError, match=r"must|requires"):
            evaluate(call.operator, call.arrays, call.attributes)


@pytest.mark.parametrize(**by_operator(refusals, of_onnx=True))
def test_sessions_refuse_calls(calls: list[Refusal]) -> None:
    for call in calls:
        with pytest.raises(Exception, match=re.escape(call.says)) as caught:
            refused(call)
        assert f"{call.operator.name}: " in str(caught.value)


def refused(call: Refusal) -> None:
    """Have a session refuse a call; if the data is wrong, the session computes the right call afterwards."""
    good = right(call)
    if call.by == "attribute":
        session(with_attributes(good.model(), call.attributes))
        return
    absent = [tensor.name for tensor in call.operator.inputs if tensor.name not in call.inputs]
    runner = session(open_ranks(good.model(omit=absent)))
    try:
        run(runner, call)
    finally:
        if not absent:
            run(runner, good)


@pytest.mark.parametrize(
    "operator",
    [*OPERATORS, *(onnx_definition(newest) for newest in OPERATORS if newest.standard)],
    ids=lambda operator: "-".join([operator.name, *map(str, [] if operator.domain else operator.standard[1:])]),
)
def test_session_uses_defaults_of_attributes(operator: Operator) -> None:
    sample = samples(operator)[0]
    needed = {name for names in operator.needed_attributes for name in names}
    needed |= {a.name for a in operator.attributes if a.default is None}
    required = {name: sample.attributes[name] for name in needed if name in sample.attributes}
    full = Sample(operator, "defaults", sample.inputs, {a.name: a.default for a in operator.attributes} | required)
    bare = with_attributes(open_ranks(full.model()), {})
    node = bare.graph.node[0]
    for attribute in [attribute for attribute in node.attribute if attribute.name not in required]:
        node.attribute.remove(attribute)
    if operator.family == "dml_resample" and operator.is_gradient:
        full = Sample(operator, "defaults", sample.inputs, {})
    for y, expected in zip(run(session(bare), full), full.function(), strict=True):
        np.testing.assert_array_equal(y, expected)


def alone(sample: Sample, axis: str, at: int) -> Sample:
    """The call with one RoI or channel in place of all: `axis` is num_rois or C, the definition's name."""
    inputs = {}
    for tensor in sample.operator.inputs:
        if tensor.name in sample.inputs:
            array = sample.inputs[tensor.name][of_axis(tensor.shape, axis, at)]
            inputs[tensor.name] = (
                array if axis not in tensor.element_axes else np.where(np.arange(len(array)) == 1, 1, array)
            )
    return Sample(sample.operator, f"{axis} {at} alone", inputs, sample.attributes)


def of_axis(shape: tuple[int | str, ...], axis: str, at: int) -> tuple[slice, ...]:
    return tuple(slice(at, at + 1) if name == axis else slice(None) for name in shape)


def has_axis(operator: Operator, axis: str) -> bool:
    """Whether the first input and the first output have it, and so all that is computed for it."""
    return axis in operator.inputs[0].shape and axis in operator.outputs[0].shape


@pytest.mark.parametrize(**every(lambda operator: samples(operator) if has_axis(operator, "C") else []))
def test_channel_and_roi_have_same_bits_alone(sample: Sample) -> None:
    outputs, last = sample.function(), sample.inputs[sample.operator.inputs[0].name].shape[1] - 1
    for axis, at in [("C", c) for c in (0, (last + 1) // 2, last)] + [("num_rois", r) for r in range(5)]:
        for tensor, y_alone, y in zip(
            sample.operator.outputs, alone(sample, axis, at).function(), outputs, strict=True
        ):
            if axis in tensor.shape:
                assert y_alone.tobytes() == y[of_axis(tensor.shape, axis, at)].tobytes()

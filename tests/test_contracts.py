"""What every operator keeps: as a function, in a session and in the reference, for the calls of `samples`."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest

import ortops
from conformance.backends.session import CPU, options
from ortops import from_ort, to_ort
from ortops.foreign.standard import onnx_definition
from ortops.operators import OPERATORS
from ortops.reference import evaluate
from ortops.spec import Operator
from samples import Refusal, Sample, edges, every, open_ranks, refusals, right, samples, with_attributes


def session(model: Any) -> ortops.InferenceSession:
    return _session(model.SerializeToString(deterministic=True))


@functools.cache
def _session(model: bytes) -> ortops.InferenceSession:
    return ortops.InferenceSession(model, options(), providers=[CPU])


def run(runner: ortops.InferenceSession, sample: Sample) -> list[Any]:
    """All outputs; bfloat16 goes in and out as ONNX Runtime's own values, since NumPy has none that it knows."""
    values = {name: to_ort(array) for name, array in sample.inputs.items()}
    return [from_ort(value) for value in runner.run_with_ort_values(None, values)]


def of_every_type(operator: Operator) -> list[Sample]:
    """An ordinary call and the edges in every element type, and the other ordinary calls in one."""
    kinds = operator.types[operator.inputs[0].type]
    return [
        *samples(operator)[1:],
        *(one for kind in kinds for one in (samples(operator, kind)[0], *edges(operator, kind))),
    ]


@pytest.mark.parametrize(**every(of_every_type, of_onnx=True))
def test_a_session_gives_the_bits_of_the_function(sample: Sample) -> None:
    before = {name: array.tobytes() for name, array in sample.inputs.items()}
    expected = sample.function()
    for one, other in zip(run(session(sample.model()), sample), expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    assert {name: array.tobytes() for name, array in sample.inputs.items()} == before


@pytest.mark.parametrize(**every(refusals))
def test_wrong_values_are_refused(sample: Refusal) -> None:
    with pytest.raises(ValueError, match=re.escape(sample.says)):
        sample.function()
    with pytest.raises(ValueError, match=r"must|requires"):
        evaluate(sample.operator, sample.arrays, sample.attributes)


@pytest.mark.parametrize(**every(refusals, of_onnx=True))
def test_a_session_says_what_the_function_says(sample: Refusal) -> None:
    if sample.by == "attribute":
        with pytest.raises(Exception, match=re.escape(sample.says)) as caught:
            session(with_attributes(right(sample).model(), sample.attributes))
    else:
        absent = [tensor.name for tensor in sample.operator.inputs if tensor.name not in sample.inputs]
        runner = session(open_ranks(right(sample).model(omit=absent)))
        with pytest.raises(Exception, match=re.escape(sample.says)) as caught:
            run(runner, sample)
        if not absent:  # the session lives on
            run(runner, right(sample))
    assert f"{sample.operator.name}: " in str(caught.value)


@pytest.mark.parametrize(
    "operator",
    [*OPERATORS, *(onnx_definition(one) for one in OPERATORS if one.standard)],
    ids=lambda operator: "-".join([operator.name, *map(str, [] if operator.domain else operator.standard[1:])]),
)
def test_attributes_that_a_node_leaves_out_have_their_defaults(operator: Operator) -> None:
    sample = samples(operator)[0]
    needed = {name for names in operator.needed_attributes for name in names}
    needed |= {a.name for a in operator.attributes if a.default is None}
    required = {name: sample.attributes[name] for name in needed if name in sample.attributes}
    full = Sample(operator, "defaults", sample.inputs, {a.name: a.default for a in operator.attributes} | required)
    bare = with_attributes(open_ranks(full.model()), {})
    node = bare.graph.node[0]
    for attribute in [one for one in node.attribute if one.name not in required]:
        node.attribute.remove(attribute)
    if operator.family == "dml_resample" and operator.is_gradient:
        full = Sample(operator, "defaults", sample.inputs, {})
    for one, other in zip(run(session(bare), full), full.function(), strict=True):
        np.testing.assert_array_equal(one, other)


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
def test_a_channel_and_a_roi_have_the_same_bits_alone_and_among_others(sample: Sample) -> None:
    found = sample.function()
    lengths = {"C": sample.inputs[sample.operator.inputs[0].name].shape[1], "num_rois": 5}
    for axis, at in [("C", c) for c in (0, lengths["C"] // 2, lengths["C"] - 1)] + [("num_rois", r) for r in range(5)]:
        for tensor, one, y in zip(sample.operator.outputs, alone(sample, axis, at).function(), found, strict=True):
            if axis in tensor.shape:
                assert one.tobytes() == y[of_axis(tensor.shape, axis, at)].tobytes()

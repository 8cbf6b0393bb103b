"""What callers share with calls: memory to which another thread writes, and memory that is not aligned."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ortops
from conformance.backends.session import CPU, options
from library_structs import entries, set_field, shapes
from ortops.node import Node
from ortops.operators import OPERATORS
from ortops.ortvalue import BFLOAT16
from ortops.spec import ELEMENT_DTYPES, Operator
from problems import Array
from processes import python
from samples import Sample, by_operator, every, open_ranks, samples

INFER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
"""The type of `native.node.shapes.infer_shapes`."""

PLACE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 21)
"""A function that places RoIs: their copies, the words of `PlacedRois`, the parameters."""


def session(sample: Sample) -> ortops.InferenceSession:
    model = open_ranks(sample.model()).SerializeToString()
    return ortops.InferenceSession(model, options(), providers=[CPU])


def with_inputs(sample: Sample, change: Callable[[Array], Array]) -> Sample:
    inputs = {name: change(array) for name, array in sample.inputs.items()}
    return Sample(sample.operator, sample.name, inputs, sample.attributes)


def assert_same_bits(outputs: Sequence[Array], expected: Sequence[Array]) -> None:
    assert [y.tobytes() for y in outputs] == [y.tobytes() for y in expected]


def of_function(sample: Sample) -> Callable[[], list[Array]]:
    return sample.function


def of_session(sample: Sample) -> Callable[[], list[Array]]:
    runner = session(sample)
    return lambda: list(runner.run(None, dict(sample.inputs)))


@pytest.fixture
def after_inference(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Takes a function to call whenever the shapes of a call have been inferred."""
    kept = []

    def use(action: Callable[[], None]) -> None:
        infer = INFER(shapes().infer)

        def infer_and_act(node: int, call: int) -> int:
            status = int(infer(node, call))
            action()
            return status

        kept.append(INFER(infer_and_act))
        set_field(monkeypatch, shapes(), "infer", ctypes.cast(kept[-1], ctypes.c_void_p).value or 0)

    return use


def test_racing_writes_end_no_process() -> None:
    assert python(Path(__file__).with_name("racing_writes.py")).splitlines()[-1].startswith(OPERATORS[-1].name)


@pytest.mark.parametrize("way", [of_function, of_session], ids=["function", "session"])
@pytest.mark.parametrize(**every(samples, of_onnx=True))
def test_call_uses_values_that_it_checked(
    sample: Sample,
    way: Callable[[Sample], Callable[[], list[Array]]],
    monkeypatch: pytest.MonkeyPatch,
    after_inference: Callable[[Callable[[], None]], None],
) -> None:
    """A change of RoIs and indices after the kernel that checks them, or of lengths after they are read, has no effect."""
    sample = with_inputs(sample, np.copy)
    call, changed = way(sample), list[str]()
    expected = call()

    def change(name: str, value: float) -> None:
        if name in sample.inputs:
            sample.inputs[name][...] = value
            changed.append(name)

    def after(place: Any) -> Any:
        def placed(*words: int) -> int:
            status = place(*words)
            for name in ("rois", "ROITensor"):
                change(name, 1)
            for name in ("batch_indices", "BatchIndicesTensor"):
                change(name, 10**9)
            return int(status)

        return PLACE(placed)

    kept: list[Any] = []
    for entry in entries():
        kept.append(after(PLACE(entry.place_rois)))
        set_field(monkeypatch, entry, "place_rois", ctypes.cast(kept[-1], ctypes.c_void_p).value or 0)

    after_inference(lambda: change("x_shape", 10**6))
    assert_same_bits(call(), expected)
    assert changed or not {"x_shape", "rois", "ROITensor"} & set(sample.inputs)


@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")
@pytest.mark.parametrize(**every(lambda operator: samples(operator)[:1]))
def test_call_uses_first_shape_of_input(sample: Sample, after_inference: Callable[[Callable[[], None]], None]) -> None:
    sample = with_inputs(sample, np.copy)
    expected = sample.function()

    def turn() -> None:
        for array in sample.inputs.values():
            array.shape = array.shape[::-1]

    after_inference(turn)
    assert_same_bits(sample.function(), expected)


def unaligned(array: Array) -> Array:
    """The same elements, one byte behind an address that is aligned."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 32 + 1
    made: Array = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    assert not made.flags.aligned
    return made


def of_every_type(operator: Operator) -> list[Sample]:
    return [samples(operator, kind)[0] for kind in operator.types[operator.inputs[0].type]]


@pytest.fixture
def entries_see_aligned_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every entry fail that gets an array that compiled code must not read."""
    run = Node.run

    def checked(node: Node, arrays: Any, *rest: Any) -> None:
        for array in arrays:
            assert array is None or (array.flags.aligned and array.flags.c_contiguous)
        run(node, arrays, *rest)

    monkeypatch.setattr(Node, "run", checked)


@pytest.mark.usefixtures("entries_see_aligned_arrays")
@pytest.mark.parametrize(**by_operator(of_every_type))
def test_function_takes_unaligned_arrays(calls: list[Sample]) -> None:
    for sample in calls:
        assert_same_bits(with_inputs(sample, unaligned).function(), sample.function())


@pytest.mark.usefixtures("entries_see_aligned_arrays")
@pytest.mark.parametrize(**by_operator(of_every_type, of_onnx=True))
def test_session_takes_and_fills_unaligned_arrays(calls: list[Sample]) -> None:
    """ONNX Runtime passes the memory of a binding as it is, and that of a feed."""
    types = {dtype: name for name, dtype in ELEMENT_DTYPES.items()}
    for sample in calls:
        runner, expected = session(sample), sample.function()
        binding, inputs = runner.io_binding(), with_inputs(sample, unaligned).inputs
        outputs = [unaligned(np.zeros_like(array)) for array in expected]
        binds = (
            *((binding.bind_input, name, array) for name, array in inputs.items()),
            *((binding.bind_output, value.name, y) for value, y in zip(runner.get_outputs(), outputs, strict=True)),
        )
        for bind, name, array in binds:
            kind = BFLOAT16 if types[array.dtype] == "bfloat16" else array.dtype.type
            bind(name, "cpu", 0, kind, array.shape, array.ctypes.data)
        runner.run_with_iobinding(binding)
        assert_same_bits(outputs, expected)
        if not any(types[array.dtype] == "bfloat16" for array in inputs.values()):
            assert_same_bits(runner.run(None, dict(inputs)), expected)

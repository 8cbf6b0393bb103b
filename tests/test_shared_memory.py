# SPDX-License-Identifier: MIT
"""What callers share with calls: memory to which another thread writes, and memory that is not aligned."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
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
    copy: Array = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert not copy.flags.aligned
    return copy


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


CALLS = 8
"""The number of calls with each wrong value. With half as many, code that read batch indices twice failed 10 of 10 runs."""

COPIES = 100
"""How often the RoIs of a sample are repeated: a kernel then takes long enough for the other thread to write meanwhile."""


def race_all() -> None:
    """Call every operator as a function and in a session, with each input in turn in the hands of another thread."""
    sys.setswitchinterval(1e-5)  # the threads alternate, so that one writes between any two steps of the other
    for operator in OPERATORS:
        sample = enlarged(samples(operator)[0])
        runner = ortops.InferenceSession(open_ranks(sample.model()).SerializeToString(), options(), providers=[CPU])
        ways: dict[str, Callable[[], Any]] = {
            "function": sample.function,
            "session": functools.partial(runner.run, None, dict(sample.inputs)),
        }
        for name, array in sample.inputs.items():
            for way, call in ways.items():
                print(operator.name, name, way, flush=True)
                for wrong in wrong_values(name, array):
                    race(call, array, wrong)


def enlarged(sample: Sample) -> Sample:
    """The same call with many times as many RoIs."""
    name = next((name for name in sample.inputs if name.lower().startswith("roi")), "")
    count = len(sample.inputs[name]) if name else -1
    repeats = {key: COPIES if len(array) == count and key not in MAPS else 1 for key, array in sample.inputs.items()}
    inputs = {key: np.concatenate([array] * repeats[key]) for key, array in sample.inputs.items()}
    return Sample(sample.operator, sample.name, inputs, sample.attributes)


MAPS = ("X", "InputTensor", "x_shape")


def wrong_values(name: str, array: Array) -> Iterator[Array]:
    """Values that the other thread writes over the array: ones that are refused, or that say where to read or write."""
    if name == "x_shape":
        yield array + np.array([1, 2, 50, 70])
    elif array.dtype.kind == "f":
        yield from (np.full_like(array, number) for number in (np.nan, 1e30))
    else:
        yield np.full_like(array, 10**9)


def race(call: Callable[[], Any], array: Array, wrong: Array) -> None:
    """Call while another thread alternates between the right and the wrong values."""
    right, ended = array.copy(), threading.Event()

    def write() -> None:
        while not ended.is_set():
            array[...] = wrong
            array[...] = right

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(CALLS):
            compute_or_refuse(call)
    finally:
        ended.set()
        writer.join()
        array[...] = right


def compute_or_refuse(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:  # ONNX Runtime has classes of its own
        if "must " not in str(error):
            raise


def test_racing_writes_end_no_process() -> None:
    """Each call computes or refuses what it found, as the threads decide; a fault of memory would end the process."""
    assert python(Path(__file__)).splitlines()[-1].startswith(OPERATORS[-1].name)


if __name__ == "__main__":
    race_all()

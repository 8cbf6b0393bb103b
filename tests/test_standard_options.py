# SPDX-License-Identifier: MIT
"""Which sessions run nodes of ONNX and of other projects: by `standard`, the options and the execution providers."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import CPU, options
from ortops.foreign import served
from test_standard import FEEDS, FUNCTION, ROI_ALIGN, converted, native, parse, run, saved


@pytest.mark.parametrize("opset", [10, 16])
def test_standard_false_leaves_the_kernels_of_onnxruntime_alone(opset: int) -> None:
    model = parse(f"y = {ROI_ALIGN}", opset)
    empty = parse("y = RoiAlign (x, boxes, of)", opset)
    chosen, registered = options(), options()
    for node in (model, empty):
        assert run(node, chosen, standard=False).tobytes() == native(node).tobytes()
    ortops.register(registered, opset=opset)
    assert run(model, registered).tobytes() == converted(model).tobytes()
    assert run(model, registered, standard=False).tobytes() == native(model).tobytes()
    assert native(model, registered).tobytes() == converted(model).tobytes()


def test_options_serve_sessions_of_any_opset_and_stay_as_they_are() -> None:
    shared = options()
    for opset in (10, 16, 22, 10):
        model = parse(f"y = {ROI_ALIGN}", opset)
        assert run(model, shared).tobytes() == converted(model).tobytes()
    assert native(parse(f"y = {ROI_ALIGN}", 16), shared).tobytes() == native(parse(f"y = {ROI_ALIGN}", 16)).tobytes()
    with pytest.raises(Exception, match=r"RoiAlign\(22\)"):
        native(parse(f"y = {ROI_ALIGN}", 22), shared)


def test_sessions_of_several_opsets_can_be_made_of_the_same_options_at_once() -> None:
    shared, models = options(), [parse(f"y = {ROI_ALIGN}", opset) for opset in (10, 16)]
    expected, wrong = [converted(model).tobytes() for model in models], list[int]()
    start = threading.Barrier(4)

    def make(i: int) -> None:
        start.wait()
        wrong.extend(i for _ in range(50) if run(models[i], shared).tobytes() != expected[i])

    threads = [threading.Thread(target=make, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_session_that_cannot_be_made_leaves_the_options_as_they_were() -> None:
    shared, model = options(), parse(f"y = {ROI_ALIGN}", 16)
    with pytest.raises(Exception, match="RoiAlign: mode = 'sum': must be one of 'avg', 'max'"):
        run(parse('y = RoiAlign <mode = "sum"> (x, boxes, of)', 22), shared)
    assert native(model, shared).tobytes() == native(model).tobytes()
    assert run(model, shared).tobytes() == converted(model).tobytes()


def test_options_given_an_opset_serve_sessions_of_onnxruntime() -> None:
    chosen = options()
    for opset in (22, 10, 16):
        ortops.register(chosen, opset=opset)
        model = parse(f"y = {ROI_ALIGN}", opset)
        assert native(model, chosen).tobytes() == converted(model).tobytes()


@pytest.mark.parametrize("opset", [0, -1, "22", 2.5])
def test_an_opset_that_is_no_version_is_refused(opset: Any) -> None:
    with pytest.raises(ValueError, match=r"opset = .*: must be an integer >= 1"):
        ortops.register(options(), opset=opset)


def test_wrong_arguments_of_a_session_are_named() -> None:
    model = parse(f"y = {ROI_ALIGN}")
    with pytest.raises(TypeError, match=r"has no argument 'standrd' \(standard\?\)"):
        run(model, standrd=True)
    with pytest.raises(TypeError, match="is a ModelProto: must be a path or bytes, such as"):
        ortops.InferenceSession(model)
    with pytest.raises(TypeError, match="standard = 'yes': must be True, False or None"):
        run(model, standard="yes")


@pytest.mark.parametrize(
    ("providers", "of_options", "is_cpu"),
    [
        ([CPU], False, True),
        (["AzureExecutionProvider", CPU], False, True),
        (["CUDAExecutionProvider", CPU], False, False),
        ([("CUDAExecutionProvider", {"device_id": 0}), CPU], False, False),
        (["XnnpackExecutionProvider"], False, True),
        (None, False, False),
        (None, True, False),
        ([CPU], True, True),
    ],
)
def test_kernels_of_other_providers_are_not_displaced(
    providers: Any, of_options: bool, is_cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that ONNX Runtime has; it does without Xnnpack here."""
    has = ["CUDAExecutionProvider", "AzureExecutionProvider", CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: has)

    class WithProviders:
        def has_providers(self) -> bool:
            return of_options

    assert served.has_only_cpu(WithProviders(), providers) == is_cpu


def test_with_another_provider_nodes_are_served_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_WITHOUT_KERNELS", {"NoExecutionProvider"})
    model = parse(f"y = {ROI_ALIGN}", 22)
    with pytest.raises(Exception, match=r"RoiAlign\(22\) .* ortops runs RoiAlign on the CPU with standard=True"):
        run(model)
    assert run(model, standard=True).tobytes() == converted(model).tobytes()
    chosen = options()
    ortops.register(chosen, opset=22)
    assert run(model, chosen).tobytes() == converted(model).tobytes()


def test_with_another_provider_a_model_that_is_not_served_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_WITHOUT_KERNELS", {"NoExecutionProvider"})
    functions = FUNCTION.format(opset=10)
    model = parse("y = f.g (x, boxes, of)", 16, imports=', "f" : 1', functions=functions)
    assert run(model).tobytes() == native(model).tobytes()


def test_a_session_with_new_providers_serves_the_same_nodes() -> None:
    model = parse(f"y = {ROI_ALIGN}", 22)
    session = ortops.InferenceSession(saved(model), options(), providers=[CPU])
    session.set_providers([CPU])
    assert session.run(None, FEEDS)[0].tobytes() == converted(model).tobytes()


def test_a_session_says_that_it_cannot_be_pickled() -> None:
    session = ortops.InferenceSession(saved(parse(f"y = {ROI_ALIGN}", 22)), options(), providers=[CPU])
    with pytest.raises(TypeError, match="cannot pickle an"):
        pickle.dumps(session)


def test_an_operator_of_a_user_comes_before_ours() -> None:
    @ortops.operator(domain="mmcv", name="MMCVRoiAlign")
    def mine(x: NDArray[np.float32], boxes: NDArray[np.float32], of: NDArray[np.int64]) -> NDArray[np.float32]:
        return x + len(boxes) + len(of)

    model = parse("y = mmcv.MMCVRoiAlign (x, boxes, of)", imports=', "mmcv" : 1')
    np.testing.assert_array_equal(run(model, operators=[mine]), FEEDS["x"] + 2 + 2)

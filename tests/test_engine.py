"""The operators in ONNX Runtime sessions."""

from __future__ import annotations

import copy
import ctypes
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from ortops.custom import tensors
from ortops.engine import extensions
from ortops.engine.c_api import Api
from ortops.engine.extensions import OrtError
from ortops.native.ort.types import API_FUNCTIONS
from samples import FORWARD, open_ranks, with_attributes

ALIGN, POOL = onnx_models.roi_align(16), open_ranks(onnx_models.max_roi_pool(22))
RESAMPLE = onnx_models.dml_resample(rank=2, scales=[1.0, 1.0])


def session(model: onnx.ModelProto, chosen: Any = None) -> ortops.InferenceSession:
    return ortops.InferenceSession(model.SerializeToString(), chosen or options(), providers=[CPU])


@pytest.mark.parametrize(
    "model", [onnx_models.roi_align(16), onnx_models.roi_align_grad()], ids=["forward", "gradient"]
)
@pytest.mark.parametrize(
    "attribute",
    [
        onnx.helper.make_attribute("mode", ["max"]),
        onnx.helper.make_attribute("mode", onnx.numpy_helper.from_array(np.ones(3))),
        onnx.helper.make_attribute("mode", onnx.helper.make_tensor_type_proto(1, [2])),
        onnx.helper.make_attribute("mode", [], attr_type=onnx.AttributeProto.STRINGS),
        onnx.helper.make_attribute("spatial_scale", [], attr_type=onnx.AttributeProto.FLOATS),
        onnx.helper.make_attribute("sampling_ratio", [], attr_type=onnx.AttributeProto.INTS),
    ],
    ids=["strings", "tensor", "type", "no strings", "no floats", "no ints"],
)
def test_an_attribute_that_the_c_api_cannot_read_is_no_default(
    model: onnx.ModelProto, attribute: onnx.AttributeProto
) -> None:
    model = with_attributes(copy.deepcopy(model), {attribute.name: 0})
    model.graph.node[0].attribute[-1].CopyFrom(attribute)
    with pytest.raises(
        Exception, match=f"{attribute.name} has a type that cannot be read, or is an empty list: must be "
    ):
        session(model)


@pytest.mark.parametrize(
    ("model", "attributes", "says"),
    [
        (ALIGN, {"sampling_ratio": 2.5}, r"sampling_ratio = 2\.5 has type FLOAT: must be INT"),
        (ALIGN, {"mode": 1}, "mode = 1 has type INT: must be STRING"),
        (ALIGN, {"spatial_scale": 2}, "spatial_scale = 2 has type INT: must be FLOAT"),
        (ALIGN, {"output_width": "7"}, "output_width = '7' has type STRING: must be INT"),
        (ALIGN, {"mode": "avg\0max"}, r"mode = 'avg\\x00max': must be one of"),  # a zero byte does not end a string
        (POOL, {"pooled_shape": 2}, "pooled_shape = 2 has type INT: must be INTS"),
        (POOL, {"pooled_shape": [1] * 9}, "must have 2 values, output_height, output_width"),
        (RESAMPLE, {"scales": [2, 2]}, r"scales = \[2, 2\] has type INTS: must be FLOATS"),
        (RESAMPLE, {"scales": [1.0] * 5}, "scales has 5 values: must have at most 4, one for each axis"),
        (RESAMPLE, {"output_sizes": [3]}, "values: must have the same number"),
    ],
)
def test_an_attribute_that_breaks_its_rule_is_refused_when_a_session_is_made(
    model: onnx.ModelProto, attributes: dict[str, Any], says: str
) -> None:
    with pytest.raises(Exception, match=says):
        session(with_attributes(copy.deepcopy(model), attributes))


def test_shapes_are_inferred_where_inputs_settle_them() -> None:
    model = open_ranks(onnx_models.roi_align(22, output_height=3, output_width=5))
    rois, channels, *bins = session(model).get_outputs()[0].shape
    assert rois != channels
    assert bins == [3, 5]
    for value, shape in zip(model.graph.input, (("n", 4, 20, 30), ("r", 4), ("r",)), strict=True):
        for length in shape:
            dimension = value.type.tensor_type.shape.dim.add()
            setattr(dimension, "dim_value" if isinstance(length, int) else "dim_param", length)
    assert session(model).get_outputs()[0].shape == ["r", 4, 3, 5]
    assert session(onnx_models.max_roi_pool(22, pooled_shape=[2, 3])).get_outputs()[0].shape == ["num_rois", "C", 2, 3]


def test_the_library_path_serves_those_who_register_it_themselves() -> None:
    chosen = options()
    chosen.register_custom_ops_library(ortops.library_path())
    model = onnx_models.roi_align(16).SerializeToString()
    assert onnxruntime.InferenceSession(model, chosen, providers=[CPU]).run(None, FORWARD)


def test_options_that_have_the_library_already_are_refused_with_the_mend() -> None:
    chosen = options()
    chosen.register_custom_ops_library(pytest.importorskip("onnxruntime_extensions").get_library_path())
    with pytest.raises(OrtError, match=r"sess_options have .* twice, from ortops and .*: remove the other call"):
        session(onnx_models.roi_align(16), chosen)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="engine = 'fast': must be None"):
        ortops.register(options(), "fast")


@pytest.mark.parametrize("engine", ["auto", "direct", "library", "pyop"])
def test_an_engine_of_earlier_releases_has_no_effect(engine: str) -> None:
    chosen = options()
    with pytest.warns(DeprecationWarning, match=f"engine = '{engine}' has no effect any more"):
        ortops.register(chosen, engine)
    assert session(onnx_models.roi_align(16), chosen).run(None, FORWARD)


def test_our_domain_may_have_another_name() -> None:
    chosen, model = options(), onnx_models.roi_align(16)
    ortops.register(chosen, domain="com.example")
    for imported in (model.graph.node[0], model.opset_import[-1]):
        imported.domain = "com.example"
    expected = session(onnx_models.roi_align(16)).run(None, FORWARD)[0]
    assert session(model, chosen).run(None, FORWARD)[0].tobytes() == expected.tobytes()
    if extensions.library_path():
        chosen.register_custom_ops_library(extensions.library_path())
        assert session(model, chosen).run(None, FORWARD)[0].tobytes() == expected.tobytes()
    with pytest.raises(
        ValueError, match=r"^domain = 'ai.onnx.contrib': the session options have 'com.example': must be"
    ):
        ortops.register(chosen, domain="ai.onnx.contrib")
    with pytest.raises(ValueError, match=r"^domain = 'a:b': must be a name"):
        ortops.register(options(), domain="a:b")


def test_warmup_of_earlier_releases_does_nothing_and_says_so() -> None:
    with pytest.warns(DeprecationWarning, match="ortops.warmup does nothing any more"):
        ortops.warmup(["RoiAlign_16"], mode="avg")


@pytest.mark.parametrize("failing", range(6))
def test_what_onnxruntime_refuses_to_read_is_an_error_that_leaks_nothing(failing: int) -> None:
    """Functions of OrtApi that are called in turn; one of them returns the address of a status."""
    value, info, status = 16, 32, 48
    calls: list[tuple[int, int]] = []

    def function(i: int) -> Any:
        def call(first: int, second: int, third: int) -> int:
            calls.append((i, first))
            if i == failing:
                return status
            result = third if i == 0 else second
            if i in (0, 1):
                ctypes.c_int64.from_address(result).value = (value, info)[i]
            return 0

        return ctypes.CFUNCTYPE(*(ctypes.c_int64,) * 4)(call)

    functions = [function(i) for i in range(7)]
    table = np.zeros(1 + max(place for place, *_ in API_FUNCTIONS.values()), np.int64)
    names = (
        "KernelContext_GetInput",
        "GetTensorTypeAndShape",
        "GetTensorElementType",
        "GetDimensionsCount",
        "GetDimensions",
    )
    for name, one in zip((*names, "GetTensorMutableData", "ReleaseTensorTypeAndShapeInfo"), functions, strict=True):
        table[API_FUNCTIONS[name][0]] = ctypes.cast(one, ctypes.c_void_p).value or 0
    api: Any = SimpleNamespace(address=table.ctypes.data)
    released: list[int] = []
    api.check = functools.partial(Api.check, api)
    api.GetErrorMessage, api.ReleaseStatus = lambda _: b"no such input", released.append
    with pytest.raises(OrtError, match="no such input"):
        tensors.Inputs(api, [1], 8).read(64)
    assert released == [status]
    assert ((6, info) in calls) == (failing > 1), "ReleaseTensorTypeAndShapeInfo is called if there is one"

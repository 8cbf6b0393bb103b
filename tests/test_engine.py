# SPDX-License-Identifier: MIT
"""The operators in ONNX Runtime sessions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from ortops.engine import extensions
from ortops.engine.extensions import OrtError
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

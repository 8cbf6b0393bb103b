"""The sessions to interrupt, of either engine and class, and their models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import onnx_models
import ortops
from conformance.case import Array
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, DOMAIN_VERSION

Engine = Literal["direct", "pyop"]
Class = Literal["ours", "plain"]

FEEDS: dict[str, Array] = {
    "X": np.random.default_rng(0).uniform(-1, 1, (1, 4, 8, 8)).astype(np.float32),
    "rois": np.array([[0, 0, 8, 8]], np.float32),
    "batch_indices": np.zeros(1, np.int64),
}
SIZE: dict[str, Any] = {"output_height": 8, "output_width": 8}

_QUIET = 4
_PROVIDERS = ["CPUExecutionProvider"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind of session: the engine by which ONNX Runtime calls the operators, and the session's class."""

    engine: Engine
    session: Class

    def options(self) -> Any:
        """Session options without logging, with the operators registered."""
        made = onnxruntime.SessionOptions()
        made.log_severity_level = _QUIET
        made.intra_op_num_threads = 1
        ortops.register(made, self.engine)
        return made

    def make(self, model: bytes) -> Any:
        """Create a session of this kind."""
        if self.session == "ours":
            return ortops.InferenceSession(model, self.options(), providers=_PROVIDERS)
        # Without enable_fallback=0 the session would try again after an error and lose it.
        return onnxruntime.InferenceSession(model, self.options(), providers=_PROVIDERS, enable_fallback=0)


def chain(nodes: int) -> bytes:
    """A model with `nodes` RoiAligns in a chain, each followed by an Add, for `FEEDS`."""
    made = []
    for i in range(nodes):
        inputs = [f"Z{i}" if i else "X", "rois", "batch_indices"]
        made.append(onnx_models.build.node(BY_NAME["RoiAlign_16"], inputs, [f"Y{i}"], SIZE, name=f"node{i}"))
        made.append(helper.make_node("Add", [f"Y{i}", f"Y{i}"], [f"Z{i + 1}"]))
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in FEEDS.items()
    ]
    output = helper.make_tensor_value_info(f"Z{nodes}", onnx.TensorProto.FLOAT, FEEDS["X"].shape)
    opsets = [
        helper.make_opsetid("", onnx_models.opset_upgrade.DEFAULT_OPSET),
        helper.make_opsetid(DOMAIN, DOMAIN_VERSION),
    ]
    graph = helper.make_graph(made, "chain", values, [output])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=onnx_models.opset_upgrade.DEFAULT_IR_VERSION)
    return bytes(model.SerializeToString())


def chain_answer(nodes: int) -> Array:
    """The output of `chain` for `FEEDS`."""
    z = FEEDS["X"]
    for _ in range(nodes):
        y = ortops.roi_align(z, FEEDS["rois"], FEEDS["batch_indices"], **SIZE)
        z = y + y
    return z

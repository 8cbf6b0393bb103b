"""Nodes that a library makes: what it says of attributes and infers of shapes, against sessions of this project."""

from __future__ import annotations

import copy
import ctypes
import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from in_process import c_function
from library_in_process import Host
from ortops.engine.c_api import ort_api
from ortops.engine.extensions import OrtError
from ortops.native.node import strings
from ortops.native.ort.types import FAIL, Table
from ortops.native.types import TEXT_BYTES, Call
from ortops.runtime import library
from samples import open_ranks, with_attributes

OURS = ctypes.CDLL(library().path)
POOL, RESAMPLE = open_ranks(onnx_models.max_roi_pool(22)), onnx_models.dml_resample(rank=2, scales=[1.0, 1.0])
ROI_ALIGN, REGIONS = onnx_models.roi_align(16), onnx_models.dml_roi_align()
GRADIENT = onnx_models.roi_align_grad()


def session(model: onnx.ModelProto, name: str = "RegisterCustomOps", host: Host | None = None) -> Any:
    """A session whose options have the library's operators."""
    chosen = options()
    (host or Host()).register(chosen, OURS, name)
    return onnxruntime.InferenceSession(model.SerializeToString(), chosen, providers=[CPU])


def said(make: Any, model: onnx.ModelProto) -> str:
    """What the error says when a session is made."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the type is ONNX Runtime's own
        make(model)
    text, label = str(caught.value), f"{model.graph.node[0].op_type}: "
    assert label in text, text
    return text[text.index(label) :]


def said_by_ours(model: onnx.ModelProto) -> str:
    """What the kernel says; the session may say the same before there is a kernel."""

    def registered(model: onnx.ModelProto) -> Any:
        chosen = options()
        ortops.register(chosen)
        return onnxruntime.InferenceSession(model.SerializeToString(), chosen, providers=[CPU])

    text = said(registered, model)
    with pytest.raises(Exception, match=re.escape(text.partition(": ")[2])):
        ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    return text


@pytest.mark.parametrize(
    ("model", "attributes"),
    [
        (ROI_ALIGN, {"sampling_ratio": 2.5}),
        (ROI_ALIGN, {"sampling_ratio": -(2**63)}),
        (ROI_ALIGN, {"sampling_ratio": 2**63 - 1, "output_width": -(2**63)}),
        (ROI_ALIGN, {"sampling_ratio": []}),
        (ROI_ALIGN, {"mode": 1}),
        (ROI_ALIGN, {"mode": [0.1, 1e30]}),
        (ROI_ALIGN, {"mode": ["max"]}),
        (ROI_ALIGN, {"mode": np.ones(3)}),
        (ROI_ALIGN, {"mode": "avg\0max"}),
        (ROI_ALIGN, {"mode": "avg "}),
        (ROI_ALIGN, {"mode": ""}),
        (ROI_ALIGN, {"mode": "\u20ac\n" * 1000}),
        (ROI_ALIGN, {"mode": [7] * 3000}),
        (ROI_ALIGN, {"spatial_scale": 2}),
        (ROI_ALIGN, {"spatial_scale": 0.0}),
        (ROI_ALIGN, {"spatial_scale": float("nan")}),
        (ROI_ALIGN, {"spatial_scale": float("inf")}),
        (ROI_ALIGN, {"spatial_scale": [1.0, 2.0]}),
        (ROI_ALIGN, {"output_width": "7"}),
        (ROI_ALIGN, {"output_width": 0, "output_height": -1}),
        (GRADIENT, {"mode": "mean"}),
        (POOL, {"pooled_shape": 2}),
        (POOL, {"pooled_shape": [1] * 9}),
        (POOL, {"pooled_shape": [1, 0]}),
        (RESAMPLE, {"scales": [2, 2]}),
        (RESAMPLE, {"scales": []}),
        (RESAMPLE, {"scales": np.ones(2)}),
        (RESAMPLE, {"scales": [1.0] * 5}),
        (RESAMPLE, {"output_sizes": [1, -(2**63)]}),
        *(
            (onnx_models.roi_align(10), {"coordinate_transformation_mode": value})
            for value in ("half_pixel", 1, 0.5, [1], [0.5], ["x"], np.ones(3))
        ),
        (RESAMPLE, {"scales": [1.0, -0.5]}),
        (RESAMPLE, {"output_sizes": [3]}),
        (RESAMPLE, {"output_sizes": [3], "input_pixel_offsets": [1.0] * 3}),
        (REGIONS, {"minimum_samples_per_output": 3, "maximum_samples_per_output": 2}),
        (REGIONS, {"align_regions_to_corners": 2}),
    ],
)
def test_a_library_says_of_attributes_what_a_session_says(model: onnx.ModelProto, attributes: dict[str, Any]) -> None:
    model = copy.deepcopy(model)
    for name, value in attributes.items():
        model = with_attributes(model, {name: 0})
        stored = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        kind = onnx.AttributeProto.FLOATS if isinstance(value, list) and not value else None
        model.graph.node[0].attribute[-1].CopyFrom(onnx.helper.make_attribute(name, stored, attr_type=kind))
    expected = said_by_ours(model).encode()[: TEXT_BYTES - 1].decode(errors="ignore")  # as much as there is room for
    assert said(session, model) == expected


def test_an_attribute_that_onnx_requires_may_not_be_left_out() -> None:
    model = open_ranks(onnx_models.max_roi_pool(22))
    node = model.graph.node[0]
    node.op_type, node.domain = "MaxRoiPool", ""
    del node.attribute[:]
    del model.opset_import[:]
    model.opset_import.extend([onnx.helper.make_opsetid("", 22)])
    text = said(lambda one: session(one, "RegisterOnnx22"), model)
    assert text == "MaxRoiPool: pooled_shape is missing: MaxRoiPool requires it"


def shaped(model: onnx.ModelProto, shapes: Sequence[Sequence[int | str | None] | None]) -> onnx.ModelProto:
    """A model whose inputs have these shapes, None for an unknown rank, and whose outputs have unknown ranks."""
    model = open_ranks(copy.deepcopy(model))
    for value, shape in zip(model.graph.input, shapes, strict=True):
        for length in shape or ():
            dimension = value.type.tensor_type.shape.dim.add()
            if length is not None:
                setattr(dimension, "dim_value" if isinstance(length, int) else "dim_param", length)
    return model


def shapes_of(session: Any) -> list[Any]:
    """The shapes of a session's outputs, without the numbers of unknown lengths, each of which must be a new one."""
    shapes = [output.shape for output in session.get_outputs()]
    unknown = [length for shape in shapes for length in shape if str(length).startswith("ortops_unknown_")]
    assert len(set(unknown)) == len(unknown)
    return [[None if length in unknown else length for length in shape] for shape in shapes]


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (ROI_ALIGN, [("n", 4, 20, 30), ("r", 4), ("r",)]),
        (ROI_ALIGN, [(None, "c", None, None), ("r", 4), ("s",)]),
        (ROI_ALIGN, [(None, "c", None, None), (None, 4), ("s",)]),
        (ROI_ALIGN, [(1, "c", None, None), (None, 4), (7,)]),
        (ROI_ALIGN, [(1, None, None, None), (None, 4), (7,)]),
        (ROI_ALIGN, [(None, None, None, None), (None, None), (None,)]),
        (ROI_ALIGN, [None, ("r", 4), None]),
        (ROI_ALIGN, [None, None, None]),
        (ROI_ALIGN, [(1, 2, 5, 6), (3, 4), (2,)]),  # disagree: ONNX Runtime leaves the error to the call
        (ROI_ALIGN, [(1, 2, 5), ("r", 4), ("r",)]),
        (REGIONS, [("n", "c", 5, 5), (1, 1, "r", 4), (1, "r")]),
        (REGIONS, [("n", "c", 5, 5), None, (1, "r")]),
        (REGIONS, [None, (1, "r", 4), None]),
        (RESAMPLE, [(3, 4)]),
        (RESAMPLE, [("a", 4)]),
        (GRADIENT, [("r", "c", 2, 2), ("r", 4), ("r",), (4,), (1, "c", 5, 6)]),
        (GRADIENT, [("r", "c", 2, 2), ("r", 4), (3,), (4,), None]),
        (onnx_models.ps_roi_align(output_height=2, output_width=3), [(1, 12, 5, 6), ("r", 4), ("r",)]),
        (onnx_models.ps_roi_align(output_height=2, output_width=3), [(1, "c", 5, 6), ("r", 4), ("r",)]),
    ],
)
def test_a_library_infers_the_shapes_that_a_session_infers(
    model: onnx.ModelProto, shapes: Sequence[Sequence[int | str | None] | None]
) -> None:
    model = shaped(model, shapes)
    ours = ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    assert shapes_of(session(model)) == shapes_of(ours)


@pytest.mark.parametrize(
    ("version", "infers"), [("1.24.0", True), ("1.23.9", False), ("1.100.1", True), ("2.0.0", True), ("unknown", False)]
)
def test_where_inference_crashes_for_absent_tensors_operators_that_have_them_do_without(
    version: str, infers: bool
) -> None:
    found: dict[str, bool] = {}

    def add(_domain: int, table: int) -> int:
        added = Table.from_address(table)
        found[ctypes.string_at(added.signature.name).decode()] = added.custom_op.infer_output_shape != 0
        return 0

    host = Host(version, {"CustomOpDomain_Add": add})
    host.register(options(), OURS)
    assert (found["RoiAlignGrad"], found["RoiAlign_16"]) == (infers, True)


class Counting:
    """Counts the domains that a host makes and releases, and refuses one of the operators that are added to them."""

    def __init__(self, refused: int = 0) -> None:
        self.made, self.released, self.added = list[int](), list[int](), 0
        real = ort_api()

        def create(name: int, target: int) -> int:
            status = real.CreateCustomOpDomain(ctypes.cast(name, ctypes.c_char_p), target)
            self.made.append(ctypes.c_int64.from_address(target).value)
            return status or 0

        def add(domain: int, table: int) -> int:
            self.added += 1
            status = real.CustomOpDomain_Add(domain, table)
            return (real.CreateStatus(FAIL, b"refused") if self.added == refused else status) or 0

        def release(domain: int) -> int:
            self.released.append(domain)
            real.ReleaseCustomOpDomain(domain)
            return 0

        self.host = Host(
            replaced={"CreateCustomOpDomain": create, "CustomOpDomain_Add": add, "ReleaseCustomOpDomain": release}
        )


def test_sessions_of_an_onnx_runtime_share_one_registration() -> None:
    counting = Counting()
    for _ in range(3):
        session(ROI_ALIGN, host=counting.host)
    assert (len(counting.made), counting.released) == (1, [])


def test_threads_register_at_the_same_time() -> None:
    counting, failures = Counting(), list[BaseException]()
    together = threading.Barrier(8)

    def work() -> None:
        try:
            together.wait(60)
            session(ROI_ALIGN, host=counting.host)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = len(counting.made)
    session(ROI_ALIGN, host=counting.host)
    assert failures == []
    assert len(counting.made) == made <= len(threads)


def test_what_a_host_refuses_is_released_and_may_be_registered_again() -> None:
    counting = Counting(refused=3)
    with pytest.raises(OrtError, match="refused"):
        session(ROI_ALIGN, host=counting.host)
    assert counting.released == counting.made != []
    session(ROI_ALIGN, host=counting.host)
    assert len(counting.released) == 1


def test_an_onnx_runtime_that_is_too_old_is_told_so() -> None:
    with pytest.raises(OrtError, match=r"^ortops: ONNX Runtime must be 1\.20 or later$"):
        Host(oldest=20).register(options(), OURS)


_write_repr = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64)


_ESCAPED = "'\"\\ \t\n\x7f\xa0\xad"


@given(st.text() | st.text(st.sampled_from(_ESCAPED)) | st.binary())
@settings(deadline=None)
def test_strings_are_written_as_python_prints_them(value: str | bytes) -> None:
    content = value.encode() if isinstance(value, str) else value
    text = content.decode(errors="surrogateescape")
    assume(all(one.isprintable() or one <= "\xad" or "\udc80" <= one <= "\udcff" for one in text))
    expected = repr(text).encode(errors="replace")
    call = Call()
    write = _write_repr(c_function(strings.write_repr))
    write(ctypes.addressof(call), content, len(content))
    assert bytes(call.text[: call.text_size]) == expected

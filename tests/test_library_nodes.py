# SPDX-License-Identifier: MIT
"""Nodes that compiled code makes and infers the shapes of, against Python's own; and how a library registers with a host."""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from in_process import c_function
from ortops.engine.c_api import captured_address, ort_api
from ortops.engine.extensions import OrtError
from ortops.memory import keep_forever
from ortops.native.node import messages
from ortops.native.ort.types import API_FUNCTIONS, FAIL, Table
from ortops.native.types import TEXT_BYTES, Call
from ortops.operators import OPERATORS
from ortops.runtime import library
from ortops.spec import Attribute, Operator
from samples import open_ranks, samples

_WORDS = 1 + max(place for place, *_ in API_FUNCTIONS.values())


class Host:
    """An ONNX Runtime whose functions can be replaced.

    Args:
        version: what it says its version is.
        replaced: functions of OrtApi by name, which take and return integers.
        oldest: the API version that it has no table for, and all later ones; 0 for none.
    """

    def __init__(
        self,
        version: str = onnxruntime.__version__,
        replaced: Mapping[str, Callable[..., int]] | None = None,
        oldest: int = 0,
    ) -> None:
        self.api = ort_api()
        self._table = (ctypes.c_void_p * _WORDS).from_buffer_copy(
            ctypes.string_at(self.api.address, ctypes.sizeof(ctypes.c_void_p) * _WORDS)
        )
        self._kept: list[Any] = [ctypes.create_string_buffer(version.encode())]
        for name, function in (replaced or {}).items():
            self._table[API_FUNCTIONS[name][0]] = self._address(function, function.__code__.co_argcount)
        table, text = ctypes.addressof(self._table), ctypes.addressof(self._kept[0])
        self._base = (ctypes.c_void_p * 2)(
            self._address(lambda wanted: 0 if oldest and wanted >= oldest else table, 1), self._address(lambda: text, 0)
        )

        keep_forever(self)  # registrations keep the address of the table

    def _address(self, function: Callable[..., int], arguments: int) -> int:
        made = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * arguments)(function)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def register(self, options: onnxruntime.SessionOptions, library: Any, name: str = "RegisterCustomOps") -> None:
        """Call a function of a library with this host, as ONNX Runtime does for options.

        Raises:
            OrtError: the library returned a status.
        """
        register = getattr(library, name)
        register.restype = ctypes.c_void_p
        address = ctypes.c_void_p(captured_address(options))
        self.api.check(register(address, ctypes.c_void_p(ctypes.addressof(self._base))))


OURS = ctypes.CDLL(library().path)
ROI_ALIGN = onnx_models.roi_align(16)
Kind = onnx.AttributeProto


def session(model: onnx.ModelProto, name: str = "RegisterCustomOps", host: Host | None = None) -> Any:
    """A session whose options have the library's operators."""
    chosen = options()
    (host or Host()).register(chosen, OURS, name)
    return onnxruntime.InferenceSession(model.SerializeToString(), chosen, providers=[CPU])


@functools.cache
def both_options(operator: Operator) -> tuple[Any, Any]:
    """Session options with the library, and with an operator of a user that has the definition and a kernel in Python."""
    of_library, of_python = options(), options()
    Host().register(of_library, OURS)
    plain = ortops.operator(
        domain="python",
        name=operator.name,
        inputs=operator.inputs,
        outputs=operator.outputs,
        types=operator.types,
        attributes=operator.attributes,
    )(lambda **_: None)
    rules: Any = {name: getattr(operator, name) for name in ("rules", "constants", "equations", "derived_axes")}
    ortops.register(of_python, operators=[replace(plain, **rules)])
    return of_library, of_python


def known(shape: list[Any]) -> list[Any]:
    """A shape without the numbers that stand for unknown lengths, each of which must be a new one."""
    unknown = [length for length in shape if isinstance(length, str) and length not in ("n", "r")]
    assert len(set(unknown)) == len(unknown)
    return [None if length in unknown else length for length in shape]


def both(operator: Operator, model: onnx.ModelProto) -> list[Any]:
    """The shapes that a session of each has, or the text of its error from the operator's name on."""
    outcomes: list[Any] = []
    for chosen, domain in zip(both_options(operator), (operator.domain, "python"), strict=True):
        model.graph.node[0].domain = domain
        try:
            made = onnxruntime.InferenceSession(model.SerializeToString(), chosen, providers=[CPU])
            outcomes.append([known(output.shape) for output in made.get_outputs()])
        except Exception as error:  # noqa: BLE001 - the type is ONNX Runtime's own
            text = str(error).encode().partition(f"{operator.name}: ".encode())[2]
            outcomes.append(text[: TEXT_BYTES - 1 - len(operator.name) - 2].decode(errors="ignore"))
    return outcomes


def model_of(operator: Operator) -> onnx.ModelProto:
    """A model of one node, which may also be of the domain of the operator in Python."""
    model = open_ranks(samples(operator)[0].model())
    model.opset_import.append(onnx.helper.make_opsetid("python", 1))
    return model


def of_any_kind(attribute: Attribute) -> st.SearchStrategy[Kind]:
    """The attribute of a node, often with its own type."""
    integers = st.sampled_from([0, 1, 2, 3, -1, -(2**63), 2**63 - 1])
    floats = st.sampled_from([0.0, -0.0, 0.5, 2.0, -1.5, 1 / 3, 1e30, math.nan, math.inf, -math.inf])
    texts = st.sampled_from([*attribute.choices, "", "7", "avg ", "avg\0max", "avg" * 1000])
    values: dict[int, st.SearchStrategy[Any]] = {
        Kind.INT: integers,
        Kind.FLOAT: floats,
        Kind.STRING: texts,
        Kind.INTS: st.lists(integers, max_size=6) | st.sampled_from([[1] * n for n in (1, 2, 3, 5, 3000)]),
        Kind.FLOATS: st.lists(floats, max_size=6) | st.sampled_from([[1.0] * n for n in (1, 2, 3, 5)]),
        Kind.TENSOR: st.just(onnx.numpy_helper.from_array(np.ones(2))),
    }
    if not attribute.is_per_axis:  # which compiled code takes for an empty list
        values[Kind.STRINGS] = st.lists(st.sampled_from(["", "avg"]), max_size=2)
    own = Kind.AttributeType.Value(attribute.type)
    kinds = st.just(own) | st.sampled_from(sorted(values))
    return kinds.flatmap(
        lambda kind: values[kind].map(lambda value: onnx.helper.make_attribute(attribute.name, value, attr_type=kind))
    )


def of_node(operator: Operator) -> st.SearchStrategy[Any]:
    """Attributes of a node, None for one that it leaves out: any, or those that break a rule between attributes."""
    chosen = st.lists(st.sampled_from(operator.attributes), min_size=1, max_size=3, unique_by=lambda one: one.name)
    drawn = chosen.flatmap(lambda attributes: st.fixed_dictionaries({one.name: of_any_kind(one) for one in attributes}))
    broken = [
        {name: None if value == () else onnx.helper.make_attribute(name, value) for name, value in rule.broken.items()}
        for rule in operator.rules
    ]
    return drawn | st.sampled_from(broken) if broken else drawn


@pytest.mark.parametrize("operator", [one for one in OPERATORS if one.attributes], ids=lambda operator: operator.name)
@given(st.data())
@settings(deadline=None, derandomize=True, max_examples=12, suppress_health_check=list(HealthCheck))
def test_compiled_and_python_nodes_refuse_same_attributes(operator: Operator, data: st.DataObject) -> None:
    model = model_of(operator)
    node = model.graph.node[0]
    attributes = {attribute.name: attribute for attribute in node.attribute} | data.draw(of_node(operator))
    del node.attribute[:]
    node.attribute.extend(filter(None, attributes.values()))
    of_library, of_python = both(operator, model)
    assert of_library == of_python


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
@given(st.data())
@settings(deadline=None, derandomize=True, max_examples=8, suppress_health_check=list(HealthCheck))
def test_compiled_and_python_nodes_infer_same_shapes(operator: Operator, data: st.DataObject) -> None:
    model, known_lengths, tensors = model_of(operator), dict[Any, Any](), {one.name: one for one in operator.inputs}
    for value in model.graph.input:
        tensor, shape = tensors[value.name], samples(operator)[0].inputs[value.name].shape
        shape = (1,) * data.draw(st.integers(0, tensor.max_leading_ones)) + shape
        for axis, length in zip(tensor.axes(len(shape)), shape, strict=True):
            known_lengths.setdefault(axis, data.draw(st.sampled_from([length, length, None, "n", "r"])))
        lengths = [known_lengths[axis] for axis in tensor.axes(len(shape))]
        # Now and then an unknown rank, or one or a length that disagrees with others.
        given_lengths = data.draw(st.sampled_from([lengths] * 6 + [[], lengths[1:], [*lengths[:-1], 2]]))
        for length in given_lengths:
            dimension = value.type.tensor_type.shape.dim.add()
            if length is not None:
                setattr(dimension, "dim_value" if isinstance(length, int) else "dim_param", length)
    of_library, of_python = both(operator, model)
    assert of_library == of_python


def test_kernel_refuses_node_without_attribute_that_onnx_requires() -> None:
    model = open_ranks(onnx_models.max_roi_pool(22, standard=True))
    del model.graph.node[0].attribute[:]
    with pytest.raises(Exception, match="MaxRoiPool: pooled_shape is missing: MaxRoiPool requires it"):
        session(model, "RegisterOnnx22")


@pytest.mark.parametrize(
    ("version", "infers"), [("1.24.0", True), ("1.23.9", False), ("1.100.1", True), ("2.0.0", True), ("unknown", False)]
)
def test_operators_with_optional_tensors_infer_no_shapes_where_inference_crashes(version: str, infers: bool) -> None:
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


def test_sessions_share_one_registration() -> None:
    counting = Counting()
    for _ in range(3):
        session(ROI_ALIGN, host=counting.host)
    assert (len(counting.made), counting.released) == (1, [])


def test_threads_register_at_same_time() -> None:
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


def test_library_releases_what_host_refuses() -> None:
    counting = Counting(refused=3)
    with pytest.raises(OrtError, match="refused"):
        session(ROI_ALIGN, host=counting.host)
    assert counting.released == counting.made != []
    session(ROI_ALIGN, host=counting.host)
    assert len(counting.released) == 1


def test_library_refuses_old_onnx_runtime() -> None:
    with pytest.raises(OrtError, match=r"^ortops: ONNX Runtime must be 1\.20 or later$"):
        Host(oldest=20).register(options(), OURS)


@given(st.text() | st.binary())
@settings(deadline=None)
def test_compiled_code_writes_strings_in_ascii(value: str | bytes) -> None:
    content, call = value.encode() if isinstance(value, str) else value, Call()
    write = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64)
    write(c_function(messages.write_string))(ctypes.addressof(call), content, len(content))
    plain = {byte: chr(byte) for byte in range(0x20, 0x7F) if chr(byte) not in "'\\"}
    expected = "".join(plain.get(byte, f"\\x{byte:02x}") for byte in content)
    assert bytes(call.text[: call.text_size]).decode() == f"'{expected}'"

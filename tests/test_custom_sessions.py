# SPDX-License-Identifier: MIT
"""Operators of users and sessions: registration, remedies for missing operators, lives, threads and processes."""

# mypy: disable-error-code="empty-body, no-any-return"

from __future__ import annotations

import gc
import multiprocessing
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from sessions import ONE, made, model_of, session, stock_session

F = NDArray[np.float32]


@made
def same(x: F) -> F:
    """The input."""
    return x


def times(factor: int) -> ortops.CustomOperator:
    return made(lambda x: x * np.float32(factor), inputs=[ortops.Tensor("x", "float")], outputs=[Y])


Y = ortops.Tensor("y", "float")


def _ok(x: F) -> F: ...


def test_register_refuses_name_twice() -> None:
    chosen = options()
    ortops.register(chosen, operators=[same, same])
    ortops.register(chosen, operators=[same])
    for twice in (ortops.register, lambda o, operators: ortops.InferenceSession(b"", o, operators=operators)):
        with pytest.raises(ValueError, match="operators has t::f twice: names must be unique"):
            twice(chosen, operators=[same, made(same.call)])
    with pytest.raises(TypeError, match=r"operators has <built-in function len>: must be made by ortops.operator"):
        ortops.register(chosen, operators=[len])  # type: ignore[list-item]
    ortops.register(chosen, operators=[made(_ok, name="g")])  # the same domain, later
    assert session("(float[n] x) => (float[n] y) { y = t.f(x) z = t.g(x) }", chosen=chosen)


def test_sessions_of_same_options_keep_own_operators() -> None:
    chosen, x = options(), {"x": np.ones(1, np.float32)}

    def make(*operators: ortops.CustomOperator, kind: Any = ortops.InferenceSession) -> Any:
        more = {"operators": operators} if operators else {}
        return kind(model_of(ONE).SerializeToString(), chosen, [CPU], **more)

    first, second = make(times(2)), make(times(3))
    second.set_providers([CPU])
    for kind in (ortops.InferenceSession, onnxruntime.InferenceSession):
        with pytest.raises(Exception, match=r"t:f.* is not a registered function/op|No Op registered for f"):
            make(kind=kind)
    for factor in (4, 5):  # the later one takes the place of the earlier
        ortops.register(chosen, operators=[times(factor)])
        for kind in (ortops.InferenceSession, onnxruntime.InferenceSession):
            assert make(kind=kind).run(None, x)[0] == factor
    assert make(times(6)).run(None, x)[0] == 6
    assert [runner.run(None, x)[0][0] for runner in (first, second, make())] == [2, 3, 5]


@pytest.mark.parametrize("wrong", [None, print, 3])
def test_operators_argument_refuses_other_objects(wrong: Any) -> None:
    calls: list[Callable[..., Any]] = [
        lambda operators: ortops.register(options(), operators=operators),
        lambda operators: ortops.InferenceSession(b"", operators=operators),
        onnx_models.register_schemas,
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"^operators = .*: must be operators made by ortops\.operator, in a list$"):
            call(wrong)


def test_operators_argument_takes_single_operator() -> None:
    chosen, model = options(), model_of(ONE)
    ortops.register(chosen, operators=same)
    for runner in (
        session(model, chosen=chosen),
        ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=same),
    ):
        assert runner.run(None, {"x": np.ones(1, np.float32)})[0] == 1
    loss = model_of("(float[n] x) => (float y) { z = t.f(x) y = ReduceSum <keepdims = 0> (z) }")
    differentiable = made(same.call, inputs=[ortops.Tensor("x", "float")], outputs=[Y], gradient="t::fGrad")
    with pytest.raises(ValueError, match="t::fGrad"):  # so it knows the operator
        onnx_models.gradient(loss, "y", ["x"], operators=differentiable)  # type: ignore[arg-type]


@pytest.mark.parametrize("standard", [None, False])
@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("t.f <a = 1> (x)", r"node '' \(f\).*: t::f has no attribute 'a': it has none$"),
        ("ai.onnx.contrib.RoiAlign_10 <size = 1, half = 1> (x)", "no attribute 'size': must be one of mode, out"),
    ],
)
@pytest.mark.parametrize(
    "graph",
    [
        "(float[n] x) => (float[m] y) {{ y = {} }}",
        """(float[n] x, bool c) => (float[m] y) {{
            y = If (c) <then_branch = a () => (p) {{ p = {} }}, else_branch = b () => (q) {{ q = Identity(x) }}> }}""",
        """(float[n] x) => (float[m] y) {{ y = own.g(x) }}
            <domain: "own", opset_import: ["" : 18, "t" : 1, "ai.onnx.contrib" : 1]> g (x) => (z) {{ z = {} }}""",
    ],
)
def test_session_refuses_unknown_attribute(graph: str, node: str, says: str, standard: Any) -> None:
    model = model_of(graph.format(node), imports='"t" : 1, "own" : 1, "ai.onnx.contrib" : 1')
    with pytest.raises(TypeError, match=says):
        ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=[same], standard=standard)


def test_model_function_may_have_other_attributes_than_operator_of_its_name() -> None:
    graph = """(float[n] x) => (float[n] y) { y = t.f <a = 2.0> (x) }
        <domain: "t", opset_import: ["" : 18]> f <a> (x) => (y) {
            k = Constant <value_float: float = @a> ()
            y = Mul(x, k)
        }"""
    assert session(graph, same).run(None, {"x": np.ones(1, np.float32)})[0] in (1, 2)  # as ONNX Runtime chooses


@pytest.mark.parametrize(
    ("node", "operators", "says"),
    [
        ("t.Swish(x)", (), r"t:Swish.* If t::Swish is an operator made by .*, pass it .*, operators=\[Swish\]\.$"),
        ("t.swish(x)", ("Other", "Swish"), r"Did you mean t::Swish, which the session has\?$"),
        ("u.Swish(x)", ("Other", "Swish"), r"Did you mean t::Swish, which the session has\?$"),
        ("t.MySwish(x)", ("Other", "Swish"), r"Did you mean t::Swish, which the session has\?$"),
        ("t.Swihs(x)", ("Other", "Swish"), r"Did you mean t::Swish, which the session has\?$"),
        ("t.Swarm(x)", ("Other", "Swish"), r"pass it to the session, operators=\[Swarm\]; it has t::Other, t::Swish\.$"),
        ("t.swish(x, x)", ("Other", "Swish"), r"pass it to the session, operators=\[swish\]; it has t::Other, t::Swish\.$"),
        ("t.swish(i)", ("Other", "Swish"), r"pass it to the session, operators=\[swish\]; it has t::Other, t::Swish\.$"),
        ("ai.onnx.contrib.RoiAlign16(x, x, i)", (), r"Did you mean ai.onnx.contrib::RoiAlign_16, which the session has\?$"),
        ("mmcv.MMCVRiRoIAlignRotated(x, x)", (), r"ortops has no mmcv::MMCVRiRoIAlignRotated: write it with"),
        ("t.SwishGrad(x)", ("Swish",), r"Grad computes the gradient of t::Swish: .*, operators=\[Swish, SwishGrad\]\.$"),
        ("mmcv.NMS(x)", (), r"ortops has no mmcv::NMS: write it with .*\(domain='mmcv'\), .*, operators=\[NMS\]\.$"),
        ("ai.onnx.contrib.Nothing(x)", (), r"has (no )?Nothing\. .* needs another domain, .*append"),
        ("com.microsoft.Nothing(x)", (), "com.microsoft:Nothing.* is not a registered function/op$"),
        ("Nothing(x)", (), r"ONNX has no Nothing: write it with ortops.operator\(domain=''\), .*operators=\[Nothing\]\.$"),
        ("Upsample(x)", (), "No Op registered for Upsample.*|Op registered for Upsample is deprecated.*$"),
    ],
)  # fmt: skip
def test_error_suggests_remedy_for_missing_operator(node: str, operators: Any, says: str) -> None:
    imports = '"t" : 1, "u" : 1, "mmcv" : 1, "ai.onnx.contrib" : 1, "com.microsoft" : 1'
    model = model_of(f"(float[n] x, int64[n] i) => (float[m] y) {{ y = {node} }}", imports=imports)
    with pytest.raises(Exception, match=says):
        session(model, *(made(_ok, name=name) for name in operators))


def test_options_and_sessions_keep_operator_alive() -> None:
    def begin() -> tuple[Any, weakref.ref[Any]]:
        def f(x: F) -> F:
            return x + 1

        operator = made(f)
        return stock_session(ONE, operator)._sess, weakref.ref(operator)  # noqa: SLF001 - the session in C++, without its options

    def clean() -> None:
        ortops.register(options())  # forgets the options that are gone
        gc.collect()

    raw, operator = begin()
    clean()
    assert operator() is not None
    assert raw.run(["y"], {"x": np.ones(1, np.float32)}, None)[0] == 2
    del raw
    clean()
    assert operator() is None


def run_in_a_process() -> Any:
    """Also in one that is spawned."""
    return session(ONE, same).run(None, {"x": np.ones(1, np.float32)})[0].tolist()


def test_spawned_child_runs_and_receives_operators() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert [run_in_a_process(), pool.apply(run_in_a_process), pool.apply(same, ([1.0],))] == [[1.0]] * 3


class Wrapper:
    """Passes attributes on, and says that it is what it wraps."""

    def __init__(self) -> None:
        self.wrapped = options()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return onnxruntime.SessionOptions


WRONG = [
    (Wrapper, "Wrapper: must be an onnxruntime.SessionOptions"),
    (onnxruntime.RunOptions, "RunOptions: must be an onnxruntime.SessionOptions"),
    (lambda: onnxruntime.SessionOptions, "pybind11_type: must be an onnxruntime.SessionOptions"),
    (lambda: None, "NoneType: must be an onnxruntime.SessionOptions"),
]


@pytest.mark.parametrize(("make", "says"), WRONG)
@pytest.mark.parametrize("operators", [(), (same,)])
def test_register_and_session_refuse_other_options(make: Any, says: str, operators: Any) -> None:
    wrong = make()
    with pytest.raises(TypeError, match=f"^session_options is a {says}"):
        ortops.register(wrong, operators=operators)
    if wrong is not None:
        with pytest.raises(TypeError, match=f"^sess_options is a {says}"):
            ortops.InferenceSession(b"", wrong, [CPU], operators=operators)


class Both(onnxruntime.SessionOptions, onnxruntime.RunOptions):  # type: ignore[misc]
    __slots__ = ("name",)

    def __init__(self) -> None:
        onnxruntime.SessionOptions.__init__(self)
        onnxruntime.RunOptions.__init__(self)


class Deep(Both):
    pass


@pytest.mark.parametrize("kind", [Both, Deep])
def test_register_takes_subclass_of_session_options(kind: Any) -> None:
    runner = stock_session(ONE, same, chosen=kind())
    assert runner.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [1, 1]

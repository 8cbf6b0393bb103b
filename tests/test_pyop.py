"""The pyop engine, in a process of its own, since a process has only one engine."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gradient_nodes import IS_OLD

PRELUDE = """
import logging, sys
import numpy as np, onnx, onnxruntime, onnxruntime_extensions
import onnx_models, ortops
from ortops.operators import OPERATORS
from samples import FORWARD, refusals, right, samples

logging.disable()
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
ortops.register(options, "pyop")
SIZE = {"output_height": 2, "output_width": 2}

def session(model, kind=ortops.InferenceSession):
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    return kind(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
"""


SERVER = """
import contextlib, io, json, sys, traceback
for line in sys.stdin:
    printed, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(json.loads(line), {})
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps([printed.getvalue(), error]), flush=True)
"""


@functools.cache
def server() -> subprocess.Popen[str]:
    """A process that runs the code of each line and prints what it prints."""
    command = [sys.executable, "-c", SERVER]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="tests")  # noqa: S603


def teardown_module() -> None:
    with server():
        server().terminate()


def run(code: str) -> str:
    """What the code prints; it must not abort."""
    child = server()
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(PRELUDE + textwrap.dedent(code)) + "\n")
    child.stdin.flush()
    answer = child.stdout.readline()
    assert answer, f"status {child.wait(60)}"
    printed, error = json.loads(answer)
    assert not error, error
    return str(printed).strip()


def test_results_are_those_of_the_function() -> None:
    assert (
        run("""
        for operator in OPERATORS:
            for kind in ("float", "double"):
                for sample in samples(operator, kind) if kind in operator.types[operator.inputs[0].type] else []:
                    actual = session(sample.model()).run(None, dict(sample.inputs))
                    for one, other in zip(actual, sample.function(), strict=True):
                        assert one.dtype == other.dtype
                        np.testing.assert_array_equal(one, other)
        print("equal")
        """)
        == "equal"
    )


def test_indices_have_every_type_of_the_operator() -> None:
    assert (
        run("""
        x, rois, indices = FORWARD.values()
        for index_type in ("uint32", "int64"):
            runner = session(onnx_models.dml_roi_align(index_type=index_type, **SIZE))
            typed = indices.astype(index_type)
            y = runner.run(None, {"InputTensor": x, "ROITensor": rois, "BatchIndicesTensor": typed})[0]
            np.testing.assert_array_equal(y, ortops.dml_roi_align(x, rois, indices, **SIZE))
        print("equal")
        """)
        == "equal"
    )


def test_every_refusal_is_raised_after_the_run_and_the_process_lives_on() -> None:
    assert (
        run("""
        refused = 0
        for operator in OPERATORS[1:]:  # RoiAlign_10 fails first in the test of what is logged
            good = right(refusals(operator)[0])
            runner = session(good.model())
            for refusal in refusals(operator):
                if refusal.by == "attribute" or len(refusal.inputs) < len(operator.inputs):
                    continue  # every input must be there
                try:
                    runner.run(None, dict(refusal.inputs))
                except ValueError as error:
                    assert refusal.says in str(error), (refusal, error)
                    refused += 1
                else:
                    print(refusal)
            runner.run(None, dict(good.inputs))
        print(refused > 100)
        """)
        == "True"
    )


def test_every_way_to_run_raises_also_from_onnxruntimes_own_threads() -> None:
    assert run("""
        import onnx
        bad = FORWARD | {"batch_indices": np.array([0, 9])}
        runner = session(onnx_models.roi_align(16, **SIZE))
        binding = runner.io_binding()
        for name, array in bad.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("Y")
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in bad.items()}
        options.execution_mode, options.inter_op_num_threads = onnxruntime.ExecutionMode.ORT_PARALLEL, 4
        lines = [f"Y{i} = ai.onnx.contrib.RoiAlign_16 <output_height = 2, output_width = 2> (X, rois, of)" for i in range(6)]
        several = session(onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1]>'
            "g (float[n, c, h, w] X, float[r, 4] rois, int64[r] of) => (float[r, c, p, q] Y0, float[r, c, p, q] Y5) {"
            + chr(10).join(lines) + "}"
        ))
        ways = (
            lambda: runner.run(None, bad),
            lambda: runner.run_with_ort_values(None, values),
            lambda: runner.run_with_iobinding(binding),
            lambda: several.run(None, dict(zip(("X", "rois", "of"), bad.values()))),
        )
        for way in ways:
            try:
                way()
            except ValueError as error:
                print(error)
        y = several.run(None, dict(zip(("X", "rois", "of"), FORWARD.values())))[0]
        np.testing.assert_array_equal(y, ortops.roi_align(*FORWARD.values(), **SIZE))
        """) == "\n".join(["batch_indices[1] = 9: must be >= 0 and < 2, the number of images"] * 4)


def test_a_failing_call_gives_nan_of_the_right_shape_to_a_plain_session() -> None:
    assert (
        run("""
        plain = session(onnx_models.roi_align(16, **SIZE), onnxruntime.InferenceSession)
        y = plain.run(None, FORWARD | {"batch_indices": np.array([0, 9])})[0]
        print(y.shape, np.isnan(y).all())
        """)
        == "(2, 1, 2, 2) True"
    )


def test_the_error_is_logged_once() -> None:
    assert (
        run("""
        import io
        logging.disable(logging.NOTSET)
        stream = io.StringIO()
        logging.getLogger("ortops").addHandler(logging.StreamHandler(stream))
        # An operator that no other test has seen fail: its first error alone is logged.
        plain = session(onnx_models.roi_align(10, **SIZE), onnxruntime.InferenceSession)
        for _ in range(3):
            plain.run(None, FORWARD | {"batch_indices": np.array([0, 9])})
        print(stream.getvalue().count("batch_indices[1] = 9"))
        """)
        == "1"
    )


def test_a_wrong_attribute_is_raised_by_the_run() -> None:
    assert (
        run("""
        model = onnx_models.roi_align(16, **SIZE)
        next(a for a in model.graph.node[0].attribute if a.name == "mode").s = b"MAX"
        try:
            session(model).run(None, FORWARD)
        except ValueError as error:
            print(error)
        """)
        == "mode = 'MAX': must be one of 'avg', 'max', 'max_interpolated'"
    )


def test_python_operators_of_others_still_work() -> None:
    assert (
        run("""
        import onnx
        from onnxruntime_extensions import PyCustomOpDef, onnx_op

        @onnx_op(op_type="Twice", inputs=[PyCustomOpDef.dt_float], outputs=[PyCustomOpDef.dt_float])
        def twice(x):
            return 2 * x

        graph = onnx.parser.parse_model('''
            <ir_version: 10, opset_import: ["" : 17, "ai.onnx.contrib" : 1]>
            g (float[n] x) => (float[n] y) { y = ai.onnx.contrib.Twice(x) }
        ''')
        options = onnxruntime.SessionOptions()
        made = session(graph)
        print(made.run(None, {"x": np.arange(3, dtype=np.float32)})[0].tolist())
        """)
        == "[0.0, 2.0, 4.0]"
    )


def test_direct_is_refused_once_pyop_is_in_use() -> None:
    assert "this process already uses 'pyop'" in run("""
        try:
            ortops.register(onnxruntime.SessionOptions(), "direct")
        except RuntimeError as error:
            print(error)
        """)


def test_a_library_without_the_entry_is_served_by_pyop_or_refused_in_words() -> None:
    assert run("""
        import ctypes
        from ortops import session as engine
        from ortops.engine import extensions

        class Bare:
            def __init__(self, path): pass

        from unittest import mock
        with mock.patch.object(extensions.ctypes, "CDLL", Bare), mock.patch.object(engine, "_engine_in_use", None):
            try:
                engine._select_engine("direct")
            except RuntimeError as error:
                print(error)
        """).startswith("onnxruntime-extensions does not export AddExternalCustomOp here")


def test_what_is_no_list_of_the_right_type_is_refused_by_our_session() -> None:
    out = run("""
        for wrong in (2.0, [2, 2], "2.0,1.7"):
            model = onnx_models.dml_resample(rank=2, scales=[2.0, 1.7])
            written = next(a for a in model.graph.node[0].attribute if a.name == "scales")
            written.CopyFrom(onnx.helper.make_attribute("scales", wrong))
            try:
                session(model)
            except TypeError as error:
                print(error)
    """)
    assert out.splitlines() == [
        f"DmlResample: scales has type {kind}: must be FLOATS" for kind in ("FLOAT", "INTS", "STRING")
    ]


def test_lists_and_absent_attributes_are_mended_by_our_session() -> None:
    assert (
        run("""
        x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
        model = onnx_models.dml_resample(rank=2, scales=[2.0, 1.7], input_pixel_offsets=[0.1, 0.3])
        del model.graph.node[0].attribute[0]
        y = session(model).run(None, {"InputTensor": x})[0]
        expected = ortops.dml_resample(x, scales=[2.0, 1.7], input_pixel_offsets=[0.1, 0.3])
        np.testing.assert_array_equal(y, expected)
        model = onnx_models.roi_align(16, **SIZE)
        del model.graph.node[0].attribute[:]
        assert session(model).run(None, FORWARD)[0].shape == (2, 1, 1, 1)
        print("equal")
        """)
        == "equal"
    )


@pytest.mark.skipif(IS_OLD, reason="ONNX Runtime 1.20 cannot be told the folder of a model given as bytes")
def test_a_mended_model_of_a_file_finds_its_external_data(tmp_path: Path) -> None:
    assert (
        run(f"""
        import onnx
        weights = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
        model = onnx_models.dml_resample(rank=2, scales=[2.0, 3.0])
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "InputTensor"))
        del model.graph.input[:]
        path = {str(tmp_path)!r} + "/model.onnx"
        onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
        y = ortops.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {{}})[0]
        np.testing.assert_array_equal(y, ortops.dml_resample(weights, scales=[2.0, 3.0]))
        print("equal")
        """)
        == "equal"
    )


USERS = """
from numpy.typing import NDArray
from typing import TypeVar

A = TypeVar("A", bound=np.generic)

def made(name, function, **settings):
    return ortops.operator(domain="t", name=name, **settings)(function)

def one(graph, *operators):
    chosen = onnxruntime.SessionOptions()
    chosen.log_severity_level = 4
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g ' + graph)
    return ortops.InferenceSession(model.SerializeToString(), chosen, operators=operators)

def fails(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        print(type(error).__name__, error, repr(error.__cause__))
"""


def test_operators_of_users_have_types_attributes_and_errors() -> None:
    code = """
        def Same(
            x: NDArray[A], axes: list[int] = [1], words: list[str] = ["ä"], f: float = 0.1, n: int | None = None
        ) -> NDArray[A]:
            assert not x.size or (axes, words, f, n) == ([1, 2], ["ä"], float(np.float32(0.1)), None)
            return x

        def Bad(x: NDArray[A]) -> NDArray[A]:
            raise KeyError("k") if len(x) == 1 else KeyboardInterrupt

        same, bad = made("Same", Same), made("Bad", Bad)
        for kind, texts in (("float", float), ("int8", int), ("uint64", int), ("bool", bool), ("string", str)):
            runner = one(f"({kind}[n] x) => ({kind}[m] y) {{ y = t.Same <axes = [1, 2]> (x) }}", same, bad)
            x = np.array([0, 1, 2], np.int8).astype(object if kind == "string" else {"float": "f4"}.get(kind, kind))
            x = x.astype(str).astype(object) if kind == "string" else x
            y = runner.run(None, {"x": x})[0]
            print(kind, y.dtype == x.dtype and (y == x).all())
        for n in (1, 2):
            runner = one("(float[n] x) => (float[m] y) { y = t.Bad(x) }", bad)
            try:
                runner.run(None, {"x": np.ones(n, np.float32)})
            except BaseException as error:
                print(type(error).__name__, error, repr(error.__cause__))
        """
    assert run(USERS + textwrap.dedent(code)).splitlines() == [
        *(f"{kind} True" for kind in ("float", "int8", "uint64", "bool", "string")),
        """OrtError t::Bad: KeyError: 'k' KeyError('k')""",
        "KeyboardInterrupt  None",
    ]


def test_what_an_operator_of_a_user_cannot_have_is_refused_in_words() -> None:
    code = """
        def Many(*x: NDArray[A]) -> NDArray[A]: ...
        def Half(x: NDArray[np.float16]) -> NDArray[np.float16]: ...
        def Table(x: NDArray[A], *, table: NDArray[A]) -> NDArray[A]: ...
        def Two(x: NDArray[A], b: NDArray[A] | None = None) -> NDArray[A]: ...
        def Four(a: NDArray[np.generic], b: NDArray[np.generic], c: NDArray[np.generic], d: NDArray[A]) -> NDArray[A]: ...
        for function in (Many, Half, Table, Four):
            fails(one, "(float[n] x) => (float[m] y) { y = Neg(x) }", made(function.__name__, function))
        class State:
            def __call__(self, x: NDArray[A]) -> NDArray[A]: ...
        fails(one, "(float[n] x) => (float[m] y) { y = Neg(x) }", made("State", State))
        two = made("Two", Two)
        fails(one, "(float[n] x) => (float[m] y) { y = t.Two(x) }", two)
        fails(one, "(float[n] x) => (float[m] y) { y = Neg(x) }", made("Two", Two))
        chosen = onnxruntime.SessionOptions()
        ortops.register(chosen)
        fails(lambda: ortops.register(chosen, operators=[two]))
        """
    assert [line.removesuffix(" None") for line in run(USERS + textwrap.dedent(code)).splitlines()] == [
        "TypeError t::Many: x is variadic: the pyop engine, that of Windows, has none such",
        "TypeError t::Half: x is float16: the pyop engine, that of Windows, has none such",
        "TypeError t::Table: table is a tensor: the pyop engine, that of Windows, has none such",
        (
            "ValueError t::Four: for the pyop engine, that of Windows, its tensors have 20,736 combinations of element "
            "types (T_a, T_b, T_c, A): must have at most 4,096"
        ),
        "TypeError t::State: is a class: the pyop engine, that of Windows, has none such",
        "ValueError t::Two leaves out b: the pyop engine, that of Windows, needs it",
        "ValueError t::Two: the pyop engine has another operator of this name: must have one in a process",
        (
            "ValueError operators has t::Two: the pyop engine, that of Windows, takes operators only in the first call for "
            "session options"
        ),
    ]

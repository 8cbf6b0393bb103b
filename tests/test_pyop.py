"""The pyop engine, in a process of its own, since a process has only one engine."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import io
import logging
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnxruntime_extensions import PyCustomOpDef, onnx_op

import onnx_models
import ortops
from gradient_nodes import IS_OLD
from ortops import session as engine
from ortops.operators import OPERATORS
from samples import FORWARD, refusals, right, samples

A = TypeVar("A", bound=np.generic)
SIZE: Any = {"output_height": 2, "output_width": 2}
BAD = FORWARD | {"batch_indices": np.array([0, 9])}
SAYS = r"batch_indices\[1\] = 9: must be >= 0 and < 2, the number of images"
CHECKS: dict[str, Callable[..., None]] = {}
"""What runs in the process, by name."""


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """A process with the pyop engine."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=begin) as pool:
        yield pool


def begin() -> None:
    """Choose the engine."""
    logging.disable()
    ortops.register(options(), "pyop")


def check(name: str, folder: Path) -> None:
    call = CHECKS[name]
    call(*[folder][: call.__code__.co_argcount])


def in_pyop(function: Callable[..., None]) -> Callable[..., None]:
    """A test that runs in the process; it may take a folder of its own."""
    CHECKS[function.__name__] = function

    def test(process: ProcessPoolExecutor, tmp_path: Path) -> None:
        process.submit(check, function.__name__, tmp_path).result()

    return test


def options(**settings: Any) -> onnxruntime.SessionOptions:
    """Quiet ones."""
    made = onnxruntime.SessionOptions()
    for name, value in {"log_severity_level": 4, **settings}.items():
        setattr(made, name, value)
    return made


def session(model: onnx.ModelProto, kind: Any = ortops.InferenceSession, chosen: Any = None) -> Any:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    chosen = chosen or options()
    ortops.register(chosen)
    return kind(model.SerializeToString(), chosen, providers=["CPUExecutionProvider"])


@in_pyop
def test_results_are_those_of_the_function() -> None:
    for operator in OPERATORS:
        for sample in (*samples(operator), samples(operator, "double")[0]):
            actual = session(sample.model()).run(None, dict(sample.inputs))
            for one, other in zip(actual, sample.function(), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)


@in_pyop
def test_indices_have_every_type_of_the_operator() -> None:
    x, rois, indices = FORWARD.values()
    for index_type in ("uint32", "int64"):
        runner = session(onnx_models.dml_roi_align(index_type=index_type, **SIZE))
        typed = indices.astype(index_type)
        y = runner.run(None, {"InputTensor": x, "ROITensor": rois, "BatchIndicesTensor": typed})[0]
        np.testing.assert_array_equal(y, ortops.dml_roi_align(x, rois, indices, **SIZE))


@in_pyop
def test_every_refusal_is_raised_after_the_run_and_the_process_lives_on() -> None:
    for operator in OPERATORS[1:]:  # RoiAlign_10 fails first in the test of what is logged
        good = right(refusals(operator)[0])
        runner = session(good.model())
        for refusal in refusals(operator):
            if refusal.by == "data" and len(refusal.inputs) == len(operator.inputs):  # every input must be there
                with pytest.raises(ValueError) as caught:  # noqa: PT011 - what it says is looked at
                    runner.run(None, dict(refusal.inputs))
                assert refusal.says in str(caught.value)
        runner.run(None, dict(good.inputs))


@in_pyop
def test_every_way_to_run_raises_also_from_onnxruntimes_own_threads() -> None:
    runner = session(onnx_models.roi_align(16, **SIZE))
    binding = runner.io_binding()
    for name, array in BAD.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("Y")
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in BAD.items()}
    parallel = options(execution_mode=onnxruntime.ExecutionMode.ORT_PARALLEL, inter_op_num_threads=4)
    node = "ai.onnx.contrib.RoiAlign_16 <output_height = 2, output_width = 2> (X, rois, batch_indices)"
    nodes = "\n".join(f"Y{i} = {node}" for i in range(6))
    several = session(
        onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1]>
            g (float[n, c, h, w] X, float[r, 4] rois, int64[r] batch_indices)
            => (float[r, c, p, q] Y0, float[r, c, p, q] Y5) {{ {nodes} }}"""),
        chosen=parallel,
    )
    for way in (
        lambda: runner.run(None, BAD),
        lambda: runner.run_with_ort_values(None, values),
        lambda: runner.run_with_iobinding(binding),
        lambda: several.run(None, BAD),
    ):
        with pytest.raises(ValueError, match=f"^{SAYS}$"):
            way()  # type: ignore[no-untyped-call]
    np.testing.assert_array_equal(several.run(None, FORWARD)[0], ortops.roi_align(*FORWARD.values(), **SIZE))


@in_pyop
def test_a_failing_call_gives_nan_of_the_right_shape_to_a_plain_session_and_is_logged_once() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.disable(logging.NOTSET)
    logging.getLogger("ortops").addHandler(handler)
    # An operator that no other test has seen fail: its first error alone is logged.
    plain = session(onnx_models.roi_align(10, **SIZE), onnxruntime.InferenceSession)
    for _ in range(3):
        y = plain.run(None, BAD)[0]
        assert y.shape == (2, 1, 2, 2)
        assert np.isnan(y).all()
    assert stream.getvalue().count("batch_indices[1] = 9") == 1
    logging.getLogger("ortops").removeHandler(handler)
    logging.disable()


@in_pyop
def test_python_operators_of_others_still_work() -> None:
    @onnx_op(op_type="Twice", inputs=[PyCustomOpDef.dt_float], outputs=[PyCustomOpDef.dt_float])  # type: ignore[untyped-decorator]
    def twice(x: Any) -> Any:
        return 2 * x

    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17, "ai.onnx.contrib" : 1]>
        g (float[n] x) => (float[n] y) { y = ai.onnx.contrib.Twice(x) }""")
    assert session(model).run(None, {"x": np.arange(3, dtype=np.float32)})[0].tolist() == [0, 2, 4]


@in_pyop
def test_direct_is_refused_once_pyop_is_in_use_and_where_the_library_lacks_the_entry() -> None:
    with pytest.raises(RuntimeError, match="this process already uses 'pyop'"):
        ortops.register(onnxruntime.SessionOptions(), "direct")

    class Bare:
        def __init__(self, path: str) -> None: ...

    with (
        mock.patch("ortops.engine.extensions.ctypes.CDLL", Bare),
        mock.patch.object(engine, "_engine_in_use", None),
        pytest.raises(RuntimeError, match="onnxruntime-extensions does not export AddExternalCustomOp here"),
    ):
        engine._select_engine("direct")  # noqa: SLF001


@in_pyop
def test_a_wrong_attribute_is_refused_by_our_session() -> None:
    for wrong, kind in ((2.0, "FLOAT"), ([2, 2], "INTS"), ("2.0,1.7", "STRING")):
        model = onnx_models.dml_resample(rank=2, scales=[2.0, 1.7])
        written = next(a for a in model.graph.node[0].attribute if a.name == "scales")
        written.CopyFrom(onnx.helper.make_attribute("scales", wrong))
        with pytest.raises(TypeError, match=f"^DmlResample: scales has type {kind}: must be FLOATS$"):
            session(model)
    model = onnx_models.roi_align(16, **SIZE)
    next(a for a in model.graph.node[0].attribute if a.name == "mode").s = b"MAX"
    with pytest.raises(ValueError, match="mode = 'MAX': must be one of 'avg', 'max', 'max_interpolated'"):
        session(model).run(None, FORWARD)


@in_pyop
def test_lists_and_absent_attributes_are_mended_by_our_session() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    model = onnx_models.dml_resample(rank=2, scales=[2.0, 1.7], input_pixel_offsets=[0.1, 0.3])
    del model.graph.node[0].attribute[0]
    y = session(model).run(None, {"InputTensor": x})[0]
    np.testing.assert_array_equal(y, ortops.dml_resample(x, scales=[2.0, 1.7], input_pixel_offsets=[0.1, 0.3]))
    model = onnx_models.roi_align(16, **SIZE)
    del model.graph.node[0].attribute[:]
    assert session(model).run(None, FORWARD)[0].shape == (2, 1, 1, 1)


@in_pyop
def test_nodes_of_onnx_are_left_to_onnxruntime_and_a_wish_for_others_is_refused() -> None:
    model, says = (
        onnx_models.roi_align(16, standard=True, **SIZE),
        r"the pyop engine \(Windows\) cannot run nodes of",
    )
    stock = onnxruntime.InferenceSession(model.SerializeToString(), options()).run(None, FORWARD)[0]
    for standard in (None, False):
        made = ortops.InferenceSession(model.SerializeToString(), options(), standard=standard)
        assert made.run(None, FORWARD)[0].tobytes() == stock.tobytes()
    with pytest.raises(ValueError, match=f"^standard = True: {says} ONNX: must be None; onnx_models.convert replaces"):
        ortops.InferenceSession(model.SerializeToString(), options(), standard=True)
    chosen = options()
    with pytest.raises(ValueError, match=f"^opset = 16: {says} ONNX: must be None; onnx_models.convert replaces"):
        ortops.register(chosen, opset=16)
    assert (
        onnxruntime.InferenceSession(model.SerializeToString(), chosen).run(None, FORWARD)[0].tobytes()
        == stock.tobytes()
    )
    converted = session(onnx_models.convert(model)).run(None, FORWARD)[0]
    assert converted.tobytes() == ortops.roi_align(*FORWARD.values(), **SIZE).tobytes()


@pytest.mark.skipif(IS_OLD, reason="ONNX Runtime 1.20 cannot be told the folder of a model given as bytes")
@in_pyop
def test_a_mended_model_of_a_file_finds_its_external_data(folder: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
    model = onnx_models.dml_resample(rank=2, scales=[2.0, 3.0])
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "InputTensor"))
    del model.graph.input[:]
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    runner = ortops.InferenceSession(str(folder / "model.onnx"), options(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(runner.run(None, {})[0], ortops.dml_resample(weights, scales=[2.0, 3.0]))


def made(function: Any, **settings: Any) -> ortops.CustomOperator:
    return ortops.operator(domain="t", **settings)(function)


def of_user(graph: str, *operators: ortops.CustomOperator) -> ortops.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g {graph}')
    return ortops.InferenceSession(model.SerializeToString(), options(), operators=operators)


@in_pyop
def test_operators_of_users_have_types_attributes_and_errors() -> None:
    def Same(  # noqa: N802
        x: NDArray[A],
        axes: tuple[int, ...] = (1,),
        words: tuple[str, ...] = ("ä",),
        f: float = 0.1,
        n: int | None = None,
    ) -> NDArray[A]:
        assert not x.size or (axes, words, f, n) == ((1, 2), ("ä",), float(np.float32(0.1)), None)
        return x

    def Bad(x: NDArray[A]) -> NDArray[A]:  # noqa: N802
        raise KeyError("k") if len(x) == 1 else KeyboardInterrupt

    same, bad = made(Same), made(Bad)
    for kind, dtype in (("float", "f4"), ("int8", "i1"), ("uint64", "u8"), ("bool", "?"), ("string", "U1")):
        runner = of_user(f"({kind}[n] x) => ({kind}[m] y) {{ y = t.Same <axes = [1, 2]> (x) }}", same, bad)
        x = np.array([0, 1, 2], np.int8).astype(dtype)
        x = x.astype(object) if kind == "string" else x
        y = runner.run(None, {"x": x})[0]
        assert (y.dtype, y.tolist()) == (x.dtype, x.tolist())
    runner = of_user("(float[n] x) => (float[m] y) { y = t.Bad(x) }", bad)
    with pytest.raises(Exception, match="t::Bad: KeyError: 'k'") as caught:
        runner.run(None, {"x": np.ones(1, np.float32)})
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(KeyboardInterrupt):
        runner.run(None, {"x": np.ones(2, np.float32)})


G = np.generic


def Many(*x: NDArray[A]) -> NDArray[A]: ...  # noqa: N802
def Half(x: NDArray[np.float16]) -> NDArray[np.float16]: ...  # noqa: N802
def Table(x: NDArray[A], *, table: NDArray[A]) -> NDArray[A]: ...  # noqa: N802
def Two(x: NDArray[A], b: NDArray[A] | None = None) -> NDArray[A]: ...  # noqa: N802
def Four(a: NDArray[G], b: NDArray[G], c: NDArray[G], d: NDArray[A]) -> NDArray[A]: ...  # noqa: N802


class State:
    def __call__(self, x: NDArray[A]) -> NDArray[A]: ...


@in_pyop
def test_what_an_operator_of_a_user_cannot_have_is_refused_in_words() -> None:
    ours = r"the pyop engine \(Windows\)"
    unused = "(float[n] x) => (float[m] y) { y = Neg(x) }"
    for function, says in (
        (Many, f"t::Many: x is variadic: {ours} does not support this"),
        (Half, f"t::Half: x is float16: {ours} does not support this"),
        (Table, f"t::Table: table is a tensor: {ours} does not support this"),
        (State, f"t::State is a class: {ours} does not support this"),
        (Four, r"t::Four: for .*, its tensors have 20,736 combinations of element types \(T_a, T_b, T_c, A\): must"),
    ):
        with pytest.raises((TypeError, ValueError), match=says):
            of_user(unused, made(function))
    two = made(Two)
    with pytest.raises(ValueError, match=f"t::Two leaves out b: {ours} needs it"):
        of_user("(float[n] x) => (float[m] y) { y = t.Two(x) }", two)
    with pytest.raises(ValueError, match="t::Two: the pyop engine already has another operator of this name"):
        of_user(unused, made(Two))
    chosen = onnxruntime.SessionOptions()
    ortops.register(chosen)
    with pytest.raises(ValueError, match=f"operators has t::Two: {ours} takes operators only in the first call for"):
        ortops.register(chosen, operators=[two])

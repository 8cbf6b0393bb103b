# SPDX-License-Identifier: MIT
"""Libraries with compiled operators of users, which do in ONNX Runtime alone what they do in sessions of this package."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

import ortops
import sessions
from conformance.backends.session import CPU, options
from ortops.__main__ import main
from ortops.custom.decorator import OperatorError
from ortops.library.targets import TARGETS, this_machine
from processes import python
from sessions import session
from users_operators import ExtremesOf, InPython, LeakyBias, Looked, OfAnAddress, Parted, Shuffled, Weighted

OWN = [LeakyBias, Weighted, Parted, Looked, ExtremesOf]


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with operators of users beside one of this package."""
    made = tmp_path_factory.mktemp("mine") / f"mine{TARGETS[this_machine()].ending}"
    ortops.build_library(made, ["MaxRoiPool_1", *OWN], ["float", "double"])
    return made


def model_of(graph: str) -> onnx.ModelProto:
    return sessions.model_of(graph, imports='"mine" : 1, "ai.onnx.contrib" : 1')


def with_library(library: Path, model: onnx.ModelProto, threads: int = 1) -> Any:
    """A session of ONNX Runtime with a library."""
    own = options()
    own.intra_op_num_threads = threads
    own.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(model.SerializeToString(), own, providers=[CPU])


def assert_same(library: Path, graph: str, inputs: dict[str, Any], threads: int = 1) -> list[Any]:
    """Check that both sessions give the same bits; return the results."""
    results: list[Any] = with_library(library, model_of(graph), threads).run(None, inputs)
    expected = session(model_of(graph), *OWN).run(None, inputs)
    assert [(y.dtype, y.shape, y.tobytes()) for y in results] == [(y.dtype, y.shape, y.tobytes()) for y in expected]
    return results


RNG = np.random.default_rng(0)
X, BIAS = RNG.normal(size=(5, 7)).astype(np.float32), RNG.normal(size=7).astype(np.float32)


@pytest.mark.parametrize(("attributes", "slope"), [("<slope = 0.5>", 0.5), ("", np.float32(0.1))])
def test_library_gives_bits_of_session(mine: Path, attributes: str, slope: float) -> None:
    graph = f"(float[n, m] x, float[m] b) => (float[n, m] y) {{ y = mine.LeakyBias {attributes} (x, b) }}"
    (y,) = assert_same(mine, graph, {"x": X, "b": BIAS})
    v = X + BIAS
    assert y.tolist() == np.where(v > 0, v, (v * np.float64(slope)).astype(np.float32)).tolist()


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("double", np.float64)])
@pytest.mark.parametrize("inputs", ["x", "x, s"])
@pytest.mark.parametrize("attributes", ["", ', mode = "last", steps = [9, 8, 7, 6, 5, 4]', ", steps: ints = []"])
def test_types_and_attributes_choose_code(mine: Path, kind: str, dtype: type, inputs: str, attributes: str) -> None:
    given = f"weights = [1.0, 2.0, 3.0, 4.0, 5.0, 0.5]{attributes}"
    graph = (
        f"({kind}[n, m] x, {kind}[m] s) => ({kind}[n] y, int64[k] c) {{ y, c = mine.Weighted <{given}> ({inputs}) }}"
    )
    y, counts = assert_same(mine, graph, {"x": X.astype(dtype), "s": BIAS.astype(dtype)})
    values = (np.exp(X.astype("f8")) + np.arctan2(X.astype("f8"), 2)) * (BIAS if "s" in inputs else 1)
    expected = values.max(1) if "last" in attributes else values.sum(1)
    np.testing.assert_allclose(y, expected / 2, rtol=1e-4 if dtype is np.float32 else 1e-6)
    assert counts.tolist() == [6, -1 if "[]" in attributes else 4]


@pytest.mark.parametrize(
    ("value", "level"), [(-(2**63), np.nan), (2**63 - 1, -np.inf), (-(2**63) + 1, np.inf), (None, None)]
)
def test_nodes_without_domain_take_extreme_attributes(mine: Path, value: Any, level: Any) -> None:
    graph = "(double[n] x) => (int64[n] y, double[n] z) { y, z = ExtremesOf (x) }"
    given = {"value": value, "values": [value], "level": level} if value is not None else {}
    model, x = model_of(graph), np.zeros(2)
    model.graph.node[0].attribute.extend(onnx.helper.make_attribute(*item) for item in given.items())
    expected = ExtremesOf(x, **given)
    for runner in (with_library(mine, model), session(model, *OWN)):
        y, z = runner.run(None, {"x": x})
        assert y.tolist() == ([value, value] if value is not None else [-(2**63), 2**63 - 1]) == expected[0].tolist()
        assert z.tobytes() == expected[1].tobytes()


@pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24),
    reason="shapes of operators with optional inputs are not inferred",
)
def test_library_infers_types_and_shapes(mine: Path) -> None:
    graph = "(double[n, 3] x) => (double[] y, int64[] c) { y, c = mine.Weighted <weights = [1.0]> (x) }"
    model = model_of(graph)
    for output in model.graph.output:
        output.ClearField("type")
    assert [(output.type, output.shape) for output in with_library(mine, model).get_outputs()] == [
        ("tensor(double)", ["n"]),
        ("tensor(int64)", [2]),
    ]


@pytest.mark.parametrize(
    ("graph", "shapes"),
    [
        ("(float[n, m] x, float[m] b) => (float[n, m] y) { y = mine.LeakyBias (x, b) }", {"x": (2, 3), "b": (2,)}),
        ("(double[n, m] x) => (double[n] y, int64[k] c) { y, c = mine.Weighted (x) }", {"x": (2, 2)}),
        (
            "(double[n, m] x) => (double[n] y, int64[k] c) { y, c = mine.Weighted <weights = double[1] {1.0}> (x) }",
            {"x": (2, 2)},
        ),
        (
            """(double[n, m] x) => (double[n] y, int64[k] c) {
                y, c = mine.Weighted <weights = [1.0], steps = int64[1] {1}> (x)
            }""",
            {"x": (2, 2)},
        ),
        ('(double[n] x) => (double[n] y) { y = mine.Parted <kind = "none"> (x) }', {"x": (2,)}),
        ("(double[n] x) => (double[n] y) { y = mine.Parted (x) }", {"x": (9000,)}),
    ],
    ids=["length", "missing attribute", "tensor", "tensor for a default", "choice", "exception"],
)
def test_library_gives_errors_of_session(mine: Path, graph: str, shapes: dict[str, tuple[int, ...]]) -> None:
    messages, kind = [], "f8" if "double" in graph else "f4"
    inputs = {name: np.full(shape, -1, kind) for name, shape in shapes.items()}
    makers: list[Any] = [lambda: with_library(mine, model_of(graph)), lambda: session(model_of(graph), *OWN)]
    for make in makers:
        with pytest.raises(Exception, match="mine::") as caught:
            make().run(None, inputs)
        messages.append(str(caught.value).partition("mine::")[2])
    assert messages[0] == messages[1]


@pytest.mark.parametrize("threads", [1, 3])
def test_library_gives_parts_of_session(mine: Path, threads: int) -> None:
    graph = "(double[n] x) => (double[n] y) { y = mine.Parted (x) }"
    (y,) = assert_same(mine, graph, {"x": np.ones(20_001)}, threads)
    assert y[-1] == 20_001 // 19
    assert_same(mine, graph, {"x": np.ones(0)}, threads)


WITH_LITTLE_MEMORY = """
import resource
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.register_custom_ops_library(sys.argv[1])
session = onnxruntime.InferenceSession(sys.argv[2], options)
session.run(None, {"x": np.array([1])})
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**26, -1))
said = set()
for _ in range(200):
    try:
        session.run(None, {"x": np.array([1, 125_000])})
    except Exception as error:
        said.add(str(error).partition("Message: ")[2])
print(said, session.run(None, {"x": np.array([1])})[0].tolist())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others do not limit memory")
def test_failed_call_releases_memory(mine: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(model_of("(int64[n] x) => (int64[m] y) { y = mine.Looked(x) }"), model)
    said = python(WITH_LITTLE_MEMORY, str(mine), str(model))
    assert said == "{'mine::Looked: IndexError: index is out of bounds'} [3]"


def test_library_holds_operators_of_ortops(mine: Path) -> None:
    graph = """(float[N, C, H, W] X, float[R, 5] rois) => (float[R, C, P, Q] Y) {
        Y = ai.onnx.contrib.MaxRoiPool_1 <pooled_shape = [2, 2]> (X, rois)
    }"""
    x, rois = RNG.normal(size=(1, 2, 6, 6)).astype(np.float32), np.array([[0, 0, 0, 4, 5]], np.float32)
    assert_same(mine, graph, {"X": x, "rois": rois})
    for name in ("RegisterOnnx10", "RegisterOnnx16"):
        assert hasattr(ctypes.CDLL(str(mine)), name)


def test_library_holds_operators_of_onnx(tmp_path: Path) -> None:
    made = tmp_path / "replacing"
    ortops.build_library(made, ["RoiAlign_16", LeakyBias], ["float"], standard=16)
    graph = """(float[N, C, H, W] x, float[R, 4] rois, int64[R] i, float[n, m] a, float[m] b) => (float[] y, float[] z) {
        y = RoiAlign <output_height = 1, output_width = 1> (x, rois, i)
        z = mine.LeakyBias (a, b)
    }"""
    runner = with_library(made, model_of(graph))
    x, rois = np.full((1, 1, 4, 4), 3.0, np.float32), np.array([[0, 0, 2, 2]], np.float32)
    inputs = {"x": x, "rois": rois, "i": np.array([0]), "a": X, "b": BIAS}
    y, z = runner.run(None, inputs)
    assert y.ravel().tolist() == [3.0]
    assert z.tobytes() == LeakyBias(X, BIAS).tobytes()
    with pytest.raises(Exception, match="RoiAlign: batch_indices"):
        runner.run(None, {**inputs, "i": np.array([7])})


IN_A_PROCESS = """
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(sys.argv[1])
session = onnxruntime.InferenceSession(sys.argv[2], options)
print(session.run(None, {"x": np.float32([[1, -1]]), "b": np.float32([1, -1])})[0].tolist())
assert not {"ortops", "numba", "llvmlite"} & set(sys.modules)
"""


def test_command_takes_module_and_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, model = tmp_path / f"alone{TARGETS[this_machine()].ending}", tmp_path / "model.onnx"
    graph = "(float[n, m] x, float[m] b) => (float[n, m] y) { y = mine.LeakyBias <slope = 0.5> (x, b) }"
    onnx.save(model_of(graph), model)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    call = ["library", "--out", os.fspath(made), "--operators"]
    result = CliRunner().invoke(
        main, [*call, "RoIAlignRotated", "--operators", "users_operators:LeakyBias", "--types", "float"]
    )
    assert result.exit_code == 0, result.output
    assert "2 operators" in result.output
    assert python(IN_A_PROCESS, str(made), str(model)) == "[[2.0, -1.0]]"
    assert not hasattr(ctypes.CDLL(str(made)), "RegisterOnnx16")
    for name, says in [
        ("users_operators:Missing", "'users_operators:Missing' cannot be imported"),
        ("missing_module:LeakyBias", "'missing_module:LeakyBias' cannot be imported: ModuleNotFoundError: No module"),
        ("users_operators:np", "operators has <module 'numpy'"),
        (
            "users_operators:LeakyBias,users_operators:LeakyBias",
            "operators has mine::LeakyBias 2 times",
        ),
        ("MaxRoiPool_1,MaxRoiPool_1", "operators has MaxRoiPool_1 2 times: must have it once"),
    ]:
        result = CliRunner().invoke(main, [*call, name])
        assert result.exit_code != 0
        assert says in " ".join(result.output.split()), result.output


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        (Shuffled, r"Shuffled cannot be put into a library: it needs numba's numba_\w+ \(for x: double"),
        (OfAnAddress, "OfAnAddress cannot be put into a library: it needs numba.dynamic.globals.* of this process"),
        (InPython, "mine::InPython, which needs Python"),
    ],
)
def test_build_library_names_what_is_missing(operator: ortops.CustomOperator, says: str, tmp_path: Path) -> None:
    for operators in ([operator], operator):
        with pytest.raises((OperatorError, TypeError), match=says):
            ortops.build_library(tmp_path / "x", operators)


def test_build_library_refuses_type(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="types has 'float16': must be among double, float, the types of these"):
        ortops.build_library(tmp_path / "x", [Weighted], ["float16"])


A_SCRIPT = """
import sys
from typing import Annotated
import numpy as np
from numpy.typing import NDArray
import ortops

@ortops.operator(domain="mine", compiled=True, outputs=["y"])
def Halved(x: Annotated[NDArray[np.float32], ("n",)], y: Annotated[NDArray[np.float32], ("n",)]) -> None:
    for i in range(x.shape[0]):
        y[i] = x[i] / 2

ortops.build_library(sys.argv[1], operators=[Halved])
"""


def test_script_builds_library(tmp_path: Path) -> None:
    script, made = tmp_path / "script.py", tmp_path / "made"
    script.write_text(A_SCRIPT)
    python(script, str(made), PYTHONPATH=str(Path(__file__).parents[1]))
    assert b"RegisterCustomOps\0" in made.read_bytes()


AFTER_A_CALL = """
import numpy as np
from numba import njit
from ortops.library.objects import UserFunction, emit_functions
from ortops.library.targets import TARGETS
import users_operators

print(njit(lambda x: np.sort(x.copy()))(np.array([2.0, 1.0])))  # machine code of functions that Weighted calls, too
types = ("x", "double"), ("scale", "double"), ("y", "double"), ("counts", "int64")
function = UserFunction(users_operators.Weighted, types)
code = function.bitcode()
targets = TARGETS["aarch64-linux"], TARGETS["x86_64-windows"]
print(all(object_file for target in targets for object_file in emit_functions(target, function, code)))
"""


def test_called_functions_compile_for_any_processor() -> None:
    assert python(AFTER_A_CALL, cwd=Path(__file__).parent, NUMBA_CACHE_DIR=None) == "[1. 2.]\nTrue"

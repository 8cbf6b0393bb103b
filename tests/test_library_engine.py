"""Sessions with the library engine, that of Windows, which registers libraries that a wheel brings."""

from __future__ import annotations

import ctypes
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import onnx_models
import ortops
from conformance.backends.session import CPU
from ortops import session as engine
from ortops.engine.extensions import OrtError
from ortops.jit import machine_code
from ortops.library import installed
from samples import FORWARD, GRADIENT
from suite_runs import run
from test_standard import OTHERS, of_other

pytestmark = pytest.mark.skipif(not machine_code.has_instructions(), reason="this processor has no fused multiply-add")

SIZE: Any = {"output_height": 2, "output_width": 2}
STANDARD = onnx_models.roi_align(16, standard=True, **SIZE)
CONVERTED = onnx_models.convert(STANDARD)
Y = ortops.roi_align(*FORWARD.values(), **SIZE)


@pytest.fixture(scope="module")
def files(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel has, for some operators in float."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copy(library, folder)
    ortops.build_library(folder / f"ortops-onnx16{library.suffix}", ["RoiAlign_16"], ["float"], standard=16)
    return folder


@pytest.fixture(autouse=True)
def wheel(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This installation is that of a wheel with libraries."""
    monkeypatch.setattr(installed, "BUILT", files)


@pytest.fixture
def _windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime-extensions takes no operators."""
    monkeypatch.setattr("ortops.engine.extensions.takes_c_operators", lambda: False)


def options(chosen: Any = "library", **arguments: Any) -> onnxruntime.SessionOptions:
    made = onnxruntime.SessionOptions()
    made.log_severity_level = 4
    ortops.register(made, chosen, **arguments)
    return made


def session(model: onnx.ModelProto, chosen: Any = None, **arguments: Any) -> ortops.InferenceSession:
    return ortops.InferenceSession(model.SerializeToString(), chosen or options(), **({"providers": [CPU]} | arguments))


def test_it_runs_our_nodes_and_those_of_onnx_with_the_same_bits() -> None:
    for model in (CONVERTED, STANDARD):
        assert session(model).run(None, FORWARD)[0].tobytes() == Y.tobytes()
    *inputs, x = GRADIENT.values()
    expected = ortops.roi_align_grad(*inputs, x=x)
    for got, one in zip(session(onnx_models.roi_align_grad()).run(None, GRADIENT), expected, strict=True):
        np.testing.assert_array_equal(got, one)


def test_sessions_of_onnxruntimes_own_class_have_the_operators_and_the_opset() -> None:
    chosen = options(opset=16)
    for model in (CONVERTED, STANDARD):
        made = onnxruntime.InferenceSession(model.SerializeToString(), chosen, providers=[CPU])
        assert made.run(None, FORWARD)[0].tobytes() == Y.tobytes()


def test_nodes_of_onnx_are_left_to_onnxruntime_on_demand() -> None:
    stock = onnxruntime.InferenceSession(STANDARD.SerializeToString(), providers=[CPU]).run(None, FORWARD)[0]
    assert session(STANDARD, standard=False).run(None, FORWARD)[0].tobytes() == stock.tobytes()


@pytest.mark.usefixtures("no_processes")
def test_the_suite_passes_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = spy_on_files(monkeypatch)
    monkeypatch.setattr(installed, "is_preferred", lambda: True)
    result = run("--backend", "ortops", "--select", "roi_align/*/v16/float", "--select", "max_roi_pool/*/v1/float")
    assert result.exit_code == 0, result.output
    assert set(registered) == {None}


def spy_on_files(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The libraries that are registered from now on."""
    registered, file = list[int | None](), installed.library_file

    def library_file(standard: int | None) -> str:
        registered.append(standard)
        return file(standard)

    monkeypatch.setattr(installed, "library_file", library_file)
    return registered


def test_shapes_are_inferred_and_errors_are_statuses() -> None:
    for model in (CONVERTED, STANDARD):
        made = session(model)
        assert made.get_outputs()[0].shape[2:] == [2, 2]
        with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*batch_indices\[1\] = 9: must be >= 0 and < 2"):
            made.run(None, FORWARD | {"batch_indices": np.array([0, 9])})
        np.testing.assert_array_equal(made.run(None, FORWARD)[0], Y)


def test_options_have_one_opset_for_good() -> None:
    chosen = options()
    says = "already have ONNX's operators of opset 16, which the library engine cannot replace: must be new options"
    for _ in range(2):
        assert session(STANDARD, chosen).run(None, FORWARD)[0].tobytes() == Y.tobytes()
    with pytest.raises(ValueError, match=f"^the session options {says} for opset 22$"):
        session(onnx_models.roi_align(22, standard=True, **SIZE), chosen)
    with pytest.raises(ValueError, match=f"^the session options {says} for opset 10$"):
        ortops.register(chosen, opset=13)
    with pytest.raises(ValueError, match=f"^standard = False: sess_options {says}$"):
        session(STANDARD, chosen, standard=False)
    session(STANDARD, chosen).set_providers([CPU])
    assert session(CONVERTED, chosen).run(None, FORWARD)[0].tobytes() == Y.tobytes()


@pytest.mark.parametrize(("domain", "node", "columns"), OTHERS[:3])
def test_nodes_of_other_projects_are_refused_with_the_mend(domain: str, node: str, columns: int) -> None:
    name = node.partition(" ")[0]
    with pytest.raises(
        ValueError, match=rf"^{domain}::{name}: the library engine cannot run such .*onnx_models.convert"
    ):
        session(of_other(domain, node, columns))


def test_a_model_with_operators_of_onnxruntime_extensions_says_which_engine_has_them() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18, "ai.onnx.contrib" : 1]>
        m (string[n] x) => (string[n] y) { y = ai.onnx.contrib.StringUpper (x) }""")
    with pytest.raises(Exception, match=r"The session has no operators of onnxruntime-extensions: make new options"):
        session(model)
    chosen = options()
    chosen.register_custom_ops_library(ortops.library_path())
    with pytest.raises(Exception, match=r"The session has no operators of onnxruntime-extensions: make new options"):
        session(CONVERTED, chosen)


@ortops.operator(domain="t")
def Same(x: NDArray[np.float32]) -> NDArray[np.float32]:  # noqa: N802
    return x


def test_operators_of_users_are_refused() -> None:
    says = (
        "^operators has t::Same: the library engine cannot run Python operators: must be given with engine='auto', in"
    )
    chosen = onnxruntime.SessionOptions()
    with pytest.raises(TypeError, match=says):
        ortops.register(chosen, "library", operators=[Same])
    ortops.register(chosen, operators=[Same])  # which has another engine
    with pytest.raises(TypeError, match=says):
        session(CONVERTED, operators=[Same])


def test_options_have_one_engine() -> None:
    with pytest.raises(RuntimeError, match=r"^engine = 'direct': the session options already have 'library': must be"):
        ortops.register(options(), "direct")
    with pytest.raises(RuntimeError, match=r"^engine = 'library': the session options already have 'direct': must be"):
        ortops.register(options("direct"), "library")


@pytest.mark.usefixtures("_windows")
def test_it_is_the_engine_where_a_wheel_brought_it_unless_users_have_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine_of(chosen: onnxruntime.SessionOptions) -> str:
        return engine._registered[weakref.ref(chosen)].engine  # noqa: SLF001

    chosen = options("auto")
    assert session(STANDARD, chosen).run(None, FORWARD)[0].tobytes() == Y.tobytes()
    assert engine_of(chosen) == "library"
    assert engine_of(options("auto", operators=[Same])) == "direct"
    monkeypatch.setattr(installed, "BUILT", tmp_path)
    assert engine_of(options("auto")) == "direct"


def test_a_missing_file_is_built_into_the_cache_once(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int | None] = []

    def build(standard: int | None) -> bytes:
        built.append(standard)
        return library.read_bytes()

    monkeypatch.setattr(installed, "BUILT", tmp_path)
    monkeypatch.setattr(installed, "_build", build)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):
        assert session(CONVERTED, options()).run(None, FORWARD)[0].tobytes() == Y.tobytes()
    assert built == [None]
    assert ctypes.CDLL(installed.library_file(None)).RegisterCustomOps


def test_an_installation_that_can_build_no_library_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "BUILT", tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("ortops.jit.c_compiler.zig", lambda: None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    says = (
        r"^engine = 'library': this installation has no library and cannot build one \(there is no linker for .*extra"
    )
    with pytest.raises(OrtError, match=says):
        options()

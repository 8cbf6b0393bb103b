# SPDX-License-Identifier: MIT
"""Shared libraries of operators: what they link, and that hosts without Python get the results of sessions from them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

import ortops
from ortops.__main__ import main
from ortops.library.targets import TARGETS, this_machine
from processes import python
from suite_runs import run

HOST = Path(__file__).parents[1] / "examples" / "hosts" / "host.c"
OPERATORS = ["RoiAlign_16", "RoiAlignGrad", "MaxRoiPool_1", "DmlResample"]
"""Those of the fixture `library`."""

EXPORTS = {"OrtopsGetInterface", "RegisterCustomOps", "RegisterOnnx10", "RegisterOnnx16"}
"""Those of a library with `OPERATORS`: opset 10 has MaxRoiPool_1."""

RESULT = "1.5625 3 7.3125 8.75"
"""What `HOST` prints."""

LIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "libc.musl-x86_64.so.1"}

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="its commands are of Linux")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of `HOST`."""
    parsed = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1]>
        crops (float[N, C, H, W] X, float[R, 4] rois, int64[R] batch_indices) => (float[R, C, 2, 2] Y) {
            Y = ai.onnx.contrib.RoiAlign_16 <output_height = 2, output_width = 2> (X, rois, batch_indices)
        }""")
    file = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(parsed, file)
    return file


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the host in C, and ONNX Runtime's library."""
    made = tmp_path_factory.mktemp("host") / "host"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", HOST, "-o", made, "-ldl"], check=True)  # noqa: S603, S607
    (runtime,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    return [str(made), str(runtime)]


def printed(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=1800)  # noqa: S603
    return f"{done.stdout}{done.stderr}".strip()


IN_A_SESSION = """
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(sys.argv[1])
session = onnxruntime.InferenceSession(sys.argv[2], options)
x = np.random.default_rng(1).normal(size=(2, 20, 30, 40)).astype(np.float32)
rois = np.float32([[1, 2, 30, 20], [-3, 0.5, 60, 8]])
y = session.run(None, {"X": x, "rois": rois, "batch_indices": np.int64([1, 0])})[0]
assert not {"ortops", "numba", "llvmlite"} & set(sys.modules)
print(y.tobytes().hex())
"""


def test_session_without_ortops_gives_same_bits(library: Path, model: Path) -> None:
    x = np.random.default_rng(1).normal(size=(2, 20, 30, 40)).astype(np.float32)
    rois = np.array([[1, 2, 30, 20], [-3, 0.5, 60, 8]], np.float32)
    y = ortops.roi_align(x, rois, [1, 0], output_height=2, output_width=2)
    assert python(IN_A_SESSION, str(library), str(model)) == y.tobytes().hex()


def test_second_build_writes_same_library_and_keeps_loaded_one(library: Path) -> None:
    with library.open("rb") as old:
        ortops.build_library(library, OPERATORS, ["float"])
        assert not os.path.samestat(os.fstat(old.fileno()), library.stat())
        assert library.read_bytes() == old.read()


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize("opset", [10, 16])
def test_library_has_entry_for_operators_of_opset(library: Path, opset: int, tmp_path: Path) -> None:
    made = tmp_path / library.name
    names = ["MaxRoiPool_1"] if opset == 10 else ["RoiAlign_16", "MaxRoiPool_1"]
    ortops.build_library(made, names, ["float"], standard=opset)
    result = run("--backend", f"library-standard:{made}", "--select", "max_roi_pool/*/v1/float")
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("no_processes")
def test_library_passes_suite(library: Path) -> None:
    result = run("--backend", f"library:{library}", "--select", "roi_align/*/v16/float")
    assert result.exit_code == 0, result.output


@on_linux
def test_library_links_c_library_and_exports_entries_alone(library: Path) -> None:
    listed = printed("readelf", "--wide", "--dynamic", "--dyn-syms", library)
    assert set(re.findall(r"\(NEEDED\).*\[(.*)\]", listed)) <= LIBC
    assert set(re.findall(r"FUNC +GLOBAL +DEFAULT +\d+ (\w+)", listed)) == EXPORTS


@on_linux
def test_c_compiler_links_library_without_zig(
    model: Path, host: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "with_cc.so"
    monkeypatch.setattr("ortops.compiler.c_compiler.zig", lambda: None)
    ortops.build_library(made, ["RoiAlign_16"], ["float"])
    assert printed(*host, made, model) == RESULT
    with pytest.raises(RuntimeError, match="no linker for aarch64-windows: pip install ziglang"):
        ortops.build_library(made, ["RoiAlign_16"], ["float"], target="aarch64-windows")


@on_linux
def test_host_in_c_runs_library(library: Path, model: Path, host: list[str], tmp_path: Path) -> None:
    assert len(HOST.read_text("utf-8").splitlines()) <= 60
    assert printed(*host, library, model) == RESULT
    changed = tmp_path / "other.onnx"
    changed.write_bytes(model.read_bytes().replace(b"RoiAlign_16", b"RoiAlign_17"))
    assert "is not a registered function/op" in printed(*host, library, changed)


FAKE_RUNTIME = """
#include <stdint.h>
#include <stdio.h>
#include <dlfcn.h>
static void *status(int code, const char *text) { printf("%d: %s", code, text); return (void *)text; }
static const void *api[300] = {(void *)status};
static const void *get_api(uint32_t version) { return version == 1 ? api : NULL; }
static const void *base[2] = {(void *)get_api};
int main(int count, char **words) {
  void *library = dlopen(words[count - 1], RTLD_NOW);
  return ((void *(*)(void *, const void *))dlsym(library, "RegisterCustomOps"))(NULL, base) == NULL;
}
"""
"""A host whose ONNX Runtime is of before 1.20, since none runs on an old processor."""


@on_linux
@pytest.mark.skipif(this_machine() != "x86_64-linux", reason="other processors have these instructions")
@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="qemu-x86_64 is not installed")
@pytest.mark.parametrize(
    ("processor", "text"),
    [
        ("Nehalem", "9: ortops: this processor has neither the instructions of x86-64-v3 nor those of x86-64-v4"),
        ("IvyBridge", "9: ortops: this processor has neither the instructions of x86-64-v3 nor those of x86-64-v4"),
        ("Haswell", "1: ortops: ONNX Runtime must be 1.20 or later"),
    ],
)
def test_old_processor_gets_status(library: Path, processor: str, text: str, tmp_path: Path) -> None:
    source, fake = tmp_path / "fake.c", tmp_path / "fake"
    source.write_text(FAKE_RUNTIME)
    subprocess.run(["cc", source, "-o", fake, "-ldl"], check=True)  # noqa: S603, S607
    # qemu warns of what it lacks of a processor.
    assert text in printed("qemu-x86_64", "-cpu", processor, fake, library).splitlines()[0]


@on_linux
@pytest.mark.weekly
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_valgrind_finds_no_error_of_library(library: Path, model: Path, host: list[str]) -> None:
    at_exit = []
    for calls in (10, 10_000):
        text = printed("valgrind", "--leak-check=full", *host, library, model, calls)
        assert RESULT in text
        assert library.name not in re.sub("Command: .*", "", text)  # ONNX Runtime has errors of its own
        at_exit += re.findall(r"in use at exit: (.*)", text)
    assert at_exit[0] == at_exit[1]


ELF, MACH_O = b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe"
HEADERS = {
    "x86_64-linux": (ELF, 18, b"\x3e\0"),
    "x86_64-musl": (ELF, 18, b"\x3e\0"),
    "aarch64-linux": (ELF, 18, b"\xb7\0"),
    "aarch64-android": (ELF, 18, b"\xb7\0"),
    "aarch64-macos": (MACH_O, 4, b"\x0c\0\0\x01"),
    "x86_64-windows": (b"MZ", 4, b"\x64\x86"),
    "aarch64-windows": (b"MZ", 4, b"\x64\xaa"),
}
"""How the files of each target begin, and where the processor stands: on Windows counted from the header behind DOS's."""


# zig makes the C library of each target first, which takes longest for Windows.
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=[pytest.mark.slow, *[pytest.mark.weekly] * ("windows" in target)])
        for target in TARGETS
    ],
)
def test_zig_links_library_for_target(target: str, tmp_path: Path) -> None:
    made = tmp_path / f"ortops{TARGETS[target].ending}"
    ortops.build_library(made, ["RoiAlign_16"], ["float"], target=target)
    code, (magic, at, processor) = made.read_bytes(), HEADERS[target]
    if code.startswith(b"MZ"):
        at += int.from_bytes(code[0x3C:0x40], "little")
    assert code.startswith(magic)
    assert code[at : at + len(processor)] == processor
    assert b"RegisterCustomOps\0" in code
    assert tempfile.gettempdir().encode() not in code


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"operators": ["RoiAlign"]}, ValueError, "operators has 'RoiAlign': must be among"),
        ({"types": ["int8"]}, ValueError, "types has 'int8': must be among"),
        ({"target": "mips"}, ValueError, "target = 'mips': must be one of x86_64-linux"),
        ({"standard": 11}, ValueError, "standard = 11: must be one of 10, 16, 22"),
        (
            {"standard": 16, "operators": ["PSRoIAlign"]},
            ValueError,
            "standard = 16: must have MaxRoiPool_1 or RoiAlign_16",
        ),
        ({"target": "x86_64-linux", "cpu": "nehalem"}, ValueError, "cpu = 'nehalem': must have instructions for fused"),
        (
            {"target": "x86_64-linux", "cpu": "z80"},
            ValueError,
            "cpu = 'z80': LLVM has no such processor for x86_64-unknown",
        ),
    ],
)
def test_build_library_refuses_argument(
    arguments: dict[str, object], error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        ortops.build_library(tmp_path / "x", **arguments)  # type: ignore[arg-type]


def test_command_names_missing_folder_before_it_compiles(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["library", "--out", os.fspath(tmp_path / "missing" / "x")])
    assert result.exit_code == 1
    assert f"the folder {tmp_path / 'missing'} does not exist" in " ".join(result.output.split())
    assert "compiling" not in result.output


def test_command_refuses_a_file_name_of_another_platform(tmp_path: Path) -> None:
    made = tmp_path / "ortops.wrong"
    for target, ending in (("x86_64-windows", ".so"), ("x86_64-linux", ".dll"), ("aarch64-macos", ".so")):
        given = ["library", "--out", os.fspath(made.with_suffix(ending)), "--target", target]
        result = CliRunner().invoke(main, given)
        assert result.exit_code == 2
        assert f"must end in {TARGETS[target].ending}" in " ".join(result.output.split())


def test_command_refuses_unknown_operator(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["library", "--out", os.fspath(tmp_path / "x"), "--operators", "RoiAlign_16,Foo"])
    assert result.exit_code == 2
    assert "'Foo' is not one of 'RoiAlign_10'" in result.output

"""Kernels compiled for CPUs without fused multiply-add or without float16 conversions."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from llvmlite import binding as llvm

import float16_checks
from ortops.jit import machine_code
from processes import python

on_x86_64 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="other processors have these instructions"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the code for these CPUs."""
    return tmp_path_factory.mktemp("cache")


def on_processor(code: str, cache: Path, name: str, features: str) -> str:
    """The output of a new interpreter whose kernels are compiled for a CPU with this name and these features."""
    processor = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(cache)}
    return python(code, cwd=Path(__file__).parent, **processor)


@on_x86_64
@pytest.mark.slow
def test_without_a_fused_multiply_add_a_channel_has_the_same_bits_alone_and_among_others(cache: Path) -> None:
    code = """
import numpy as np, ortops
rng = np.random.default_rng(0)
x, dy = rng.random((1, 33, 9, 40), np.float32), rng.random((20, 33, 3, 2), np.float32)
rois, of = rng.uniform(-5, 45, (20, 4)).astype(np.float32), [0] * 20
for c in (0, 16, 32):
    one, only = slice(c, c + 1), np.zeros_like(dy)
    only[:, one] = dy[:, one]
    sizes = {"output_height": 3, "output_width": 2}
    y, dx = ortops.roi_align(x, rois, of, **sizes), ortops.roi_align_grad(dy, rois, of, x.shape, outputs=["dx"])[0]
    assert (ortops.roi_align(x[:, one], rois, of, **sizes) == y[:, one]).all()
    assert (ortops.roi_align_grad(dy[:, one], rois, of, (1, 1, 9, 40), outputs=["dx"])[0] == dx[:, one]).all()
    drois = ortops.roi_align_grad(only, rois, of, x.shape, x=x, outputs=["drois"])[1]
    assert (ortops.roi_align_grad(dy[:, one], rois, of, (1, 1, 9, 40), x=x[:, one], outputs=["drois"])[1] == drois).all()
"""
    on_processor(code, cache, "generic", "")


@on_x86_64
@pytest.mark.slow
def test_without_instructions_for_float16_every_number_is_read_and_written_as_numpy_does(cache: Path) -> None:
    on_processor("import float16_checks; float16_checks.check_all()", cache, "generic", "")


@on_x86_64
@pytest.mark.slow
def test_without_instructions_for_float16_results_have_the_bits_of_those_with_them(cache: Path) -> None:
    if not machine_code.has_instructions():
        pytest.skip("this processor has no fused multiply-add")
    found = on_processor("import float16_checks; print(float16_checks.digest())", cache, "x86-64", "+avx2,+fma")
    assert found == float16_checks.digest()


@pytest.mark.parametrize(
    ("triple", "name", "features", "fma", "float16"),
    [
        ("x86_64-unknown-linux-gnu", "generic", "", False, False),
        ("x86_64-unknown-linux-gnu", "haswell", "", True, True),
        ("x86_64-unknown-linux-gnu", "generic", "+fma", True, False),
        ("x86_64-unknown-linux-gnu", "generic", "-avx,+f16c,+fma", True, True),
        ("x86_64-unknown-linux-gnu", "generic", "+f16c,+fma,-avx", False, False),
        ("aarch64-unknown-linux-gnu", "generic", "+neon", True, True),
        ("armv7-unknown-linux-gnueabihf", "generic", "", False, False),
    ],
)
def test_llvm_says_which_instructions_a_processor_has(
    triple: str, name: str, features: str, fma: bool, float16: bool
) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=name, features=features)
    assert (machine_code.has_fma(machine), machine_code.has_float16(machine)) == (fma, float16)

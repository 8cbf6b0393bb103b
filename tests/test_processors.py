"""Instructions that kernels need: fused multiply-add, and conversions of float16."""

from __future__ import annotations

from pathlib import Path

import pytest
from llvmlite import binding as llvm

from ortops.compiler import machine_code
from processes import python


def test_conversions_of_float16_are_those_of_numpy() -> None:
    # In a process of its own: ONNX Runtime's option for subnormals counts in the first session alone, and for good.
    python("import float16_checks; float16_checks.check_all()", cwd=Path(__file__).parent)


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
def test_llvm_tells_instructions_of_processor(triple: str, name: str, features: str, fma: bool, float16: bool) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=name, features=features)
    assert (machine_code.has_fma(machine), machine_code.has_float16(machine)) == (fma, float16)

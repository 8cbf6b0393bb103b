# SPDX-License-Identifier: MIT
"""The functions that hosts call, in LLVM's language: they choose the code for the processor that they run on."""

from __future__ import annotations

from collections.abc import Sequence

from ortops.library.targets import LEVELS, Target

_LEVEL = """
define internal {i32, i32, i32, i32} @cpuid(i32 %leaf) {
  %registers = call {i32, i32, i32, i32} asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 %leaf, i32 0)
  ret {i32, i32, i32, i32} %registers
}

; The number of the levels whose instructions this processor and its operating system have: 0, 1 (v3) or 2 (v4).
; Source: x86-64 psABI, section "Micro-Architecture Levels"; Intel SDM, CPUID and XCR0.
define internal i32 @level() {
  %leaf0 = call {i32, i32, i32, i32} @cpuid(i32 0)
  %last = extractvalue {i32, i32, i32, i32} %leaf0, 0
  %leaf1 = call {i32, i32, i32, i32} @cpuid(i32 1)
  %c1 = extractvalue {i32, i32, i32, i32} %leaf1, 2
  %of1 = and i32 %c1, u0x38401000 ; FMA, MOVBE, OSXSAVE, AVX, F16C
  %has1 = icmp eq i32 %of1, u0x38401000
  %has7 = icmp uge i32 %last, 7
  %goes_on = and i1 %has1, %has7
  br i1 %goes_on, label %more, label %none
more:
  %leaf7 = call {i32, i32, i32, i32} @cpuid(i32 7)
  %b7 = extractvalue {i32, i32, i32, i32} %leaf7, 1
  %extended = call {i32, i32, i32, i32} @cpuid(i32 u0x80000001)
  %c8 = extractvalue {i32, i32, i32, i32} %extended, 2
  %lzcnt = and i32 %c8, u0x20
  %has_lzcnt = icmp ne i32 %lzcnt, 0
  %xcr0 = call {i32, i32} asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)
  %saved = extractvalue {i32, i32} %xcr0, 0
  %of7_v3 = and i32 %b7, u0x128 ; BMI1, AVX2, BMI2
  %has7_v3 = icmp eq i32 %of7_v3, u0x128
  %saved_v3 = and i32 %saved, 6 ; the registers of AVX
  %saves_v3 = icmp eq i32 %saved_v3, 6
  %some_v3 = and i1 %has7_v3, %saves_v3
  %v3 = and i1 %some_v3, %has_lzcnt
  %of7_v4 = and i32 %b7, u0xD0030000 ; AVX-512 F, DQ, CD, BW, VL
  %has7_v4 = icmp eq i32 %of7_v4, u0xD0030000
  %saved_v4 = and i32 %saved, u0xE0 ; the registers of AVX-512
  %saves_v4 = icmp eq i32 %saved_v4, u0xE0
  %some_v4 = and i1 %has7_v4, %saves_v4
  %v4 = and i1 %v3, %some_v4
  %number3 = zext i1 %v3 to i32
  %number4 = zext i1 %v4 to i32
  %number = add i32 %number3, %number4
  ret i32 %number
none:
  ret i32 0
}

; The OrtStatus of ORT_NOT_IMPLEMENTED, by the first function of OrtApi, which OrtApiBase's first function returns.
define internal i64 @refuse(i64 %base) {
  %bases = inttoptr i64 %base to ptr
  %get_api = load ptr, ptr %bases
  %api = call ptr %get_api(i32 1)
  %create_status = load ptr, ptr %api
  %status = call i64 %create_status(i32 9, ptr @text)
  ret i64 %status
}
"""

_TEXT = f"ortops: this processor has neither the instructions of {LEVELS[0]} nor those of {LEVELS[1]}"

INTERFACE = "OrtopsGetInterface"
"""The function that returns the interface (ortops.h), or 0 if the processor lacks instructions."""

_SHARED = '@"ortops.python" = hidden global i64 0\n'
"""The words that all functions share."""

_CHOICE = """
define {storage} i64 @{name}(i64 %options, i64 %base) {{
  %level = call i32 @level()
  switch i32 %level, label %none [ i32 1, label %v3 i32 2, label %v4 ]
v3:
  %status3 = call i64 @"{v3}"(i64 %options, i64 %base)
  ret i64 %status3
v4:
  %status4 = call i64 @"{v4}"(i64 %options, i64 %base)
  ret i64 %status4
none:
  %status = {refuse}
  ret i64 %status
}}
"""

_ONLY = """
define {storage} i64 @{name}(i64 %options, i64 %base) {{
  %status = call i64 @"{only}"(i64 %options, i64 %base)
  ret i64 %status
}}
"""


def entry_of(export: str, cpu: str) -> str:
    """The symbol of an exported function's code for a processor."""
    return f"{export}.{cpu}"


def module_of(exports: Sequence[str], target: Target) -> str:
    """The LLVM module of the functions `exports`, each of which calls that of `entry_of` for one of the processors."""
    storage = "dllexport" if target.ending == ".dll" else ""
    functions = [
        _SHARED,
        *(f'declare hidden i64 @"{entry_of(name, cpu)}"(i64, i64)\n' for name in exports for cpu in target.cpus),
    ]
    if target.cpus == LEVELS:
        text = f'@text = internal constant [{len(_TEXT) + 1} x i8] c"{_TEXT}\\00"\n'
        v3, v4 = LEVELS
        functions += (
            _CHOICE.format(
                storage=storage,
                name=name,
                v3=entry_of(name, v3),
                v4=entry_of(name, v4),
                refuse="add i64 0, 0" if name == INTERFACE else "call i64 @refuse(i64 %base)",
            )
            for name in exports
        )
        return "".join([text, _LEVEL, *functions])
    (cpu,) = target.cpus
    return "".join(functions + [_ONLY.format(storage=storage, name=name, only=entry_of(name, cpu)) for name in exports])

# SPDX-License-Identifier: MIT
"""What users' functions call: the C library, and numba's functions that count references to arrays and lists.

Compiled code calls numba's by name. numba has them in an extension module of Python. Here they are in LLVM's language and
need the C library alone. So libraries can have them, and processes that load machine code from disk need not import numba.

An exception ends numba's functions without a change to the references that they hold. So each call has two lists of the
memory that it holds, one of blocks and one of objects, whose ends are four words on its stack. Functions that allocate get
the address of these words, `live`, as a further argument, which `linked` adds. `nrt.begin` makes the lists, and `nrt.end`
frees what is still in them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from llvmlite import binding as llvm

from ortops.compiler import machine_code

_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmax fmin fmod
    frexp hypot ldexp lgamma log log10 log1p log2 modf nearbyint nextafter pow remainder rint round sin sincos sinh sqrt tan
    tanh tgamma trunc
"""

C_FUNCTIONS = {
    "libc": ("calloc", "free", "malloc", "memcmp", "memcpy", "memmove", "memset", "realloc", "snprintf"),
    "libm": tuple(f"{name}{kind}" for name in _MATH.split() for kind in ("", "f")),
}
"""The functions of the C library that code in a library may call, by the names of its parts."""

MODULE = """
declare ptr @malloc(i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)

; Subtract from a count: whether it is 0 now. The condition is always this one.
define i8 @nrt.sub(ptr %counted, i64 %by, i32 %condition) {
  %old = atomicrmw sub ptr %counted, i64 %by seq_cst
  %is_zero = icmp eq i64 %old, %by
  %result = zext i1 %is_zero to i8
  ret i8 %result
}

; The two words in front of each block of memory are the addresses of its neighbours in a list.
define internal void @nrt.link(ptr %block, ptr %before) {
  %next_at = getelementptr ptr, ptr %block, i64 1
  store ptr %block, ptr %next_at ; a block behind itself is a list of its own
  %behind_at = getelementptr ptr, ptr %before, i64 1
  %next = load ptr, ptr %behind_at
  store ptr %before, ptr %block
  store ptr %next, ptr %next_at
  store ptr %block, ptr %behind_at
  store ptr %block, ptr %next
  ret void
}

define internal ptr @nrt.unlink(ptr %block) {
  %before = load ptr, ptr %block
  %next_at = getelementptr ptr, ptr %block, i64 1
  %next = load ptr, ptr %next_at
  %behind_at = getelementptr ptr, ptr %before, i64 1
  store ptr %next, ptr %behind_at
  store ptr %before, ptr %next
  ret ptr %before
}

define ptr @NRT_Allocate(ptr %live, i64 %size) {
  %room = add i64 %size, 16
  %memory = call ptr @malloc(i64 %room)
  %is_null = icmp eq ptr %memory, null
  br i1 %is_null, label %none, label %link
link:
  %is_alone = icmp eq ptr %live, null
  %before = select i1 %is_alone, ptr %memory, ptr %live
  call void @nrt.link(ptr %memory, ptr %before)
  %data = getelementptr i8, ptr %memory, i64 16
  ret ptr %data
none:
  ret ptr null
}

define void @NRT_Free(ptr %data) {
  %is_null = icmp eq ptr %data, null
  br i1 %is_null, label %done, label %unlink
unlink:
  %memory = getelementptr i8, ptr %data, i64 -16
  %before = call ptr @nrt.unlink(ptr %memory)
  call void @free(ptr %memory)
  br label %done
done:
  ret void
}

; Give a block another size: null if memory has run out, and then the block stays as it is.
define internal ptr @nrt.resize(ptr %data, i64 %size) {
  %old = getelementptr i8, ptr %data, i64 -16
  %old_before = call ptr @nrt.unlink(ptr %old)
  %room = add i64 %size, 16
  %new = call ptr @realloc(ptr %old, i64 %room)
  %is_null = icmp eq ptr %new, null
  %kept = select i1 %is_null, ptr %old, ptr %new
  %was_alone = icmp eq ptr %old_before, %old
  %before = select i1 %was_alone, ptr %kept, ptr %old_before
  call void @nrt.link(ptr %kept, ptr %before)
  %moved = getelementptr i8, ptr %kept, i64 16
  %result = select i1 %is_null, ptr null, ptr %moved
  ret ptr %result
}

define void @nrt.begin(ptr %live) {
  call void @nrt.link(ptr %live, ptr %live)
  %objects = getelementptr ptr, ptr %live, i64 2
  call void @nrt.link(ptr %objects, ptr %objects)
  ret void
}

; Objects such as dictionaries hold memory that is in no list, so they end first. Each keeps a reference more than there are,
; since another object that ends later may give one back.
define void @nrt.end(ptr %live) {
  %left_at = getelementptr ptr, ptr %live, i64 1
  %objects = getelementptr ptr, ptr %live, i64 2
  %object_at = getelementptr ptr, ptr %live, i64 3
  br label %next
next:
  %object = load ptr, ptr %object_at
  %has_object = icmp ne ptr %object, %objects
  br i1 %has_object, label %end, label %rest
end:
  %before = call ptr @nrt.unlink(ptr %object)
  call void @nrt.link(ptr %object, ptr %live)
  %counted = getelementptr ptr, ptr %object, i64 2
  %references = atomicrmw add ptr %counted, i64 1 seq_cst
  call void @nrt.end_object(ptr %counted)
  br label %next
rest:
  %left = load ptr, ptr %left_at
  %has_left = icmp ne ptr %left, %live
  br i1 %has_left, label %free, label %done
free:
  %data = getelementptr ptr, ptr %left, i64 2
  call void @NRT_Free(ptr %data)
  br label %rest
done:
  ret void
}

; A counted object is six words: the number of references, the function that ends it and what that gets, the address of the
; data, their size, and a word that is not used here. `more` is the room for data behind them, with `unused` for alignment.
define internal ptr @nrt.new(ptr %live, i64 %more, i64 %data, i64 %size, i64 %unused, i64 %end) {
  %room = add i64 %more, 48
  %memory = call ptr @NRT_Allocate(ptr %live, i64 %room)
  %is_null = icmp eq ptr %memory, null
  br i1 %is_null, label %done, label %fill
fill:
  %first = ptrtoint ptr %memory to i64
  %last = add i64 %unused, 48
  %behind = add i64 %first, %last
  %mask = xor i64 %unused, -1
  %aligned = and i64 %behind, %mask
  %is_apart = icmp ne i64 %data, 0
  %address = select i1 %is_apart, i64 %data, i64 %aligned
  store i64 1, ptr %memory
  %end_at = getelementptr i64, ptr %memory, i64 1
  store i64 %end, ptr %end_at
  %info_at = getelementptr i64, ptr %memory, i64 2
  store i64 0, ptr %info_at
  %data_at = getelementptr i64, ptr %memory, i64 3
  store i64 %address, ptr %data_at
  %size_at = getelementptr i64, ptr %memory, i64 4
  store i64 %size, ptr %size_at
  %other_at = getelementptr i64, ptr %memory, i64 5
  store i64 0, ptr %other_at
  br label %done
done:
  ret ptr %memory
}

define ptr @NRT_MemInfo_alloc(ptr %live, i64 %size) {
  %counted = call ptr @nrt.new(ptr %live, i64 %size, i64 0, i64 %size, i64 0, i64 0)
  ret ptr %counted
}

define ptr @NRT_MemInfo_alloc_aligned(ptr %live, i64 %size, i32 %align) {
  %wide = zext i32 %align to i64
  %unused = sub i64 %wide, 1
  %more = add i64 %size, %unused
  %counted = call ptr @nrt.new(ptr %live, i64 %more, i64 0, i64 %size, i64 %unused, i64 0)
  ret ptr %counted
}

define ptr @NRT_MemInfo_alloc_dtor(ptr %live, i64 %size, ptr %end) {
  %address = ptrtoint ptr %end to i64
  %others = getelementptr i8, ptr %live, i64 16
  %is_alone = icmp eq ptr %live, null
  %objects = select i1 %is_alone, ptr null, ptr %others
  %counted = call ptr @nrt.new(ptr %objects, i64 %size, i64 0, i64 %size, i64 0, i64 %address)
  ret ptr %counted
}

define internal void @nrt.end_object(ptr %counted) {
  %end_at = getelementptr i64, ptr %counted, i64 1
  %end = load i64, ptr %end_at
  %has_end = icmp ne i64 %end, 0
  br i1 %has_end, label %ends, label %done
ends:
  %info_at = getelementptr i64, ptr %counted, i64 2
  %info_word = load i64, ptr %info_at
  %data_at = getelementptr i64, ptr %counted, i64 3
  %data_word = load i64, ptr %data_at
  %size_at = getelementptr i64, ptr %counted, i64 4
  %size = load i64, ptr %size_at
  %info = inttoptr i64 %info_word to ptr
  %data = inttoptr i64 %data_word to ptr
  %function = inttoptr i64 %end to ptr
  call void %function(ptr %data, i64 %size, ptr %info)
  br label %done
done:
  ret void
}

define void @NRT_MemInfo_call_dtor(ptr %counted) {
  call void @nrt.end_object(ptr %counted)
  call void @NRT_Free(ptr %counted)
  ret void
}

; Lists keep their elements apart, so that these can move.
define internal void @nrt.end_varsize(ptr %data, i64 %size, ptr %each) {
  %has_each = icmp ne ptr %each, null
  br i1 %has_each, label %ends, label %done
ends:
  call void %each(ptr %data)
  br label %done
done:
  call void @NRT_Free(ptr %data)
  ret void
}

define ptr @NRT_MemInfo_new_varsize_dtor(ptr %live, i64 %size, ptr %each) {
  %data = call ptr @NRT_Allocate(ptr %live, i64 %size)
  %is_null = icmp eq ptr %data, null
  br i1 %is_null, label %none, label %make
make:
  %address = ptrtoint ptr %data to i64
  %end = ptrtoint ptr @nrt.end_varsize to i64
  %counted = call ptr @nrt.new(ptr %live, i64 0, i64 %address, i64 %size, i64 0, i64 %end)
  %is_counted = icmp ne ptr %counted, null
  br i1 %is_counted, label %fill, label %drop
fill:
  %info_at = getelementptr i64, ptr %counted, i64 2
  %info = ptrtoint ptr %each to i64
  store i64 %info, ptr %info_at
  ret ptr %counted
drop:
  call void @NRT_Free(ptr %data)
  br label %none
none:
  ret ptr null
}

define ptr @NRT_MemInfo_new_varsize(ptr %live, i64 %size) {
  %counted = call ptr @NRT_MemInfo_new_varsize_dtor(ptr %live, i64 %size, ptr null)
  ret ptr %counted
}

define internal ptr @nrt.keep(ptr %counted, ptr %data, i64 %size) {
  %is_null = icmp eq ptr %data, null
  br i1 %is_null, label %done, label %keep
keep:
  %data_at = getelementptr i64, ptr %counted, i64 3
  %address = ptrtoint ptr %data to i64
  store i64 %address, ptr %data_at
  %size_at = getelementptr i64, ptr %counted, i64 4
  store i64 %size, ptr %size_at
  br label %done
done:
  ret ptr %data
}

define ptr @NRT_MemInfo_varsize_alloc(ptr %live, ptr %counted, i64 %size) {
  %data = call ptr @NRT_Allocate(ptr %live, i64 %size)
  %kept = call ptr @nrt.keep(ptr %counted, ptr %data, i64 %size)
  ret ptr %kept
}

define ptr @NRT_MemInfo_varsize_realloc(ptr %counted, i64 %size) {
  %data_at = getelementptr i64, ptr %counted, i64 3
  %old_word = load i64, ptr %data_at
  %old = inttoptr i64 %old_word to ptr
  %data = call ptr @nrt.resize(ptr %old, i64 %size)
  %kept = call ptr @nrt.keep(ptr %counted, ptr %data, i64 %size)
  ret ptr %kept
}

define void @NRT_MemInfo_varsize_free(ptr %counted, ptr %memory) {
  %data_at = getelementptr i64, ptr %counted, i64 3
  %data = load i64, ptr %data_at
  %address = ptrtoint ptr %memory to i64
  %is_data = icmp eq i64 %data, %address
  %left = select i1 %is_data, i64 0, i64 %data
  store i64 %left, ptr %data_at
  call void @NRT_Free(ptr %memory)
  ret void
}
"""
"""The module of numba's functions."""

_ALLOCATING = tuple(re.findall(r"define \S+ @(NRT_\w+)\(ptr %live", MODULE))
"""The names of the functions that get the lists."""


def linked(text: str) -> Any:
    """The module of an LLVM text, linked with the functions that count references."""
    text, count = _COUNTING.subn("@nrt.sub", _with_lists(text))
    module = llvm.parse_assembly(f"{text}\ndeclare i8 @nrt.sub(ptr, i64, i32)" if count else text)
    module.link_in(llvm.parse_assembly(MODULE))
    for function in module.functions:
        if not function.is_declaration and function.name != machine_code.SYMBOL:
            function.linkage = "internal"
    return module


def _with_lists(module: str) -> str:
    """The text of an LLVM module whose functions that allocate memory get the lists of the call that will hold it.

    So do the functions that call these, unless something else may call them, too, since their address is known. The memory
    that they allocate then is in no list.
    """
    functions = {match[1]: match[0] for match in _FUNCTION.finditer(module)}
    lists = {name: begin[1] for name, body in functions.items() if (begin := _BEGIN.search(body))}
    callers = defaultdict[str, set[str]](set)
    for name, body in functions.items():
        for called, _ in _CALL.findall(body):
            callers[called].add(name)
    fixed = {machine_code.SYMBOL, *lists, *_ADDRESS.findall(module)}
    allocating = list(_ALLOCATING)
    for name in allocating:  # which grows
        allocating += callers[name] - fixed - {*allocating}
    lists |= dict.fromkeys(allocating, "%nrt.live")

    def with_lists(match: re.Match[str]) -> str:
        given = "" if match[0].startswith("declare") else lists.get(match[1], "null")
        text = match[0].replace("tail call", "call")  # a tail call must not get memory of the caller's stack
        return _CALL.sub(
            lambda call: f"@{call[1]}(ptr {given}{call[2] or ', '}" if call[1] in allocating else call[0], text
        )

    return _FUNCTION.sub(with_lists, module)


_NAME = r'@("[^"\n]+"|[-\w.$]+)'

_FUNCTION = re.compile(rf"(?ms)^(?:declare|define) [^@\n]*{_NAME}\([^\n]*?(?:{{\n.*?^}})?$")

_CALL, _ADDRESS = re.compile(rf"{_NAME}\((\))?"), re.compile(rf"{_NAME}(?![-\w.$(])")
"""A function that is called, declared or defined, and a function or a variable whose address is taken."""

_BEGIN = re.compile(r"@nrt\.begin\([^%]*(%[^)]+)\)")

_COUNTING = re.compile(r"@llvm\.x86\.atomic\.sub\.cc\.i64(?=\([^)\n]*, i32 4\))")
"""LLVM's function for x86-64 in place of the counting of references, in functions that have run in this process before."""

"""What users' functions call: the C library, and numba's functions that count references to arrays and lists.

Compiled code calls numba's by name. numba has them in an extension module of Python. Here they are in LLVM's language and
need the C library alone. So libraries can have them, and processes that load machine code from disk need not import numba.
"""

from __future__ import annotations

from llvmlite import binding as llvm

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

_TYPED = {"p": "i8*", "w": "i64*", "end": "void (i8*, i64, i8*)*", "each": "void (i8*)*"}
"""The types of pointers before LLVM 16, which later releases call ptr."""

_TEXT = """
declare {p} @malloc(i64)
declare {p} @realloc({p}, i64)
declare void @free({p})

; Subtract from a count: whether it is 0 now. The condition is always this one.
define i8 @nrt.sub({p} %counted, i64 %by, i32 %condition) {{
  %words = bitcast {p} %counted to {w}
  %old = atomicrmw sub {w} %words, i64 %by seq_cst
  %is_zero = icmp eq i64 %old, %by
  %result = zext i1 %is_zero to i8
  ret i8 %result
}}

define {p} @NRT_Allocate(i64 %size) {{
  %memory = call {p} @malloc(i64 %size)
  ret {p} %memory
}}

define void @NRT_Free({p} %memory) {{
  call void @free({p} %memory)
  ret void
}}

; A counted object is six words: the number of references, the function that ends it and what that gets, the address of the
; data, their size, and a word that is not used here. `more` is the room for data behind them, with `unused` for alignment.
define internal {p} @nrt.new(i64 %more, i64 %data, i64 %size, i64 %unused, i64 %end) {{
  %room = add i64 %more, 48
  %memory = call {p} @malloc(i64 %room)
  %is_null = icmp eq {p} %memory, null
  br i1 %is_null, label %done, label %fill
fill:
  %words = bitcast {p} %memory to {w}
  %first = ptrtoint {p} %memory to i64
  %last = add i64 %unused, 48
  %behind = add i64 %first, %last
  %mask = xor i64 %unused, -1
  %aligned = and i64 %behind, %mask
  %is_apart = icmp ne i64 %data, 0
  %address = select i1 %is_apart, i64 %data, i64 %aligned
  store i64 1, {w} %words
  %end_at = getelementptr i64, {w} %words, i64 1
  store i64 %end, {w} %end_at
  %info_at = getelementptr i64, {w} %words, i64 2
  store i64 0, {w} %info_at
  %data_at = getelementptr i64, {w} %words, i64 3
  store i64 %address, {w} %data_at
  %size_at = getelementptr i64, {w} %words, i64 4
  store i64 %size, {w} %size_at
  %other_at = getelementptr i64, {w} %words, i64 5
  store i64 0, {w} %other_at
  br label %done
done:
  ret {p} %memory
}}

define {p} @NRT_MemInfo_alloc(i64 %size) {{
  %made = call {p} @nrt.new(i64 %size, i64 0, i64 %size, i64 0, i64 0)
  ret {p} %made
}}

define {p} @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {{
  %wide = zext i32 %align to i64
  %unused = sub i64 %wide, 1
  %more = add i64 %size, %unused
  %made = call {p} @nrt.new(i64 %more, i64 0, i64 %size, i64 %unused, i64 0)
  ret {p} %made
}}

define {p} @NRT_MemInfo_alloc_dtor(i64 %size, {p} %end) {{
  %address = ptrtoint {p} %end to i64
  %made = call {p} @nrt.new(i64 %size, i64 0, i64 %size, i64 0, i64 %address)
  ret {p} %made
}}

define void @NRT_MemInfo_call_dtor({p} %counted) {{
  %words = bitcast {p} %counted to {w}
  %end_at = getelementptr i64, {w} %words, i64 1
  %end = load i64, {w} %end_at
  %has_end = icmp ne i64 %end, 0
  br i1 %has_end, label %ends, label %done
ends:
  %info_at = getelementptr i64, {w} %words, i64 2
  %info_word = load i64, {w} %info_at
  %data_at = getelementptr i64, {w} %words, i64 3
  %data_word = load i64, {w} %data_at
  %size_at = getelementptr i64, {w} %words, i64 4
  %size = load i64, {w} %size_at
  %info = inttoptr i64 %info_word to {p}
  %data = inttoptr i64 %data_word to {p}
  %function = inttoptr i64 %end to {end}
  call void %function({p} %data, i64 %size, {p} %info)
  br label %done
done:
  call void @free({p} %counted)
  ret void
}}

; Lists keep their elements apart, so that these can move.
define internal void @nrt.end_varsize({p} %data, i64 %size, {p} %each) {{
  %has_each = icmp ne {p} %each, null
  br i1 %has_each, label %ends, label %done
ends:
  %function = bitcast {p} %each to {each}
  call void %function({p} %data)
  br label %done
done:
  call void @free({p} %data)
  ret void
}}

define {p} @NRT_MemInfo_new_varsize_dtor(i64 %size, {p} %each) {{
  %data = call {p} @malloc(i64 %size)
  %is_null = icmp eq {p} %data, null
  br i1 %is_null, label %none, label %make
make:
  %address = ptrtoint {p} %data to i64
  %end = ptrtoint {end} @nrt.end_varsize to i64
  %made = call {p} @nrt.new(i64 0, i64 %address, i64 %size, i64 0, i64 %end)
  %is_made = icmp ne {p} %made, null
  br i1 %is_made, label %fill, label %drop
fill:
  %words = bitcast {p} %made to {w}
  %info_at = getelementptr i64, {w} %words, i64 2
  %info = ptrtoint {p} %each to i64
  store i64 %info, {w} %info_at
  ret {p} %made
drop:
  call void @free({p} %data)
  br label %none
none:
  ret {p} null
}}

define {p} @NRT_MemInfo_new_varsize(i64 %size) {{
  %made = call {p} @NRT_MemInfo_new_varsize_dtor(i64 %size, {p} null)
  ret {p} %made
}}

define internal {p} @nrt.keep({p} %counted, {p} %data, i64 %size) {{
  %is_null = icmp eq {p} %data, null
  br i1 %is_null, label %done, label %keep
keep:
  %words = bitcast {p} %counted to {w}
  %data_at = getelementptr i64, {w} %words, i64 3
  %address = ptrtoint {p} %data to i64
  store i64 %address, {w} %data_at
  %size_at = getelementptr i64, {w} %words, i64 4
  store i64 %size, {w} %size_at
  br label %done
done:
  ret {p} %data
}}

define {p} @NRT_MemInfo_varsize_alloc({p} %counted, i64 %size) {{
  %data = call {p} @malloc(i64 %size)
  %kept = call {p} @nrt.keep({p} %counted, {p} %data, i64 %size)
  ret {p} %kept
}}

define {p} @NRT_MemInfo_varsize_realloc({p} %counted, i64 %size) {{
  %words = bitcast {p} %counted to {w}
  %data_at = getelementptr i64, {w} %words, i64 3
  %old_word = load i64, {w} %data_at
  %old = inttoptr i64 %old_word to {p}
  %data = call {p} @realloc({p} %old, i64 %size)
  %kept = call {p} @nrt.keep({p} %counted, {p} %data, i64 %size)
  ret {p} %kept
}}

define void @NRT_MemInfo_varsize_free({p} %counted, {p} %memory) {{
  %words = bitcast {p} %counted to {w}
  %data_at = getelementptr i64, {w} %words, i64 3
  %data = load i64, {w} %data_at
  %address = ptrtoint {p} %memory to i64
  %is_data = icmp eq i64 %data, %address
  %left = select i1 %is_data, i64 0, i64 %data
  store i64 %left, {w} %data_at
  call void @free({p} %memory)
  ret void
}}
"""

_TYPES = _TYPED if llvm.llvm_version_info[0] < 16 else dict.fromkeys(_TYPED, "ptr")

MODULE, COUNTING = _TEXT.format_map(_TYPES), "declare i8 @nrt.sub({p}, i64, i32)".format_map(_TYPES)
"""The module of numba's functions, and the declaration of the one that `user_code` calls."""

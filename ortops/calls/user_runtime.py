"""What users' functions call: the C library, and numba's functions that count references to arrays and lists.

Compiled code calls numba's by name. numba has them in an extension module of Python. Here they are in LLVM's language and
need the C library alone. So libraries can have them, and processes that load machine code from disk need not import numba.

An exception ends numba's functions without a change to the references that they hold. So each call has two lists of the
memory that it holds, one of blocks and one of objects, whose ends are four words on its stack. Functions that allocate get
the address of these words, `live`, as a further argument, which `user_code` adds. `nrt.begin` makes the lists, and `nrt.end`
frees what is still in them.
"""

from __future__ import annotations

import re

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

; The two words in front of each block of memory are the addresses of its neighbours in a list.
define internal void @nrt.link({w} %block, {w} %before) {{
  %address = ptrtoint {w} %block to i64
  %before_address = ptrtoint {w} %before to i64
  %next_at = getelementptr i64, {w} %block, i64 1
  store i64 %address, {w} %next_at ; a block behind itself is a list of its own
  %behind_at = getelementptr i64, {w} %before, i64 1
  %next_word = load i64, {w} %behind_at
  store i64 %before_address, {w} %block
  store i64 %next_word, {w} %next_at
  store i64 %address, {w} %behind_at
  %next = inttoptr i64 %next_word to {w}
  store i64 %address, {w} %next
  ret void
}}

define internal {w} @nrt.unlink({w} %block) {{
  %before_word = load i64, {w} %block
  %next_at = getelementptr i64, {w} %block, i64 1
  %next_word = load i64, {w} %next_at
  %before = inttoptr i64 %before_word to {w}
  %behind_at = getelementptr i64, {w} %before, i64 1
  store i64 %next_word, {w} %behind_at
  %next = inttoptr i64 %next_word to {w}
  store i64 %before_word, {w} %next
  ret {w} %before
}}

define {p} @NRT_Allocate({p} %live, i64 %size) {{
  %room = add i64 %size, 16
  %memory = call {p} @malloc(i64 %room)
  %is_null = icmp eq {p} %memory, null
  br i1 %is_null, label %none, label %link
link:
  %block = bitcast {p} %memory to {w}
  %list = bitcast {p} %live to {w}
  %is_alone = icmp eq {p} %live, null
  %before = select i1 %is_alone, {w} %block, {w} %list
  call void @nrt.link({w} %block, {w} %before)
  %data = getelementptr i8, {p} %memory, i64 16
  ret {p} %data
none:
  ret {p} null
}}

define void @NRT_Free({p} %data) {{
  %is_null = icmp eq {p} %data, null
  br i1 %is_null, label %done, label %unlink
unlink:
  %memory = getelementptr i8, {p} %data, i64 -16
  %block = bitcast {p} %memory to {w}
  %before = call {w} @nrt.unlink({w} %block)
  call void @free({p} %memory)
  br label %done
done:
  ret void
}}

; Give a block another size: null if memory has run out, and then the block stays as it is.
define internal {p} @nrt.resize({p} %data, i64 %size) {{
  %old = getelementptr i8, {p} %data, i64 -16
  %old_block = bitcast {p} %old to {w}
  %old_before = call {w} @nrt.unlink({w} %old_block)
  %room = add i64 %size, 16
  %new = call {p} @realloc({p} %old, i64 %room)
  %is_null = icmp eq {p} %new, null
  %kept = select i1 %is_null, {p} %old, {p} %new
  %block = bitcast {p} %kept to {w}
  %was_alone = icmp eq {w} %old_before, %old_block
  %before = select i1 %was_alone, {w} %block, {w} %old_before
  call void @nrt.link({w} %block, {w} %before)
  %moved = getelementptr i8, {p} %kept, i64 16
  %result = select i1 %is_null, {p} null, {p} %moved
  ret {p} %result
}}

define void @nrt.begin({p} %live) {{
  %list = bitcast {p} %live to {w}
  call void @nrt.link({w} %list, {w} %list)
  %objects = getelementptr i64, {w} %list, i64 2
  call void @nrt.link({w} %objects, {w} %objects)
  ret void
}}

; Objects such as dictionaries hold memory that is in no list, so they end first. Each keeps a reference more than there are,
; since another object that ends later may give one back.
define void @nrt.end({p} %live) {{
  %list = bitcast {p} %live to {w}
  %left_at = getelementptr i64, {w} %list, i64 1
  %objects = getelementptr i64, {w} %list, i64 2
  %object_at = getelementptr i64, {w} %list, i64 3
  %objects_word = ptrtoint {w} %objects to i64
  %list_word = ptrtoint {p} %live to i64
  br label %next
next:
  %object_word = load i64, {w} %object_at
  %has_object = icmp ne i64 %object_word, %objects_word
  br i1 %has_object, label %end, label %rest
end:
  %object = inttoptr i64 %object_word to {w}
  %before = call {w} @nrt.unlink({w} %object)
  call void @nrt.link({w} %object, {w} %list)
  %counted = getelementptr i64, {w} %object, i64 2
  %references = atomicrmw add {w} %counted, i64 1 seq_cst
  %ended = bitcast {w} %counted to {p}
  call void @nrt.end_object({p} %ended)
  br label %next
rest:
  %left_word = load i64, {w} %left_at
  %has_left = icmp ne i64 %left_word, %list_word
  br i1 %has_left, label %free, label %done
free:
  %left = inttoptr i64 %left_word to {w}
  %data_words = getelementptr i64, {w} %left, i64 2
  %data = bitcast {w} %data_words to {p}
  call void @NRT_Free({p} %data)
  br label %rest
done:
  ret void
}}

; A counted object is six words: the number of references, the function that ends it and what that gets, the address of the
; data, their size, and a word that is not used here. `more` is the room for data behind them, with `unused` for alignment.
define internal {p} @nrt.new({p} %live, i64 %more, i64 %data, i64 %size, i64 %unused, i64 %end) {{
  %room = add i64 %more, 48
  %memory = call {p} @NRT_Allocate({p} %live, i64 %room)
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

define {p} @NRT_MemInfo_alloc({p} %live, i64 %size) {{
  %made = call {p} @nrt.new({p} %live, i64 %size, i64 0, i64 %size, i64 0, i64 0)
  ret {p} %made
}}

define {p} @NRT_MemInfo_alloc_aligned({p} %live, i64 %size, i32 %align) {{
  %wide = zext i32 %align to i64
  %unused = sub i64 %wide, 1
  %more = add i64 %size, %unused
  %made = call {p} @nrt.new({p} %live, i64 %more, i64 0, i64 %size, i64 %unused, i64 0)
  ret {p} %made
}}

define {p} @NRT_MemInfo_alloc_dtor({p} %live, i64 %size, {p} %end) {{
  %address = ptrtoint {p} %end to i64
  %others = getelementptr i8, {p} %live, i64 16
  %is_alone = icmp eq {p} %live, null
  %objects = select i1 %is_alone, {p} null, {p} %others
  %made = call {p} @nrt.new({p} %objects, i64 %size, i64 0, i64 %size, i64 0, i64 %address)
  ret {p} %made
}}

define internal void @nrt.end_object({p} %counted) {{
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
  ret void
}}

define void @NRT_MemInfo_call_dtor({p} %counted) {{
  call void @nrt.end_object({p} %counted)
  call void @NRT_Free({p} %counted)
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
  call void @NRT_Free({p} %data)
  ret void
}}

define {p} @NRT_MemInfo_new_varsize_dtor({p} %live, i64 %size, {p} %each) {{
  %data = call {p} @NRT_Allocate({p} %live, i64 %size)
  %is_null = icmp eq {p} %data, null
  br i1 %is_null, label %none, label %make
make:
  %address = ptrtoint {p} %data to i64
  %end = ptrtoint {end} @nrt.end_varsize to i64
  %made = call {p} @nrt.new({p} %live, i64 0, i64 %address, i64 %size, i64 0, i64 %end)
  %is_made = icmp ne {p} %made, null
  br i1 %is_made, label %fill, label %drop
fill:
  %words = bitcast {p} %made to {w}
  %info_at = getelementptr i64, {w} %words, i64 2
  %info = ptrtoint {p} %each to i64
  store i64 %info, {w} %info_at
  ret {p} %made
drop:
  call void @NRT_Free({p} %data)
  br label %none
none:
  ret {p} null
}}

define {p} @NRT_MemInfo_new_varsize({p} %live, i64 %size) {{
  %made = call {p} @NRT_MemInfo_new_varsize_dtor({p} %live, i64 %size, {p} null)
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

define {p} @NRT_MemInfo_varsize_alloc({p} %live, {p} %counted, i64 %size) {{
  %data = call {p} @NRT_Allocate({p} %live, i64 %size)
  %kept = call {p} @nrt.keep({p} %counted, {p} %data, i64 %size)
  ret {p} %kept
}}

define {p} @NRT_MemInfo_varsize_realloc({p} %counted, i64 %size) {{
  %words = bitcast {p} %counted to {w}
  %data_at = getelementptr i64, {w} %words, i64 3
  %old_word = load i64, {w} %data_at
  %old = inttoptr i64 %old_word to {p}
  %data = call {p} @nrt.resize({p} %old, i64 %size)
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
  call void @NRT_Free({p} %memory)
  ret void
}}
"""

_TYPES = _TYPED if llvm.llvm_version_info[0] < 16 else dict.fromkeys(_TYPED, "ptr")

MODULE, COUNTING = _TEXT.format_map(_TYPES), "declare i8 @nrt.sub({p}, i64, i32)".format_map(_TYPES)
"""The module of numba's functions, and the declaration of the one that `user_code` calls."""

ALLOCATING = tuple(re.findall(r"define \S+ @(NRT_\w+)\(\S+ %live", MODULE))
"""The names of the functions that get the lists."""

POINTER = _TYPES["p"]

"""Constants that Python shares with the compiled callbacks of sessions."""

from __future__ import annotations

NAME, INPUTS, OUTPUTS, CREATE, INFER, API, PROCESS, TEXT, TENSORS = range(26, 35)
"""Indices of 8-byte words that follow OrtCustomOp in an operator's table (`ortops.engine.c_api`).

NAME, TEXT: addresses of C strings, the operator's name and the prefix of messages about exceptions. INPUTS, OUTPUTS: their
numbers. CREATE, INFER: addresses of Python functions, or 0. API: the address of OrtApi. PROCESS: the address of the words
ACTIVE and ENDING. From TENSORS on: the element type of each input, then of each output, and its presence:
0 if it is required, 1 if it is optional, 2 if it is variadic.
"""

ACTIVE, ENDING = range(2)
"""Indices of words for the whole process: the number of callbacks that run, and the thread that finalizes Python, or 0."""

FAIL = 1
"""OrtErrorCode's ORT_FAIL."""

ALLOCATOR_INFO = 12
"""The index of the word with the address of an OrtMemoryInfo, behind all functions of an OrtAllocator."""

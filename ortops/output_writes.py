"""What the code of a compiled function says about its outputs: whether it may write to one, and whether it fills all of one.

Bytecode, which every function has, shows what a function binds to a name. The rest takes the source, if there is one.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

_METADATA = frozenset({"shape", "size", "ndim", "dtype", "strides", "itemsize", "nbytes"})
"""The attributes of an array that show none of its elements."""

_WRITING_METHODS = frozenset({"fill", "itemset", "partition", "put", "sort"})

_READING_FUNCTIONS = frozenset({"bool", "float", "int", "len", "range", "sum"})

_READING_NODES = (
    *(ast.Assert, ast.AugAssign, ast.BinOp, ast.Compare, ast.Expr, ast.If, ast.Return, ast.Slice, ast.Subscript),
    *(ast.UnaryOp, ast.While),
)
"""The nodes of a syntax tree that only read an array which is a part of them; a subscript, an array in the index."""


def check_is_written(function: Callable[..., Any], label: str, output: str, rank: int) -> None:
    """Check that a function may write to an output, and gives the output's name to nothing else.

    Args:
        function: the function, with the output among its parameters.
        label: the operator's name in errors.
        output: the name of the output.
        rank: the number of its axes.

    Raises:
        ValueError: the function binds or deletes the name, or it only reads the output.
    """
    code = function.__code__
    remedy = f"must write into the array that it gets, as {output}[{':' if rank else '()'}] = ... does"
    for line in _bindings(code, output):
        raise ValueError(f"{label}: line {line} of {code.co_filename} rebinds the output's name {output!r}: {remedy}")
    tree = _tree(code)
    if tree and output in code.co_varnames and not _may_write(tree, output):
        where = f"which begins in line {code.co_firstlineno} of {code.co_filename}"
        raise ValueError(f"{label}: its function, {where}, never writes to the output {output!r}: {remedy}")


def _bindings(code: CodeType, name: str) -> Iterator[int]:
    """The lines that bind or delete a variable. Operators such as += are left out, since they keep an array."""
    before, lines, comprehensions = "", list(code.co_lines()), []
    for step in dis.get_instructions(code):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        positions = getattr(step, "positions", None)  # from Python 3.11 on
        if step.opname == "LOAD_FAST_AND_CLEAR" and name in names:
            comprehensions.append(positions)  # whose variable has the name; from Python 3.12 on it is in the same code
        bound = names if step.opname == "STORE_FAST_STORE_FAST" else names[:1]
        is_bound = step.opname.startswith(_BINDING) and name in bound
        is_in_place = before.startswith("INPLACE_") or before.endswith("=")
        if is_bound and not is_in_place and not any(_is_within(positions, each) for each in comprehensions):
            # What the compiler adds, at the end of "except ... as", may have no line.
            yield from (line for first, last, line in lines if first <= step.offset < last and line)
        if step.opname != "EXTENDED_ARG":
            before = step.argrepr if step.opname == "BINARY_OP" else step.opname
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and name in inner.co_freevars:
            yield from _bindings(inner, name)


_BINDING = ("STORE_FAST", "STORE_DEREF", "DELETE_FAST", "DELETE_DEREF")


def _is_within(inner: Any, outer: Any) -> bool:
    """Whether a range of the source is a part of another one."""
    return None not in (*inner, *outer) and outer[::2] <= inner[::2] and inner[1::2] <= outer[1::2]


@functools.lru_cache(1)  # a function may have several outputs
def _tree(code: CodeType) -> ast.FunctionDef | None:
    """The syntax tree of a function; None if its source is not known."""
    with contextlib.suppress(OSError, SyntaxError):
        for node in ast.parse(textwrap.dedent(inspect.getsource(code))).body:
            if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
                return node
    return None


def _may_write(tree: ast.FunctionDef, name: str) -> bool:
    """Whether some use of an array, or of another name of it or of a part, may write to it."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    names = [name]
    for current in names:  # which grows
        for node in (use for use in uses if use.id == current):
            is_augmented = isinstance(parents[node], ast.AugAssign)
            if isinstance(node.ctx, ast.Load) or is_augmented:
                targets = _names_of_part(node, parents)
                if targets is None:
                    return True
                names += sorted(targets - {*names})
    return False


def _names_of_part(use: ast.expr, parents: Mapping[ast.AST, Any]) -> set[str] | None:
    """The further names that a use of an array gives to it or to a part of it; None if the use may write to the array."""
    node, parent = use, parents[use]
    while node is getattr(parent, "func", None) or (
        isinstance(parent, ast.Attribute | ast.Subscript) and node is parent.value
    ):
        if isinstance(parent, ast.Attribute) and parent.attr in _METADATA:
            return set()
        if not isinstance(getattr(parent, "ctx", _LOAD), ast.Load) or getattr(parent, "attr", "") in _WRITING_METHODS:
            return None
        node, parent = parent, parents[parent]  # a view, or what a method returns
    if isinstance(parent, ast.Assign | ast.AnnAssign | ast.For | ast.comprehension):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        bound = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        return {name.id for name in bound if isinstance(name.ctx, ast.Store)}
    is_read = isinstance(parent, _READING_NODES) and node is not getattr(parent, "target", None)
    is_read_by = isinstance(parent, ast.Call) and getattr(parent.func, "id", "") in _READING_FUNCTIONS
    return set() if is_read or is_read_by else None


_LOAD = ast.Load()


def fills_all(function: Callable[..., Any], output: str) -> bool:
    """Whether the first thing that a function does with an output is to assign to all of it, on all paths."""
    code = function.__code__
    tree = _tree(code)
    if tree is None or not _is_source_of(tree, code):
        return False
    for statement in tree.body:
        parents = {child: node for node in ast.walk(statement) for child in ast.iter_child_nodes(node)}
        uses = [node for node in parents if isinstance(node, ast.Name) and node.id == output]
        uses = [node for node in uses if getattr(parents[node], "attr", "") not in _METADATA]
        match statement:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=index)]) if name == output:
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                return len(uses) == 1 and all(ast.unparse(part) in (":", "...") for part in parts)
        if uses or any(isinstance(node, ast.Return) for node in parents):
            return False
    return False


def _is_source_of(tree: ast.FunctionDef, code: CodeType) -> bool:
    """Whether a function's source still has the bytecode that runs, since a file may have changed."""
    tree.decorator_list = []
    whole = compile(ast.Module([tree], []), "", "exec", dont_inherit=True)
    return any(isinstance(part, CodeType) and part.co_code == code.co_code for part in whole.co_consts)

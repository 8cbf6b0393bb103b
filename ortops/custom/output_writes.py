"""What the code of a compiled function says about its outputs: whether it may write to one, and whether it fills all of one.

Bytecode, which every function has, shows what a function binds to a name. The rest takes the source, if there is one.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dis
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np

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


def fills_all(function: Callable[..., Any], output: str, axes: Mapping[str, _Axes]) -> bool:
    """Whether the first thing that a function does with an output is to assign to all of it, on all paths.

    Args:
        function: a function that `check_is_written` allows.
        output: the name of the output.
        axes: the axes of the arrays among the parameters, by name. Those of one name have one length.
    """
    code = function.__code__
    tree = _tree(code)
    if tree is None or not _is_source_of(tree, code):
        return False
    inner = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    outer = {name: value for name, value in {**vars(builtins), **function.__globals__}.items() if name not in inner}
    known: dict[str, _Axes] = {str(axis): (axis,) for found in axes.values() for axis in found if isinstance(axis, int)}
    for name, found in axes.items():
        if found and _is_bound_once(tree, name):
            known |= _texts(f"{name}.shape", found)
            known |= {f"len({name})": found[:1]} if outer.get("len") is len else {}
            known |= {f"{name}.size": found} if len(found) == 1 else {}
    return _Filling(tree, output, axes[output], outer).is_by(tree.body, known)


_Axes = tuple[int | str, ...]


def _texts(text: str, axes: _Axes) -> dict[str, _Axes]:
    """The axes whose lengths an expression gives, and those of its items, by their texts."""
    return {text: axes, **{f"{text}[{k}]": axes[k:][:1] for k in range(-len(axes), len(axes))}}


def _axes_of(parts: Sequence[ast.expr], known: Mapping[str, _Axes]) -> _Axes | None:
    """The axes whose lengths expressions give one after another; None if some are not known."""
    found = [known.get(ast.unparse(part).removeprefix("*")) for part in parts]
    return None if None in found else tuple(axis for axes in found for axis in axes or ())


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _is_bound_once(tree: ast.AST, name: str) -> bool:
    """Whether a part of a function binds a name in a single place; any mention but a load counts as one."""
    places = (node for node in ast.walk(tree) if not isinstance(getattr(node, "ctx", None), ast.Load))
    return sum(name in vars(node).values() for node in places) == 1


class _Filling:
    """The search in a function for what assigns to all of an output, which may be in loops along its axes."""

    def __init__(self, tree: ast.FunctionDef, output: str, axes: _Axes, outer: Mapping[str, Any]) -> None:
        self._tree, self._output, self._axes, self._outer = tree, output, axes, outer
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._length = [f"len({output})"] if outer.get("len") is len else []

    def is_by(
        self, body: Sequence[ast.stmt], known: Mapping[str, _Axes], names: tuple[str, ...] = (), axes: _Axes = ()
    ) -> bool:
        """Whether statements assign to all elements whose indices begin with names, before other uses of the output.

        The names are variables of the loops around, along axes. The axes whose lengths expressions give are known by text.
        """
        known, rest = {**known}, iter(body)
        for statement in rest:
            if uses := self._uses(statement):
                break
            if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                return False
            if isinstance(statement, ast.Assign) and (found := _axes_of(_items(statement.value), known)):
                bound = [ast.unparse(target) for target in _items(statement.targets[0])]
                parts = [found] if len(bound) == 1 else [(axis,) for axis in found]
                for name, part in zip(bound, parts, strict=False) if len(bound) == len(parts) else ():
                    known |= _texts(name, part) if _is_bound_once(self._tree, name) else {}
        else:
            return False
        later = [use for following in rest for use in self._uses(following)]
        if names and any(self._behind(use, names) is None for use in later):
            return False
        match statement:
            case ast.Assign(targets=targets) if len(uses) == 1:
                stored = [part for target in targets for part in _items(target)]
                behind = self._behind(uses[0], names) if self._parents[uses[0]] in stored else None
                return behind is not None and {*behind} <= {":", "..."} and axes == self._axes[: len(axes)]
            case ast.If(test=test):
                branches = statement.body, statement.orelse
                return not self._uses(test) and all(self.is_by(branch, known, names, axes) for branch in branches)
            case ast.For(target=target, iter=ast.Call(func=callee, args=arguments, keywords=[]), orelse=[]):
                root, *path = ast.unparse(callee).split(".")
                called = functools.reduce(lambda value, name: getattr(value, name, None), path, self._outer.get(root))
                found = _axes_of(_items(arguments[0]) if len(arguments) == 1 else arguments, known)
                variables = [ast.unparse(part) for part in _items(target)]
                return (
                    found is not None
                    and (called is np.ndindex or (called is range and len(found) == 1))
                    and all(name.isidentifier() and _is_bound_once(statement, name) for name in variables)
                    and not any(isinstance(node, _LEAVING) for node in ast.walk(statement))
                    and self.is_by(statement.body, known, (*names, *variables), (*axes, *found))
                )
        return False

    def _uses(self, part: ast.AST) -> list[ast.Name]:
        """Where a part of the function uses the elements of the output."""
        names = (node for node in ast.walk(part) if isinstance(node, ast.Name) and node.id == self._output)
        others = [node for node in names if getattr(self._parents[node], "attr", "") not in _METADATA]
        return [node for node in others if ast.unparse(self._parents[node]) not in self._length]

    def _behind(self, use: ast.Name, names: tuple[str, ...]) -> list[str] | None:
        """What comes behind names in the index of a use; None if the use has no index that begins with them."""
        parent = self._parents[use]
        if not isinstance(parent, ast.Subscript) or parent.value is not use:
            return None
        parts = [ast.unparse(part) for part in _items(parent.slice)]
        return parts[len(names) :] if (*parts[: len(names)],) == names else None


_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.FunctionDef, ast.Lambda, ast.GeneratorExp)
"""What may end an iteration, or use an array in a later one."""


def _is_source_of(tree: ast.FunctionDef, code: CodeType) -> bool:
    """Whether a function's source still is that of the bytecode that runs, since a file may have changed."""
    tree.decorator_list = []
    whole = compile(ast.Module([tree], []), "", "exec", dont_inherit=True)
    return any(isinstance(part, CodeType) and _content(part) == _content(code) for part in whole.co_consts)


def _content(code: CodeType) -> tuple[Any, ...]:
    """What bytecode does, wherever it is."""
    constants = [_content(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    names = code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars
    return code.co_code, getattr(code, "co_exceptiontable", b""), names, constants

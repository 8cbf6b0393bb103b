# SPDX-License-Identifier: MIT
"""Machine code of users' functions on disk, under the rules of `compiler.cache`, so that later processes do without numba.

A file's name has the digest of all that decides the code: the bytecode, and the values and functions that the bytecode
names, as they are now. Understood are plain values, functions of `numba.njit`, and what NumPy, numba and Python have under
their own names, whose versions count. A function that names anything else has no digest. Nor has any function while other
code extends numba (`numba.extending`), since any call, attribute or operator may then mean something else.

A function without a digest is compiled in each process, and the logger "ortops" says why at level INFO. So is one that calls
functions of numba, such as those of random numbers, which a process without numba lacks.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import hashlib
import importlib.util
import logging
import re
import sys
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ortops import exceptions
from ortops.compiler import cache, machine_code
from ortops.custom.arguments import UserCode
from ortops.custom.counted_memory import C_FUNCTIONS


def load(source: UserCode) -> int:
    """Load a function, compiled for this processor, from disk or from numba.

    Returns:
        The address of a C function ``entry(node, call)``, valid until the process ends.

    Raises:
        CompileError: numba cannot compile it, or its code calls the interpreter.
    """
    address: int = exceptions.run_shielded(lambda: machine_code.load(_code_of(source)))
    return address


def bitcode(source: UserCode) -> bytes:
    """The bitcode of a function for any processor, from disk or from numba; see `code.bitcode`."""
    return _code_of(source, cache.BITCODE)


def _code_of(source: UserCode, processor: tuple[str, ...] | None = None) -> bytes:
    """A function's code for this processor, or its `cache.BITCODE`: from disk, or compiled and then stored if it can be."""
    digest = Digest(source.function)
    code = cache.find(_name(source, digest), source.types, processor) if digest.value else None
    if code is None:
        from ortops.custom import code as user_code  # which imports numba

        called: list[str] = []
        if processor is None:
            code, called = user_code.object_code(source)
        else:
            code = user_code.bitcode(source)
        digest.note_compiled()
        again = Digest(source.function)  # numba has loaded its extensions, and another thread may have changed a value
        lacking = [name for name in called if name not in _C_FUNCTIONS]
        why = (
            digest.unknown or again.unknown or ", ".join(lacking) or ("" if digest.value == again.value else "a change")
        )
        if why:
            logging.getLogger("ortops").info("%s is compiled in each process: %s", source.operator, why)
        else:
            cache.save(_name(source, digest), source.types, code, processor)
            cache.remove_unused()
    return code


_C_FUNCTIONS = frozenset(name for names in C_FUNCTIONS.values() for name in names)


def _name(source: UserCode, digest: Digest) -> str:
    """The function's name in the cache, which begins alike for all versions (`cache.MAX_VERSIONS`)."""
    function = f"{source.operator} {source.function.__module__}.{source.function.__qualname__}"
    return f"user.{hashlib.sha256(function.encode()).hexdigest()[:16]}.{digest.value}"


class Digest:
    """A function's digest, in a process in which numba may have compiled some of the functions that it calls.

    Attributes:
        value: the digest; "" if there is none.
        unknown: why there is none.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.value = self.unknown = ""
        self._known: dict[Any, str] = {}
        self._kept: list[object] = []  # so that no other object gets the identity of a known one
        self._helpers: list[tuple[Any, str, set[Any]]] = []
        try:
            if extender := _extender():
                raise _UnknownError(f"{extender} extends numba")
            self.value = _joined([sys.version, np.__version__, *_settings(), self._function(function)])
        except _UnknownError as error:
            self.unknown = str(error)

    def note_compiled(self) -> None:
        """Note what numba has compiled since: of these functions as the digest has them, so that it need not count."""
        for dispatcher, digest, before in self._helpers:
            for types, overload in list(dispatcher.overloads.items()):
                if types not in before:
                    _compiled[overload.library] = digest

    def _function(self, function: Any) -> str:
        if id(function) not in self._known:
            self._kept.append(function)
            self._known[id(function)] = f"function {len(self._known)}"  # for functions that call themselves
            plain = function
            parts: list[str] = []
            if not isinstance(function, FunctionType):
                plain = function.py_func
                pipeline = function._compiler.pipeline_class  # noqa: SLF001 - where `numba.njit` keeps it
                options = {
                    **function.targetoptions,
                    "boundscheck": function.targetoptions.get("boundscheck") is not False,
                }
                given = options, function.locals, function._can_compile, pipeline  # noqa: SLF001
                parts += self._value(given, "the options of a function", set())
            digest = _joined([*parts, *self._plain(plain)])
            if plain is not function:
                self._helpers.append((function, digest, {*function.overloads}))
                digest = _joined([digest, *_compiled_before(function, digest)])
            self._known[id(function)] = digest
        return self._known[id(function)]

    def _plain(self, function: FunctionType) -> Iterator[str]:
        names: set[str] = set()
        yield from _code(function.__code__, names)
        self._kept.append(names)
        scope: ChainMap[str, Any] = ChainMap(function.__globals__, vars(builtins))
        for name in sorted(names & scope.keys()):
            yield name
            yield from self._value(scope[name], name, names)
        around = _closure(function)
        for name in function.__code__.co_freevars:
            if name not in around:
                raise _UnknownError(f"{name} has no value yet")
            yield name
            yield from self._value(around[name], name, names)
        yield from self._value((function.__defaults__, function.__kwdefaults__), "a default", names)

    def _value(self, value: Any, name: str, names: set[str]) -> Iterator[str]:
        """The digest's parts of a value: of a module, what it has under the names of the code that names the module."""
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str, bytes):
            yield repr((kind, value))
        elif kind in (tuple, list, dict, set, frozenset):
            items = [*value.items()] if kind is dict else [*value] if kind in (tuple, list) else sorted(value, key=repr)
            yield f"{kind} {len(items)}"
            for item in items:
                yield from self._value(item, name, names)
        elif (kind is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind in "biufc":
            yield repr((kind, value.dtype, value.shape, value.strides, value.flags.writeable))
            yield hashlib.sha256(value.tobytes()).hexdigest()
        elif (public := _public_name(value)) is not None:
            yield public
        elif kind is ModuleType and (_is_trusted(value.__name__) or "__getattr__" not in vars(value)):
            key = id(value), id(names)
            if key not in self._known:
                self._known[key] = value.__name__
                for inner in sorted(names & vars(value).keys()):
                    yield inner
                    yield from self._value(vars(value)[inner], f"{name}.{inner}", names)
            yield self._known[key]
        elif kind is FunctionType or (kind.__module__, kind.__name__) == ("numba.core.registry", "CPUDispatcher"):
            yield self._function(value)
        else:
            raise _UnknownError(f"{name} is a {kind.__module__}.{kind.__qualname__}")


class _UnknownError(Exception):
    """Something decides the code that a digest cannot tell."""


_compiled: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The digest of the function as numba compiled it, for each library of machine code."""


def _compiled_before(dispatcher: Any, digest: str) -> Iterator[str]:
    """The code of a function that numba compiled before, perhaps with other values than the function finds now."""
    for types, overload in list(dispatcher.overloads.items()):
        if _compiled.get(overload.library) != digest:
            if dispatcher.stats.cache_hits:
                raise _UnknownError(f"numba has read the code of {dispatcher.__qualname__} from its own cache")
            yield f"{overload.signature} {_without_numbers(dispatcher.inspect_llvm(types))}"


def _without_numbers(module: str) -> str:
    """The text of an LLVM module without what depends on the code that the process compiled before."""
    numbers: dict[str, int] = {}
    changing = r"_ZN\w+|(?<=pickledata\.)\d+|(?<=\[)\d+(?= x i8\] c\"missing Environment)"
    return re.sub(changing, lambda match: f"n{numbers.setdefault(match[0], len(numbers))}", module)


def _code(code: CodeType, names: set[str]) -> Iterator[str]:
    """The digest's parts of bytecode; adds the names in it to `names`."""
    names.update(code.co_names)
    yield code.co_code.hex() + getattr(code, "co_exceptiontable", b"").hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags))
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant, names)
        else:
            yield repr((type(constant), constant))


def _joined(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


def _is_trusted(module: object) -> bool:
    """Whether a module's content follows from the versions of NumPy, numba and Python."""
    return str(module).split(".")[0] in ("builtins", "math", "cmath", "numpy", "numba")


def _public_name(value: Any) -> str | None:
    """The name of a function, class or type of numba under which a trusted module has it; None if none does."""
    module, name = (
        getattr(value, "__module__", "numpy"),
        getattr(value, "__name__", ""),
    )  # ufuncs of NumPy 1 have no module
    if type(value).__module__.startswith("numba.core.types."):
        module, name = "numba.core.types", str(value)
    is_there = _is_trusted(module) and vars(sys.modules.get(module, builtins)).get(name) is value
    return f"{module}.{name}" if is_there else None


def _settings() -> Iterator[str]:
    """The options of numba from the working folder, and those that the process has changed; `cache` has the others."""
    content = ""
    with contextlib.suppress(OSError):
        content = Path(".numba_config.yaml").read_bytes().hex()
    yield content
    config = sys.modules.get("numba.core.config")
    if config is not None:
        for name, value in _settings_of(config, content, *cache.numba_options()).items():
            if repr(vars(config).get(name)) != value:
                yield f"{name} = {vars(config).get(name)!r}"


@functools.cache
def _settings_of(config: Any, *_given: object) -> dict[str, str]:
    """The options that numba has at its import, in the present folder and environment."""
    unchanged = importlib.util.module_from_spec(config.__spec__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba has warned of what it does not understand
        config.__spec__.loader.exec_module(unchanged)
    return {name: repr(value) for name, value in vars(unchanged).items() if name.isupper()}


def _extender() -> str:
    """A module outside numba and this package that extends numba; "" if there is none."""
    registries = [
        sys.modules[module].builtin_registry
        for module in ("numba.core.typing.templates", "numba.core.imputils")
        if module in sys.modules
    ]
    entries = sum(len(kind) for registry in registries for kind in vars(registry).values() if isinstance(kind, list))
    return _extender_among(entries) if entries else ""


@functools.cache  # it takes 0.1 s, and no entry is ever removed
def _extender_among(_entries: int) -> str:
    from numba.core import imputils
    from numba.core.typing import templates

    known = templates.builtin_registry
    of_globals = (template for _, value in known.globals for template in getattr(value, "templates", ()))
    defining = [*known.functions, *known.attributes, *of_globals]
    values = [value for template in defining for name, value in vars(template).items() if name != "key"]
    values += [
        entry[0] for kind in vars(imputils.builtin_registry).values() if isinstance(kind, list) for entry in kind
    ]
    plain = (value.__func__ if type(value) in (staticmethod, classmethod) else value for value in values)
    functions = [value for value in plain if type(value) is FunctionType]
    around = (value for function in functions if function.__closure__ for value in _closure(function).values())
    functions += [value for value in around if type(value) is FunctionType]
    names = {str(template.__module__) for template in defining}
    names |= {str(function.__globals__["__name__"]) for function in functions}
    return next((name for name in sorted(names) if name.split(".")[0] not in ("abc", "numba", "ortops")), "")


def _closure(function: FunctionType) -> dict[str, Any]:
    """The variables of functions around it that it uses, without those that have no value yet."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            values[name] = cell.cell_contents
    return values

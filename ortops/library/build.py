# SPDX-License-Identifier: MIT
"""Builds a library for hosts without Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ortops import atomic_file
from ortops.custom.compiled import CompiledOperator
from ortops.custom.operator import CustomOperator, as_operators, check_domain
from ortops.extras import compiling
from ortops.library.targets import FLOAT_TYPES, STANDARD_OPSETS, TARGETS, this_machine
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import DOMAIN, Operator


def build_library(
    out: str | os.PathLike[str],
    operators: CustomOperator | Iterable[str | CustomOperator] | None = None,
    types: Iterable[str] | None = None,
    *,
    target: str | None = None,
    cpu: str | None = None,
    standard: int | None = None,
    domain: str = DOMAIN,
) -> list[str]:
    """Write a shared library of operators, which ONNX Runtime loads without Python.

    Its functions are RegisterCustomOps, which adds all `operators`, and RegisterOnnx10, RegisterOnnx16 and RegisterOnnx22
    if some are ONNX's; docs/library.md tells how hosts call them. What is compiled is kept on disk; the first
    library takes a minute.

    Args:
        out: the file to write.
        operators: names of operators of this package, and operators that `ortops.operator` made with `compiled`; None for
            all of this package.
        types: element types, out of "float16", "bfloat16", "float" and "double"; None for all.
        target: the platform, such as "aarch64-linux"; None for this machine. Another one needs the extra `library`.
        cpu: LLVM's name of the only processor to compile for, such as "znver5". With None, a library for x86-64 has code for
            x86-64-v3 and for x86-64-v4, and takes what the processor can run.
        standard: the opset, 10, 16 or 22, whose definitions of ONNX's own operators RegisterCustomOps puts in the place of
            those of ONNX Runtime; None if it adds the operators of this project's domain.
        domain: the name that this project's domain gets, for a host that also registers onnxruntime-extensions' library,
            which has a domain of the same name.

    Returns:
        The names of the library's functions, one of which a host calls.

    Raises:
        ValueError: an operator, type, target, processor or opset is unknown, two operators have one domain and name, or the
            processor lacks instructions for fused multiply-add or for float16.
        TypeError: `operators` or `types` is a string, or an operator is not compiled.
        ortops.OperatorError: numba cannot compile an operator, or its code needs what a library does not have.
        RuntimeError: there is nothing to link with, or it fails.
        ModuleNotFoundError: the extra `compile` is not installed.
        OSError: the file cannot be written.
    """
    target = this_machine() if target is None else target
    if target not in TARGETS:
        raise ValueError(f"target = {target!r}: must be one of {', '.join(TARGETS)}")
    if standard not in (None, *STANDARD_OPSETS):
        raise ValueError(f"standard = {standard!r}: must be one of {', '.join(map(str, STANDARD_OPSETS))}")
    check_domain(domain)
    chosen, users = _chosen(operators)
    types = _checked_types([*chosen, *users], types)
    with compiling():
        from ortops.library.content import exports_of, library_with

        exports = exports_of(chosen, types, standard, users, domain)
        atomic_file.check(Path(out))
        atomic_file.write(Path(out), library_with(exports, target, cpu))  # a process may have loaded the old one
    return [export.name for export in exports if export.function]


def _chosen(
    operators: CustomOperator | Iterable[str | CustomOperator] | None,
) -> tuple[Sequence[Operator], list[CompiledOperator]]:
    """The operators of this package and those of users.

    Raises:
        ValueError: a name is unknown, or an operator is there twice.
        TypeError: one string is given, or what is no operator, or one that is not compiled.
    """
    if operators is None:
        return OPERATORS, []
    _check_list("operators", operators)
    chosen, users = list[Operator](), list[CompiledOperator]()
    for operator in as_operators(operators):
        if isinstance(operator, CompiledOperator):
            users.append(operator)
        elif isinstance(operator, CustomOperator):
            raise TypeError(f"operators has {operator.label}, which needs Python: must be made with compiled = True")
        elif isinstance(operator, str):
            chosen.append(BY_NAME[_allowed("operators", operator, BY_NAME)])
        else:
            raise TypeError(f"operators has {operator!r}: must be names, and operators that ortops.operator made")
    labels = [operator.label for operator in (*chosen, *users)]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"operators has {label} {labels.count(label)} times: must have it once")
    return chosen, users


def _checked_types(operators: Iterable[Operator], types: Iterable[str] | None) -> Sequence[str]:
    """The element types to compile for; all for None.

    Raises:
        ValueError: a type is unknown, or no operator has it.
        TypeError: the argument is a string.
    """
    if types is None:
        return FLOAT_TYPES
    _check_list("types", types)
    tensors = ((operator, tensor) for operator in operators for tensor in (*operator.inputs, *operator.outputs))
    allowed = {kind for operator, tensor in tensors for kind in operator.element_types(tensor) if kind in FLOAT_TYPES}
    return [_allowed("types", kind, allowed, ", the types of these operators") for kind in types]


def _check_list(argument: str, given: object) -> None:
    if isinstance(given, str):
        raise TypeError(f"{argument} = {given!r}: must be a list of names")


def _allowed(argument: str, name: str, allowed: Iterable[str], of_what: str = "") -> str:
    """A name in an argument. Raise ValueError if it is not allowed."""
    if name not in allowed:
        raise ValueError(f"{argument} has {name!r}: must be among {', '.join(sorted(allowed))}{of_what}")
    return name

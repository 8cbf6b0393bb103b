# SPDX-License-Identifier: MIT
"""Runs an operator on arrays: checks the shapes, allocates the outputs and calls the kernel, for sessions and functions."""

from __future__ import annotations

import functools
import marshal
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ortops.memory import keep_forever
from ortops.runtime import library
from ortops.spec import Allocate, AttributeValue, Operator

if TYPE_CHECKING:
    from ortops.node import Node


class Bound:
    """Computes a node's outputs with compiled code.

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
    """

    def __init__(self, operator: Operator, attributes: Mapping[str, AttributeValue]) -> None:
        self._operator, self.attributes = operator, attributes
        self._nodes: dict[Any, Node] = {}

    def node(self, dtype: Any) -> Node:
        """The node for the first input's NumPy type."""
        node = self._nodes.get(dtype)
        if node is None:
            from ortops.node import node_of  # here, so that `import ortops` stays fast

            node = self._nodes[dtype] = node_of(self._operator, self.attributes, dtype)
        return node

    def __call__(self, inputs: Sequence[Any], allocate: Allocate, runner: tuple[int, int] | None) -> None:
        """Compute the outputs.

        Args:
            inputs: an array for each input in the operator's order, None for an absent input. Arrays are C-contiguous and
                aligned, and the operator allows their element types. Other threads may write to their elements.
            allocate: called once for each output.
            runner: runs the kernel's tasks (`runner_on`); None for threads on all CPUs.

        Raises:
            ValueError: shapes disagree, the data breaks a rule of the operator, or a gradient operator has no output or
                lacks an input that its outputs need.
            MemoryError: memory ran out.
        """
        dtype = inputs[0].dtype
        node = self._nodes.get(dtype) or self.node(dtype)
        node.run(inputs, allocate, runner or runner_on_all_cpus())


Binds: TypeAlias = Callable[[Operator, Mapping[str, AttributeValue]], Bound]
"""Makes an object that computes a node, from its checked attributes."""


def bind_unchecked(operator: Operator, attributes: Mapping[str, object], binds: Binds = Bound) -> Bound:
    """As `Bound`, but check the attributes, only once for the same numbers, strings, and lists and tuples of numbers.

    Args:
        operator: the definition.
        attributes: the attributes.
        binds: makes the result.

    Raises:
        TypeError, ValueError: as `Operator.check_attributes`.
    """
    values: tuple[Any, ...] = tuple(attributes.values())
    if not _PLAIN.issuperset(map(type, values)):
        values = tuple(list(value) if type(value) is list else value for value in values)  # which nobody changes
        if not all(type(value) in _PLAIN or _has_numbers(value) for value in values):
            return binds(operator, operator.check_attributes(attributes))
    # Bytes distinguish 1.0 from 1 and -0.0 from 0.0.
    return _bound(binds, operator, tuple(attributes), marshal.dumps(values, 2))


_PLAIN, _NUMBERS = frozenset((int, float, str)), frozenset((int, float))


def _has_numbers(value: Any) -> bool:
    return type(value) in (list, tuple) and _NUMBERS.issuperset(map(type, value))


@functools.lru_cache(maxsize=256)
def _bound(binds: Binds, operator: Operator, names: tuple[str, ...], values: bytes) -> Bound:
    given = dict(zip(names, marshal.loads(values), strict=True))  # noqa: S302 - our own bytes
    return binds(operator, operator.check_attributes(given))


@functools.cache
def runner_on(threads: int) -> tuple[int, int]:
    """A runner with a number of threads for a call outside a session. Kernels do small work on one thread.

    A runner is a pair: the address of a C function with the signature of OrtApi's KernelContext_ParallelFor,

        void* runner(void* context, void (*task)(void* data, size_t index), size_t count, size_t batches, void* data)

    and its context. (0, 0) means a loop on the calling thread.
    """
    if threads < 2:
        return 0, 0
    context = np.array([threads], np.int64)
    keep_forever(context)
    return library().interface.run_on_threads, context.ctypes.data


def runner_on_all_cpus() -> tuple[int, int]:
    """A runner with a thread for each CPU."""
    return runner_on(available_cpus())


def available_cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# SPDX-License-Identifier: MIT
"""Registers an operator's derivatives in reverse and forward mode, also for the transforms of ``torch.func``.

``torch.library.register_autograd`` has no forward mode: PyTorch would silently drop tangents and refuse the transforms of
``torch.func``. So this module registers a ``torch.autograd`` function with a ``jvp``, as PyTorch does for each level of the
transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

Backward = Callable[..., tuple[Any, ...]]
"""Takes the context and the outputs' gradients, each of which may be None; returns the tensors' gradients."""

Jvp = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]
"""Takes the tensors, the other arguments, and a tangent or None for each tensor; returns the output's tangent."""


def differentiate(
    library: torch.library.Library,
    name: str,
    backward: Backward,
    jvp: Jvp,
    is_kept: Callable[[int, Sequence[bool]], bool],
) -> None:
    """Register the derivatives of an operator whose first arguments are tensors.

    The context of `backward` has ``saved_tensors``, with None for tensors that are not kept; ``shapes``, of all tensors; and
    ``options``, the other arguments.

    Args:
        library: the library that has the operator.
        name: the operator's name.
        backward: computes the derivatives in reverse mode.
        jvp: computes the derivatives in forward mode. The tensors do not carry tangents of the current forward level.
        is_kept: takes a tensor's number and the context's ``needs_input_grad``; returns whether `backward` reads the tensor.
    """
    operator = getattr(torch.ops.ortops, name).default
    count = sum(isinstance(argument.type, torch.TensorType) for argument in operator._schema.arguments)  # noqa: SLF001

    def without_derivatives(*inputs: Any) -> Any:
        *arguments, keys = inputs
        with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)  # noqa: SLF001

    def forward(*inputs: Any) -> Any:
        if not torch._C._are_functorch_transforms_active():  # noqa: SLF001
            return without_derivatives(*inputs)
        # Outer transforms also differentiate, but a function's forward switches gradients off: switch them on again.
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):  # noqa: SLF001
            return without_derivatives(*inputs)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG001
        tensors, ctx.options = inputs[:count], inputs[count:-1]
        ctx.shapes = [x.shape for x in tensors]
        ctx.set_materialize_grads(False)
        ctx.save_for_forward(*tensors)
        ctx.save_for_backward(*(x if is_kept(i, ctx.needs_input_grad) else None for i, x in enumerate(tensors)))

    def reverse(ctx: Any, *grads: Any) -> Any:
        gradients = (None,) * count if all(grad is None for grad in grads) else backward(ctx, *grads)
        return *gradients, *[None] * (len(ctx.options) + 1)

    def tangents_of(ctx: Any, *tangents: Any) -> Any:
        tensors = [forward_ad.unpack_dual(x).primal for x in ctx.saved_tensors]
        return jvp(tensors, ctx.options, tangents[:count])

    methods = {"forward": forward, "setup_context": setup, "backward": reverse, "jvp": tangents_of}
    function: Any = type(
        f"ortops_{name}",
        (torch.autograd.function._SingleLevelFunction,),  # noqa: SLF001
        {key: staticmethod(method) for key, method in methods.items()},
    )

    def apply(keys: Any, *arguments: Any) -> Any:
        if torch._C._are_functorch_transforms_active():  # noqa: SLF001
            with enable_single_level_autograd_function():
                return function.apply(*arguments, keys)
        # Measured: without this, a call without derivatives takes a quarter longer.
        forward_mode = forward_ad._current_level >= 0  # noqa: SLF001
        reverse_mode = torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments[:count])  # noqa: SLF001
        return (function.apply if forward_mode or reverse_mode else without_derivatives)(*arguments, keys)

    library.impl(name, apply, "Autograd", with_keyset=True)

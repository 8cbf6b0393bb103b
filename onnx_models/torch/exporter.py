# SPDX-License-Identifier: MIT
"""Export of a PyTorch module and its loss as one ONNX model with gradients.

Only the forward pass and the loss are exported; then the ONNX graph is differentiated. So PyTorch's backward operators need
no translation.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir
import torch
from onnx_ir import tensor_adapters
from torch.utils import _pytree as pytree

from onnx_models.convert import convert
from onnx_models.gradient import gradient
from onnx_models.gradient.ours import Operator
from onnx_models.gradient.tied import APART
from onnx_models.tools.schema import schemas_of
from onnx_models.torch.capture import capture, check_hooks, simplify
from onnx_models.torch.comparison import check_forward
from onnx_models.torch.custom_gradients import remove_markers, without_surrogates

LOSS = "loss"
_OUTPUT = "output"
_OLDEST_OPSET = 18
"""The opset that PyTorch's exporter writes before it converts; also the oldest one that `gradient` adds nodes of."""

_LARGEST = 2**31

Loss = Callable[..., Any]
DynamicShapes = Mapping[str, Mapping[int, Any]]
Translations = Mapping[Any, Callable[..., Any]]


def export(
    module: Any,
    args: Sequence[Any],
    *,
    loss: Loss | None = None,
    targets: Sequence[Any] = (),
    wrt: str | Sequence[str] = "parameters",
    dynamic_shapes: DynamicShapes | None = None,
    opset_version: int = 18,
    standard: bool = True,
    through_rois: bool = False,
    parameters_as_inputs: bool = False,
    check: bool = True,
    custom_translation_table: Translations | None = None,
    operators: Iterable[Operator] = (),
    path: str | os.PathLike[str] | None = None,
) -> onnx.ModelProto:
    """Export a module, its loss and the gradients of the loss as one ONNX model: a training step without the update.

    ``torch.onnx.export`` writes ``loss(module(*args), *targets)``, and `onnx_models.gradient` differentiates that graph,
    without ``torch.autograd``. See there for where the model runs. As in PyTorch, detached tensors and ``torch.no_grad`` end
    a gradient. Losses and functions that PyTorch differentiates by a special formula have PyTorch's gradient
    where they saturate, at 0 and at ties.

    In training mode (``module.train()``) batch normalization uses the batch's mean and variance, and the new values of all
    buffers that the module changes are outputs. Dropout draws a new mask in each run, the same for output and gradient.

    Args:
        module: a ``torch.nn.Module``; exported in its current mode, not modified.
        args: example arguments of the module: tensors, or lists, tuples and dicts of these; other values become constants
            of the model. Lengths of dynamic axes should differ from each other and from 0 and 1: ``torch.export`` makes
            equal lengths one symbol, and treats 0 and 1 as fixed.
        loss: called with the module's result and with `targets`; returns a tensor of one element. None if the module
            itself returns the loss.
        targets: further example arguments for the loss.
        wrt: names of floating-point parameters, buffers and inputs; "parameters" for all parameters that require a
            gradient.
        dynamic_shapes: by input name, the dynamic axes: the name of each axis by its index, or a ``torch.export.Dim`` to
            limit its length.
        opset_version: ONNX opset, 18 or later.
        standard: False for this project's RoiAlign instead of ONNX's own, for which ONNX Runtime's CPU has no kernel from
            opset 22 on.
        through_rois: whether torchvision's RoiAlign passes a gradient to the coordinates of its RoIs. In torchvision it does
            not; `ortops.torch.roi_align` always does.
        parameters_as_inputs: whether parameters, and buffers that the module changes, are inputs too, so that a session can
            be fed with new values in each step; the values at export are the defaults.
        check: whether to compare the exported forward pass with the module's own on the example arguments, in ONNX
            Runtime. Outputs that depend on random numbers are not compared. A difference relative to the largest element
            of an output may be 2.4e-5 in float32, 1e-2 in float16, 4e-2 in bfloat16 and 4e-11 in float64; or 16 times that
            of the module's own output from its output in float64, if that is more.
        custom_translation_table: translations of operators of PyTorch, such as ``torch.ops.mine.twice.default`` of
            ``torch.library``, as ``torch.onnx.export`` takes them. They replace those of PyTorch and of this package. The
            gradient is that of the ONNX nodes, and not that of ``torch.library.register_autograd``.
        operators: operators of `ortops.operator` that translations return nodes of, and their gradients.
        path: a file to write the model to as well.

    Returns:
        The model. Its inputs have the names of the arguments of ``module.forward``, then those of the loss after its first
        argument; a tensor in a container is NAME_KEY. Its initializers are named as in ``module.named_parameters()`` and
        ``named_buffers()``. Its outputs are those of the module (``output``, or ``output_KEY`` for each of several; none if
        `loss` is None), ``loss``, NAME_updated for each buffer that the module changes, and NAME_grad for each name in
        `wrt`, with the shape and type of NAME. If the loss does not depend on NAME, NAME_grad is 0 and a ZeroGradientWarning
        is issued.

    Raises:
        TypeError: args or targets is not a sequence, the loss is not a floating-point tensor, or a key of
            custom_translation_table is an operator without its overload.
        ValueError: the exported forward pass does not run or differs from the module's; the message names the output, the
            largest difference and its bound. Or opset_version is too old, the loss has more than one element, a name in wrt
            or dynamic_shapes is unknown, two tensors would have one name, or an operator cannot be differentiated; the
            message names it. Or the module has a ``torch.autograd.Function``, backward hooks, an Embedding with max_norm, an
            InstanceNorm that updates statistics, a margin loss of several classes, a scatter_reduce of means or of extremes
            without self, a loss that changes buffers, or 2 GiB or more of parameters and buffers, which exceeds a
            ModelProto.
        Others: whatever ``torch.export.export`` and ``torch.onnx.export`` raise if they cannot export the module, such as
            for a branch on values of tensors, or an operator without a translation.

    Source: PyTorch 2.13, ``torch.export.export`` and ``torch.onnx.export(dynamo=True)``.
    """
    if opset_version < _OLDEST_OPSET:
        raise ValueError(f"opset_version = {opset_version}: must be {_OLDEST_OPSET} or later")
    inputs = _inputs(module, args, loss, targets)
    tensors = _tensors(module)
    chosen = _chosen(wrt, module, tensors, inputs)
    _check_dynamic_shapes(dynamic_shapes or {}, inputs)
    whole = _WithLoss(module, loss, args, targets)
    check_hooks(dict(whole.named_modules()), {**dict(whole.named_parameters()), **tensors, **inputs})
    _check_size(whole)
    with schemas_of(operators):
        program = capture(
            *(whole, inputs, dynamic_shapes or {}, opset_version, custom_translation_table or {}),
            through_rois=through_rois,
        )
        _use_first_names(program, whole)
        structure = program.exported_program.call_spec.out_spec
        outputs = list(pytree.tree_unflatten(range(structure.num_leaves), structure))
        changed = [name for name in tensors if _updated(name) in outputs]
        _check_changed(program, whole, changed)
        kept = list(dict.fromkeys([*_parameters(module), *(name for name in chosen if name in tensors), *changed]))
        stops, custom = _name(program, inputs, outputs, tensors, kept, chosen)
        model = _without_metadata(program.model_proto)
        for name in kept:
            _ensure_initializer(model, name, tensors[name])
        for tensor in model.graph.initializer:
            if tensor.name in kept:
                tensor.metadata_props.add(key=APART, value="1")
        if parameters_as_inputs:
            _expose_as_inputs(model, [*_parameters(module), *changed])
        model = without_surrogates(
            gradient(model if standard else convert(model), LOSS, chosen, stop_at=stops), custom, kept
        )
        if check:
            check_forward(model, whole, inputs, outputs)
    if path is not None:
        onnx.save(model, os.fspath(path))
    return model


class _WithLoss(torch.nn.Module):  # type: ignore[misc]
    """A module and its loss as a function of all tensor arguments, which returns a dict of all outputs."""

    def __init__(self, module: Any, loss: Loss | None, args: Sequence[Any], targets: Sequence[Any]) -> None:
        super().__init__()
        self.module, self.loss = module, loss
        leaves, self.structure = pytree.tree_flatten((tuple(args), tuple(targets)))
        self.constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: Any) -> dict[str, Any]:
        leaves = list(self.constants)
        for i, tensor in zip(self.places, tensors, strict=True):
            leaves[i] = tensor
        args, targets = pytree.tree_unflatten(leaves, self.structure)
        before = _versions(self.module)
        result = self.module(*args)
        updated = {
            _updated(name): self.module.get_buffer(name).clone()
            for name, version in _versions(self.module).items()
            if before.get(name) != version
        }
        if self.loss is None:
            return {LOSS: _checked_loss(result), **updated}
        named = _named_tensors(_OUTPUT, result)
        for name in (LOSS, *updated):
            if name in named:
                raise ValueError(f"the module returns a tensor that would be named {name!r}: must have another name")
        return {**named, LOSS: _checked_loss(self.loss(result, *targets)), **updated}


def _versions(module: Any) -> dict[str, tuple[int, int]]:
    """For the name of each buffer, a value that changes if the buffer is replaced or modified in place."""
    return {name: (id(buffer), buffer._version) for name, buffer in module.named_buffers()}  # noqa: SLF001


def _updated(buffer: str) -> str:
    return f"{buffer}_updated"


def _checked_loss(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise TypeError(f"the loss is of type {kind}: must be a floating-point tensor")
    if any(length != 1 for length in value.shape):
        raise ValueError(f"the loss has shape {tuple(value.shape)}: must have one element")
    return value


def _named_tensors(base: str, tree: Any) -> dict[str, Any]:
    """All tensors in nested lists, tuples and dicts, by the name `base` and the keys that lead to them."""
    named: dict[str, Any] = {}
    for keys, leaf in pytree.tree_flatten_with_path(tree)[0]:
        name = "_".join([base, *(str(_plain(key)) for key in keys)])
        if isinstance(leaf, torch.Tensor):
            if name in named:
                raise ValueError(f"two tensors have the name {name!r}: must be different")
            named[name] = leaf
    return named


def _plain(key: Any) -> Any:
    """The key, index or attribute name of an entry of a pytree path."""
    return next((getattr(key, field) for field in ("key", "idx", "name") if hasattr(key, field)), key)


def _inputs(module: Any, args: Sequence[Any], loss: Loss | None, targets: Sequence[Any]) -> dict[str, Any]:
    """All tensors among the arguments in order, by their names in the model."""
    for name, value in (("args", args), ("targets", targets)):
        if not isinstance(value, list | tuple):
            raise TypeError(f"{name} is of type {type(value).__name__}: must be a tuple or a list of arguments")
    if loss is None and targets:
        raise ValueError("targets are given without a loss: must be empty")
    of_module = _argument_names(module.forward, len(args))
    of_loss = _argument_names(getattr(loss, "forward", loss), len(targets) + 1)[1:] if targets else []
    named: dict[str, Any] = {}
    for name, value in zip([*of_module, *of_loss], [*args, *targets], strict=True):
        for inner, tensor in _named_tensors(name, value).items():
            if inner in named:
                raise ValueError(
                    f"two inputs have the name {inner!r}: the module's arguments and the loss's must differ"
                )
            named[inner] = tensor
    return named


def _argument_names(function: Any, count: int) -> list[str]:
    """The names of the first `count` arguments; numbered for ``*args`` and for functions without a signature."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in kinds][:count]
    rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "input")
    return names + [f"{rest}_{i}" for i in range(count - len(names))]


def _parameters(module: Any) -> dict[str, Any]:
    return dict(module.named_parameters())


def _tensors(module: Any) -> dict[str, Any]:
    """Parameters and buffers by name; by the first name if one has several."""
    return {**dict(module.named_buffers()), **_parameters(module)}


def _chosen(wrt: str | Sequence[str], module: Any, tensors: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """The names to differentiate by."""
    if both := sorted(set(tensors) & set(inputs)):
        raise ValueError(f"{both[0]!r} is the name of an input and of a parameter or a buffer: must be different")
    if wrt == "parameters":
        chosen = [name for name, parameter in _parameters(module).items() if parameter.requires_grad]
        if not chosen:
            argument = next((name for name, tensor in inputs.items() if tensor.is_floating_point()), "NAME")
            raise ValueError(
                f"wrt = {wrt!r}: the module must have a parameter that requires a gradient; for gradients by others, name "
                f"them, as in wrt=[{argument!r}]"
            )
    else:
        chosen = [wrt] if isinstance(wrt, str) else list(wrt)
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"wrt = {wrt!r}: must be one or more different names")
    for name in chosen:
        tensor = tensors.get(name, inputs.get(name))
        if tensor is None:
            raise ValueError(f"wrt has {name!r}: must be one of {', '.join([*inputs, *tensors])}")
        if not tensor.is_floating_point():
            raise ValueError(f"wrt has {name!r} of type {tensor.dtype}: must have a floating-point type")
    return chosen


def _check_dynamic_shapes(dynamic_shapes: DynamicShapes, inputs: Mapping[str, Any]) -> None:
    for name in dynamic_shapes:
        if name not in inputs:
            raise ValueError(f"dynamic_shapes has {name!r}: must be one of {', '.join(inputs)}")


def _check_size(module: Any) -> None:
    size = sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()])
    if size >= _LARGEST:
        raise ValueError(
            f"the module has {size} bytes of parameters and buffers: must be less than 2 GiB, the limit of a ModelProto"
        )


def _check_changed(program: Any, whole: _WithLoss, changed: Sequence[str]) -> None:
    known = {id(whole.module.get_buffer(name)) for name in changed}
    for path in program.exported_program.graph_signature.buffers_to_mutate.values():
        if id(whole.get_buffer(path)) not in known:
            raise ValueError(f"the loss changes its buffer {path!r}: must not; only the module may change buffers")


def _use_first_names(program: Any, whole: _WithLoss) -> None:
    """Rename initializers to the first name of their tensor: PyTorch's exporter uses the last one of several."""
    initializers = program.model.graph.initializers
    first: dict[int, str] = {}
    everything = [*whole.named_parameters(remove_duplicate=False), *whole.named_buffers(remove_duplicate=False)]
    for name, tensor in everything:
        value = initializers.get(name)
        wanted = first.setdefault(id(tensor), name)
        if value is not None and wanted != name:
            if wanted in initializers:
                raise ValueError(
                    f"{wanted} and {name} are one tensor but were exported as two: use only one of the names"
                )
            value.name = wanted


def _name(
    program: Any,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    tensors: Mapping[str, Any],
    kept: Sequence[str],
    chosen: Sequence[str],
) -> tuple[list[str], list[str]]:
    """Simplify the graph without folding the tensors in `kept`, and name inputs, outputs and initializers.

    Returns the tensors where PyTorch's gradient ends, and the outputs of functions with custom gradients.
    """
    held = _initializers_to_inputs(program, kept)
    simplify(program)
    stops, custom = remove_markers(program)
    graph = program.model.graph
    wanted = [*inputs, *held, *outputs]
    if len(set(wanted)) != len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise ValueError(f"two tensors would have the name {twice!r}: must be different")
    _free_names(graph, {*wanted, *tensors, *(f"{name}_grad" for name in chosen)})
    for value, name in zip([*graph.inputs, *graph.outputs], wanted, strict=True):
        value.name = name
    for value in list(graph.inputs[len(inputs) :]):
        graph.inputs.remove(value)
        value.const_value = held[value.name]
        graph.register_initializer(value)
    for name in tensors:
        value = graph.initializers.get(f"module.{name}")
        if value is not None:
            value.name = name
    return [value.name for value in stops], [value.name for value in custom]


def _initializers_to_inputs(program: Any, names: Sequence[str]) -> dict[str, Any]:
    """Turn initializers into inputs, so that they are not folded; returns their values in the order of the inputs.

    Initializers that the module does not use are left out.
    """
    graph = program.model.graph
    held = {}
    for name in names:
        value = graph.initializers.pop(f"module.{name}", None)
        if value is not None:
            held[name], value.const_value = value.const_value, None
            graph.inputs.append(value)
    return held


def _free_names(graph: Any, names: set[str]) -> None:
    """Rename all values that have one of these names."""
    values = [*graph.inputs, *graph.initializers.values()]
    values += [value for node in graph.all_nodes() for value in node.outputs]
    taken = {value.name for value in values} | names
    for value in values:
        if value.name in names:
            fresh = next(name for i in range(len(taken) + 1) if (name := f"{value.name}_{i}") not in taken)
            taken.add(fresh)
            value.name = fresh


def _without_metadata(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the exporter's metadata, which contains paths of source files."""
    graph = model.graph
    for item in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    return model


def _ensure_initializer(model: onnx.ModelProto, name: str, tensor: Any) -> None:
    """Add the tensor to the initializers if it is not among them because the module does not use it."""
    if all(initializer.name != name for initializer in model.graph.initializer):
        model.graph.initializer.append(onnx_ir.to_proto(tensor_adapters.TorchTensor(tensor.detach(), name)))


def _expose_as_inputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Make inputs of parameters, with the initializers of the same names as defaults."""
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in names:
        if name in initializers:
            tensor = initializers[name]
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))

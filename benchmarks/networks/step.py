"""A training step of a network, by PyTorch and by ONNX Runtime: the loss and its gradients for parameters and inputs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import process_time
from typing import Any

import click
import numpy as np
import onnx
import onnx.utils
import onnxruntime
import torch

import onnx_models.torch
from benchmarks import models
from benchmarks.measure import Call, Cell, interleave
from benchmarks.networks.zoo import Network, build
from benchmarks.workloads import Array

MAX_RATIO_TO_TORCH, MAX_ERROR = 3.0, 1e-4
"""A gradient is right if its error is at most the first number times the error of PyTorch's gradient, or at most the second
number times the largest element of all gradients. The second rule is for gradients that are nearly 0, such as those for the
weights before a ReLU near 0, for which both computations are inexact."""


def measure(name: str, threads: Sequence[int], rounds: int | None = None) -> Iterator[Cell]:
    """Time steps of a network in ONNX Runtime and in PyTorch in turn, and compare their gradients with float64.

    A cell for each number of threads also has the largest errors, the number of nodes, and how many milliseconds of
    processor time `onnx_models.gradient` takes for each 1,000 of them.
    """
    network = build(name)
    try:
        model = exported(network)
    except Exception as error:  # of PyTorch's exporter and of ours, of any class
        raise click.ClickException(f"{name}: {' '.join(str(error).split())}") from error
    more = {"nodes": str(len(model.graph.node)), "ms of gradient": f"{gradient_ms(model):.0f}"}
    truth, feeds = torch_gradients(network, wide=True), {key: arg.numpy() for key, arg in network.inputs.items()}
    for count in threads:
        torch.set_num_threads(count)
        made = session(model, count)
        off, off_torch, wrong = errors(session_gradients(made, network), torch_gradients(network), truth)
        calls = {"onnxruntime": Call(partial(made.run, None, feeds)), "torch": Call(torch_step(network))}
        accuracy = {"error": f"{off:.0e}", "error of torch": f"{off_torch:.0e}"}
        refused = [f"the gradients of {name} are wrong by {', '.join(wrong)}"] if wrong else []
        yield Cell("networks", "step", name, count, interleave(calls, rounds), {**accuracy, **more}, refused)


def torch_step(network: Network) -> Callable[[], Any]:
    """Return a call that computes all gradients anew and returns them by name as tensors."""
    args = {name: arg.detach().requires_grad_(arg.is_floating_point()) for name, arg in network.inputs.items()}
    tensors = {**args, **dict(network.module.named_parameters())}

    def run() -> Any:
        for tensor in tensors.values():
            tensor.grad = None
        network.loss(network.module(*args.values())).backward()
        return {name: tensor.grad for name, tensor in tensors.items() if tensor.grad is not None}

    return run


def torch_gradients(network: Network, *, wide: bool = False) -> dict[str, Array]:
    """Return PyTorch's gradients, computed in float64 if `wide`."""
    if wide:
        args = tuple(arg.double() if arg.is_floating_point() else arg for arg in network.args)
        network = Network(copy.deepcopy(network.module).double(), args, network.loss)
    return {name: tensor.numpy() for name, tensor in torch_step(network)().items()}


def exported(network: Network, **options: Any) -> onnx.ModelProto:
    """Export the network, its loss and the gradients, with further options of `onnx_models.torch.export`."""
    real = [name for name, arg in network.inputs.items() if arg.is_floating_point()]
    wrt = [*real, *(name for name, _ in network.module.named_parameters())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, which do not concern the model
        return onnx_models.torch.export(network.module, network.args, loss=network.loss, wrt=wrt, **options)


def session(model: onnx.ModelProto, threads: int) -> Any:
    """Create a session of ONNX Runtime, without our operators.

    Memory patterns are disabled. With them, a gradient graph needs up to twice the memory and is not faster, since ONNX
    Runtime allocates a block for the whole pattern in addition to the memory that it already has.
    """
    return models.session(onnxruntime.InferenceSession, model, threads, enable_mem_pattern=False)


def session_gradients(made: Any, network: Network) -> dict[str, Array]:
    """Return the gradients that a session of an exported model computes, by the names of the tensors."""
    names = [output.name for output in made.get_outputs() if output.name.endswith("_grad")]
    values = made.run(names, {name: arg.numpy() for name, arg in network.inputs.items()})
    return {name.removesuffix("_grad"): value for name, value in zip(names, values, strict=True)}


def gradient_ms(model: onnx.ModelProto) -> float:
    """Return the milliseconds of processor time that `gradient` takes for each 1,000 nodes of an exported model."""
    inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
    forward = onnx.utils.Extractor(model).extract_model(inputs, ["loss"])
    began = process_time()
    made = onnx_models.gradient(forward, "loss", [name[:-5] for name in outputs if name.endswith("_grad")])
    return (process_time() - began) / len(made.graph.node) * 1e6


def errors(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], truth: Mapping[str, Array]
) -> tuple[float, float, list[str]]:
    """Compare our gradients and PyTorch's in float with those in float64, all by the names of the tensors.

    Returns:
        The largest error of each, relative to the largest element of all gradients, and the names of ours that are wrong or
        missing.
    """

    def off(given: Array | None, value: Array) -> float:
        if given is None or given.shape != value.shape or not np.isfinite(given).all():
            return np.inf
        return float(np.abs(given - value).max(initial=0))

    whole = max(float(np.abs(value).max(initial=0)) for value in truth.values())
    each = {name: (off(ours.get(name), value), off(theirs.get(name), value)) for name, value in truth.items()}
    wrong = [name for name, (own, their) in each.items() if own > max(MAX_RATIO_TO_TORCH * their, MAX_ERROR * whole)]
    largest, largest_of_torch = (max(column) / whole for column in zip(*each.values(), strict=True))
    return largest, largest_of_torch, wrong

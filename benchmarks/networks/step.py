"""A step of PyTorch, with the loss and its gradients by autograd, and the model with the same outputs."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import onnx
import onnx.utils

import onnx_models.torch
from benchmarks.networks.zoo import Network
from benchmarks.workloads import Array

Gradients = Mapping[str, Array]


def torch_step(network: Network) -> Callable[[], Any]:
    """Return a call that computes all gradients anew and returns them by name as tensors."""
    args = [arg.detach().clone().requires_grad_() if arg.is_floating_point() else arg for arg in network.args]
    parameters = dict(network.module.named_parameters())
    tensors = {**dict(zip(input_names(network), args, strict=True)), **parameters}

    def run() -> Any:
        for tensor in tensors.values():
            tensor.grad = None
        network.loss(network.module(*args)).backward()
        return {name: tensor.grad for name, tensor in tensors.items() if tensor.grad is not None}

    return run


def torch_gradients(network: Network, *, wide: bool = False) -> Gradients:
    """Return PyTorch's gradients, computed in float64 if `wide`."""
    if wide:
        args = tuple(arg.double() if arg.is_floating_point() else arg for arg in network.args)
        network = Network(copy.deepcopy(network.module).double(), args, network.loss)
    return {name: tensor.numpy() for name, tensor in torch_step(network)().items()}


def session_gradients(made: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the gradients that a session of an exported model computes, by the names of the tensors."""
    names = [output.name for output in made.get_outputs()]
    found = zip(names, made.run(names, dict(inputs)), strict=True)
    return {name.removesuffix("_grad"): np.asarray(value) for name, value in found if name.endswith("_grad")}


def input_names(network: Network) -> list[str]:
    """Return the names of the module's arguments, which are the names of the model's inputs."""
    return list(inspect.signature(network.module.forward).parameters)[: len(network.args)]


def exported(network: Network, **options: Any) -> onnx.ModelProto:
    """Export the network, its loss and the gradients for its parameters and floating-point inputs.

    Args:
        network: the network.
        options: further options of `onnx_models.torch.export`.
    """
    named = zip(input_names(network), network.args, strict=True)
    real = [name for name, arg in named if arg.is_floating_point()]
    wrt = [*real, *(name for name, _ in network.module.named_parameters())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, which do not concern the model
        return onnx_models.torch.export(network.module, network.args, loss=network.loss, wrt=wrt, **options)


def gradient_ms(model: onnx.ModelProto, calls: int = 3) -> float:
    """Return the milliseconds of processor time that `gradient` takes per 1,000 nodes of an exported model.

    Args:
        model: from `exported`.
        calls: how often to differentiate the model without its gradients again; the median counts.
    """
    names = [value.name for value in model.graph.output]
    by_name = [name.removesuffix("_grad") for name in names if name.endswith("_grad")]
    forward = onnx.utils.Extractor(model).extract_model([value.name for value in model.graph.input], ["loss"])
    seconds = []
    for _ in range(calls):
        start = process_time()
        made = onnx_models.gradient(forward, "loss", by_name)
        seconds.append((process_time() - start) / len(made.graph.node))
    return median(seconds) * 1e6


def feeds(network: Network) -> dict[str, Array]:
    """Return the network's arguments as the inputs of the model."""
    return {name: np.asarray(arg) for name, arg in zip(input_names(network), network.args, strict=True)}

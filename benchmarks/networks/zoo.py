"""The networks, with random weights and inputs. Needs torch and torchvision."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

CLASSES = 100
"""The number of classes of classifiers, so few that the last layer is small."""


@dataclass(frozen=True)
class Network:
    """A module in evaluation mode and its arguments.

    args: the arguments; float tensors get a gradient as well. loss: computes a scalar from the module's result.
    """

    module: Any
    args: tuple[Any, ...]
    loss: Callable[[Any], Any]

    @property
    def inputs(self) -> dict[str, Any]:
        """The arguments by their names, which are those of the model's inputs."""
        return dict(zip(inspect.signature(self.module.forward).parameters, self.args, strict=False))


def build(name: str, size: int | None = None) -> Network:
    """Build a network of `NETWORKS`, always with the same weights and inputs.

    Args:
        name: its name.
        size: height and width of the images, or the length of the sequences; None for the usual size.
    """
    torch.manual_seed(0)
    make, usual = NETWORKS[name]
    network = make(size or usual)
    network.module.eval()
    return network


def _cross_entropy(output: Any) -> Any:
    """The cross-entropy of scores [samples, classes, ...] for class 1."""
    return functional.cross_entropy(output, torch.ones(output.shape[0], *output.shape[2:], dtype=torch.int64))


_declared: list[Any] = []
"""PyTorch removes the declarations of a library when it is garbage-collected."""


def models() -> Any:
    """Import torchvision's networks, even if this PyTorch cannot load torchvision's compiled operators.

    The import then fails at two undeclared operators, nms and qnms, which no network here uses, so they are declared first.
    """
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        return importlib.import_module("torchvision.models")


def _of_torchvision(name: str, options: Callable[[int], dict[str, Any]] = lambda _: {}) -> Callable[[int], Network]:
    """Return a function that builds a torchvision network; `options` takes the image size and returns its arguments."""
    return lambda size: Network(
        models().get_model(name, num_classes=CLASSES, **options(size)), (torch.rand(1, 3, size, size),), _cross_entropy
    )


class _Recurrent(nn.Module):  # type: ignore[misc]
    """Two recurrent layers and a classifier of the last state."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layers, self.last = kind(64, 128, num_layers=2, batch_first=True), nn.Linear(128, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.last(self.layers(x)[0][:, -1])


def _recurrent(kind: Any) -> Callable[[int], Network]:
    return lambda size: Network(_Recurrent(kind), (torch.randn(8, size, 64),), _cross_entropy)


def _encoder_layer(size: int) -> Network:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, activation="gelu")
    return Network(layer, (torch.randn(4, size, 256),), lambda output: (output * output).mean())


NETWORKS: Mapping[str, tuple[Callable[[int], Network], int]] = {
    "resnet50": (_of_torchvision("resnet50"), 224),
    "mobilenet_v3_small": (_of_torchvision("mobilenet_v3_small"), 224),
    "efficientnet_b0": (_of_torchvision("efficientnet_b0"), 224),
    "convnext_tiny": (_of_torchvision("convnext_tiny"), 224),
    "vit_b_16": (_of_torchvision("vit_b_16", lambda size: {"image_size": size}), 224),
    "swin_v2_t": (_of_torchvision("swin_v2_t"), 256),
    "maxvit_t": (_of_torchvision("maxvit_t", lambda size: {"input_size": (size, size)}), 224),
    "densenet121": (_of_torchvision("densenet121"), 224),
    "shufflenet_v2_x1_0": (_of_torchvision("shufflenet_v2_x1_0"), 224),
    "lstm": (_recurrent(nn.LSTM), 64),
    "gru": (_recurrent(nn.GRU), 64),
    "encoder_layer": (_encoder_layer, 128),
}
"""The function that builds each network and its usual size, by name."""

"""The networks, with random weights and inputs. Needs torch and torchvision."""

from __future__ import annotations

import importlib
import itertools
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


def cross_entropy(output: Any) -> Any:
    """Return the cross-entropy of scores [samples, classes, ...] for class 1."""
    return functional.cross_entropy(output, torch.ones(output.shape[0], *output.shape[2:], dtype=torch.int64))


def _image(size: int, channels: int = 3) -> tuple[Any]:
    return (torch.rand(1, channels, size, size),)


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


def _of_torchvision(name: str, **options: Any) -> Callable[[int], Network]:
    def make(size: int) -> Network:
        return Network(models().get_model(name, num_classes=CLASSES, **options), _image(size), cross_entropy)

    return make


def _maxvit(size: int) -> Network:
    return _of_torchvision("maxvit_t", input_size=(size, size))(size)


def _vit(size: int) -> Network:
    return _of_torchvision("vit_b_16", image_size=size)(size)


class _Double(nn.Sequential):  # type: ignore[misc]
    """Two 3 x 3 convolutions, each with normalization and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            *(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()),
        )


class _UNet(nn.Module):  # type: ignore[misc]
    """A U-Net of three levels with transposed convolutions: a score for each class and pixel."""

    def __init__(self, width: int = 16, classes: int = 4, levels: int = 3) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.first = _Double(3, width)
        self.down = nn.ModuleList(_Double(a, b) for a, b in itertools.pairwise(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, stride=2) for a in widths[-2::-1])
        self.joined = nn.ModuleList(_Double(2 * a, a) for a in widths[-2::-1])
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: Any) -> Any:
        kept = [self.first(x)]
        for block in self.down:
            kept.append(block(functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, joined in zip(self.up, self.joined, strict=True):
            x = joined(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class _Recurrent(nn.Module):  # type: ignore[misc]
    """Two recurrent layers and a classifier of the last state."""

    def __init__(self, layers: Any) -> None:
        super().__init__()
        self.layers, self.last = layers, nn.Linear(128, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.last(self.layers(x)[0][:, -1])


def _recurrent(kind: str) -> Callable[[int], Network]:
    def make(size: int) -> Network:
        layers = getattr(nn, kind)(64, 128, num_layers=2, batch_first=True)
        return Network(_Recurrent(layers), (torch.randn(8, size, 64),), cross_entropy)

    return make


def _encoder_layer(size: int) -> Network:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, activation="gelu")
    return Network(layer, (torch.randn(4, size, 256),), lambda output: (output * output).mean())


class _Block(nn.Module):  # type: ignore[misc]
    """A layer of a GPT: causal attention, then two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        samples, length, width = x.shape
        parts = self.all(self.norms[0](x)).reshape(samples, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(samples, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class _GPT(nn.Module):  # type: ignore[misc]
    """A GPT: scores of the next token at each position. The last layer shares the weights of the first."""

    def __init__(self, tokens: int, length: int, width: int = 128, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for embedding in (self.tokens, self.places):
            # As in GPT-2: larger scores have denormal gradients, which are slow.
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.norm(self.blocks(x)) @ self.tokens.weight.T


def _gpt(size: int) -> Network:
    tokens = torch.randint(0, 512, (2, size))
    return Network(_GPT(512, size), (tokens,), lambda output: cross_entropy(output.transpose(1, 2)))


NETWORKS: Mapping[str, tuple[Callable[[int], Network], int]] = {
    "resnet50": (_of_torchvision("resnet50"), 224),
    "mobilenet_v3_small": (_of_torchvision("mobilenet_v3_small"), 224),
    "efficientnet_b0": (_of_torchvision("efficientnet_b0"), 224),
    "convnext_tiny": (_of_torchvision("convnext_tiny"), 224),
    "vit_b_16": (_vit, 224),
    "swin_v2_t": (_of_torchvision("swin_v2_t"), 256),
    "maxvit_t": (_maxvit, 224),
    "densenet121": (_of_torchvision("densenet121"), 224),
    "shufflenet_v2_x1_0": (_of_torchvision("shufflenet_v2_x1_0"), 224),
    "unet": (lambda size: Network(_UNet(), _image(size), cross_entropy), 128),
    "lstm": (_recurrent("LSTM"), 64),
    "gru": (_recurrent("GRU"), 64),
    "encoder_layer": (_encoder_layer, 128),
    "gpt": (_gpt, 64),
}
"""By name, the function that builds a network, and its usual size."""

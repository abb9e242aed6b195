"""ResNet50 v1.5: bottleneck blocks that stride on their 3x3 convolution, label-smoothed loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.models.resnet50 import SPEC
from repro.trainers.config import Config
from repro.trainers.data.images import ImageReader
from repro.trainers.layout import BROADCAST
from repro.trainers.models.operators import SINGLE, Input, Operator
from repro.trainers.models.parameters import Parameters
from repro.trainers.models.resnet_blocks import EXPANSION, bottlenecks

EPSILON = 1e-5
MOMENTUM = 0.1
CLASSIFIER_STD = 0.01

RECTIFIED = 5e-3
"""Tolerance behind a ReLU: rounding puts an element or two on the other side of zero."""


@dataclass(frozen=True)
class Sizes:
    """Sizes in which operators are compared with the CPU: `images` of `side` pixels, `width` channels after the stem."""

    images: int
    width: int
    side: int


COMPARED = {"published": Sizes(128, 64, 224), "small": Sizes(4, 8, 64)}


class Convolution(nn.Module):
    """Convolution without bias, initialised after He for its inputs, padded to keep the size at stride 1."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__()
        shape = (outputs, inputs, size, size)
        self.weight = make.normal(f"{name}.weight", shape, math.sqrt(2.0 / math.prod(shape[1:])))
        self.stride = [stride, stride]
        self.padding = [size // 2, size // 2]

    def forward(self, x):
        return flow._C.conv2d(x, self.weight, None, stride=self.stride, padding=self.padding)


class Norm(nn.Module):
    """Batch normalisation over the samples of one rank; the parameters' names exempt them from weight decay."""

    def __init__(self, make: Parameters, channels: int, scale: float = 1.0) -> None:
        super().__init__()
        self.norm_weight = make.constant((channels,), scale)
        self.norm_bias = make.constant((channels,), 0.0)
        self.register_buffer("mean", make.fixed(np.zeros(channels, np.float32)))
        self.register_buffer("variance", make.fixed(np.ones(channels, np.float32)))

    def forward(self, x):
        return flow._C.normalization(x, *self.state(), axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True)

    def state(self) -> tuple:
        return self.mean, self.variance, self.norm_weight, self.norm_bias


class NormRelu(Norm):
    """Batch normalisation, addition of another branch if there is one, and ReLU, in one kernel."""

    def forward(self, x, addend=None):
        fused = flow._C.normalization_add_relu
        return fused(x, addend, *self.state(), axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True)


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut; the last scale starts at 0, so that the block starts as its shortcut."""

    def __init__(self, make: Parameters, name: str, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.reduce = Convolution(make, f"{name}.reduce", inputs, width, 1)
        self.norm1 = NormRelu(make, width)
        self.spatial = Convolution(make, f"{name}.spatial", width, width, 3, stride)
        self.norm2 = NormRelu(make, width)
        self.expand = Convolution(make, f"{name}.expand", width, outputs, 1)
        self.norm3 = NormRelu(make, outputs, scale=0.0)
        self.shortcut = None
        if inputs != outputs:
            projection = Convolution(make, f"{name}.shortcut", inputs, outputs, 1, stride)
            self.shortcut = nn.Sequential(projection, Norm(make, outputs))

    def forward(self, x):
        addend = x if self.shortcut is None else self.shortcut(x)
        y = self.norm2(self.spatial(self.norm1(self.reduce(x))))
        return self.norm3(self.expand(y), addend)


class ResNet50(nn.Module):
    """Loss and logits of a batch of images (b, 3, size, size) with labels (b,); the labels are handed through.

    `shape.width` channels after the stem, 64 as published; fewer give a small network with all 50 layers.
    """

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        width = config.shape.width
        self.stem = Convolution(make, "stem", 3, width, 7, 2)
        self.norm = NormRelu(make, width)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(*(Bottleneck(make, *each) for each in bottlenecks(width)))
        features, self.classes = width * 8 * EXPANSION, config.shape.classes
        self.classifier = make.normal("classifier.weight", (features, self.classes), CLASSIFIER_STD)
        self.bias = make.constant((self.classes,), 0.0)
        self.smoothing = config.label_smoothing

    def forward(self, images, labels):
        x = self.blocks(self.pool(self.norm(self.stem(images))))
        logits = flow.matmul(x.mean(dim=(2, 3)), self.classifier) + self.bias
        return {"loss": self.loss(logits, labels), "logits": logits, "labels": labels}

    def loss(self, logits, labels):
        if self.smoothing == 0.0:
            return flow._C.sparse_softmax_cross_entropy(logits, labels).mean()
        share = self.smoothing / self.classes
        one_hot = flow.nn.functional.one_hot
        target = one_hot(labels, self.classes, on_value=1.0 - self.smoothing + share, off_value=share)
        return flow._C.softmax_cross_entropy(logits, target.to(logits.dtype)).mean()


MODEL = ResNet50
READERS = {"ofrecord": ImageReader}


def operators(scale: str, device: str) -> list[Operator]:
    """The model's operators in the sizes of a scale."""
    sizes = COMPARED[scale]
    return [*convolutions(sizes), *norms(sizes), pooling(sizes)]


def convolutions(sizes: Sizes) -> Iterator[Operator]:
    """One of each shape in ResNet50."""
    width, side = sizes.width, sizes.side // 4
    shapes = [(3, width, 7, 2, sizes.side)]
    for _, inputs, inner, stride in bottlenecks(width):
        outputs = inner * EXPANSION
        shapes += [(inputs, inner, 1, 1, side), (inner, inner, 3, stride, side), (inner, outputs, 1, 1, side // stride)]
        if inputs != outputs:
            shapes.append((inputs, outputs, 1, stride, side))
        side //= stride
    for inputs, outputs, size, stride, side in dict.fromkeys(shapes):

        def call(x, weight, stride=stride, padding=size // 2):
            return flow._C.conv2d(x, weight, None, stride=[stride, stride], padding=[padding, padding])

        name = f"convolution {inputs} to {outputs}, {size}x{size}, stride {stride}, at {side}x{side}"
        weight = Input("weight", (outputs, inputs, size, size), None, 1.0 / math.sqrt(inputs * size**2))
        data = Input("data", (sizes.images, inputs, side, side))
        yield Operator(name, (SPEC.name,), SINGLE, (data, weight), call, call)


def norms(sizes: Sizes) -> Iterator[Operator]:
    """Batch normalisation as after the stem, and with an addition as at the end of each stage's blocks."""
    for channels, side, adds in (
        (sizes.width, sizes.side // 2, False),
        (4 * sizes.width, sizes.side // 4, True),
        (16 * sizes.width, sizes.side // 16, True),
        (32 * sizes.width, sizes.side // 32, True),
        (4 * sizes.width, sizes.side // 4, None),
    ):
        data = Input("data", (sizes.images, channels, side, side), 1)
        addend = (Input("addend", data.shape, 1),) if adds else ()
        inputs = (data, *addend, Input("weight", (channels,)), Input("bias", (channels,)))
        name = "batch norm" if adds is None else "batch norm, addition, ReLU" if adds else "batch norm, ReLU"
        yield Operator(
            f"{name}, {channels} channels at {side}x{side}",
            (SPEC.name,),
            SINGLE,
            inputs,
            batch_norm if adds is None else batch_norm_relu,
            plain_batch_norm if adds is None else plain_batch_norm_relu,
            axis=1,
            tolerance=0.0 if adds is None else RECTIFIED,
        )


def batch_norm(x, weight, bias):
    return flow._C.normalization(
        x, *statistics(x), weight, bias, axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True
    )


def batch_norm_relu(x, *rest):
    addend, weight, bias = rest if len(rest) == 3 else (None, *rest)
    return flow._C.normalization_add_relu(
        x, addend, *statistics(x), weight, bias, axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True
    )


def statistics(x) -> tuple:
    """Running mean and variance of a network that has seen nothing yet."""
    return tuple(
        flow.full((x.shape[1],), value, dtype=flow.float32, placement=x.placement, sbp=BROADCAST)
        for value in (0.0, 1.0)
    )


def plain_batch_norm(x, weight, bias):
    centred = x - x.mean(dim=(0, 2, 3), keepdim=True)
    variance = (centred * centred).mean(dim=(0, 2, 3), keepdim=True)
    return centred * flow.rsqrt(variance + EPSILON) * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def plain_batch_norm_relu(x, *rest):
    addend, weight, bias = rest if len(rest) == 3 else (0.0, *rest)
    return flow.relu(plain_batch_norm(x, weight, bias) + addend)


def pooling(sizes: Sizes) -> Operator:
    pool = flow.nn.MaxPool2d(3, 2, 1)
    data = Input("data", (sizes.images, sizes.width, sizes.side // 2, sizes.side // 2))
    return Operator("max pooling", (SPEC.name,), SINGLE, (data,), pool, pool)

"""ResNet50 v1.5: bottleneck blocks with the stride in the 3x3 convolution, and a label-smoothed loss."""

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
from repro.trainers.graph.changes import CHANGES
from repro.trainers.layout import BROADCAST
from repro.trainers.models import ops
from repro.trainers.models.operators import SINGLE, Input, Operator
from repro.trainers.models.parameters import Parameters
from repro.trainers.models.resnet_blocks import EXPANSION, bottlenecks

EPSILON = 1e-5
MOMENTUM = 0.1

RECTIFIED = 5e-3
"""Tolerance behind a ReLU: rounding puts an element or two on the other side of zero."""


@dataclass(frozen=True)
class Sizes:
    """Sizes for the comparison with the CPU: `images` of `side` x `side` pixels, `width` channels after the stem."""

    images: int
    width: int
    side: int


COMPARED = {"published": Sizes(128, 64, 224), "small": Sizes(4, 8, 64)}


class Convolution(nn.Module):
    """Convolution without bias, with He initialisation (fan-in), padded to keep the size at stride 1."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__()
        shape = (outputs, inputs, size, size)
        self.weight = make.normal(f"{name}.weight", shape, math.sqrt(2.0 / math.prod(shape[1:])))
        self.stride = [stride, stride]
        self.padding = [size // 2, size // 2]

    def forward(self, x):
        return flow._C.conv2d(x, self.weight, None, stride=self.stride, padding=self.padding)


class Norm(nn.Module):
    """Batch normalisation over one rank's samples; its parameter names exempt them from decoupled weight decay.

    `scale` is the initial value of the scale and, as published, of the running variance
    (OneFlow-Benchmark@892f87e6:Classification/cnns/resnet_model.py#L61-L75).
    """

    def __init__(self, make: Parameters, channels: int, scale: float = 1.0) -> None:
        super().__init__()
        self.norm_weight = make.constant((channels,), scale)
        self.norm_bias = make.constant((channels,), 0.0)
        self.register_buffer("mean", make.fixed(np.zeros(channels, np.float32)))
        self.register_buffer("variance", make.fixed(np.full(channels, scale, np.float32)))

    def forward(self, x):
        return self.normalised(x)

    def normalised(self, x):
        return flow._C.normalization(
            x, *self.state(), axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=self.training
        )

    def state(self) -> tuple:
        return self.mean, self.variance, self.norm_weight, self.norm_bias


class NormRelu(Norm):
    """Batch normalisation, optional addition of another branch, and ReLU."""

    def forward(self, x, addend=None):
        x = self.normalised(x)
        return flow._C.relu(x if addend is None else x + addend)


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut; the last scale starts at 0, so the block initially equals its shortcut."""

    def __init__(
        self, make: Parameters, name: str, inputs: int, width: int, stride: int, norm_relu: type[Norm] = NormRelu
    ) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.reduce = Convolution(make, f"{name}.reduce", inputs, width, 1)
        self.norm1 = norm_relu(make, width)
        self.spatial = Convolution(make, f"{name}.spatial", width, width, 3, stride)
        self.norm2 = norm_relu(make, width)
        self.expand = Convolution(make, f"{name}.expand", width, outputs, 1)
        self.norm3 = norm_relu(make, outputs, scale=0.0)
        self.shortcut = None
        if inputs != outputs:
            projection = Convolution(make, f"{name}.shortcut", inputs, outputs, 1, stride)
            self.shortcut = nn.Sequential(projection, Norm(make, outputs))

    def forward(self, x):
        addend = x if self.shortcut is None else self.shortcut(x)
        y = self.norm2(self.spatial(self.norm1(self.reduce(x))))
        return self.norm3(self.expand(y), addend)


class ResNet50(nn.Module):
    """Loss and class probabilities of images (b, 3, size, size) with labels (b,); labels are returned unchanged.

    In evaluation mode there is no loss, and normalisation is by the running statistics.

    `shape.width` is the number of channels after the stem, 64 as published. Smaller widths keep all 50 layers.
    """

    norm_relu: type[Norm] = NormRelu

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        width = config.shape.width
        self.stem = Convolution(make, "stem", 3, width, 7, 2)
        self.norm = self.norm_relu(make, width)
        self.blocks = nn.Sequential(*(Bottleneck(make, *sizes, self.norm_relu) for sizes in bottlenecks(width)))
        features, self.classes = width * 8 * EXPANSION, config.shape.classes
        shape, std = (features, self.classes), math.sqrt(2.0 / features)
        self.classifier = make.normal("classifier.weight", shape, std, transposed=True)
        self.bias = make.constant((self.classes,), 0.0)
        self.smoothing = config.label_smoothing
        self.per_sample = config.choices.loss_per_sample
        self.use = make.use

    def forward(self, images, labels):
        logits = self.logits(images)
        if not self.training:
            return {"scores": self.scores(logits), "labels": labels}
        losses = self.losses(logits, labels)
        loss = losses if self.per_sample else losses.mean()
        return {
            "loss": loss,
            "scores": self.scores(logits),
            "labels": labels,
            "objectives": (loss.mean() if self.per_sample else loss,),
        }

    def logits(self, images):
        x = self.blocks(max_pool(self.norm(self.stem(images))))
        x = flow._C.avg_pool2d_nhwc(x, x.shape[2:], [1, 1], "valid", [0, 0], [0, 0], "channels_first", False)
        x = flow._C.matmul(x.reshape(x.shape[0], -1), self.use(self.classifier), transpose_b=True)
        return ops.add_bias(x, self.use(self.bias))

    def scores(self, logits):
        """Class probabilities, which rank the classes; the published program fetches them in each iteration."""
        return flow._C.softmax(logits, dim=1)

    def losses(self, logits, labels):
        """Losses (b,) against targets that spread `smoothing` evenly over all classes."""
        share = self.smoothing / self.classes
        target = flow._C.one_hot(labels, self.classes, 1.0 - self.smoothing + share, share)
        return flow._C.softmax_cross_entropy(logits, target)


def max_pool(x):
    """3 x 3 max pooling with stride 2; `changes.pool_without_places` turns it into the published operator."""
    return flow._C.max_pool2d(
        x,
        kernel_size=[3, 3],
        stride=[2, 2],
        padding=[1, 1],
        dilation=[1, 1],
        return_indices=False,
        ceil_mode=False,
        data_format="channels_first",
    )[0]


MODEL = ResNet50
READERS = {"ofrecord": ImageReader}


def operators(scale: str, device: str) -> list[Operator]:
    """The model's operators in the sizes of `scale`."""
    sizes = COMPARED[scale]
    return [*convolutions(sizes), *norms(sizes), pooling(sizes)]


def convolutions(sizes: Sizes) -> Iterator[Operator]:
    """One convolution per shape in ResNet50."""
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
    """Batch normalisation alone, with ReLU, and with addition and ReLU."""
    channels, side = 4 * sizes.width, sizes.side // 4
    alone = norm_inputs(sizes, channels, side)
    name = f"batch norm, {channels} channels at {side}x{side}"
    yield Operator(name, (SPEC.name,), SINGLE, alone, batch_norm, plain_batch_norm, axis=1)
    for name, inputs in rectified_inputs(sizes):
        yield Operator(
            name, (SPEC.name,), SINGLE, inputs, batch_norm_relu, plain_batch_norm_relu, axis=1, tolerance=RECTIFIED
        )


def norm_inputs(sizes: Sizes, channels: int, side: int, adds: bool = False) -> tuple[Input, ...]:
    data = Input("data", (sizes.images, channels, side, side), 1)
    addend = (Input("addend", data.shape, 1),) if adds else ()
    return (data, *addend, Input("weight", (channels,)), Input("bias", (channels,)))


def rectified_inputs(sizes: Sizes) -> Iterator[tuple[str, tuple[Input, ...]]]:
    """Name and inputs of batch normalisation with ReLU: after the stem, and with the addition at each stage's end."""
    for channels, side, adds in (
        (sizes.width, sizes.side // 2, False),
        (4 * sizes.width, sizes.side // 4, True),
        (16 * sizes.width, sizes.side // 16, True),
        (32 * sizes.width, sizes.side // 32, True),
    ):
        name = f"batch norm, {'addition, ' if adds else ''}ReLU, {channels} channels at {side}x{side}"
        yield name, norm_inputs(sizes, channels, side, adds)


def batch_norm(x, weight, bias):
    return flow._C.normalization(
        x, *statistics(x), weight, bias, axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True
    )


def batch_norm_relu(x, *rest):
    addend, weight, bias = rest if len(rest) == 3 else (None, *rest)
    x = batch_norm(x, weight, bias)
    return flow._C.relu(x if addend is None else x + addend)


def statistics(x) -> tuple:
    """Initial running mean and variance."""
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
    data = Input("data", (sizes.images, sizes.width, sizes.side // 2, sizes.side // 2))
    return Operator("max pooling", (SPEC.name,), SINGLE, (data,), max_pool, max_pool, changes=CHANGES)

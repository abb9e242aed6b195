"""The tuned ResNet50: batch normalisation, addition and ReLU fused in one kernel; on tensor cores with channels last."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import oneflow as flow
from oneflow import nn

from repro.models.resnet50 import SPEC
from repro.trainers.config import Config
from repro.trainers.models import ops, resnet50
from repro.trainers.models.operators import HALF, SINGLE, Input, Operator
from repro.trainers.models.parameters import Parameters
from repro.trainers.models.resnet50 import COMPARED, EPSILON, MOMENTUM, RECTIFIED, Norm, Sizes, statistics
from repro.trainers.models.resnet_blocks import EXPANSION, bottlenecks
from repro.trainers.tuning import channels_last
from repro.trainers.tuning.rewrite import REWRITES

COLOURS = 3
BRIGHTEST = 16
"""Images are whole numbers below this in the kernel check: training takes no gradient of images either."""
TOLERANCES = {SINGLE: RECTIFIED, HALF: 2e-2}
"""Tolerances behind a ReLU."""


class NormRelu(Norm):
    """Batch normalisation, optional addition of another branch, and ReLU in one kernel."""

    def forward(self, x, addend=None):
        fused = flow._C.normalization_add_relu
        return fused(x, addend, *self.state(), axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True)


class ResNet50(resnet50.ResNet50):
    """The published ResNet50 with fused operators."""

    norm_relu = NormRelu

    def scores(self, logits):
        """Logits, which rank the classes as their probabilities do."""
        return logits


class ChannelsLast(ResNet50):
    """The tuned ResNet50 with activations (b, h, w, c); only the images are brought into this order."""

    def __init__(self, config: Config, make: Parameters) -> None:
        nn.Module.__init__(self)
        width = config.shape.width
        self.stem = channels_last.Convolution(make, "stem", COLOURS, width, 7, 2)
        self.norm = channels_last.NormRelu(make, width)
        self.blocks = nn.Sequential(*(channels_last.Bottleneck(make, *sizes) for sizes in bottlenecks(width)))
        features, self.classes = width * 8 * EXPANSION, config.shape.classes
        shape, std = (features, self.classes), math.sqrt(2.0 / features)
        self.classifier = make.normal("classifier.weight", shape, std, transposed=True)
        self.bias = make.constant((self.classes,), 0.0)
        self.smoothing = config.label_smoothing
        self.per_sample = config.choices.loss_per_sample
        self.use = make.use

    def logits(self, images):
        x = channels_last.max_pool(self.norm(self.stem(channels_last.last(images))))
        x = channels_last.average(self.blocks(x))
        return ops.add_bias(flow._C.matmul(x, self.use(self.classifier), transpose_b=True), self.use(self.bias))


def build(config: Config, make: Parameters) -> ResNet50:
    return (ChannelsLast if channels_last.usable(config) else ResNet50)(config, make)


MODEL = build


def operators(scale: str, device: str) -> list[Operator]:
    """Batch normalisation with ReLU; on CUDA, all operators with channels last, in the precisions that have them so."""
    sizes = COMPARED[scale]
    precisions = (HALF, *((SINGLE,) if channels_last.takes_tf32() else ())) if device == "cuda" else ()
    return [*norms(sizes), *(operator for precision in precisions for operator in with_channels_last(sizes, precision))]


def norms(sizes: Sizes) -> Iterator[Operator]:
    for name, inputs in resnet50.rectified_inputs(sizes):
        yield Operator(
            f"{name}, fused",
            (SPEC.name,),
            SINGLE,
            inputs,
            fused_norm_relu,
            resnet50.plain_batch_norm_relu,
            axis=1,
            tolerance=RECTIFIED,
        )


def fused_norm_relu(x, *rest):
    addend, weight, bias = rest if len(rest) == 3 else (None, *rest)
    return flow._C.normalization_add_relu(
        x, addend, *statistics(x), weight, bias, axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True
    )


def with_channels_last(sizes: Sizes, precision: str) -> Iterator[Operator]:
    """The operators that the program computes with channels last; OneFlow fuses batch normalisation in a graph only."""

    def operator(name: str, inputs: tuple, call: Callable, plain: Callable, **more) -> Operator:
        named = f"{name}, channels last, {precision}"
        return Operator(named, (SPEC.name,), precision, inputs, call, plain, **more)

    for inputs, outputs, size, stride, side in convolutions(sizes):
        name = f"convolution {inputs} to {outputs}, {size}x{size}, stride {stride}, at {side}x{side}"
        data = Input("data", (sizes.images, side, side, inputs), below=BRIGHTEST if inputs == COLOURS else 0)
        weight = Input("weight", (outputs, size, size, inputs), None, 1.0 / math.sqrt(inputs * size**2))
        call, plain = (partial(function, stride=stride) for function in (convolution, plain_convolution))
        yield operator(name, (data, weight), call, plain)
    channels, side = 4 * sizes.width, sizes.side // 4
    alone = norm_inputs(resnet50.norm_inputs(sizes, channels, side))
    yield operator(f"batch norm, {channels} channels at {side}x{side}", alone, norm, plain_norm, axis=3)
    for name, inputs in resnet50.rectified_inputs(sizes):
        about = {"axis": 3, "tolerance": TOLERANCES[precision], "changes": REWRITES}
        yield operator(f"{name}, fused", norm_inputs(inputs), StatefulNormRelu(), plain_norm_relu, **about)
    data = Input("data", (sizes.images, sizes.side // 2, sizes.side // 2, sizes.width))
    yield operator("max pooling", (data,), channels_last.max_pool, plain_max_pool)
    data = Input("data", (sizes.images, sizes.side // 32, sizes.side // 32, 32 * sizes.width))
    yield operator("average", (data,), channels_last.average, plain_average)


def convolutions(sizes: Sizes) -> list[tuple[int, int, int, int, int]]:
    """Input and output channels, size, stride and input side of each kind of convolution in ResNet50."""
    width, side = sizes.width, sizes.side // 4
    return [
        (COLOURS, width, 7, 2, sizes.side),
        (width, width, 3, 1, side),
        (width, 4 * width, 1, 1, side),
        (4 * width, width, 1, 1, side),
        (4 * width, 8 * width, 1, 2, side),
        (2 * width, 2 * width, 3, 2, side),
        (8 * width, 8 * width, 3, 1, side // 8),
    ]


def norm_inputs(given: tuple[Input, ...]) -> tuple[Input, ...]:
    """Inputs of batch normalisation, brought from (b, c, h, w) to (b, h, w, c)."""
    return tuple(
        replace(argument, shape=(argument.shape[0], *argument.shape[2:], argument.shape[1]), axis=3)
        if len(argument.shape) == 4
        else argument
        for argument in given
    )


def convolution(x, weight, stride: int):
    return channels_last.convolve(x.to(weight.dtype), weight, stride)


def norm(x, weight, bias):
    state = (*statistics(weight.reshape(1, -1)), *in_single(weight, bias))
    return channels_last.normalise(flow._C.normalization, (x,), state)


class StatefulNormRelu:
    """Batch normalisation, optional addition and ReLU, with running statistics made at the first call.

    That is not in a graph, which takes them for variables: it can update no others in place.
    """

    def __init__(self) -> None:
        self.statistics: tuple = ()

    def __call__(self, x, *rest):
        addend, weight, bias = rest if len(rest) == 3 else (None, *rest)
        self.statistics = self.statistics or statistics(weight.reshape(1, -1))
        state = (*self.statistics, *in_single(weight, bias))
        return channels_last.normalise(flow._C.normalization_add_relu, (x, addend), state)


def in_single(*tensors) -> tuple:
    """The scale and shift of batch normalisation, which are fp32 also in half precision."""
    return tuple(tensor.to(flow.float32) for tensor in tensors)


def plain_convolution(x, weight, stride: int):
    padding = weight.shape[1] // 2
    x, weight = channels_last.first(x.to(weight.dtype)), channels_last.first(weight)
    return channels_last.last(flow._C.conv2d(x, weight, None, stride=[stride, stride], padding=[padding, padding]))


def plain_norm(x, weight, bias):
    return channels_last.last(resnet50.plain_batch_norm(channels_last.first(x), weight, bias))


def plain_norm_relu(x, *rest):
    *addend, weight, bias = rest
    x, *addend = map(channels_last.first, (x, *addend))
    return channels_last.last(resnet50.plain_batch_norm_relu(x, *addend, weight, bias))


def plain_max_pool(x):
    return channels_last.last(resnet50.max_pool(channels_last.first(x)))


def plain_average(x):
    return x.mean(dim=(1, 2))

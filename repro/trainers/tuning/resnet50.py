"""The tuned ResNet50: batch normalisation, addition and ReLU fused in one kernel; under AMP with channels last."""

from __future__ import annotations

import math
from collections.abc import Iterator

import oneflow as flow
from oneflow import nn

from repro.models.resnet50 import SPEC
from repro.trainers.config import Config
from repro.trainers.models import ops, resnet50
from repro.trainers.models.operators import SINGLE, Operator
from repro.trainers.models.parameters import Parameters
from repro.trainers.models.resnet50 import COMPARED, EPSILON, MOMENTUM, RECTIFIED, Norm, Sizes, statistics
from repro.trainers.models.resnet_blocks import EXPANSION, bottlenecks
from repro.trainers.tuning import channels_last

COLOURS = 3


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
        self.blocks = nn.Sequential(*(channels_last.Bottleneck(make, *each) for each in bottlenecks(width)))
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
    """Batch normalisation with ReLU: after the stem, and with the addition at each stage's end."""
    return list(norms(COMPARED[scale]))


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

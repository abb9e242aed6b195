"""The tuned ResNet50: batch normalisation, addition and ReLU fused in one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import oneflow as flow

from repro.models.resnet50 import SPEC
from repro.trainers.models import resnet50
from repro.trainers.models.operators import HALF, SINGLE, Operator
from repro.trainers.models.resnet50 import COMPARED, EPSILON, MOMENTUM, RECTIFIED, Norm, Sizes, statistics

RECTIFIED_IN_HALF = 3e-2
"""Tolerance behind a ReLU in half precision: before an addition, rounding puts one element in some thousand on the other
side of zero.
"""


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


MODEL = ResNet50


def operators(scale: str, device: str) -> list[Operator]:
    """Batch normalisation with ReLU: after the stem, and with the addition at each stage's end.

    On CUDA also in half precision, as are convolutions, which the published ResNet50 lists in fp32, in which it was
    published.
    """
    sizes = COMPARED[scale]
    return [*norms(sizes), *(in_half(sizes) if device == "cuda" else ())]


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


def in_half(sizes: Sizes) -> Iterator[Operator]:
    for each in resnet50.convolutions(sizes):
        yield replace(each, name=f"{each.name}, {HALF}", precision=HALF)
    for each in norms(sizes):
        yield replace(
            each, name=f"{each.name}, {HALF}", precision=HALF, call=half_norm_relu, tolerance=RECTIFIED_IN_HALF
        )


def half_norm_relu(x, *rest):
    """The scale and shift stay in fp32 under AMP."""
    *addend, weight, bias = rest
    return fused_norm_relu(x, *addend, weight.to(flow.float32), bias.to(flow.float32))


def fused_norm_relu(x, *rest):
    addend, weight, bias = rest if len(rest) == 3 else (None, *rest)
    return flow._C.normalization_add_relu(
        x, addend, *statistics(x), weight, bias, axis=1, epsilon=EPSILON, momentum=MOMENTUM, is_training=True
    )

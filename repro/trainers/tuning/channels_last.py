"""ResNet50 on tensor cores with channels last: activations are (b, h, w, c), as cuDNN's kernels for them compute.

In (b, c, h, w), cuDNN transposes before and after each convolution on tensor cores. Filters are stored (out, h, w, in).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import oneflow as flow
from oneflow import nn

from repro.models.resnet50 import SPEC
from repro.trainers.config import Config
from repro.trainers.models import ops, resnet50
from repro.trainers.models.initial import normal_values
from repro.trainers.models.parameters import Parameters
from repro.trainers.models.resnet50 import EPSILON, MOMENTUM
from repro.trainers.models.resnet_blocks import EXPANSION

FORMAT = "channels_last"
CHANNELS = 3
"""Axis of the channels."""
TF32 = "CUDNN_FORWARD_TF32"
"""The environment variable that lets cuDNN compute convolutions of fp32 in TF32."""


def usable(config: Config) -> bool:
    """Whether a configuration computes with channels last: ResNet50 under AMP or in TF32; the CPU does so for tests."""
    return config.spec.name == SPEC.name and (config.precision == "amp" or takes_tf32())


def takes_tf32() -> bool:
    """Whether convolutions of fp32 may be computed in TF32."""
    return os.environ.get(TF32, "0") not in ("", "0")


def last(x):
    """Bring the channels of x (b, c, h, w) to the last axis."""
    return x.permute(0, 2, 3, 1)


def first(x):
    """Bring the channels of x (b, h, w, c) to axis 1."""
    return x.permute(0, 3, 1, 2)


def convolve(x, weight, stride: int):
    """Convolution of x (b, h, w, c) with filters (out, h, w, in), padded to keep the size at stride 1.

    OneFlow's kernel for the CPU computes wrongly with channels last.
    """
    size = weight.shape[1]
    settings = {"stride": [stride, stride], "padding": [size // 2, size // 2]}
    if ops.on_cuda(x):
        return flow._C.conv2d(x, weight, None, **settings, channel_pos=FORMAT)
    return last(flow._C.conv2d(first(x), first(weight), None, **settings))


def normalise(function: Callable, tensors: tuple, state: tuple):
    """Apply a function of batch normalisation to tensors (b, h, w, c), which may include None.

    OneFlow's kernel for the CPU computes nothing if the channels are not on axis 1.
    """
    axis, shape = CHANNELS, tensors[0].shape
    if not ops.on_cuda(tensors[0]):
        axis, tensors = 1, tuple(None if tensor is None else tensor.reshape(-1, shape[CHANNELS]) for tensor in tensors)
    y = function(*tensors, *state, axis=axis, epsilon=EPSILON, momentum=MOMENTUM, is_training=True)
    return y if axis == CHANNELS else y.reshape(*shape)


def average(x):
    """Mean (b, c) of x (b, h, w, c) over all places."""
    return flow._C.avg_pool2d_nhwc(x, x.shape[1:3], [1, 1], "valid", [0, 0], [0, 0], FORMAT, False).reshape(
        x.shape[0], x.shape[CHANNELS]
    )


def max_pool(x):
    """3 x 3 max pooling of x (b, h, w, c) with stride 2.

    With channels last, OneFlow takes cuDNN's, as published, which has half precision and stores no indices. Its own, for
    channels first, has fp32 only; AMP then leaves the batch normalisation before it in fp32 too.
    """
    settings = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1]}
    return flow._C.max_pool2d(x, **settings, return_indices=False, ceil_mode=False, data_format=FORMAT)[0]


class Convolution(nn.Module):
    """The published convolution with channels last; its filters begin with the same values."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__()
        shape = (outputs, inputs, size, size)
        values = normal_values(make.seed, f"{name}.weight", shape, math.sqrt(2.0 / math.prod(shape[1:])))
        self.weight = make.parameter(np.ascontiguousarray(values.transpose(0, 2, 3, 1)), 0, None)
        self.stride = stride

    def forward(self, x):
        return convolve(x, self.weight, self.stride)


class Norm(resnet50.Norm):
    """Batch normalisation over one rank's samples."""

    def normalised(self, x):
        return normalise(flow._C.normalization, (x,), self.state())


class NormRelu(Norm):
    """Batch normalisation, optional addition of another branch, and ReLU; in half precision one kernel of cuDNN."""

    def forward(self, x, addend=None):
        return normalise(flow._C.normalization_add_relu, (x, addend), self.state())


class Bottleneck(resnet50.Bottleneck):
    """The published block with channels last."""

    def __init__(self, make: Parameters, name: str, inputs: int, width: int, stride: int) -> None:
        nn.Module.__init__(self)
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

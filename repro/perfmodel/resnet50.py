"""Counts of ResNet50-v1.5: its convolutions one by one, and the norms and activations between them.

He et al. (2016), table 1, with the stride of a stage in the 3 x 3 convolution (v1.5); FLOPs are 2 per multiply-add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from repro.models.resnet50 import parameters, training_flops
from repro.perfmodel.work import KernelWork, ModelJob, Stage

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
EXPANSION = 4
WINOGRAD_SAVING = 2.25  # F(2x2, 3x3): 16 multiplications in place of 36 (Lavin and Gray, CVPR 2016, section 4.1)
# statistics, normalise and rectify forward: x, x and y, y and z; backward: twice x and dy with dx, then the rectifier.
NORM_FORWARD, NORM_BACKWARD, ADD_PASSES = 5, 8, 3
KERNELS_FORWARD, KERNELS_BACKWARD = 3, 4
ACTIVATIONS = 22.2e6  # elements per image: every convolution's output and its normalised copy


@dataclass(frozen=True)
class Convolution:
    """A convolution by channels, kernel and the side of its output and input, in pixels."""

    inputs: int
    outputs: int
    kernel: int
    side: int
    from_side: int

    @property
    def parameters(self) -> int:
        return self.kernel**2 * self.inputs * self.outputs

    @property
    def flops(self) -> int:
        return 2 * self.parameters * self.side**2

    def executed_flops(self, precision: str) -> float:
        """FLOPs that cuDNN spends: in fp32 a 3 x 3 convolution of stride 1 goes by Winograd's minimal filtering."""
        winograd = precision == "fp32" and self.kernel == 3 and self.side == self.from_side
        return self.flops / WINOGRAD_SAVING if winograd else self.flops

    @property
    def out_elements(self) -> int:
        return self.outputs * self.side**2

    @property
    def in_elements(self) -> int:
        return self.inputs * self.from_side**2


def convolutions(image_size: int) -> Iterator[Convolution]:
    """All 53 convolutions, in order."""
    side = image_size // 2
    yield Convolution(3, 64, 7, side, image_size)
    side, channels = side // 2, 64
    for width, blocks, stride in STAGES:
        for block in range(blocks):
            out_side = side // (stride if block == 0 else 1)
            yield Convolution(channels, width, 1, side, side)
            yield Convolution(width, width, 3, out_side, side)
            yield Convolution(width, EXPANSION * width, 1, out_side, out_side)
            if block == 0:
                yield Convolution(channels, EXPANSION * width, 1, out_side, side)
            side, channels = out_side, EXPANSION * width


def stages(job: ModelJob) -> tuple[Stage]:
    """The one stage of a data-parallel ResNet50; ValueError for any other layout."""
    if job.layout.tensor > 1 or job.layout.pipeline > 1:
        raise ValueError(f"layout {job.layout}: ResNet50 is modelled under data parallelism only")
    shape, batch, e = dict(job.shape), job.micro_batch, job.element_bytes
    layers = tuple(convolutions(shape["image_size"]))
    flops = batch * (sum(layer.executed_flops(job.precision) for layer in layers) + 2 * 2048 * shape["classes"])
    weights = sum(layer.parameters for layer in layers) + 2048 * shape["classes"]
    outputs = batch * sum(layer.out_elements for layer in layers)
    operands = outputs + batch * sum(layer.in_elements for layer in layers) + weights
    sums = batch * sum(layer.out_elements for layer in layers if layer.kernel == 1) / 3
    norms = 2 * sum(layer.outputs for layer in layers) + shape["classes"]
    forward, backward = NORM_FORWARD * outputs + ADD_PASSES * sums, NORM_BACKWARD * outputs + ADD_PASSES * sums
    return (
        Stage(
            forward=_work(e, flops, operands=operands, elements=forward, kernels=KERNELS_FORWARD * len(layers)),
            backward=_work(
                e, 2 * flops, operands=2 * operands, elements=backward, kernels=KERNELS_BACKWARD * len(layers)
            ),
            recompute=KernelWork(),
            parameters=weights + norms,
            late_parameters=0.0,
            tensors=3 * len(layers) + 2,
            kept_bytes=2 * e * outputs,
        ),
    )


def flops(job: ModelJob) -> float:
    """Floating-point operations of an iteration: backward takes twice as many as forward."""
    return training_flops(dict(job.shape), job.activation_checkpointing) * job.global_batch


def memory(job: ModelJob) -> tuple[float, float]:
    """Parameters, and bytes of activations of a rank in fp32."""
    return parameters(dict(job.shape)), 4 * ACTIVATIONS * job.micro_batch


def _work(e: int, flops: float, operands: float, elements: float, kernels: float) -> KernelWork:
    return KernelWork(matrix_flops=flops, matrix_bytes=e * operands, element_bytes=e * elements, kernels=kernels)

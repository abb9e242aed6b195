"""ResNet50 v1.5: image classification with batch normalisation, as in OneFlow's reports of August 2020."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.models.programs import RESNET50_8_AUGUST, RESNET50_21_AUGUST
from repro.models.spec import Baseline, Convergence, ConvergenceTraining, LossCurves, ModelSpec, SmallTraining

PARAMETERS, CLASSES, FEATURES = 25.557e6, 1000, 2048
FORWARD_FLOPS, IMAGE_SIZE = 2 * 4.089e9, 224
"""Of an image of 224 pixels: torchvision's count of multiply-adds, twice. Of parameters it counts 25.557 million."""
SGD = {"name": "sgd", "momentum": 0.875, "weight_decay": 1 / 32768}


def sample(generator: Any, shape: Any) -> tuple[Any, ...]:
    """An image (3, size, size) of normally distributed values, and its label."""
    image = generator.standard_normal((3, shape.image_size, shape.image_size), dtype="float32")
    return image, generator.integers(0, shape.classes, dtype="int32")


def parameters(shape: Mapping[str, int]) -> float:
    """Number of trainable parameters, including a classifier row and bias per class."""
    return PARAMETERS + (FEATURES + 1) * (shape["classes"] - CLASSES)


def training_flops(shape: Mapping[str, int], recompute: bool) -> float:
    """Floating-point operations per image, proportional to its area; backward takes twice as many as forward."""
    return (4 if recompute else 3) * FORWARD_FLOPS * (shape["image_size"] / IMAGE_SIZE) ** 2


SPEC = ModelSpec(
    name="resnet50",
    title_words=("resnet",),
    shape_keys=("image_size", "classes"),
    optional_shape={"width": 64},
    smoke_shape={"image_size": 32, "classes": 100, "width": 8},
    inputs={"images": "float32", "labels": "int32"},
    sample=sample,
    synthetic_batches=2,
    data_kinds=("synthetic", "ofrecord"),
    programs=(RESNET50_8_AUGUST, RESNET50_21_AUGUST),
    throughput_units=("images/s", "samples/s"),
    optimizer="sgd",
    regularisation="label_smoothing",
    batch_statistics=True,
    convolutional=True,
    curves=LossCurves(
        cpu=SmallTraining({"image_size": 32, "classes": 100, "width": 8}, global_batch=16, lr=0.02),
        cuda=SmallTraining({"image_size": 64, "classes": 100}, global_batch=64, lr=0.02),
        optimizer=SGD,
        layouts=("dp2", "dp4"),
        label_smoothing=0.1,
    ),
    convergence=Convergence(
        cpu=ConvergenceTraining(
            {"image_size": 32, "classes": 10, "width": 8}, global_batch=64, lr=0.1, iterations=400, goal=2
        ),
        cuda=ConvergenceTraining({"image_size": 64, "classes": 10}, global_batch=128, lr=0.1, iterations=1200, goal=3),
        optimizer=SGD,
        dataset="digits",
    ),
    baseline=Baseline(channels_last=True),
    parameters=parameters,
    training_flops=training_flops,
)

"""ResNet50 v1.5: image classification with batch normalisation, as OneFlow's reports of August 2020 trained it."""

from __future__ import annotations

from typing import Any

from repro.models.spec import Baseline, Convergence, ConvergenceTraining, LossCurves, ModelSpec, SmallTraining

SGD = {"name": "sgd", "momentum": 0.875, "weight_decay": 1 / 32768}


def sample(generator: Any, shape: Any) -> tuple[Any, ...]:
    """An image (3, size, size) of normally distributed values, and its label."""
    image = generator.standard_normal((3, shape.image_size, shape.image_size), dtype="float32")
    return image, generator.integers(0, shape.classes, dtype="int32")


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
    log_generations=("A", "B"),
    optimizer="sgd",
    regularisation="label_smoothing",
    batch_statistics=True,
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
)

"""A perceptron that classifies random vectors: a model from outside the project, for tests."""

from __future__ import annotations

from typing import Any

from repro.models.programs import Program
from repro.models.spec import ModelSpec


def sample(generator: Any, shape: Any) -> tuple[Any, ...]:
    """Normally distributed features, and the class that they belong to."""
    return generator.standard_normal(shape.features), generator.integers(0, shape.classes)


SPEC = ModelSpec(
    name="toy",
    title_words=("perceptron",),
    shape_keys=("features", "hidden_size", "classes"),
    smoke_shape={"features": 16, "hidden_size": 32, "classes": 4},
    inputs={"features": "float32", "labels": "int64"},
    sample=sample,
    programs=(Program("toy-2026-01", "D"),),
    optimizer="sgd",
    regularisation="dropout",
)

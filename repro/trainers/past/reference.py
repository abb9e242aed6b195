"""What the kernels of 2020 should compute, in fp64 on the CPU."""

from __future__ import annotations

import numpy as np

from repro.models.past import FORWARD
from repro.trainers.past.forms import EPSILON, RATE

TOLERANCES = {"f16": 3e-2, "f32": 1e-4}
"""Half precision also added up sums of a row, and of the parts of a column, in half precision."""


def reads(name: str, direction: str) -> tuple[str, ...]:
    """The buffers that results are computed from."""
    return {
        "softmax": (("x",), ("y", "dy")),
        "cross-entropy": (("x", "labels"), ("y", "labels", "dy")),
        "dropout": (("x", "mask"), ("dy", "mask")),
        "layer norm": (("x", "gamma", "beta"), ("x", "gamma", "dy")),
    }[kind(name)][direction != FORWARD]


def expected(name: str, direction: str, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Results by buffer, of these values by buffer: rows of matrices, and vectors per row as columns."""
    values = {buffer: array.astype(np.float64) for buffer, array in given.items()}
    return {
        "softmax": (_softmax, _softmax_back),
        "cross-entropy": (_cross_entropy, _cross_entropy_back),
        "dropout": (_dropout, _dropout_back),
        "layer norm": (_layer_norm, _layer_norm_back),
    }[kind(name)][direction != FORWARD](values)


def kind(name: str) -> str:
    """The operator of a form."""
    return name.rpartition(" ")[0]


def needs_all_rows(name: str, direction: str) -> bool:
    """Whether results are sums over all rows."""
    return kind(name) == "layer norm" and direction != FORWARD


def _softmax(v: dict) -> dict:
    exp = np.exp(v["x"] - v["x"].max(1, keepdims=True))
    return {"y": exp / exp.sum(1, keepdims=True)}


def _softmax_back(v: dict) -> dict:
    return {"dx": (v["dy"] - (v["dy"] * v["y"]).sum(1, keepdims=True)) * v["y"]}


def _cross_entropy(v: dict) -> dict:
    y = _softmax(v)["y"]
    return {"y": y, "loss": -np.log(np.take_along_axis(y, v["labels"].astype(np.int64), 1))}


def _cross_entropy_back(v: dict) -> dict:
    hot = np.arange(v["y"].shape[1]) == v["labels"]
    return {"dx": v["dy"] * (v["y"] - hot)}


def _dropout(v: dict) -> dict:
    return {"y": v["x"] * v["mask"] / (1.0 - RATE)}


def _dropout_back(v: dict) -> dict:
    return {"dx": v["dy"] * v["mask"] / (1.0 - RATE)}


def _normalized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inverse = 1.0 / np.sqrt(x.var(1, keepdims=True) + EPSILON)
    return (x - x.mean(1, keepdims=True)) * inverse, inverse


def _layer_norm(v: dict) -> dict:
    normalized, _ = _normalized(v["x"])
    return {"normalized": normalized, "y": normalized * v["gamma"] + v["beta"]}


def _layer_norm_back(v: dict) -> dict:
    normalized, inverse = _normalized(v["x"])
    slope = v["dy"] * v["gamma"]
    along = (slope * normalized).mean(1, keepdims=True)
    dx = inverse * (slope - slope.mean(1, keepdims=True) - normalized * along)
    return {"dx": dx, "dgamma": (v["dy"] * normalized).sum(0, keepdims=True), "dbeta": v["dy"].sum(0, keepdims=True)}

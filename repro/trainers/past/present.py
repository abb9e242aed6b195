"""OneFlow 0.8.0's own operators, as the ports call them, on one GPU and outside a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import oneflow as flow

from repro.models.past import BACKWARD, FORWARD
from repro.trainers.past.forms import EPSILON, RATE
from repro.trainers.past.reference import kind

HALF = ("softmax 2020-12", "dropout fp16", "layer norm 2020-12")
"""Forms in half precision; the others are in fp32."""


def present(name: str, rows: int, columns: int, device: str) -> dict[str, Callable[[], object]]:
    """A call of the operator of a form for each direction; the backward one goes back through one forward pass."""
    precision = flow.float16 if name in HALF else flow.float32

    def numbers(*shape: int):
        return flow.randn(*shape, device=device).to(precision).detach().requires_grad_(True)

    x = numbers(rows, columns)
    inputs, call = {
        "softmax": _softmax,
        "cross-entropy": _cross_entropy,
        "dropout": _dropout,
        "layer norm": _layer_norm,
    }[kind(name)](x, numbers, device)
    result = call()
    back = flow.randn(*result.shape, device=device).to(result.dtype)

    def backward():
        return flow.autograd.grad(result, inputs, back, retain_graph=True)

    return {FORWARD: call, BACKWARD: backward}


def wait() -> None:
    """Until every call has been carried out."""
    flow.cuda.synchronize()


def _softmax(x, numbers, device):
    return [x], lambda: flow._C.softmax(x, dim=1)


def _cross_entropy(x, numbers, device):
    rows, columns = x.shape
    labels = flow.tensor(np.arange(rows) * 7919 % columns, device=device)
    return [x], lambda: flow._C.sparse_softmax_cross_entropy(x, labels)


def _dropout(x, numbers, device):
    return [x], lambda: flow._C.dropout(x, p=RATE)


def _layer_norm(x, numbers, device):
    gamma, beta = numbers(x.shape[1]), numbers(x.shape[1])

    def call():
        return flow._C.layer_norm_affine(x, gamma, beta, begin_norm_axis=1, begin_params_axis=1, epsilon=EPSILON)

    return [x, gamma, beta], call

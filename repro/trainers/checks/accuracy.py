"""Relative errors of a device's forward and backward results against fp64 on the CPU."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Collection, Iterator

import numpy as np
import oneflow as flow

from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.models.registry import module_of, names
from repro.trainers.checks.config import TF32, Comparison
from repro.trainers.checks.dropout import Dropping, dropping
from repro.trainers.checks.dropout import errors as errors_of_dropout
from repro.trainers.checks.one_step import in_a_graph, inputs_of, on_host
from repro.trainers.layout import BROADCAST
from repro.trainers.libraries import libraries
from repro.trainers.metrics import Metrics
from repro.trainers.models.operators import SINGLE, Operator
from repro.trainers.tuning import tuned_module
from repro.trainers.versions import versions

TF32_TOLERANCE = 3e-3
"""TF32 keeps 10 bits of a mantissa. Cutting off the others changes either factor of a product by 2^-11 on average, which
makes 1e-3 together, and in the gradients of attention three products follow each other.
"""


def compare(comparison: Comparison) -> None:
    """Write the relative errors of each operator to the metrics.

    Each operator's name is written before it runs, which identifies an operator that aborts the process. An unusable
    device aborts it before the first operator.

    Raises
    ------
    ValueError
        If a requested model or operator does not exist.
    """
    metrics = Metrics(comparison.output, 0)
    every = operators(comparison.scale, comparison.device)
    published = {operator.name for operator in operators(comparison.scale, comparison.device, (PUBLISHED,))}
    for name in set(comparison.operators) - {operator.name for operator in every}:
        raise ValueError(f"{name}: there is no such operator")
    for name in set(comparison.models) - set(names()):
        raise ValueError(f"{name}: there is no such model")
    metrics.write(
        "start",
        rank=0,
        world_size=1,
        pid=os.getpid(),
        host=socket.gethostname(),
        versions=versions(comparison.device),
        libraries=libraries(),
    )
    flow.ones(1, placement=flow.placement(comparison.device, ranks=[0]), sbp=BROADCAST).numpy()
    chosen = [
        operator for operator in every if not comparison.models or set(comparison.models).intersection(operator.models)
    ]
    chosen = [operator for operator in chosen if precision_of(operator, comparison) in comparison.precisions]
    chosen = [operator for operator in chosen if not comparison.operators or operator.name in comparison.operators]
    part, parts = comparison.share
    chosen = chosen[len(chosen) * (part - 1) // parts : len(chosen) * part // parts]
    metrics.write("operators", names=[operator.name for operator in chosen])
    for operator in chosen:
        precision = precision_of(operator, comparison)
        tolerance = max(operator.limit, TF32_TOLERANCE) if precision == TF32 else operator.limit
        programs = KINDS if operator.name in published else (TUNED,)
        about = {"operator": operator.name, "models": operator.models, "programs": programs, "precision": precision}
        metrics.write("begin", **about)
        measure = errors_of_dropout if isinstance(operator, Dropping) else errors
        for part, error in measure(operator, comparison.device):
            finite = error if math.isfinite(error) else None
            metrics.write("error", **about, part=part, error=finite, tolerance=tolerance)
    metrics.write("end")
    metrics.close()


def precision_of(operator: Operator, comparison: Comparison) -> str:
    """The precision that an operator is computed in: the libraries take TF32 for fp32 where that is compared."""
    return TF32 if operator.precision == SINGLE and TF32 in comparison.precisions else operator.precision


def operators(scale: str, device: str, programs: Collection[str] = KINDS) -> list[Operator]:
    """The operators that all models list for these programs, and those that drop at random.

    The tuned program also computes with those of the published one.
    """
    by_name: dict[str, Operator] = {}
    for name in names():
        for program in programs:
            module = module_of("repro.trainers.models", name) if program == PUBLISHED else tuned_module(name)
            for operator in getattr(module, "operators", lambda scale, device: [])(scale, device):
                by_name[operator.name] = operator
    return [*by_name.values(), *dropping(scale, device, programs)]


def errors(operator: Operator, device: str) -> Iterator[tuple[str, float]]:
    """Relative error of an operator's result, then of the gradient of each input.

    The device computes a whole micro-batch, and the CPU only a few indices of it. The incoming gradient is 0 at all
    other indices, so that the gradients of weights can be compared too.
    """
    tensors = inputs_of(operator, device)
    varied = [place for place, argument in enumerate(operator.inputs) if not argument.below]
    result = operator.call(*tensors)
    size = result.shape[operator.axis]
    places = sorted({size - 1, 0} if operator.places > 1 else {size - 1})
    back = gradient(result, operator.axis, places)
    if operator.changes and device == "cuda":
        result, gradients = in_a_graph(operator, tensors, back)
    else:
        gradients = flow.autograd.grad(result, [tensors[index] for index in varied], back)

    plain = [
        exact(cut(tensor, given.axis, places), bool(given.below)) for tensor, given in zip(tensors, operator.inputs)
    ]
    expected = operator.plain(*plain)
    slopes = flow.autograd.grad(expected, [plain[index] for index in varied], exact(cut(back, operator.axis, places)))

    yield "forward", relative(cut(result, operator.axis, places), expected.numpy())
    for index, measured, slope in zip(varied, gradients, slopes):
        given = operator.inputs[index]
        yield f"{given.name} gradient", relative(cut(measured, given.axis, places), slope.numpy())


def gradient(result, axis: int, places: list):
    """Normal numbers in a result's shape, 0 except at `places` of an axis."""
    shape = [size if number == axis else 1 for number, size in enumerate(result.shape)]
    mask = np.zeros(shape, np.float32)
    np.moveaxis(mask, axis, 0)[places] = 1.0
    mask = flow.tensor(mask).to_global(placement=result.placement, sbp=BROADCAST)
    return (flow.randn(*result.shape, placement=result.placement, sbp=BROADCAST) * mask).to(result.dtype)


def cut(values, axis: int | None, places: list) -> np.ndarray:
    """Values at `places` of an axis, on the host; all values if `axis` is None."""
    if axis is None:
        return on_host(values)
    local = values.detach().to_local()
    return np.concatenate([flow.narrow(local, axis, place, 1).numpy() for place in places], axis)


def exact(values: np.ndarray, whole: bool = False):
    """CPU tensor in fp64; integers keep their type."""
    if whole:
        return flow.tensor(values)
    return flow.tensor(values.astype(np.float64), dtype=flow.float64, requires_grad=True)


def relative(measured: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference divided by the norm of `expected`; infinite if `expected` is all 0."""
    norm = float(np.linalg.norm(expected))
    return float(np.linalg.norm(measured.astype(np.float64) - expected)) / norm if norm else math.inf

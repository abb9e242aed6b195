"""Measurements on hardware that the fit never saw, with what the model says of them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from repro.perfmodel.constants import Constants, Uncertainty
from repro.perfmodel.hardware import Cluster, describe
from repro.perfmodel.predict import other_kind, predict
from repro.perfmodel.work import Job
from repro.perfmodel.workload import flops
from repro.published.cases import Layout
from repro.utils.paths import DATA

FILE = DATA / "validation.toml"
FIELDS = ("model", "micro_batch", "precision", "activation_checkpointing", "optimizer_sharding", "optimizer")
MICRO_BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Check:
    """One measurement elsewhere: samples/s, or TFLOP/s a GPU where that is what was published."""

    name: str
    gpu: str
    model: str
    unit: str
    measured: float
    modelled: float

    @property
    def error(self) -> float:
        return self.modelled / self.measured - 1


def checks(constants: Constants) -> list[Check]:
    """Every measurement of validation.toml with its prediction."""
    with open(FILE, "rb") as stream:
        data = tomllib.load(stream)
    return [*(_measured(row, constants) for row in data["measurement"]), *_published(data["published"], constants)]


def _measured(row: dict, constants: Constants) -> Check:
    given = {name: row[name] for name in FIELDS if name in row}
    job = Job(shape=tuple(sorted(row["shape"].items())), layout=Layout(*row["layout"]), **given)
    cluster = describe(row["cluster"])
    modelled = predict(job, cluster, constants).throughput
    return Check(row["name"], cluster.gpu.name, job.model, "samples/s", row["throughput"], modelled)


def _published(rows: Iterable[dict], constants: Constants) -> Iterator[Check]:
    for row in rows:
        cluster = describe(row["cluster"])
        best = max(_rate(job, cluster, constants) for job in _jobs(row))
        yield Check(row["name"], cluster.gpu.name, row["model"], "TFLOP/s a GPU", row["tflops"], best)


def _jobs(row: dict) -> Iterator[Job]:
    layout, shape = Layout(*row["layout"]), tuple(sorted(row["shape"].items()))
    for micro_batch in MICRO_BATCHES:
        steps, rest = divmod(row["global_batch"], micro_batch * layout.data)
        if steps and not rest:
            yield Job(row["model"], shape, layout, micro_batch, steps, activation_checkpointing=True)


def _rate(job: Job, cluster: Cluster, constants: Constants) -> float:
    """TFLOP/s a GPU by the formula the published figures were made with, 0 for what does not fit."""
    predicted = predict(job, cluster, constants)
    if predicted.memory.total_mib > cluster.gpu.memory_mib:
        return 0.0
    return flops(job) / predicted.seconds.total / job.layout.world_size / 1e12


def elsewhere(found: Iterable[Check], memory: float) -> dict[str, Uncertainty]:
    """The largest error seen on other hardware, for transformers and for convolutions; `memory` is taken over."""
    kinds: dict[str, float] = {}
    for each in found:
        kind = other_kind(each.model)
        kinds[kind] = max(kinds.get(kind, 0.0), abs(each.error))
    return {kind: Uncertainty(error, memory) for kind, error in sorted(kinds.items())}

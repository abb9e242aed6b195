"""What the kept runs of one host give together: ratios to PyTorch, scaling, layouts, and the targets for them.

The archives are read in place; a host is loaded once per rendering, and each comparison is computed once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from repro.analysis import steady
from repro.analysis.evidence import require
from repro.analysis.process_info import program_starts
from repro.analysis.ratio import Ratio, ratio
from repro.analysis.relations import Relation, baseline_relations, scaling_relations, tuning_relations
from repro.analysis.results import RESULT_COLUMNS, Result, result_frame, results_csv, summarise
from repro.analysis.verdict import Judgement, judge
from repro.perfmodel.hardware import HardwareError
from repro.perfmodel.predict import expect_unit
from repro.planning.plan import PUBLISHED, Plan
from repro.report.host.keep import HOST
from repro.report.host.notes import Notes, read, toml
from repro.report.run.kinds import kind_of
from repro.runs import digests
from repro.runs.digests import REPRODUCED
from repro.runs.files import ARCHIVE, PREFLIGHT, RecordError, RunPath, gpu_samples, names, read_json
from repro.runs.record import Run
from repro.utils.paths import DATA
from repro.utils.stats import median

TARGETS = DATA / "reproduced"
MET, MISSED, OPEN = "met", "missed", "open"
BUSY = 50
"""Utilisation in per cent from which on a sample of a GPU counts as one under load."""


@dataclass(frozen=True)
class Target:
    """Between what a ratio should be. `of` is "ratio" (OneFlow over PyTorch), "efficiency" or "expectation".

    `at_most` is infinite where more is better; an expectation that is exceeded is as wrong as one that is missed.
    `where` narrows it: what it names of `model`, `program`, `precision`, `baseline` and `gpus` must be so.
    """

    of: str
    at_least: float
    at_most: float = math.inf
    where: dict = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"≥ {self.at_least:.2f}" + (f", ≤ {self.at_most:.2f}" if math.isfinite(self.at_most) else "")

    def status(self, found: Ratio) -> str:
        """MET if the whole interval is within, MISSED if it is wholly outside, otherwise OPEN.

        An interval of too little confidence decides nothing.
        """
        interval = found.decisive
        if interval is None:
            return OPEN
        if interval.low >= self.at_least and interval.high <= self.at_most:
            return MET
        return MISSED if interval.high < self.at_least or interval.low > self.at_most else OPEN


@dataclass(frozen=True)
class KeptRun:
    """A kept run, read once; `label` is its short name on the host's page, its id the anchor there."""

    label: str
    run: Run
    description: dict
    plan: Plan
    attempts: list[dict]
    results: list[Result]
    judgement: Judgement
    starts: dict[str, dict]
    findings: Any

    @property
    def gpus(self) -> list[dict]:
        return self.description["environment"]["gpus"]

    @property
    def measures_speed(self) -> bool:
        """Whether its throughputs are results: a kind of run that judges speed, with the published shapes."""
        return kind_of(self.plan).judges_speed and self.plan.scale == PUBLISHED


@dataclass(frozen=True)
class Row:
    """A result of a run, what it is compared with, their ratio, and the target for that.

    `base` is a baseline, or the same training on one GPU; `target` is None if there is none. `steady` is the ratio in the
    steady state, which decides nothing; None where it is not known.
    """

    kept: KeptRun
    result: Result
    base: Result
    ratio: Ratio
    steady: float | None
    target: Target | None

    @property
    def status(self) -> str:
        """The target's status; empty without a target."""
        return self.target.status(self.ratio) if self.target else ""


@dataclass(frozen=True)
class LayoutRow:
    """A result of a run compared with what the performance model expects, in samples/s; None where it expects nothing."""

    kept: KeptRun
    result: Result
    expected: float | None
    ratio: Ratio | None
    target: Target | None

    @property
    def status(self) -> str:
        """The target's status; empty without a target."""
        return self.target.status(self.ratio) if self.target and self.ratio else ""


@dataclass(frozen=True)
class Host:
    """All that is kept of one host: runs and preflights in the order of their names, targets, and hand-written notes."""

    name: str
    folder: Path
    runs: tuple[KeptRun, ...]
    preflights: tuple[Run, ...]
    targets: tuple[Target, ...]
    notes: Notes

    @property
    def measured(self) -> list[KeptRun]:
        """The runs that measured speed on GPUs."""
        return [kept for kept in self.runs if kept.measures_speed]

    @cached_property
    def ratios(self) -> list[Row]:
        """OneFlow over each baseline in the same run, by model, precision and number of GPUs."""
        found = [
            self._row(kept, each, "ratio", baseline=each.base.unit.label)
            for kept in self.measured
            for each in baseline_relations(kept.results)
        ]
        return sorted(found, key=lambda row: (*_kind(row.result), row.kept.label))

    @cached_property
    def gains(self) -> list[Row]:
        """The tuned program over the published one in the same run."""
        found = [
            Row(kept, each.result, each.base, each.ratio, each.steady, None)
            for kept in self.measured
            for each in tuning_relations(kept.results)
        ]
        return sorted(found, key=lambda row: (*_kind(row.result), row.kept.label))

    @cached_property
    def efficiencies(self) -> list[Row]:
        """Data parallel units over the same on one GPU in the same run, OneFlow's and its baselines'."""
        found = [
            self._row(kept, each, "efficiency") for kept in self.measured for each in scaling_relations(kept.results)
        ]
        return sorted(found, key=lambda row: (*_kind(row.result), row.kept.label))

    @cached_property
    def layouts(self) -> list[LayoutRow]:
        """OneFlow's units on several GPUs, of the models that ran in others than data parallel layouts in any run.

        Each over what the performance model expects of it, where that knows the GPUs and the case.
        """
        ours = [
            (kept, each)
            for kept in self.measured
            for each in kept.results
            if each.throughputs and not each.unit.baseline_of and each.unit.world_size > 1
        ]
        models = {each.unit.model for _kept, each in ours if each.unit.world_size > each.unit.config["layout"]["data"]}
        found = []
        for kept, result in ours:
            if result.unit.model in models:
                expected = _expected(result, kept.gpus)
                over = ratio(result.throughputs, expected) if expected else None
                target = self._target("expectation", result) if expected else None
                found.append(LayoutRow(kept, result, expected, over, target))
        return sorted(found, key=lambda row: (*_kind(row.result), row.kept.label))

    def _row(self, kept: KeptRun, relation: Relation, of: str, **more: str) -> Row:
        target = None if relation.result.unit.baseline_of else self._target(of, relation.result, **more)
        return Row(kept, relation.result, relation.base, relation.ratio, relation.steady, target)

    def _target(self, of: str, result: Result, **more: str) -> Target | None:
        config = result.unit.config
        facts = {name: config[name] for name in ("model", "program", "precision")}
        facts |= {"gpus": result.unit.world_size, **more}
        matching = (each for each in self.targets if each.of == of and each.where.items() <= facts.items())
        return next(matching, None)


def hosts(reproduced: Path = REPRODUCED) -> list[str]:
    """The names of the hosts that have kept runs."""
    return sorted(path.name for path in reproduced.glob("*") if HOST.fullmatch(path.name) and any(path.glob("runs/*")))


def load(name: str, reproduced: Path = REPRODUCED, data: Path = TARGETS) -> Host:
    """Read everything that is kept of a host.

    RecordError if there is nothing, or if a run cannot be read, is not as it was recorded or kept, is gone, or has
    figures that its raw output does not give.
    """
    folder = reproduced / name
    if altered := digests.faults(folder):
        raise RecordError("\n".join(altered))
    runs: list[KeptRun] = []
    preflights: list[Run] = []
    for archive in sorted(folder.glob(f"runs/*{ARCHIVE}")):
        run = Run(archive)
        if (run.files / PREFLIGHT).is_file():
            preflights.append(run)
        else:
            runs.append(_load_run(f"R{len(runs) + 1}", run))
    if not runs and not preflights:
        raise RecordError(f"{folder / 'runs'} holds no run; `make archive RUN=<id> HOST={name}` puts one there")
    targets = tuple(
        Target(each.pop("of"), each.pop("at_least"), each.pop("at_most", math.inf), each)
        for each in toml(data / f"{name}.toml").get("target", ())
    )
    return Host(name, folder, tuple(runs), tuple(preflights), targets, read(folder))


def _load_run(label: str, run: Run) -> KeptRun:
    require(run)
    description, attempts = run.description(), steady.attempts(run)
    plan = Plan.from_json(description["plan"])
    results = summarise(plan, attempts)
    return KeptRun(
        label,
        run,
        description,
        plan,
        attempts,
        results,
        judge(run, plan, attempts, results),
        program_starts(run.files, plan, attempts),
        kind_of(plan).analyse(run, plan, attempts, results),
    )


def results_table(host: Host) -> str:
    """All results of all runs as CSV, one row per configuration, with the run's id first."""
    tables = [result_frame(kept.plan, kept.attempts).assign(run=kept.run.id) for kept in host.runs]
    columns = ["run", *RESULT_COLUMNS]
    return results_csv(pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns))


def _kind(result: Result) -> tuple:
    """Orders results by model, precision, number of GPUs and name."""
    config = result.unit.config
    return config["model"], config["precision"] != "fp32", result.unit.world_size, result.unit.name


def _expected(result: Result, gpus: list[dict]) -> float | None:
    """The performance model's samples/s for a unit on these GPUs; None for a case or GPUs that it does not know."""
    try:
        expected = expect_unit(result.unit, gpus)
    except HardwareError:
        return None
    return expected.throughput if expected else None


@dataclass(frozen=True)
class Clocks:
    """SM clocks in MHz of the GPUs' samples under load, how many samples these are, and the highest temperature, °C."""

    lowest: float
    middle: float
    highest: float
    samples: int
    hottest: float


def clocks(runs: Iterable[KeptRun]) -> Clocks | None:
    """From what nvidia-smi printed every few seconds of the successful attempts; None without a sample under load."""
    found = [
        sample
        for kept in runs
        for attempt in kept.attempts
        if attempt["status"] == "ok"
        for sample in _samples(kept.run.files / attempt["folder"])
    ]
    if not found:
        return None
    speeds = [clock for clock, _ in found]
    return Clocks(min(speeds), median(speeds), max(speeds), len(found), max(heat for _, heat in found))


def _samples(attempt: RunPath) -> list[tuple[float, float]]:
    """Clock and temperature of each sample with at least BUSY per cent utilisation."""
    samples = gpu_samples(attempt)
    busy = [each for each in samples if each["utilization.gpu"].isdigit() and int(each["utilization.gpu"]) >= BUSY]
    return [
        (float(each["clocks.sm"]), float(each["temperature.gpu"]))
        for each in busy
        if each["clocks.sm"].isdigit() and each["temperature.gpu"].isdigit()
    ]


def preflight_tables(preflight: Run) -> dict[str, list[dict]]:
    """What a kept preflight measured: its findings, and the tables "kernels" and "allreduce", one for each machine."""
    found: dict[str, list[dict]] = {"findings": read_json(preflight.files / PREFLIGHT)["findings"]}
    for name in ("kernels", "allreduce"):
        tables = [path for path in names(preflight.files) if re.fullmatch(rf"{name}-[^/]+/{name}\.json", path)]
        found[name] = [read_json(preflight.files / table) for table in tables]
    return found

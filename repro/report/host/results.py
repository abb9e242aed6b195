"""What the kept runs of one host give together: ratios to PyTorch, scaling, layouts, and the goals for them.

The archives are read in place; a host is loaded once per rendering, and each comparison is computed once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from repro.analysis import copies
from repro.analysis.cross_hardware import HardwareComparison
from repro.analysis.ratio import Ratio, ratio
from repro.analysis.relations import (
    Relation,
    baseline_relations,
    scaling_relations,
    tuning_relations,
    variant_relations,
)
from repro.analysis.results import RESULT_COLUMNS, Result, result_frame, results_csv
from repro.analysis.verification import signed_as_listed
from repro.models.registry import spec_of
from repro.models.variants import MEGATRON
from repro.perfmodel.hardware import GpuModel, HardwareError, from_devices
from repro.perfmodel.kernels import fitted_trainings
from repro.perfmodel.predict import expect_unit
from repro.perfmodel.work import ModelJob
from repro.planning.derived import case_of
from repro.published.audit.flops import model_flop
from repro.published.cases import Catalogue, load_catalogue
from repro.report.host.notes import NOTES, SHARED, Notes, read
from repro.report.host.rows import HostRow, RatioGoal, RunRatio, rows
from repro.report.host.run import KeptRun, load_run
from repro.runs import digests, program_versions
from repro.runs.digests import REPRODUCED
from repro.runs.environment import Environment
from repro.runs.files import PREFLIGHT, RecordError, RunPath, gpu_samples, names, read_json, read_toml
from repro.runs.record import Run
from repro.runs.sessions import sessions, span
from repro.runs.unit import Unit
from repro.utils.grouping import by_key
from repro.utils.i18n import LANGUAGES
from repro.utils.paths import DATA
from repro.utils.stats import median

GOALS = DATA / "reproduced"
BUSY = 50
"""Utilisation in per cent from which on a sample of a GPU counts as one under load."""


@dataclass(frozen=True)
class MeasuredHost:
    """All that is kept of one host: runs and preflights in the order of their names, goals, and hand-written notes.

    `catalogue` has the published cases that it is compared with.
    """

    name: str
    folder: Path
    runs: tuple[KeptRun, ...]
    preflights: tuple[Run, ...]
    goals: tuple[RatioGoal, ...]
    notes: Notes
    catalogue: Catalogue = field(default_factory=load_catalogue)

    @property
    def measured(self) -> list[KeptRun]:
        """The runs that measured speed on GPUs."""
        return [kept_run for kept_run in self.runs if kept_run.measures_speed]

    def is_shared(self, kept_run: KeptRun) -> bool:
        """Whether another program used the host's processors during a run."""
        return kept_run.run.id.startswith(self.notes.shared)

    @cached_property
    def sessions(self) -> dict[str, str]:
        """The session of each run, by the run's id."""
        return sessions(span(kept_run.run.id, kept_run.description, kept_run.attempts) for kept_run in self.runs)

    @cached_property
    def ratios(self) -> list[HostRow]:
        """OneFlow over each baseline that took turns with it."""
        ratio_rows = rows(self._relations(baseline_relations))
        return [self._aimed(row, "ratio", baseline=row.base.label) for row in ratio_rows]

    @cached_property
    def gains(self) -> list[HostRow]:
        """The tuned program over the published one that took turns with it."""
        return [self._aimed(row, "gain") for row in rows(self._relations(tuning_relations))]

    @cached_property
    def megatrons(self) -> list[HostRow]:
        """Megatron-Core's variants over each other, where they took turns with one unit."""
        return rows(self._relations(partial(variant_relations, *MEGATRON)))

    @cached_property
    def efficiencies(self) -> list[HostRow]:
        """Data parallel units over the same on one GPU, OneFlow's and its baselines'."""
        return [self._aimed(row, "efficiency") for row in rows(self._relations(scaling_relations))]

    @cached_property
    def layouts(self) -> list[HostRow]:
        """OneFlow's units on several GPUs, of the models that ran in others than data parallel layouts in any run.

        Each with the newest code over what the performance model expects of it, where that judges.
        """
        ours = [
            (kept_run, result)
            for kept_run in self.measured
            for result in kept_run.results
            if result.throughputs and not result.unit.baseline_of and result.unit.world_size > 1
        ]
        models = {
            result.unit.model for _kept_run, result in ours if result.unit.world_size > result.unit.config.layout.data
        }
        expected = {
            (kept_run.run.id, result.unit.name): _expected(result, kept_run.environment)
            if self.is_current(kept_run, result.unit)
            else None
            for kept_run, result in ours
            if result.unit.model in models
        }
        layout_rows = rows(
            self._of_run(kept_run, result, None, ratio(result.throughputs, value) if value else None)
            for kept_run, result in ours
            if (key := (kept_run.run.id, result.unit.name)) in expected
            for value in (expected[key],)
        )
        with_expectation = (
            replace(row, expected=expected[row.measurements[-1].kept_run.run.id, row.unit.name]) for row in layout_rows
        )
        return [self._aimed(row, "expectation") for row in with_expectation]

    @cached_property
    def peaks(self) -> list[HostRow]:
        """OneFlow's units over what they would reach at the peak of their GPUs, where `at_peak` says this: the MFU."""
        reached = (
            self._of_run(
                kept_run, result, None, ratio(result.throughputs, rate), result.steady / rate if result.steady else None
            )
            for kept_run in self.measured
            for result in kept_run.results
            if result.throughputs and (rate := at_peak(result.unit, kept_run.environment))
        )
        return [
            self._aimed(row, "peak", shape="{hidden_size}x{layers}".format_map(row.unit.config.shape))
            for row in rows(reached)
        ]

    @property
    def aimed(self) -> list[HostRow]:
        """All rows that have a goal."""
        return [row for row in (*self.ratios, *self.efficiencies, *self.peaks, *self.layouts) if row.goal]

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """Which training programs of OneFlow's have a throughput."""
        units = (result.unit for kept_run in self.measured for result in kept_run.results if result.throughputs)
        return tuple(dict.fromkeys(unit.program for unit in units if not unit.baseline_of))

    @cached_property
    def configurations(self) -> list[HostRow]:
        """Every configuration by itself, over nothing."""
        return rows(
            self._of_run(kept_run, result, None, None)
            for kept_run in self.measured
            for result in kept_run.results
            if result.throughputs
        )

    @cached_property
    def comparisons(self) -> list[HardwareComparison]:
        """The port's comparisons with published figures, with the newest code and alone on the host: one per case.

        Each has the median over runs.
        """
        every = (
            comparison
            for kept_run in self.measured
            if not self.is_shared(kept_run)
            for units in ({result.unit.name: result.unit for result in kept_run.results},)
            for comparison in kept_run.judgement.comparisons
            if all(self.is_current(kept_run, units[name]) for name in comparison.units)
        )
        groups = by_key(every, lambda comparison: (comparison.kind, comparison.case, comparison.against)).values()
        return [replace(group[-1], measured=median([one.measured for one in group]), repeated=None) for group in groups]

    def _relations(self, of: Callable[[Iterable[Result]], list[Relation]]) -> Iterator[RunRatio]:
        for kept_run in self.measured:
            for relation in of(kept_run.results):
                yield self._of_run(kept_run, relation.result, relation.base, relation.ratio, relation.steady)

    def _of_run(
        self,
        kept_run: KeptRun,
        result: Result,
        base: Result | None,
        over: Ratio | None,
        steady: float | None = None,
    ) -> RunRatio:
        session, shared = self.sessions[kept_run.run.id], self.is_shared(kept_run)
        return RunRatio(kept_run, result, base, over, steady, session=session, shared=shared)

    @cached_property
    def newest_code(self) -> dict[tuple[str, str], str]:
        """By model and program, the code of the newest run of any kind that trained it."""
        return {
            (unit.model, unit.program): kept_run.code(unit)
            for kept_run in sorted(self.runs, key=lambda kept_run: kept_run.age)
            for unit in kept_run.trained
            if not unit.baseline_of
        }

    def is_current(self, kept_run: KeptRun, unit: Unit) -> bool:
        """Whether a run had the newest code of a unit's program."""
        return kept_run.code(unit) == self.newest_code.get((unit.model, unit.program))

    def _aimed(self, row: HostRow, of: str, **more: str) -> HostRow:
        """The row with its goal, and whether it is current; a baseline has no goal, nor has what nothing is expected of."""
        unit = row.unit
        if unit.baseline_of:
            return row
        row = replace(row, current=self.is_current(row.runs[-1], unit))
        if row.ratio is None:
            return row
        facts = {
            "model": unit.config.model,
            "program": unit.config.program,
            "precision": unit.precision,
            "gpus": unit.world_size,
            **more,
        }
        matching = (goal for goal in self.goals if goal.of == of and goal.where.items() <= facts.items())
        return replace(row, goal=next(matching, None))


def load(name: str, reproduced: Path = REPRODUCED, data: Path = GOALS) -> MeasuredHost:
    """Read everything that is kept of a host.

    RecordError if there is nothing, or if a run cannot be read, is not as it was recorded or kept, is gone without a line
    that says so, or has figures that its raw output does not give.
    """
    folder = reproduced / name
    if altered := digests.chain_faults(reproduced / digests.NAME) or digests.faults(folder):
        raise RecordError("\n".join(altered))
    runs: list[KeptRun] = []
    preflights: list[Run] = []
    versions = program_versions.read(reproduced)
    gone = {Path(path).stem for path in digests.removed(folder)}
    for run in map(Run, digests.in_order(folder)):
        if run.id in gone:
            continue
        if (run.files / PREFLIGHT).is_file():
            preflights.append(run)
        else:
            runs.append(load_run(run, versions))
    if twice := copies.between({f"{name}/{kept_run.run.id}": kept_run.evidence.noises for kept_run in runs}):
        raise RecordError("\n".join(twice))
    if not runs and not preflights:
        raise RecordError(f"{folder / 'runs'} holds no run; `make archive RUN=<id> HOST={name}` puts one there")
    archived = (*(kept_run.run for kept_run in runs), *preflights)
    if unsigned := [text for run in archived for good, text in signed_as_listed(run.path) if not good]:
        raise RecordError("\n".join(unsigned))
    goals, notes = goals_for(name, data), read(folder)
    runs.sort(key=lambda kept_run: kept_run.run.id)
    if unknown := [begin for begin in notes.shared if not any(of.run.id.startswith(begin) for of in runs)]:
        raise RecordError(f"{folder / NOTES}: {SHARED}: no kept run begins with {', '.join(unknown)}")
    return MeasuredHost(name, folder, runs=tuple(runs), preflights=tuple(preflights), goals=goals, notes=notes)


def goals_for(host: str, data: Path = GOALS) -> tuple[RatioGoal, ...]:
    """The goals in the files that name the host, none without one; RecordError as goals_of."""
    return tuple(goal for file in sorted(data.glob("*.toml")) if host in _named(file) for goal in goals_of(file))


def _named(file: Path) -> list[str]:
    """The hosts whose pages are held to a file's goals; RecordError for a file that names none."""
    named = read_toml(file).get("hosts")
    if not isinstance(named, list) or not named:
        raise RecordError(f'{file}: hosts: name the hosts that these goals are for, such as hosts = ["h200"]')
    return named


def goals_of(file: Path) -> tuple[RatioGoal, ...]:
    """The goals in a file; RecordError for one that does not say who set it, and why."""
    goals = []
    for number, entry in enumerate(read_toml(file).get("goal", ()), 1):
        by, why = (entry.pop(name, None) for name in ("by", "why"))
        for name, text in (("by", by), ("why", why)):
            if not isinstance(text, dict) or not all(isinstance(text.get(language), str) for language in LANGUAGES):
                raise RecordError(
                    f"{file}: goal {number}: {name}: say in {' and '.join(LANGUAGES)} "
                    f"{'who set it' if name == 'by' else 'why it is set so'}"
                )
        goals.append(
            RatioGoal(
                entry.pop("of"),
                entry.pop("at_least"),
                at_most=entry.pop("at_most", math.inf),
                where=entry,
                by=by,
                why=why,
            )
        )
    return tuple(goals)


def results_table(host: MeasuredHost) -> str:
    """All results of all runs as CSV, one row per configuration, with the run's id first."""
    tables = [result_frame(kept_run.plan, kept_run.attempts).assign(run=kept_run.run.id) for kept_run in host.runs]
    columns = ["run", *RESULT_COLUMNS]
    return results_csv(pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns))


def _expected(result: Result, environment: Environment) -> float | None:
    """The performance model's samples/s for a unit on the GPUs of a run.

    None for a case or GPUs that it does not know, where it is too unsure to judge, and for what it was fitted on.
    """
    case = case_of(result.unit)
    if case is None or (result.unit.program, ModelJob.of(case, result.unit.program)) in fitted_trainings():
        return None
    try:
        expected = expect_unit(result.unit, environment.gpus, len(environment.hosts))
    except HardwareError:
        return None
    return expected.throughput if expected and expected.judges else None


def at_peak(unit: Unit, environment: Environment) -> float | None:
    """The samples/s at which the operations of a unit's model would be the dense fp16 peak of its GPUs.

    None for baselines, for other precisions, and for models and GPUs whose operations or peak are not known.
    """
    if unit.baseline_of or unit.precision != "amp" or not spec_of(unit.model).published_flops:
        return None
    try:
        gpu = from_devices(environment.gpus[0]["name"], 1).gpu
    except HardwareError:
        return None
    return rate_at_peak(unit.config.shape, gpu, unit.world_size)


def rate_at_peak(shape: Mapping[str, int], gpu: GpuModel, world_size: int) -> float:
    """The samples/s of a GPT at a model FLOPs utilization of 1, on the dense fp16 peak of this many GPUs."""
    return world_size * gpu.peak_flops("amp") / model_flop(shape)


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
    samples = [
        sample
        for kept_run in runs
        for attempt in kept_run.attempts
        if attempt.status == "ok"
        for sample in _samples(kept_run.run.files / attempt.folder)
    ]
    if not samples:
        return None
    speeds = [clock for clock, _ in samples]
    return Clocks(min(speeds), median(speeds), max(speeds), len(samples), max(heat for _, heat in samples))


def _samples(attempt: RunPath) -> list[tuple[float, float]]:
    """Clock and temperature of each sample with at least BUSY per cent utilisation."""
    samples = gpu_samples(attempt)
    busy = [
        sample for sample in samples if sample["utilization.gpu"].isdigit() and int(sample["utilization.gpu"]) >= BUSY
    ]
    return [
        (float(sample["clocks.sm"]), float(sample["temperature.gpu"]))
        for sample in busy
        if sample["clocks.sm"].isdigit() and sample["temperature.gpu"].isdigit()
    ]


def preflight_tables(preflight: Run) -> dict[str, list[dict]]:
    """What a kept preflight measured: its findings, and the tables "kernels" and "allreduce", one for each machine."""
    by_name: dict[str, list[dict]] = {"findings": read_json(preflight.files / PREFLIGHT)["findings"]}
    for name in ("kernels", "allreduce"):
        tables = [path for path in names(preflight.files) if re.fullmatch(rf"{name}-[^/]+/{name}\.json", path)]
        by_name[name] = [read_json(preflight.files / table) for table in tables]
    return by_name

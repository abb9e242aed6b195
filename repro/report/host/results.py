"""What the kept runs of one host say together: ratios to PyTorch, scaling, layouts, and the targets for them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from repro.analysis.convergence import Convergence
from repro.analysis.loss_curves import Curves
from repro.analysis.process_info import program_starts
from repro.analysis.profiles import Profiles
from repro.analysis.ratio import Ratio, ratio
from repro.analysis.relations import Relation, baseline_relations, scaling_relations, variant
from repro.analysis.results import Result, summarise
from repro.analysis.verdict import Judgement, judge
from repro.launch.gpu_sampler import FIELDS, FILE
from repro.perfmodel.hardware import HardwareError, from_devices
from repro.planning.derived import case_of
from repro.planning.plan import Plan
from repro.report.host.keep import HOST, PREFLIGHT, REPRODUCED
from repro.report.host.notes import Reading, read, toml
from repro.report.run.kinds import shown
from repro.runs.files import opened, present
from repro.runs.manifest import alterations
from repro.runs.record import RecordError, Run, read_json
from repro.utils.paths import DATA
from repro.utils.stats import median

TARGETS = DATA / "reproduced"
MET, MISSED, OPEN = "met", "missed", "open"
BUSY = 50
"""Utilisation in per cent from which on a sample of a GPU counts as one under load."""


@dataclass(frozen=True)
class Target:
    """The least that a ratio should be. `of` is "ratio" (OneFlow over PyTorch), "efficiency" or "expectation".

    `where` narrows it: what it names of `model`, `precision`, `peer` and `gpus` must be so.
    """

    of: str
    at_least: float
    where: dict = field(default_factory=dict, hash=False)

    def standing(self, found: Ratio) -> str:
        """MET if the whole interval is at or above, MISSED if it is wholly below, otherwise OPEN."""
        if not found.interval:
            return OPEN
        if found.interval.low >= self.at_least:
            return MET
        return MISSED if found.interval.high < self.at_least else OPEN


@dataclass(frozen=True)
class KeptRun:
    """A kept run, read once; `label` is its short name on the host's page."""

    label: str
    run: Run
    description: dict
    plan: Plan
    attempts: list[dict]
    results: list[Result]
    judgement: Judgement
    starts: dict[str, dict]
    shown: Curves | Convergence | Profiles | None

    @property
    def gpus(self) -> list[dict]:
        return self.description["environment"]["gpus"]


@dataclass(frozen=True)
class Row:
    """A result of a run, what it is measured against, their ratio, and the target for that; None where there is none.

    `base` is a peer, or the same training on one GPU. Against the performance model there is `expected`, in samples/s.
    """

    told: KeptRun
    result: Result
    base: Result | None
    ratio: Ratio | None
    target: Target | None
    expected: float | None = None

    @property
    def standing(self) -> str:
        """The target's standing; empty without a target."""
        return self.target.standing(self.ratio) if self.target else ""


@dataclass(frozen=True)
class Host:
    """All that is kept of one host: runs in the order of their names, preflights, targets, and a person's reading."""

    name: str
    folder: Path
    runs: tuple[KeptRun, ...]
    preflights: tuple[Path, ...]
    targets: tuple[Target, ...]
    reading: Reading

    @property
    def measured(self) -> list[KeptRun]:
        """The runs that measured speed on GPUs."""
        return [told for told in self.runs if told.plan.scale == "published"]

    def ratios(self) -> list[Row]:
        """OneFlow over each peer in the same run, by model, precision and number of GPUs."""
        found = [
            self._row(told, each, "ratio", baseline=variant(each.base.unit))
            for told in self.measured
            for each in baseline_relations(told.results)
        ]
        return sorted(found, key=lambda row: (*_kind(row.result), row.told.label))

    def efficiencies(self) -> list[Row]:
        """Data parallel units over the same on one GPU in the same run, OneFlow's and its peers'."""
        found = [
            self._row(told, each, "efficiency") for told in self.measured for each in scaling_relations(told.results)
        ]
        return sorted(found, key=lambda row: (*_kind(row.result), row.told.label))

    def layouts(self) -> list[Row]:
        """OneFlow's units on several GPUs, of the models that ran in others than data parallel layouts.

        Each over what the performance model expects of it, where that knows the GPUs and the case.
        """
        found = []
        for told in self.measured:
            ours = [each for each in told.results if each.throughputs and not each.unit.baseline_of]
            models = {each.unit.model for each in ours if each.unit.world_size > each.unit.config["layout"]["data"]}
            for result in (each for each in ours if each.unit.model in models and each.unit.world_size > 1):
                expected = _expected(result, told.gpus)
                over = ratio(result.throughputs, (expected,)) if expected else None
                target = self._target("expectation", result) if expected else None
                found.append(Row(told, result, None, over, target, expected))
        return sorted(found, key=lambda row: (*_kind(row.result), row.told.label))

    def _row(self, told: KeptRun, relation: Relation, of: str, **more) -> Row:
        target = None if relation.result.unit.baseline_of else self._target(of, relation.result, **more)
        return Row(told, relation.result, relation.base, relation.ratio, target)

    def _target(self, of: str, result: Result, **more) -> Target | None:
        config = result.unit.config
        facts = {"model": config["model"], "precision": config["precision"], "gpus": result.unit.world_size, **more}
        matching = (each for each in self.targets if each.of == of and each.where.items() <= facts.items())
        return next(matching, None)


def hosts(reproduced: Path = REPRODUCED) -> list[str]:
    """The names of the hosts of which anything is kept."""
    return sorted(path.name for path in reproduced.glob("*") if HOST.fullmatch(path.name) and any(path.glob("runs/*")))


def load(name: str, reproduced: Path = REPRODUCED, data: Path = TARGETS) -> Host:
    """Read everything that is kept of a host.

    RecordError if there is nothing, or if a run cannot be read or is not as it was recorded.
    """
    folder = reproduced / name
    kept = sorted(path.parent for path in folder.glob("runs/*/run.json"))
    preflights = tuple(sorted(path.parent for path in folder.glob(f"runs/*/{PREFLIGHT}")))
    if not kept and not preflights:
        raise RecordError(f"{folder / 'runs'} holds no run; `make keep RUN=<id> HOST={name}` puts one there")
    told = tuple(_told(f"R{number}", Run(path)) for number, path in enumerate(kept, 1))
    targets = tuple(
        Target(each.pop("of"), each.pop("at_least"), each) for each in toml(data / f"{name}.toml").get("target", ())
    )
    return Host(name, folder, told, preflights, targets, read(folder))


def _told(label: str, run: Run) -> KeptRun:
    if altered := alterations(run.folder):
        raise RecordError("\n".join((f"{run.folder} is not as it was recorded:", *altered)))
    description, attempts = run.description(), run.attempts()
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
        program_starts(run.folder, plan, attempts),
        shown(run, plan, attempts),
    )


def _kind(result: Result) -> tuple:
    """Orders results by model, precision, number of GPUs and name."""
    config = result.unit.config
    return config["model"], config["precision"] != "fp32", result.unit.world_size, result.unit.name


def _expected(result: Result, gpus: list[dict]) -> float | None:
    """The performance model's samples/s for a unit on these GPUs; None for a case or GPUs that it does not know."""
    from repro.perfmodel.predict import expect

    case = case_of(result.unit)
    if case is None or not result.unit.world_size <= len(gpus):
        return None
    try:
        return expect(case, from_devices(gpus[0]["name"], len(gpus))).throughput
    except HardwareError:
        return None


@dataclass(frozen=True)
class Clocks:
    """SM clocks in MHz of the GPUs' samples under load, how many samples these are, and the highest temperature, °C."""

    lowest: float
    middle: float
    highest: float
    samples: int
    hottest: float


def clocks(runs: Iterable[KeptRun]) -> Clocks | None:
    """From what nvidia-smi said every few seconds of the successful attempts; None without a sample under load."""
    found = [
        sample
        for told in runs
        for attempt in told.attempts
        if attempt["status"] == "ok"
        for sample in _samples(told.run.folder / attempt["folder"] / FILE)
    ]
    if not found:
        return None
    speeds = [clock for clock, _ in found]
    return Clocks(min(speeds), median(speeds), max(speeds), len(found), max(heat for _, heat in found))


def _samples(file: Path) -> list[tuple[float, float]]:
    """Clock and temperature of each sample with at least BUSY per cent utilisation."""
    if not present(file):
        return []
    with opened(file) as content:
        rows = csv.reader(content.read().decode("utf-8", "replace").splitlines(), skipinitialspace=True)
        samples = [dict(zip(FIELDS, row, strict=True)) for row in rows if len(row) == len(FIELDS)]
    busy = [each for each in samples if each["utilization.gpu"].isdigit() and int(each["utilization.gpu"]) >= BUSY]
    return [
        (float(each["clocks.sm"]), float(each["temperature.gpu"]))
        for each in busy
        if each["clocks.sm"].isdigit() and each["temperature.gpu"].isdigit()
    ]


def preflight_tables(folder: Path) -> dict[str, list[dict]]:
    """What a kept preflight measured: its findings, and the tables "kernels" and "allreduce", one for each machine."""
    found = {"findings": read_json(folder / PREFLIGHT)["findings"]}
    for name in ("kernels", "allreduce"):
        found[name] = []
        for path in sorted(folder.glob(f"{name}-*")):
            if present(path / f"{name}.json"):
                with opened(path / f"{name}.json") as file:
                    found[name].append(json.load(file))
    return found

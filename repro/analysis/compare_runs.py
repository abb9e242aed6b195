"""Compares two runs unit by unit: equal configurations by the ratio of their throughputs, and lists what differs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from repro.analysis.frames import attempt_frame, status_counts
from repro.analysis.ratio import Ratio, repeated_ratio
from repro.analysis.results import Result, summarise
from repro.analysis.verdict import NOISE_FACTOR, outcome
from repro.published.cases import load_catalogue
from repro.published.noise import published_noise
from repro.runs.attempts import AttemptRecord
from repro.runs.description import RunDescription
from repro.runs.plan import BENCH, SMOKE, Plan
from repro.runs.record import Run
from repro.runs.unit import configuration
from repro.utils.errors import PlanError

SCHEMA = "repro/compare/1"
OUTCOMES = ("same", "faster", "slower", "inconclusive", "none")
OWN = {"uuid", "machine"}
"""Keys of the environment that differ between any two machines."""


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    description: RunDescription
    attempts: list[AttemptRecord]
    results: dict[str, Result]

    @property
    def id(self) -> str:
        return self.description.id

    @property
    def plan(self) -> Plan:
        return self.description.plan

    @classmethod
    def of(cls, run: Run) -> "Side":
        """A run as one side of a comparison."""
        description, attempts = run.description(), run.attempts()
        return cls(description, attempts, {r.unit.name: r for r in summarise(description.plan, attempts)})


@dataclass(frozen=True)
class Pair:
    """A unit that both runs have. `ratio` is second over first, None if a side measured nothing or they differ.

    `different` maps each key in which the configurations differ to both values. `outcome` is one of OUTCOMES, from
    the second run's view: "none" if the units cannot be compared or, at the smoke scale, say nothing about speed.
    """

    first: Result
    second: Result
    different: dict[str, tuple]
    ratio: Ratio | None
    memory_ratio: float | None
    outcome: str

    @property
    def name(self) -> str:
        return self.first.unit.name

    def as_json(self) -> dict:
        return {
            "unit": self.name,
            "unit_in_second": self.second.unit.name,
            "outcome": self.outcome,
            "different": {key: list(values) for key, values in self.different.items()},
            "first_samples_per_s": list(self.first.throughputs),
            "second_samples_per_s": list(self.second.throughputs),
            "failed_attempts": [self.first.failed, self.second.failed],
            "memory_ratio": self.memory_ratio,
            "ratio": self.ratio and self.ratio.as_json(),
        }


@dataclass(frozen=True)
class RunComparison:
    """Two runs, unit by unit; `environment` maps whatever differs between them to both values."""

    first: Side
    second: Side
    tolerance: float
    pairs: tuple[Pair, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    environment: dict[str, tuple]

    @property
    def scale(self) -> str:
        return self.first.plan.scale

    def as_json(self) -> dict:
        """The content of `compare.json`; the same runs yield the same content."""
        return {
            "schema": SCHEMA,
            "first": self.first.id,
            "second": self.second.id,
            "scale": self.scale,
            "tolerance": self.tolerance,
            "pairs": [pair.as_json() for pair in self.pairs],
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
            "environment": {name: list(values) for name, values in self.environment.items()},
            "attempts": [
                {status: int(number) for status, number in status_counts(attempt_frame(side.attempts)).sum().items()}
                for side in (self.first, self.second)
            ],
        }


def compare(first: Run, second: Run, given: float | None = None) -> RunComparison:
    """Match the units of two runs by name, or by configuration where the names differ.

    `given` is the relative tolerance within which throughputs are the same; without it, three times the largest
    deviation between equal configurations in the published figures. PlanError if there is nothing to compare.
    """
    if first.path.resolve() == second.path.resolve():
        raise PlanError(f"{first.id} and {second.id} are the same run: name two")
    one, two = Side.of(first), Side.of(second)
    for side in (one, two):
        if side.plan.kind != BENCH:
            raise PlanError(f"{side.id} is a {side.plan.kind} run: only runs of make bench measure speeds to compare")
    if one.plan.scale != two.plan.scale:
        raise PlanError(
            f"{one.id} is at the {one.plan.scale} scale, {two.id} at the {two.plan.scale} scale: "
            "their models are not the same"
        )
    matched, only_first, only_second = _matched(one, two)
    if not matched:
        raise PlanError(f"{one.id} and {two.id} have no unit in common, by name or by configuration")
    tolerance = NOISE_FACTOR * published_noise(load_catalogue().ported).largest if given is None else given
    return RunComparison(
        one,
        two,
        tolerance=tolerance,
        pairs=tuple(_pair(one.results[a], two.results[b], one.plan.scale, tolerance) for a, b in matched),
        only_first=only_first,
        only_second=only_second,
        environment=environment_differences(one, two),
    )


def _matched(first: Side, second: Side) -> tuple[list[tuple[str, str]], tuple[str, ...], tuple[str, ...]]:
    """Names of the units that belong together, in the first run's order, and those that only one of the runs has.

    A name is a better match than a configuration; units of one configuration are paired in the order of their plans.
    """
    one, two = (pd.DataFrame({"unit": list(side.results)}) for side in (first, second))
    named = one.merge(two, on="unit").assign(unit_second=lambda pairs: pairs.unit)
    rest = [_configurations(side, named.unit) for side in (first, second)]
    configured = rest[0].merge(rest[1], on=["settings", "number"], suffixes=("", "_second"))
    pairs = pd.concat([named, configured[["unit", "unit_second"]]])
    in_order = one.merge(pairs, on="unit", how="left")
    matched = in_order.dropna()
    return (
        list(zip(matched.unit, matched.unit_second, strict=True)),
        tuple(in_order.unit[in_order.unit_second.isna()]),
        tuple(two.unit[~two.unit.isin(matched.unit_second)]),
    )


def _configurations(side: Side, without: pd.Series) -> pd.DataFrame:
    """The units of a run but for some: the settings of each as text, and its number among those with the same."""
    names = [name for name in side.results if name not in set(without)]
    settings = [json.dumps(_settings(side.results[name]), sort_keys=True) for name in names]
    frame = pd.DataFrame({"unit": names, "settings": settings}, dtype="object")
    return frame.assign(number=frame.groupby("settings").cumcount())


def _different(first: Result, second: Result) -> dict[str, tuple]:
    """Keys of the configuration and of the measuring rule in which two units differ, with both values."""
    return _differences(_settings(first), _settings(second))


def _differences(one: dict, two: dict) -> dict[str, tuple]:
    both = {key: (one.get(key), two.get(key)) for key in sorted(one.keys() | two.keys())}
    return {key: values for key, values in both.items() if values[0] != values[1]}


def _settings(result: Result) -> dict:
    """What makes a unit's configuration, by name."""
    config, precision, framework, program, variant, (kind, parameters) = configuration(result.unit)
    about = {"precision": precision, "framework": framework, "program": program, "variant": variant}
    return {**config, **about, "rule": {"kind": kind, **parameters}}


def _pair(first: Result, second: Result, scale: str, tolerance: float) -> Pair:
    different = _different(first, second)
    if different or not first.throughputs or not second.throughputs:
        return Pair(first, second, different=different, ratio=None, memory_ratio=None, outcome="none")
    speed_ratio = repeated_ratio(second.throughputs, first.throughputs)
    memory = second.memory_mib / first.memory_mib if first.memory_mib and second.memory_mib else None
    verdict = outcome(speed_ratio, tolerance).replace("reproduced", "same")
    return Pair(
        first,
        second,
        different=different,
        ratio=speed_ratio,
        memory_ratio=memory,
        outcome="none" if scale == SMOKE else verdict,
    )


def environment_differences(first: Side, second: Side) -> dict[str, tuple]:
    """Whatever the two runs' environments and reported versions do not share, by name."""
    return _differences(_environment(first), _environment(second))


def _environment(side: Side) -> dict[str, str]:
    flat = dict(_flat(side.description.environment.as_json(), ""))
    versions = [attempt.versions or {} for attempt in side.attempts if attempt.status == "ok"]
    for name in sorted({name for by_library in versions for name in by_library}):
        flat[f"versions.{name}"] = ", ".join(sorted({str(by_library.get(name)) for by_library in versions}))
    return flat


def _flat(value: object, path: str) -> Iterator[tuple[str, str]]:
    """The leaves of nested JSON with their paths, without the keys in OWN."""

    if isinstance(value, dict):
        for key, child in value.items():
            if key not in OWN:
                yield from _flat(child, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, child in enumerate(value):
            yield from _flat(child, f"{path}.{number}")
    else:
        yield path, str(value)

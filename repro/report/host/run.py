"""A kept run as the page of a host shows it: read once, held against its raw output, and judged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from repro.analysis import steady
from repro.analysis.evidence import Evidence, require
from repro.analysis.process_info import program_starts
from repro.analysis.results import Result, summarise
from repro.analysis.verdict import Judgement, judge
from repro.report.run.kinds import kind_of
from repro.runs.attempts import AttemptRecord
from repro.runs.description import RunDescription
from repro.runs.environment import Environment, RankMachine
from repro.runs.files import FINGERPRINTS, read_json
from repro.runs.plan import PUBLISHED, Plan
from repro.runs.program_versions import Versions, version
from repro.runs.record import Run
from repro.runs.unit import Unit


@dataclass(frozen=True)
class KeptRun:
    """A kept run, read once; its id is its anchor on the host's page.

    `versions` are those of the programs at the commits of runs that record none themselves, `evidence` what was found when
    the run was held against its raw output.
    """

    run: Run
    description: RunDescription
    attempts: list[AttemptRecord]
    results: list[Result]
    judgement: Judgement
    starts: dict[str, dict]
    findings: Any
    versions: Versions
    evidence: Evidence

    @property
    def age(self) -> tuple[float, str]:
        """What orders runs by when they began; runs of the same second by their ids."""
        return self.description.created, self.run.id

    @property
    def day(self) -> str:
        """The day on which it began, UTC."""
        return self._at("%Y-%m-%d")

    @property
    def time(self) -> str:
        """The time of that day, UTC."""
        return self._at("%H:%M")

    @property
    def began(self) -> str:
        """What pages call it: day and time."""
        return f"{self.day} {self.time}"

    def _at(self, form: str) -> str:
        return time.strftime(form, time.gmtime(self.description.created))

    @property
    def plan(self) -> Plan:
        return self.description.plan

    @property
    def environment(self) -> Environment:
        """The machine and the software that it was begun on."""
        return self.description.environment

    @cached_property
    def machines(self) -> tuple[RankMachine, ...]:
        """The machines that its ranks ran on: of a cluster the nodes, as far as a fingerprint was taken of them."""
        if not self.environment.cluster:
            return (self.environment.here,)
        fingerprints = dict(self.environment.nodes)
        for attempt in self.attempts:
            file = self.run.files / attempt.folder / FINGERPRINTS
            fingerprints |= read_json(file)["nodes"] if file.is_file() else {}
        used = dict.fromkeys(node for attempt in self.attempts for node in attempt.nodes) or fingerprints
        return tuple(RankMachine.of_node(fingerprints[node]["fields"]) for node in used if node in fingerprints)

    @property
    def gpus(self) -> tuple[Mapping[str, str], ...]:
        """The GPUs of these machines."""
        return tuple(gpu for machine in self.machines for gpu in machine.gpus)

    @property
    def measures_speed(self) -> bool:
        """Whether its throughputs are results: a kind of run that judges speed, with the published shapes."""
        return kind_of(self.plan).judges_speed and self.plan.scale == PUBLISHED

    @property
    def trained(self) -> list[Unit]:
        """The units with a successful attempt."""
        succeeded = {attempt.unit for attempt in self.attempts if attempt.status == "ok"}
        return [unit for unit in self.plan.units if unit.name in succeeded]

    def code(self, unit: Unit) -> str:
        """An identifier of the code of a unit's program, equal for equal code."""
        mine = [attempt for attempt in self.attempts if attempt.unit == unit.name and attempt.status == "ok"]
        return version(self.run.id, self.environment, mine, self.versions)


def load_run(run: Run, versions: Versions) -> KeptRun:
    """Read a kept run; RecordError if it is not as it was recorded, or has figures that its raw output does not give."""
    evidence = require(run)
    description, attempts = run.description(), steady.attempts(run, evidence.windows)
    plan = description.plan
    results = summarise(plan, attempts)
    return KeptRun(
        run=run,
        description=description,
        attempts=attempts,
        results=results,
        judgement=judge(run, plan, attempts, results),
        starts=program_starts(run.files, plan, attempts),
        findings=kind_of(plan).analyse(run, plan, attempts, results),
        versions=versions,
        evidence=evidence,
    )

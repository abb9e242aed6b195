"""The description of a run, `run.json`: its form, and its one reader and one writer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from repro.models.variants import DEFAULT
from repro.published.validators import line, mapping, number_from, several, table, text
from repro.runs import environment, plan, translation
from repro.runs.environment import Environment, shown_by
from repro.runs.failures import Failure
from repro.runs.form import MESSAGE, UNITS, YEAR_2100
from repro.runs.plan import Plan
from repro.utils.records import as_json, values_of

IDENTIFIER = text(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "the id of a run: letters, digits, '_', '.' and '-'")
WORDS = several(line(), UNITS)
BASELINE = table(
    {"command": WORDS, "variants": WORDS, "versions": table({}), **dict.fromkeys(("image", "lock"), line())}
)
DATASETS = several(table({"source": line()}, ("source",)), UNITS)
FORM = table(
    {
        "id": IDENTIFIER,
        "created": number_from(0, YEAR_2100),
        "command": line(),
        "plan": plan.FORM,
        "environment": environment.FORM,
        **dict.fromkeys(("baseline", "peer"), BASELINE),
        **dict.fromkeys(("datasets", "corpora"), DATASETS),
        "goals": mapping(table({"limit": number_from(), "meaning": MESSAGE}, ("limit", "meaning"))),
    },
    ("id", "created", "command", "plan", "environment"),
)
"""`run.json` of any release."""
VISIBLE = "CUDA_VISIBLE_DEVICES="
"""Begins the word of a run's command that names the GPUs it may use; the command has what the environment said."""


@dataclass(frozen=True)
class BaselineProgram:
    """How baselines are started, the versions reported by their interpreter, and the variants to run.

    `image` is that of their containers, "" without containers: a name on a cluster's nodes, an ID or a file's path on
    this machine. `lock` is the file that pins their environment, "" for one that the user named.
    """

    command: tuple[str, ...]
    versions: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[str, ...] = DEFAULT
    image: str = ""
    lock: str = ""
    further: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, content: Mapping) -> BaselineProgram:
        values = values_of(cls, content)
        return cls(**values | {"command": tuple(values["command"]), "variants": tuple(values["variants"])})

    def as_json(self) -> dict:
        return as_json(self)


@dataclass(frozen=True)
class Goal:
    """The loss, in nats, that a unit's last iterations must be below on average; `meaning` says what that is."""

    limit: float
    meaning: Failure

    @classmethod
    def from_json(cls, content: Mapping) -> Goal:
        return cls(content["limit"], Failure.from_json(content["meaning"]))

    def as_json(self) -> dict:
        return {"limit": self.limit, "meaning": self.meaning.as_json()}


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """What is planned of a run before it has a place.

    Attributes
    ----------
    baseline : the program of its baselines; None without any.
    datasets : the facts of the data sets that its units read (`repro.planning.datasets.Dataset`).
    goals : the loss that each unit must reach, by the unit's name.
    """

    plan: Plan
    baseline: BaselineProgram | None = None
    datasets: tuple[Mapping[str, Any], ...] = ()
    goals: Mapping[str, Goal] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunDescription(PlannedRun):
    """What `run.json` says of a run: what was planned, by which command, when (Unix time), and where.

    `id` is given by `repro.runs.record.Run.create`. `further` is what a record has that this release does not know.
    """

    id: str = ""
    created: float
    command: str
    environment: Environment
    further: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpu_count(self) -> int:
        """How many GPUs it could use: those of its machine that its command does not hide, or all of a cluster."""
        present = len(self.environment.gpus)
        try:
            words = shlex.split(self.command)
        except ValueError:  # of another release
            return present
        visible = [word.removeprefix(VISIBLE) for word in words if word.startswith(VISIBLE)]
        return present if self.environment.cluster or not visible else min(present, len(shown_by(visible[0])))

    @classmethod
    def from_json(cls, content: dict) -> RunDescription:
        """A description of any release, whose form was checked; KeyError if it lacks a value."""
        values = values_of(cls, translation.description(content))
        baseline = values.get("baseline")
        return cls(
            **values
            | {
                "environment": Environment.from_json(values["environment"]),
                "plan": Plan.from_json(values["plan"]),
                "baseline": None if baseline is None else BaselineProgram.from_json(baseline),
                "datasets": tuple(values.get("datasets", ())),
                "goals": {unit: Goal.from_json(goal) for unit, goal in values.get("goals", {}).items()},
            }
        )

    def as_json(self) -> dict:
        """What is written; of baselines, data sets and goals, those that there are."""
        goals = {unit: goal.as_json() for unit, goal in self.goals.items()}
        some = {"baseline": self.baseline and self.baseline.as_json(), "datasets": self.datasets, "goals": goals}
        return {
            "id": self.id,
            "created": self.created,
            "command": self.command,
            "environment": self.environment.as_json(),
            "plan": self.plan.as_json(),
            **{name: value for name, value in some.items() if value},
            **self.further,
        }

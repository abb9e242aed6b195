"""A plan: the units of a run in their order; its form in a record, its one reader and its one writer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from repro.published.trainer_config import NAME
from repro.published.validators import bounded, one_of, several, table
from repro.runs import unit
from repro.runs.failures import Failure
from repro.runs.form import REPEATS, UNITS, message
from repro.runs.unit import Unit
from repro.utils.i18n import N_
from repro.utils.sequential import Look, Looks

BENCH = "bench"
"""The kind of a run that measures speed; every other kind has its name in the module that plans it."""
SMOKE, REDUCED, PUBLISHED = "smoke", "reduced", "published"
FULL = "full"
"""What the names of runs at the published scale end in; runs made up to November 2026 end in "published"."""
LOOK = table(dict.fromkeys(("repeats", "trim"), bounded(1, REPEATS)), ("repeats", "trim"))
FORM = table(
    {
        "scale": NAME,
        "kind": NAME,
        "device": one_of("cpu", "cuda"),
        "repeats": bounded(1, REPEATS),
        "units": several(unit.FORM, UNITS),
        "skipped": several(
            table({"case": NAME, "message": message, "values": table({})}, ("case", "message", "values")), UNITS
        ),
        "looks": several(LOOK, REPEATS),
    }
)
"""A plan in `run.json` of any release."""


@dataclass(frozen=True)
class SkippedCase:
    """A case, or a unit of a run that compares losses, that a run does not train, and why."""

    case: str
    reason: Failure

    @classmethod
    def too_large(cls, case: str, needed: int, present: int) -> SkippedCase:
        """One that needs more GPUs than there are."""
        return cls(case, Failure(N_("needs {needed} GPUs, {present} are here"), {"needed": needed, "present": present}))

    def as_json(self) -> dict:
        """The form that a run's record has."""
        return {"case": self.case, "message": self.reason.message, "values": self.reason.values}

    @classmethod
    def from_json(cls, content: dict) -> SkippedCase:
        """The one of a run's record."""
        return cls(content["case"], Failure.from_json(content))


@dataclass(frozen=True)
class Plan:
    """The configurations of a run in their order, and the cases that are skipped, with the reason for each.

    `scale` is the size of what is trained and nothing else: PUBLISHED, the published shapes; SMOKE, the published
    layouts shrunk, with tiny shapes; REDUCED, smaller shapes that are chosen for what the run is to show. `kind` is
    what the run is for, the name of a kind of `repro.report.run.kinds`.

    `repeats` of each unit are run; with `looks` at most as many, and fewer once its verdict is decided at a look or
    between two (`repro.analysis.stopping.why_enough`).
    """

    scale: str
    device: str
    repeats: int
    units: tuple[Unit, ...]
    skipped: tuple[SkippedCase, ...] = ()
    kind: str = BENCH
    looks: Looks = ()

    @property
    def label(self) -> str:
        """The last part of a run's name: "smoke" or "full" for a bench, by its scale, or any other run's kind."""
        if self.kind != BENCH:
            return self.kind
        return FULL if self.scale == PUBLISHED else self.scale

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are trained, sorted."""
        return tuple(sorted({unit.model for unit in self.units}))

    @property
    def tf32(self) -> bool:
        """Whether any of it computes in TF32."""
        return any(unit.tf32 for unit in self.units)

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants of its baselines, in their order."""
        return tuple(dict.fromkeys(unit.variant for unit in self.units if unit.variant))

    def as_json(self) -> dict:
        """The plan as a run's record keeps it."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            **values,
            "units": tuple(unit.as_json() for unit in self.units),
            "skipped": tuple(case.as_json() for case in self.skipped),
            "looks": tuple(map(asdict, self.looks)),
        }

    @classmethod
    def from_json(cls, content: dict) -> Plan:
        """The plan of a run's record, in the terms of `repro.runs.translation`."""
        return cls(
            **{
                **content,
                "units": tuple(Unit.from_json(unit) for unit in content["units"]),
                "skipped": tuple(map(SkippedCase.from_json, content["skipped"])),
                "looks": tuple(Look(**look) for look in content.get("looks", ())),
            }
        )

"""The data of a run's report: everything read from the run, once for both languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from repro.analysis.results import Parity, Result
from repro.analysis.verdict import Judgement
from repro.runs.attempts import AttemptRecord
from repro.runs.description import RunDescription
from repro.runs.environment import Environment
from repro.runs.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


class RunFindings(Protocol):
    """Findings of a kind of run; each kind's sections know the attributes beyond these two."""

    @property
    def problems(self) -> list[str]:
        """A line for each thing that is not as it must be; the task that ran it fails if there is any."""

    def summary(self) -> str:
        """One or a few lines for the terminal."""


@dataclass(frozen=True)
class ReportData:
    """The contents of a report.

    `findings` are those of the run's kind; `unrecorded` are the folders of attempts without a record.
    """

    description: RunDescription
    attempts: list[AttemptRecord]
    result_frame: pd.DataFrame
    results: list[Result]
    parities: list[Parity]
    judgement: Judgement
    starts: dict[str, dict]
    findings: Any
    unrecorded: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        return self.description.plan

    @property
    def environment(self) -> Environment:
        """The machine and the software that the run was begun on."""
        return self.description.environment

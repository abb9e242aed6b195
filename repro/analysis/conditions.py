"""The conditions that a result must meet before it gets a verdict on speed: a function for each, in one list.

A function yields a reason for each thing that is not as it must be, in both languages, and nothing if all is well. What
is not known counts against a result.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from repro.analysis import comparability
from repro.analysis.adapter_traffic import claims, silent_nodes
from repro.analysis.comparability import Reason
from repro.analysis.process_info import ProcessInfo
from repro.published.cases import Case
from repro.runs.attempts import AttemptRecord
from repro.runs.environment import Environment
from repro.runs.record import LAST_LOSSES
from repro.runs.unit import Unit
from repro.utils.i18n import N_

MEANING = N_(
    "“Reproduced” means that OneFlow {release}, running a port of the published program, is as fast on the published "
    "hardware as was reported. It says nothing about the OneFlow release that was measured then."
)
REPLACEMENT = N_(
    "That release disqualifies no run: it can no longer be installed, so every run has the same replacement, and what "
    "differs is listed as deviations. Another version of CUDA, cuDNN or NCCL does disqualify a run, because "
    "the published series can still be installed."
)
"""What a verdict means, and which differences of the stack rule it out: those that a run could have avoided."""
REPLACED = N_("the trainer was replaced by {measured}, so that it is not the port of the published program")
CHANGED = N_("files of the trainer differ from commit {expected}: {measured}")
MAYBE_CHANGED = N_("{measured} files differ from commit {expected}, possibly including the trainer's")
SEVERAL = N_("the repeats ran {measured} different versions of the trainer")
UNKNOWN = N_("the version of the trainer is unknown, because the run was not made from a git checkout")
FLAT = N_("it does not fall: {expected} at the start, {measured} at the end")
NO_LOSS = N_("none was recorded")
LEFT_OUT = N_(
    "{measured} of {expected} attempts ended after their first row without a figure, and may have been the slow ones"
)
SHARED = N_("{measured} repeats shared a node, or the network between nodes, with another attempt")
STILL = N_(
    "NCCL's log names {expected}, but in {measured} the adapters' own counters did not move: other ways carried the data"
)
SHOWN = 5


@dataclass(frozen=True)
class UnitEvidence:
    """A unit that ran for a case: its recorded attempts and its processes.

    `environment` is the run's record of the machine, `cluster` the published one.
    """

    case: Case
    unit: Unit
    attempts: list[AttemptRecord]
    environment: Environment
    cluster: dict
    info: ProcessInfo

    @property
    def succeeded(self) -> list[AttemptRecord]:
        return [attempt for attempt in self.attempts if attempt.status == "ok"]


@dataclass(frozen=True)
class Condition:
    """One requirement for a verdict.

    With `comparable`, a violation means that other work than the published was measured, so there is nothing to compare.
    Without it, the measurement itself is unsound, and the run fails.
    """

    name: str
    reasons: Callable[[UnitEvidence], Iterable[Reason]]
    comparable: bool = False


def same_work(evidence: UnitEvidence) -> Iterable[Reason]:
    """Hardware, precision, configuration, libraries and transport are the published ones, OneFlow the replacement.

    A difference that no run can avoid is part of what a verdict means (`MEANING`) and a declared deviation; a difference
    that a run could have avoided rules a verdict out. So every run needs the same release of OneFlow, the oldest that
    can be installed, but CUDA, cuDNN and NCCL as published.
    """
    yield from comparability.reasons(
        evidence.case, evidence.unit, evidence.environment, evidence.cluster, evidence.info
    )


def same_code(evidence: UnitEvidence) -> Iterable[Reason]:
    """Every repeat ran the trainer as it is in the run's commit.

    Runs from before attempts recorded this need a checkout without any changed file.
    """
    commit, recorded = evidence.environment.git_commit, [attempt.code for attempt in evidence.succeeded]
    codes = [code for code in recorded if code]
    if replaced := sorted({code["replaced"] for code in codes if code.get("replaced")}):
        yield Reason("code", "differs", REPLACED, None, ", ".join(replaced))
        return
    if len(versions := {code["sha256"] for code in codes}) > 1:
        yield Reason("code", "differs", SEVERAL, "1", str(len(versions)))
    changes = [code["changed"] for code in codes]
    if not commit or None in changes:
        yield Reason("code", "missing", UNKNOWN)
    elif changed := sorted({name for names in changes for name in names}):
        names = ", ".join(changed[:SHOWN]) + (" …" if len(changed) > SHOWN else "")
        yield Reason("code", "differs", CHANGED, commit[:12], names)
    elif len(codes) < len(recorded) and (number := evidence.environment.git_changed_files) != 0:
        yield Reason("code", "missing", MAYBE_CHANGED, commit[:12], "?" if number is None else str(number))


def falling_loss(evidence: UnitEvidence) -> Iterable[Reason]:
    """The loss of every repeat is lower in its last rows than in its first: something was trained."""
    for attempt in evidence.succeeded:
        losses = attempt.losses or []
        last = attempt.last_losses or losses
        rows = min(LAST_LOSSES, len(losses) // 2)
        if not rows:
            yield Reason("loss", "missing", NO_LOSS)
            return
        before, after = sum(losses[:rows]) / rows, sum(last[-rows:]) / rows
        if not after < before:
            yield Reason("loss", "differs", FLAT, f"{before:.6g}", f"{after:.6g}")
            return


def nothing_left_out(evidence: UnitEvidence) -> Iterable[Reason]:
    """No attempt failed or was stopped after training began: selecting repeats would select their median."""
    lost = [
        attempt
        for attempt in evidence.attempts
        if attempt.status != "ok" and (attempt.losses or "losses" not in attempt.recorded)
    ]
    if lost:
        yield Reason("repeats", "differs", LEFT_OUT, str(len(evidence.attempts)), str(len(lost)))


def place_of_its_own(evidence: UnitEvidence) -> Iterable[Reason]:
    """No repeat ran beside another attempt on one of its nodes, or with both on several nodes.

    Attempts on other nodes share nothing with one that does not leave its node.
    """
    shared = [
        attempt
        for attempt in evidence.succeeded
        if any(_shared(attempt.nodes, other.nodes) for other in attempt.beside)
    ]
    if shared:
        yield Reason("measurement", "differs", SHARED, "0", str(len(shared)))


def counted_traffic(evidence: UnitEvidence) -> Iterable[Reason]:
    """Where NCCL's log names InfiniBand, the counters of every node's adapters have risen during the attempt.

    Attempts from before they were recorded, and adapters that do not count packets, are not held against a result.
    """
    for attempt in evidence.succeeded:
        claimed = claims(attempt.transport, attempt.rdma, evidence.unit.config.device)
        silent = silent_nodes(attempt.adapters, evidence.unit.config.iterations) if claimed else {}
        if silent:
            where = f"{attempt.folder} ({', '.join(silent)})"
            yield Reason("transport", "differs", STILL, ", ".join(claimed), where)
            return


def _shared(nodes: Sequence[str], others: Sequence[str]) -> bool:
    return not (nodes and others) or bool(set(nodes) & set(others)) or min(len(nodes), len(others)) > 1


CONDITIONS = (
    Condition("same work", same_work, comparable=True),
    Condition("same code", same_code),
    Condition("falling loss", falling_loss),
    Condition("nothing left out", nothing_left_out),
    Condition("place of its own", place_of_its_own),
    Condition("counted traffic", counted_traffic),
)
"""In the order in which a report gives the reasons."""


def unmet(evidence: UnitEvidence) -> tuple[bool, tuple[Reason, ...]]:
    """Whether the result can be compared, and every reason against a verdict; none if it may have one."""
    reasons = {condition: tuple(condition.reasons(evidence)) for condition in CONDITIONS}
    comparable = not any(why for condition, why in reasons.items() if condition.comparable)
    return comparable, tuple(reason for why in reasons.values() for reason in why)

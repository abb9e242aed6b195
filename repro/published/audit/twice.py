"""Rules on what occurs twice: figures that two configurations cannot share, and figures of one that must agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from repro.published.audit.findings import PEERS, RESULTS, Findings, Place, unless
from repro.published.figures import PrintedNumber
from repro.published.noise import configuration, duplicates
from repro.utils.i18n import N_, Message

if TYPE_CHECKING:
    from repro.published.audit.material import Material
    from repro.published.cases import Case


ENOUGH = 2
"""How many figures two rows must share to be a copy: one alone can be equal by chance, as in rows of 149.8 samples/s."""
REPEATS = 3
"""How many repeats a group must have for its equality with another to be no chance."""
DISTINCT = 5
"""How many different values it must have to be a copy in another order: two published groups share four by chance."""
SAME_MEMORY = 0.03
"""How far the memory of one configuration may lie apart; in the published pairs 0.07 %, between numbers of GPUs 2 %."""


def copied_rows(material: Material) -> Findings:
    """Two configurations do not have one set of figures."""
    for first, second in _pairs(material):
        mine, theirs = _figures(first), _figures(second)
        if len(mine) < ENOUGH:
            continue
        rule = Message(
            "{other} is another configuration, and has the same figures: {figures}",
            other=first.name,
            figures=sorted(mine.values()),
        )
        yield unless(
            mine != theirs,
            "copied-row",
            second.report,
            Place(RESULTS, second.name, "throughput"),
            printed=second.published.throughput,
            rule=rule,
        )


def copied_repeats(material: Material) -> Findings:
    """Two groups of repeats are not equal."""
    for first, second in _pairs(material):
        mine, theirs = (list(map(str, case.published.repeats)) for case in (first, second))
        if len(mine) < REPEATS:
            continue
        reordered = sorted(mine) == sorted(theirs) and len(set(mine)) >= DISTINCT
        rule = Message("{other} has the same {n} repeats", other=first.name, n=len(mine))
        yield unless(
            mine != theirs and not reordered,
            "copied-repeats",
            second.report,
            Place("all-results", second.name, "repeats"),
            printed=", ".join(map(str, second.published.repeats)),
            rule=rule,
        )


def _pairs(material: Material) -> Iterator[tuple[Case, Case]]:
    """Every two cases of a report that are other configurations."""
    for report in material.reports:
        for first, second in combinations(material.cases_of(report), 2):
            if configuration(first) != configuration(second):
                yield first, second


def _figures(case: Case) -> dict[str, str]:
    """What was measured of a case, as printed; a speed-up follows from the throughput."""
    names = ("throughput", "latency_ms", "memory_mib", "gpu_utilisation")
    return {name: str(value) for name in names if (value := getattr(case.published, name)) is not None}


def one_configuration(material: Material) -> Findings:
    """One configuration takes one amount of memory under whatever name it was published, also of other frameworks."""
    of_peers = {peer.case: peer for peer in material.peers if peer.case}
    for group in duplicates(material.cases):
        for first, second in combinations(group, 2):
            yield from _memory(second, [case.published.memory_mib for case in (first, second)], first, second.report)
            peers = [of_peers[case.name] for case in (first, second) if case.name in of_peers]
            if len(peers) == ENOUGH:
                yield from _memory(second, [peer.memory_mib for peer in peers], first, PEERS)


def _memory(case: Case, used: Sequence[PrintedNumber | None], other: Case, report: str) -> Findings:
    before, after = used
    if before is None or after is None:
        return
    rule = Message("the same configuration takes {before} MiB as {other}", before=before, other=other.name)
    place = Place(RESULTS, case.name, "memory_mib")
    apart = abs(after / before - 1)
    yield unless(apart <= SAME_MEMORY, "same-memory", report, place, printed=after, rule=rule)


RULES = (
    ("copied-row", N_("figures that two configurations share"), copied_rows),
    ("copied-repeats", N_("repeats that two configurations share"), copied_repeats),
    ("same-memory", N_("memory of configurations published twice"), one_configuration),
)

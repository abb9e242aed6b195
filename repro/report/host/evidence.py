"""The section of a host's page on how it is made: what was held against the runs, what nothing proves, and who signed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from repro.report.document import Block, Section, Table, Text
from repro.report.host.cells import link as run_link
from repro.report.host.results import MeasuredHost
from repro.report.method import link
from repro.report.names import listed
from repro.report.tables import columns, words
from repro.runs.digests import NAME, UNSIGNED, head, lost_commits, removed, signers
from repro.utils.grouping import by_key
from repro.utils.i18n import Counted, Translate


def evidence(_: Translate, host: MeasuredHost) -> list[Section]:
    """What was held against the runs before this page was written; nothing without runs."""
    if not host.runs:
        return []
    made = _("Every figure is recomputed from the logs and metrics of all {n} successful attempts ({method}).").format(
        n=sum(kept_run.evidence.attempts for kept_run in host.runs), method=link(_, "evidence", _("what is checked"))
    )
    texts = (made, *_unproven(_, host), *_chain(_, host), _signed(_, host), *_removed(_, host), *_lost(_, host))
    blocks: list[Block] = [*map(Text, texts), *_remarks(_, host)]
    return [Section("evidence", _("How this page is made and checked"), tuple(blocks), folded=True)]


def _unproven(_: Translate, host: MeasuredHost) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for kept_run in host.runs:
        counts.update(kept_run.evidence.unproven)
    if counts:
        facts = listed(
            _, (_("{fact} ({n:attempt|attempts})").format(fact=_(fact), n=Counted(n)) for fact, n in counts.items())
        )
        yield _("Not recorded, so that nothing proves it: {facts}.").format(facts=facts)


def _chain(_: Translate, host: MeasuredHost) -> Iterator[str]:
    if chained := head(host.folder):
        line, digest = chained
        yield _(
            "Line {line} of {list}, below the last run of this page, is the SHA-256 of all lines above it, which shows any later "
            "change of them: `{digest}`."
        ).format(line=line, list=NAME, digest=digest)


def _signed(_: Translate, host: MeasuredHost) -> str:
    """Which keys signed the archives, from which run on."""
    parts = [
        (_("none from {run} on") if key == UNSIGNED else _("`{key}` from {run} on")).format(key=key, run=run)
        for key, run in signers(host.folder)
    ]
    if not parts:
        return _("The archives are not signed.")
    return _("Keys that signed the archives: {keys}.").format(keys=listed(_, parts))


def _removed(_: Translate, host: MeasuredHost) -> Iterator[str]:
    if runs := removed(host.folder):
        names = listed(_, (Path(path).stem for path in runs))
        yield _("Kept runs that were removed, with the reasons in {list}: {names}.").format(list=NAME, names=names)


def _lost(_: Translate, host: MeasuredHost) -> Iterator[str]:
    lost = lost_commits(host.folder.parent / NAME)
    for commit, runs in by_key(host.runs, lambda kept_run: kept_run.environment.git_commit).items():
        if commit in lost:
            yield _("The history does not contain commit {commit}, so the code of {runs} cannot be looked up.").format(
                commit=commit[:12], runs=_(", ").join(map(run_link, runs))
            )


def _remarks(_: Translate, host: MeasuredHost) -> Iterator[Table]:
    rows = tuple(
        words(run_link(kept_run), remark.text(_)) for kept_run in host.runs for remark in kept_run.evidence.remarks
    )
    if rows:
        caption = _(
            "What contradicts nothing, but should be known: repeats that are missing, times without an attempt."
        )
        yield Table("remarks", columns(_("Run"), _("Note")), rows, caption)

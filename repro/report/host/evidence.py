"""The section of a host's page on how it is made: what was held against the runs, what nothing proves, and who signed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from repro.report.document import Block, Section, Table, Text
from repro.report.host.cells import link, listed
from repro.report.host.results import MeasuredHost
from repro.report.tables import columns, words
from repro.runs.digests import NAME, UNSIGNED, head, lost_commits, removed, signers
from repro.utils.i18n import Translate


def evidence(_: Translate, host: MeasuredHost) -> list[Section]:
    """What was held against the runs before this page was written; nothing without runs."""
    if not host.runs:
        return []
    made = _(
        "Apart from the sections that say they were written by hand, every number and every statement on this page is "
        "generated from the files under `runs/` (`make host-reports HOST={host}`; with `CHECK=1` it only compares). "
        "Each time, throughput, latency, memory and losses of all {n} successful attempts are recomputed from the logs and "
        "metrics in the archives; if one differed from what its run recorded, there would be no page. "
        "[{list}](../{list}) has the SHA-256 of every archive since it was kept. `make verify HOST={host}` repeats this "
        "and looks up every run's commit in the history."
    ).format(n=sum(kept_run.evidence.attempts for kept_run in host.runs), list=NAME, host=host.name)
    held = _(
        "Nor would there be a page if a row contradicted its own times or those of another rank; if operators, versions, "
        "libraries, data, precision or GPUs of an attempt were not those of its configuration; if a rule, a batch size or "
        "the order of attempts were not as planned; or if an attempt were a copy of another."
    )
    texts = (made, held, *_unproven(_, host), *_chain(_, host), _signed(_, host), *_removed(_, host), *_lost(_, host))
    blocks: list[Block] = [*map(Text, texts), *_remarks(_, host)]
    return [Section("evidence", _("How this page is made and checked"), tuple(blocks), folded=True)]


def _unproven(_: Translate, host: MeasuredHost) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for kept_run in host.runs:
        counts.update(kept_run.evidence.unproven)
    if counts:
        facts = listed(_, (_("{fact} ({n} attempts)").format(fact=_(fact), n=n) for fact, n in counts.items()))
        yield _("Not recorded, so that nothing proves it: {facts}.").format(facts=facts)


def _chain(_: Translate, host: MeasuredHost) -> Iterator[str]:
    if chained := head(host.folder):
        line, digest = chained
        yield _(
            "Line {line} of {list}, below the last run of this page, is the SHA-256 of all lines above it: `{digest}`. "
            "Whoever keeps this page can tell by it whether any of them is changed later."
        ).format(line=line, list=NAME, digest=digest)


def _signed(_: Translate, host: MeasuredHost) -> str:
    """Which keys signed the archives, from which run on."""
    parts = [
        (_("none from {run} on") if key == UNSIGNED else _("`{key}` from {run} on")).format(key=key, run=run)
        for key, run in signers(host.folder)
    ]
    if not parts:
        return _(
            "The archives are not signed. `docs/trust.md` says what only a signature or a time stamp could rule out, and "
            "what that means for these figures."
        )
    return _(
        "Keys that signed the archives: {keys}. `docs/trust.md` says what only a signature or a time stamp can rule out."
    ).format(keys=listed(_, parts))


def _removed(_: Translate, host: MeasuredHost) -> Iterator[str]:
    if runs := removed(host.folder):
        names = listed(_, (Path(path).stem for path in runs))
        yield _("Kept runs that were removed, with the reasons in {list}: {names}.").format(list=NAME, names=names)


def _lost(_: Translate, host: MeasuredHost) -> Iterator[str]:
    lost = lost_commits(host.folder.parent / NAME)
    made_from: dict[str | None, list[str]] = {}
    for kept_run in host.runs:
        made_from.setdefault(kept_run.environment.git_commit, []).append(link(kept_run))
    for commit, links in made_from.items():
        if commit in lost:
            yield _("The history does not contain commit {commit}, so the code of {runs} cannot be looked up.").format(
                commit=commit[:12], runs=_(", ").join(links)
            )


def _remarks(_: Translate, host: MeasuredHost) -> Iterator[Table]:
    rows = tuple(
        words(link(kept_run), remark.text(_)) for kept_run in host.runs for remark in kept_run.evidence.remarks
    )
    if rows:
        caption = _(
            "What contradicts nothing, but should be known: repeats that are missing, times without an attempt."
        )
        yield Table("remarks", columns(_("Run"), _("Note")), rows, caption)

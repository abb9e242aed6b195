"""Everything that can be held against a run: its files, its figures, its commit, its digest, its signature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from repro.analysis import code_lookup, copies
from repro.analysis.evidence import Evidence, examine
from repro.runs import digests, manifest, program_versions
from repro.runs.files import DAMAGED, KEPT, PREFLIGHT, RecordError
from repro.runs.history import History, history, lost_lines
from repro.runs.record import Run
from repro.runs.signature import SIGNERS, signature
from repro.utils.paths import ROOT

SHORT = 12


@dataclass(frozen=True)
class Verified:
    """Results of the verification of a run: confirmed statements (including checks that were not possible) and
    violations.
    """

    holds: tuple[str, ...]
    faults: tuple[str, ...]

    @classmethod
    def of(cls, sentences: Iterable[tuple[bool, str]]) -> Verified:
        """Sort sentences, each after whether it is one on what holds."""
        sorted_out: dict[bool, list[str]] = {True: [], False: []}
        for good, text in sentences:
            sorted_out[good].append(text)
        return cls(tuple(sorted_out[True]), tuple(sorted_out[False]))


def verify(run: Run, past: History | None = None, signers: Path = SIGNERS, root: Path = ROOT) -> Verified:
    """Examine a run in its folder or archive, or a kept preflight; `past` is this checkout's history unless given."""
    sentences: list[tuple[bool, str]] = []
    if not (run.files / PREFLIGHT).is_file():
        past, evidence = past or history(root), examine(run)
        sentences += [*_files(run), *_figures(evidence), *_cut(run), _commit(run, past)]
        sentences += _code(run, evidence.unproven, past, root)
    sentences += [*_digest(run), *_signatures(run, signers)]
    return Verified.of(sentences)


def verify_list(listed: Path, signers: Path = SIGNERS, root: Path = ROOT) -> Verified:
    """Check the chain of the list of kept runs, that it has all lines of the history of `root`, and its signature if any.

    Also checks `code.toml` next to it, which says which program code is the same where the recorded digests do not, and that
    no kept run is another one under a second name.
    """
    signed = signature(listed, signers)
    sentences = [
        *_chain(listed),
        *_committed(listed, root),
        *_names(listed.parent),
        *_versions(listed.parent, root),
        *([(signed.good, signed.text)] if signed else []),
    ]
    return Verified.of(sentences)


def _chain(listed: Path) -> Iterator[tuple[bool, str]]:
    faults = digests.chain_faults(listed)
    yield from ((False, fault) for fault in faults)
    if not faults:
        yield True, f"{listed}: {len(digests.lines(listed))} lines, each covered by a chain line below it"


def _committed(listed: Path, root: Path) -> Iterator[tuple[bool, str]]:
    """Chain lines are left out: of two branches that both kept runs, a merge keeps those of one."""
    lost = lost_lines(listed, digests.lines(listed), root)
    if lost is None:
        yield True, f"{listed}: whether a line was ever removed was NOT checked: {history(root).gap}"
        return
    lost = [line for line in lost if not digests.CHAIN.fullmatch(line)]
    if lost:
        yield False, f"{listed}: lines were changed or removed since they were committed: {'; '.join(lost)}"
    else:
        yield True, f"{listed}: no line was ever changed or removed"


def _names(reproduced: Path) -> Iterator[tuple[bool, str]]:
    """A kept run that cannot be read is named where it is verified itself."""
    try:
        faults = copies.of_kept(reproduced)
    except (RecordError, *DAMAGED) as error:
        yield True, f"whether a run is kept under two names was NOT checked: {error}"
        return
    yield from ((False, fault) for fault in faults)
    if not faults:
        yield True, "no kept run is another one under a second name"


def remarks(host: Path) -> list[str]:
    """What the list of kept runs says of a host, by its folder, that a reader should know: removed runs, other signers."""
    removed = [f"NOTE: {path} was removed: {reason}" for path, reason in digests.removed(host).items()]
    keys = digests.signers(host)
    changed = [
        f"NOTE: from {run} on archives of {host.name} are signed by {key}, before by {before}: whether that is right only "
        f"the owner of {before} knows"
        for (before, _), (key, run) in pairwise(keys)
    ]
    return removed + changed


def _versions(reproduced: Path, root: Path) -> Iterator[tuple[bool, str]]:
    file = reproduced / program_versions.NAME
    if not file.is_file():
        return
    if gap := history(root).gap:
        yield True, f"{file}: whether the programs at these commits are as it says was NOT checked: {gap}"
        return
    faults = code_lookup.digest_faults(reproduced, root)
    yield from ((False, line) for line in faults)
    if not faults:
        yield True, f"{file}: the programs at these commits are as it says"


def _files(run: Run) -> Iterator[tuple[bool, str]]:
    try:
        verification = manifest.verify(run.files)
    except RecordError as error:
        yield False, str(error)
        return
    yield from ((False, line) for line in verification.lines())
    if verification.holds:
        yield True, f"{verification.files} files are as recorded; SHA-256 of the record: {verification.digest}"


def _figures(evidence: Evidence) -> Iterator[tuple[bool, str]]:
    yield from ((False, line) for line in evidence.lines())
    if evidence.holds:
        yield (
            True,
            f"throughput, latency, memory and losses of {evidence.attempts} attempts were computed again from their "
            "logs and metrics: all as recorded; their times, programs, settings and order are not contradicted",
        )
    for fact, count in evidence.unproven.items():
        yield True, f"NOT recorded by {count} of {evidence.attempts} attempts, so that nothing proves it: {fact}"
    yield from ((True, f"NOTE: {remark}") for remark in evidence.remarks)


def _cut(run: Run) -> Iterator[tuple[bool, str]]:
    """Logs that were not kept whole: the record says so, and what is kept of them is what was recorded."""
    for attempt in run.attempts():
        for log in attempt.cut:
            where = f"{attempt.folder}/{log.path}"
            yield (
                True,
                f"{where} was cut as it was recorded: {log.written} of the {log.printed} bytes that were printed are kept",
            )


def _commit(run: Run, past: History) -> tuple[bool, str]:
    environment = run.description().environment
    commit, changed = environment.git_commit, environment.git_changed_files
    if not commit:
        return True, "the run names no commit: it was not made in a git checkout, so nobody can look up its code"
    name = f"commit {commit[:SHORT]}" + (f" (with {changed} modified files)" if changed else "")
    holds = past.holds(commit)
    if holds is None:
        return True, f"whether {name} is in the history was NOT checked: {past.gap}"
    if holds:
        return True, f"{name} is in the history"
    listed = digests.list_of(run.path) if run.archived else None
    if listed and commit in digests.lost_commits(listed):
        return True, f"{name} is NOT in the history, as {listed.name} says: nobody can look up the code of this run"
    return False, f"{name} is in no branch or tag here: nobody can look up the code of this run"


def _code(run: Run, unproven: Iterable[str], past: History, root: Path) -> Iterator[tuple[bool, str]]:
    """Whether the code that attempts recorded is that of their commit, or of any in the history if that one is lost.

    And whether it would have recorded the facts that are `unproven`.
    """
    if past.gap:
        yield True, f"whether the recorded code is that of the commit was NOT checked: {past.gap}"
        return
    yield from code_lookup.sentences(run, past, root)
    yield from ((False, line) for line in code_lookup.withheld(run, unproven, past, root))


def _digest(run: Run) -> Iterator[tuple[bool, str]]:
    """A kept run is the archive that was kept; one that lies elsewhere is compared with this checkout's list."""
    if not run.archived:
        return
    listed = digests.list_of(run.path)
    if listed and listed.is_file():
        fault = digests.fault_of(run.path, listed)
        yield fault is None, fault or f"it is the archive that {listed} lists"
    elif (run.files / KEPT).is_file():
        digests_by_name = {
            Path(path).name: digest for path, digest in digests.read(digests.REPRODUCED / digests.NAME).items()
        }
        if (expected := digests_by_name.get(run.path.name)) is None:
            yield (
                True,
                f"{digests.NAME} lists no kept run of this name: whether this is the archive that was kept was NOT checked",
            )
        else:
            same = digests.sha256(run.path) == expected
            text = "it is the archive" if same else "it is NOT the archive"
            yield same, f"{text} that was kept under this name, by {digests.REPRODUCED / digests.NAME}"


def _signatures(run: Run, signers: Path) -> Iterator[tuple[bool, str]]:
    if signed := signature(run.files / manifest.MANIFEST, signers):
        yield signed.good, signed.text
    if run.archived:
        yield from signed_as_listed(run.path, signers)


def signed_as_listed(archive: Path, signers: Path = SIGNERS) -> Iterator[tuple[bool, str]]:
    """What can be said of an archive's signature, after whether it is the one that the list of kept runs asks for."""
    signed, listed = signature(archive, signers), digests.list_of(archive)
    pinned = digests.signer(archive.parent.parent.name, listed, archive) if listed else None
    if pinned not in (None, digests.UNSIGNED):
        if signed is None:
            yield (
                False,
                f"{archive.name} is not signed, but {listed} says that {pinned} signed it: the signature was removed",
            )
        elif signed.good and signed.key != pinned:
            yield False, f"{archive.name} is signed by {signed.key}, but {listed} says that {pinned} signed it"
        else:
            yield signed.good, signed.text
    elif signed:
        yield signed.good, signed.text
    elif listed:
        yield True, f"{archive.name} is not signed: whoever can write to the repository could have kept it"

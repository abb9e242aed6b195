"""The tasks over runs that there are: report and judge one, verify it, archive it, compare two."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.cli.settings import Exit, Invocation, KeyFile, OptionError, exit_statuses, task
from repro.runs.record import RUNS, check_creatable
from repro.utils.errors import FAILED

if TYPE_CHECKING:
    from repro.runs.record import Run

RUN = "a run, by its name, folder or archive (default: the latest)"


@task(run=RUN, check="exit by the verdicts")
def report(
    invocation: Invocation,
    run: str | None = None,
    runs: Path = RUNS,
    check: bool = False,
    tolerance: float | None = None,
) -> None:
    """Write a run's report, verdicts and tables again.

    Those of a run in an archive, or in a folder that is not among one's own RUNS, are written to RUNS/<its name>.

    Exit status with --check: 0 every comparable case is reproduced or faster in all its repeats; 1 one is not, or
    none of its repeats succeeded; 3 nothing can be judged (a smoke run, or other hardware). Without it: 0 written;
    1 the run differs from its record, or its raw output yields other figures; 2 wrong input. make turns every nonzero
    status into 2 and prints the number in its last line.
    """
    from repro.analysis.evidence import require
    from repro.report.run.page import render, report_folder
    from repro.runs.files import reading
    from repro.runs.manifest import check_recordable, record
    from repro.runs.occupied import occupied

    chosen = _run(run, runs)
    target = report_folder(chosen, runs)
    own = target == chosen.path
    if not own:
        check_creatable(runs)
    in_use = occupied(chosen) if own else contextlib.nullcontext()
    with in_use, exit_statuses(FAILED), reading(chosen.path):
        require(chosen)
        if own:
            check_recordable(chosen)
        rendered = render(chosen, tolerance, figures=True, folder=target)
        if own:
            record(chosen)
    for path in (*rendered.reports, rendered.results, target / "verdicts.json"):
        print(path)
    if check and rendered.status:
        raise Exit(rendered.summary(), rendered.status)
    print(rendered.summary())


@report.checks
def _check_run(values: Mapping[str, Any]) -> None:
    """Refuse a run that there is not."""
    from repro.runs.record import Run

    Run.find(values["run"] or None, values["runs"], option="RUN")


@task(run=RUN, host="every kept run of this host instead")
def verify(invocation: Invocation, run: str | None = None, runs: Path = RUNS, host: str | None = None) -> None:
    """Check a run against its own evidence: files, figures, commit, archive and signature.

    Names every file that was changed, added or removed since the run was recorded, every figure that differs from its
    logs and metrics, a commit missing from the history, an archive other than the kept one, and an invalid signature.
    Exit status: 0 everything matches; 1 something does not; 2 wrong input.
    """
    from repro.analysis.verification import verify as verified
    from repro.runs.files import reading

    if host:
        _verify_kept(host)
        return
    chosen = _run(run, runs)
    with exit_statuses(FAILED), reading(chosen.path):
        verification = verified(chosen)
    for line in verification.holds:
        print(f"{chosen.path}: {line}")
    if verification.faults:
        raise Exit("\n".join((f"{chosen.path} is not as it was recorded:", *verification.faults)), FAILED)
    print(f"{chosen.path}: verified, as it was recorded")


@verify.checks
def _check_verify(values: Mapping[str, Any]) -> None:
    """Refuse a run or a host that there is not."""
    from repro.runs.digests import archives_of

    if values["host"] and values["run"]:
        raise OptionError("RUN and HOST: give one of them; HOST= verifies all kept runs of a host")
    if values["host"]:
        archives_of(values["host"])
    else:
        _check_run(values)


def _verify_kept(host: str) -> None:
    from repro.analysis.verification import remarks, verify_list
    from repro.analysis.verification import verify as verified
    from repro.runs import digests
    from repro.runs.files import RecordError, reading
    from repro.runs.record import Run
    from repro.utils import last_lines

    archives = digests.archives_of(host)
    folder = archives[0].parent
    faults = digests.faults(folder.parent)
    for archive in archives:
        try:
            with reading(archive):
                verification = verified(Run(archive))
        except RecordError as error:
            faults.append(str(error))
            continue
        print(f"{archive.name}:", *verification.holds, sep="\n  ")
        faults += [f"{archive.name}: {fault}" for fault in verification.faults if fault not in faults]
    of_list = verify_list(folder.parent.parent / digests.NAME)
    print(*of_list.holds, *remarks(folder.parent), sep="\n")
    faults += of_list.faults
    if faults:
        raise Exit("\n".join(faults), FAILED)
    print(last_lines.verified(host, len(archives)))


@task(
    run=RUN,
    host="keep the run, or a preflight, below reports/reproduced/ as this host's instead",
    key="with HOST, the SSH key that signs this and all later archives of the host, or none (default: as the last one)",
)
def archive(
    invocation: Invocation,
    run: str | None = None,
    runs: Path = RUNS,
    host: str | None = None,
    key: KeyFile | None = None,
) -> None:
    """Pack a run into one archive for handing over, or keep it in reports/reproduced/ for a host's page.

    A host's archives are signed by one SSH key, which the list of kept runs names; the first time, one in ~/.ssh is
    offered.

    Exit status: 0 written; 1 the run differs from its record, its raw output yields other figures, it cannot be read
    back, or, with --host, its commit is not in the history; 2 wrong input.
    """
    if host:
        _keep(run or "", runs, host, key)
        return
    from repro.analysis.evidence import require
    from repro.runs.archive import archive as packed_run
    from repro.runs.files import reading

    chosen = _run(run, runs)
    with exit_statuses(FAILED), reading(chosen.path):
        require(chosen)
        packed = packed_run(chosen)
    print(f"{packed.path}\nSHA-256 {packed.digest}")


@archive.checks
def _check_archive(values: Mapping[str, Any]) -> None:
    """Refuse what is neither a run nor a preflight, and what cannot be a host's name."""
    from repro.runs.digests import runs_of

    run, runs, host = values["run"], values["runs"], values["host"]
    if values["key"] and not host:
        raise OptionError("KEY=<file> is for HOST=<name>: a run that is handed over is signed by hand (docs/trust.md)")
    if host and not run:
        raise OptionError("RUN=<id> HOST=<name>: name the run to keep, and the host that it is of, such as h200")
    if host:
        runs_of(host)
    if not (host and _preflight(run, runs)):
        _check_run(values)


def _preflight(run: str, runs: Path) -> Path | None:
    """The folder of a preflight, which is kept as a run is; None for a run."""
    from repro.runs.files import PREFLIGHT

    return next((candidate for candidate in (runs / run, Path(run)) if (candidate / PREFLIGHT).is_file()), None)


def _keep(run: str, runs: Path, host: str, named: str | None) -> None:
    from repro.cli.signing import at_terminal, chosen_key
    from repro.report.host.keep import NEXT, keep
    from repro.runs import digests
    from repro.runs.digests import runs_of
    from repro.runs.files import ARCHIVE, RecordError, reading
    from repro.runs.history import history
    from repro.runs.record import Run

    folder = _preflight(run, runs)
    source = folder or Run.find(run, runs, option="RUN").path
    target = runs_of(host) / (source.name.removesuffix(ARCHIVE) + ARCHIVE)
    key, signer = chosen_key(host, digests.signer(host, target.parents[2] / digests.NAME), named)
    with exit_statuses(FAILED), reading(source):
        if not folder:
            commit = Run(source).description().environment.git_commit
            if not commit or history().holds(commit) is False:
                raise RecordError(
                    f"{source}: its commit, {commit or 'none'}, is in no branch or tag of this repository, so that "
                    "nobody could look up its code; commit and push it before the run, and keep that run"
                )
        packed = keep(source, target, key, signer, at_terminal())
    print(f"{packed.path}: {packed.files} files, {packed.size / 1e3:.0f} kB")
    print(f"signed by {key.fingerprint}" if key else "not signed")
    print(f"paths outside the checkout that it names: {', '.join(packed.named) or 'none'}")
    print(NEXT)


@task(runs="two runs, by name, folder or archive, with a blank or a comma between them")
def compare(invocation: Invocation, runs: tuple[str, ...] = (), tolerance: float | None = None) -> None:
    """Compare two runs, and write the comparison to the folder that the first is in.

    Exit status: 0 written; 1 a run cannot be compared; 2 wrong input.
    """
    from repro.analysis.compare_runs import compare as compared
    from repro.analysis.evidence import require
    from repro.report.compare import print_table, write
    from repro.runs.files import reading
    from repro.runs.record import Run

    first, second = (Run.find(name, option="RUNS") for name in runs)
    with reading(Path(" ".join(runs))):
        comparison = compared(first, second, tolerance)
    with exit_statuses(FAILED):
        for run in (first, second):
            with reading(run.path):
                require(run)
        written = write(comparison, RUNS if first.archived else first.folder.parent)
    print_table(comparison)
    for path in written:
        print(path)


@compare.checks
def _check_compare(values: Mapping[str, Any]) -> None:
    """Refuse other than two runs that there are."""
    from repro.runs.files import content
    from repro.runs.record import Run

    names = values["runs"]
    if len(names) != 2 or len({content(Run.find(name, option="RUNS").files / "run.json") for name in names}) < 2:
        raise OptionError('RUNS="A B": name the two runs to compare, each once; a run equals itself')


def _run(name: str | None, runs: Path) -> Run:
    """The run of this name, folder or archive; without one the latest, with those before it on standard error."""
    from repro.runs.record import Run

    run = Run.find(name or None, runs, option="RUN")
    if not name:
        before = Run.latest(runs)[1:]
        print(f"RUN={run.id}, the latest{'; before it: ' + ', '.join(before) if before else ''}", file=sys.stderr)
    return run

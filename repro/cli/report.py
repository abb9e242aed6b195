"""The tasks over runs that there are: report and judge one, verify it, archive it, compare two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from invoke import Exit

from repro.cli.settings import Invocation, OptionError, exit_statuses, task
from repro.runs.record import RUNS
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

    Exit status with --check: 0 every comparable case is reproduced or faster in all its repeats; 1 one is not, or
    none of its repeats succeeded; 3 nothing can be judged (a smoke run, or other hardware). Without it: 0 written;
    1 the run was changed since it was recorded; 2 wrong input. make itself turns every status but 0 into 2 and names
    the number in its last line.
    """
    from repro.analysis.results import write_results_parquet
    from repro.analysis.verdict import check_given
    from repro.report.run.page import render, report_folder
    from repro.runs.manifest import alterations, record

    check_given(tolerance)
    chosen = _run(run, runs)
    target = report_folder(chosen, runs)
    with exit_statuses(FAILED):
        if altered := alterations(chosen.files):
            lines = (f"{chosen.path} is not as it was recorded; no report was made:", *altered)
            raise Exit("\n".join(lines), FAILED)
        rendered = render(chosen, tolerance, figures=True, folder=target)
        table = write_results_parquet(chosen, target)
        if not chosen.archived:
            record(chosen)
    for path in (*rendered.reports, rendered.results, table, target / "verdicts.json"):
        print(path)
    if check and rendered.status:
        raise Exit(rendered.summary(), rendered.status)
    print(rendered.summary())


@task(run=RUN)
def verify(invocation: Invocation, run: str | None = None, runs: Path = RUNS) -> None:
    """Name every file of a run that was changed, added or removed since it was recorded.

    Exit status: 0 none was; 1 some were; 2 wrong input.
    """
    from repro.runs.manifest import verify as verified

    chosen = _run(run, runs)
    with exit_statuses(FAILED):
        found = verified(chosen.files)
    if not found.holds:
        raise Exit("\n".join((f"{chosen.path} is not as it was recorded:", *found.lines())), FAILED)
    print(f"{chosen.path}: {found.files} files are as recorded; SHA-256 of the record: {found.digest}")


@task(run=RUN, host="keep the run, or a preflight, below reports/reproduced/ as this host's instead")
def archive(invocation: Invocation, run: str | None = None, runs: Path = RUNS, host: str | None = None) -> None:
    """Pack a run into one archive to hand over, or keep it in reports/reproduced/ for a host's page.

    Exit status: 0 written; 1 the run was changed since it was recorded, or cannot be read back; 2 wrong input.
    """
    if host:
        _keep(run, runs, host)
        return
    from repro.runs.archive import archive as packed_run

    chosen = _run(run, runs)
    with exit_statuses(FAILED):
        packed = packed_run(chosen)
    print(f"{packed.path}\nSHA-256 {packed.digest}")


def _keep(run: str | None, runs: Path, host: str) -> None:
    from repro.report.host.keep import keep, runs_of
    from repro.runs.files import ARCHIVE, PREFLIGHT
    from repro.runs.record import Run

    if not run:
        raise OptionError("RUN=<id> HOST=<name>: name the run to keep, and the host that it is of, such as h200")
    folder = next((each for each in (runs / run, Path(run)) if (each / PREFLIGHT).is_file()), None)
    source = folder or Run.find(run, runs).path
    target = runs_of(host) / (source.name.removesuffix(ARCHIVE) + ARCHIVE)
    with exit_statuses(FAILED):
        kept = keep(source, target)
    print(f"{kept.path}: {kept.files} files, {kept.size / 1e6:.1f} MB")
    print(f"paths outside the checkout that it names: {', '.join(kept.named) or 'none'}")
    print(f"make host-reports HOST={host} puts it into the host's page and the READMEs")


@task(runs="two runs, by name, folder or archive, with a blank or a comma between them")
def compare(invocation: Invocation, runs: tuple[str, ...] = (), tolerance: float | None = None) -> None:
    """Compare two runs, and write the comparison to the folder that the first is in.

    Exit status: 0 written; 1 a run cannot be compared; 2 wrong input.
    """
    from repro.analysis.compare_runs import compare as compared
    from repro.report.compare import print_table, write
    from repro.runs.record import Run

    if len(runs) != 2:
        raise OptionError('RUNS="A B": name the two runs to compare')
    first, second = (Run.find(name) for name in runs)
    comparison = compared(first, second, tolerance)
    with exit_statuses(FAILED):
        written = write(comparison, RUNS if first.archived else first.folder.parent)
    print_table(comparison)
    for path in written:
        print(path)


def _run(name: str | None, runs: Path) -> Run:
    """The run of this name, folder or archive; without one the latest."""
    from repro.runs.record import Run

    return Run.find(name or None, runs)

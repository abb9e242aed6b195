"""Whether what a withdrawn run measured was measured again by the runs that its line in the list of kept runs names.

The archive of a withdrawn run is gone, but its line names its units, and the history of the checkout has the archive.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from repro.planning.plan import BENCH, PUBLISHED, Plan
from repro.planning.unit import configuration
from repro.runs import digests
from repro.runs.digests import Withdrawal
from repro.runs.files import ARCHIVE, PREFLIGHT
from repro.runs.history import committed
from repro.runs.record import Run
from repro.utils.paths import ROOT

OK, FAILED = "ok", "failed"


def configurations(run: Run, statuses: Collection[str] = (OK,)) -> dict[str, str]:
    """The configuration and GPU of each unit that has an attempt of one of these statuses, in a run that measured speed.

    Nothing for any other run, or a preflight.
    """
    if (run.files / PREFLIGHT).is_file():
        return {}
    description = run.description()
    plan = Plan.from_json(description["plan"])
    if (plan.kind, plan.scale) != (BENCH, PUBLISHED):
        return {}
    named = {attempt["unit"] for attempt in run.attempts() if attempt["status"] in statuses}
    gpu = [each["name"] for each in description["environment"]["gpus"][:1]]
    return {
        unit.name: json.dumps([configuration(unit), gpu], sort_keys=True) for unit in plan.units if unit.name in named
    }


def faults(host: Path) -> list[str]:
    """A line for each unit of a host's withdrawn runs, by its folder, that no kept run measured.

    A run that superseded another may be withdrawn in turn: then one that supersedes it must have measured the unit. The
    list and the archives must be without faults.
    """
    withdrawn = digests.withdrawn(host)
    named = {name for each in withdrawn.values() for name in each.successors} - withdrawn.keys()
    measured = {name: configurations(Run(_archive(host, name))).keys() for name in sorted(named)}
    return [
        f"{each.path} was withdrawn, but no run that its line names, or that superseded those in turn, measured {unit}"
        for each in withdrawn.values()
        for unit, again in each.units.items()
        if not _stands(again, each.successors, withdrawn, measured)
    ]


def _stands(
    unit: str,
    by: Iterable[str],
    withdrawn: Mapping[str, Withdrawal],
    measured: Mapping[str, Collection[str]],
    seen: frozenset[str] = frozenset(),
) -> bool:
    """Whether a kept one of these runs measured the unit, or one that superseded a withdrawn one of them."""
    for name in by:
        old = withdrawn.get(name)
        if old is None:
            found = unit in measured[name]
        else:
            known = name not in seen and unit in old.units
            found = known and _stands(old.units[unit], old.successors, withdrawn, measured, seen | {name})
        if found:
            return True
    return False


def contradictions(host: Path, root: Path = ROOT) -> list[str]:
    """What the archives of a host's withdrawn runs, as the history of the checkout `root` has them, say against their lines.

    The archive must be the one that was kept, its line must name all that it tried, and each unit must have the
    configuration of the one in a later run that the line names for it.
    """
    listed = host.absolute().parent / digests.NAME
    entries, withdrawn = digests.read(listed), digests.withdrawn(host)
    found: list[str] = []
    with TemporaryDirectory() as scratch:
        old: dict[str, Run] = {}
        for name, each in withdrawn.items():
            archive = Path(scratch) / f"{name}{ARCHIVE}"
            content = committed(listed.parent / each.path, entries[each.path], root)
            if content is None:
                found.append(f"{each.path} was withdrawn, and the history does not have the archive that was kept")
            else:
                archive.write_bytes(content)
                old[name] = Run(archive)
        for name, run in old.items():
            by = [old.get(each) or Run(_archive(host, each)) for each in withdrawn[name].successors]
            found += _against(withdrawn[name], run, [each for each in by if each.path.is_file()])
    return found


def _against(line: Withdrawal, run: Run, successors: Iterable[Run]) -> Iterator[str]:
    tried = configurations(run, (OK, FAILED))
    if differing := sorted(tried.keys() ^ line.units.keys()):
        yield f"{line.path} was withdrawn, and its line and its archive in the history differ in {', '.join(differing)}"
    began = _began(run)
    later = [configurations(each) for each in successors if _began(each) > began]
    for unit in sorted(tried.keys() & line.units.keys()):
        if not any(each.get(line.units[unit]) == tried[unit] for each in later):
            yield f"{line.path} was withdrawn, but no later run that its line names has the configuration of {unit}"


def _began(run: Run) -> float:
    return 0.0 if (run.files / PREFLIGHT).is_file() else run.description()["created"]


def _archive(host: Path, name: str) -> Path:
    return host / "runs" / f"{name}{ARCHIVE}"

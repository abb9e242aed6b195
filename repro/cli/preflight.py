"""The preflight task: checks machines before a run, prints the results and keeps them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.cli.options import LOCAL, LibraryOptions, refuse_misplaced
from repro.cli.settings import Exit, Invocation, task
from repro.runs.record import RUNS, check_creatable
from repro.utils.errors import FAILED
from repro.utils.paths import named_by_time
from repro.utils.signals import heed_signals

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from repro.cluster.cluster import Cluster
    from repro.preflight.framework import ChecklistEntry, Machine, PreflightCheck

RESULTS = ("ok", "warning", "failed", "not available")


@task(
    cluster="check the nodes of an inventory, by its name or folder, in place of this machine",
    fix="fix what can be fixed safely",
    only="only these checks, separated by commas",
    port="the port that a run on this machine will use",
)
def preflight(
    invocation: Invocation,
    cluster: str | None = None,
    fix: bool = False,
    only: str | None = None,
    port: int | None = None,
    runs: Path = RUNS,
    *,
    libraries: LibraryOptions,
) -> None:
    """Report anything that would invalidate a run, what it means, and how to fix it.

    Exit status: 0 no check failed; 1 one did; 2 wrong input, nothing was checked.
    """
    from repro.preflight.framework import choose

    heed_signals()
    folder = _folder(runs)
    described, environment = _subject(cluster, libraries)
    checks = choose(_checks(folder, environment, described), only or None)
    folder.mkdir(parents=True)
    machines, entries = _machines(described, folder, port or 0)
    try:
        look(checks, machines, entries, fix=fix)
    finally:
        file = _keep(folder, entries, described)
    counts = {result: sum(entry.finding.result == result for entry in entries) for result in RESULTS}
    print(", ".join(f"{count} {result}" for result, count in counts.items() if count) or "nothing was checked")
    print(file)
    if counts["failed"]:
        raise Exit("what failed would invalidate a run; the lines above say how to fix it", FAILED)


@preflight.checks
def _check_only(values: Mapping[str, Any]) -> None:
    """Refuse checks that there are not, libraries for the nodes of a cluster, and a place for the results that cannot be written.

    The checks of a cluster are known once its inventory is read.
    """
    from repro.preflight.framework import choose

    check_creatable(values["runs"])
    refuse_misplaced(values, values["cluster"], (*LOCAL, "PORT"))
    if not values["cluster"]:
        choose(_checks(Path(), {}, None), values["only"])


def _folder(runs: Path) -> Path:
    return named_by_time(runs.absolute(), "preflight-")


def _subject(cluster: str | None, options: LibraryOptions) -> tuple[Cluster | None, dict]:
    """The cluster, or None and what this machine's GPUs need."""
    if cluster:
        from repro.cluster.cluster import load_cluster

        return load_cluster(cluster), {}
    from repro.images.stack import stack_of
    from repro.launch.host_environment import gpus

    return None, stack_of(gpus(), options.stack or None, options.libraries()).environment


def _checks(folder: Path, environment: dict, cluster: Cluster | None) -> tuple[PreflightCheck, ...]:
    from repro.preflight import gpu as preflight_gpu
    from repro.preflight import network as preflight_network
    from repro.preflight import node as preflight_node
    from repro.preflight.collectives import Collectives
    from repro.preflight.installed import checks as installed
    from repro.preflight.kernels import Computations

    there = installed(cluster) if cluster else ()
    every = (*there, *preflight_gpu.CHECKS, *preflight_node.CHECKS, *preflight_network.CHECKS)
    measured = (Computations(folder, environment, cluster), Collectives(folder, environment, cluster))
    return (*every, *(check for group in measured for check in group.checks()))


def _machines(cluster: Cluster | None, folder: Path, port: int) -> tuple[list[Machine], list[ChecklistEntry]]:
    """The machines that answer, and an entry for each that does not."""
    from repro.preflight.framework import this_machine

    return nodes_of(cluster) if cluster else ([this_machine(port, folder.parent)], [])


def nodes_of(cluster: Cluster, only: Collection[str] | None = None) -> tuple[list[Machine], list[ChecklistEntry]]:
    """The nodes of a cluster that answer, or of those that `only` names, and an entry for each that does not."""
    from repro.preflight.framework import ChecklistEntry, failed, of_cluster

    machines, errors = of_cluster(cluster, only)
    fix = "fix this first; the other nodes are checked without it"
    return machines, [
        ChecklistEntry(
            "reach",
            "the node answers",
            machine=name,
            finding=failed(str(error), "No rank can start on it.", fix),
            seconds=0.0,
        )
        for name, error in errors.items()
    ]


def look(
    checks: Sequence[PreflightCheck], machines: list[Machine], entries: list[ChecklistEntry], fix: bool = False
) -> None:
    """Run the checks, show what they find as they go, add it to `entries`, which are shown first; close the machines."""
    from repro.preflight.framework import run_checks

    show(entries, len(entries))
    try:
        for new_entries in run_checks(checks, machines, fix=fix):
            show(new_entries, len(machines))
            entries += new_entries
    finally:
        for machine in machines:
            machine.runner.close()


def show(entries: list[ChecklistEntry], machines: int) -> None:
    """Print the entries of a check, machines with the same finding together."""
    groups: dict[Any, list[str]] = {}
    for entry in entries:
        groups.setdefault((entry.check, entry.finding), []).append(entry.machine)
    for (check, finding), names in groups.items():
        where = "" if len(names) == machines or names == ["all"] else f"{', '.join(names)}: "
        fixed = " (fixed)" if finding.fixed else ""
        print(f"{finding.result:<14}{check:<17}{where}{finding.facts}{fixed}")
    for label, texts in (
        ("impact", [entry.finding.impact for entry in entries]),
        ("fix", [entry.finding.fix for entry in entries]),
    ):
        for text in dict.fromkeys(filter(None, texts)):
            print(f"{'':<31}{label}: {text}")


def _keep(folder: Path, entries: list[ChecklistEntry], cluster: Cluster | None) -> Path:
    file = folder / "preflight.json"
    content = {
        "created": time.time(),
        "cluster": cluster.name if cluster else None,
        "findings": [entry.as_json() for entry in entries],
    }
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return file

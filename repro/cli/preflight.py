"""The task that checks machines before a run: settings, what is printed while it works, and what is kept."""

import json
import sys
import time
from pathlib import Path

from invoke import Exit, task

from repro.cli.tasks import BAD_INPUT, FAILED, SETTINGS, check_settings, setting, whole_number

SETTINGS |= {"FIX", "ONLY", "STACK"}
STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "not available": "dim"}


@task
def preflight(c):
    """What would spoil a run, its impact, and how to fix it [CLUSTER= FIX=1 ONLY=name,name]."""
    from repro.cluster.cluster import ClusterError
    from repro.images.stack import StackError
    from repro.preflight.framework import PreflightError, choose, run_checks

    check_settings()
    if setting("FIX", "0") not in ("0", "1"):
        raise Exit(f"FIX={setting('FIX')}: it is 1 to fix what can be fixed safely, or 0", BAD_INPUT)
    folder = _folder()
    try:
        cluster, environment = _subject()
        checks = choose(_checks(folder, environment, cluster), setting("ONLY"))
    except (ClusterError, PreflightError, StackError) as error:
        raise Exit(str(error), BAD_INPUT) from error
    folder.mkdir(parents=True)
    machines, entries = _machines(cluster, folder)
    show(entries, len(entries))
    try:
        for found in run_checks(checks, machines, fix=setting("FIX") == "1"):
            show(found, len(machines))
            entries += found
    finally:
        for machine in machines:
            machine.runner.close()
        kept = _keep(folder, entries, cluster)
    counts = {result: sum(entry.finding.result == result for entry in entries) for result in STYLES}
    print(", ".join(f"{count} {result}" for result, count in counts.items() if count) or "nothing was checked")
    print(kept)
    if counts["failed"]:
        raise Exit("what failed would spoil a run; the lines above say how to fix it", FAILED)


def _folder() -> Path:
    from repro.runs.record import RUNS

    name = f"preflight-{time.strftime('%Y%m%d-%H%M%S')}"
    return (Path(setting("RUNS", RUNS)) / name).absolute()


def _subject():
    """The cluster, or None and what this machine's GPUs need."""
    if setting("CLUSTER"):
        from repro.cluster.cluster import load_cluster

        return load_cluster(setting("CLUSTER")), {}
    from repro.images.stack import stack_of
    from repro.launch.host_environment import gpus

    return None, stack_of(gpus(), setting("STACK")).environment


def _checks(folder: Path, environment: dict, cluster):
    from repro.preflight import gpu as preflight_gpu
    from repro.preflight import network as preflight_network
    from repro.preflight import node as preflight_node
    from repro.preflight.collectives import Collectives
    from repro.preflight.kernels import Computations

    every = (*preflight_gpu.CHECKS, *preflight_node.CHECKS, *preflight_network.CHECKS)
    measured = (Computations(folder, environment, cluster), Collectives(folder, environment, cluster))
    return (*every, *(check for each in measured for check in each.checks()))


def _machines(cluster, folder: Path):
    """The machines that answer, and an entry for each that does not."""
    from repro.preflight.framework import Entry, failed, of_cluster, this_machine

    if cluster is None:
        return [this_machine(whole_number("PORT", 0), folder.parent)], []
    machines, errors = of_cluster(cluster)
    fix = "fix that first; the other nodes are checked without it"
    return machines, [
        Entry("reach", "the node answers", name, failed(str(error), "No rank can start there.", fix), 0.0)
        for name, error in errors.items()
    ]


def show(entries: list, machines: int) -> None:
    """Print the entries of a check, machines with the same finding together."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False)
    groups: dict = {}
    for entry in entries:
        groups.setdefault((entry.check, entry.finding), []).append(entry.machine)
    for (check, finding), names in groups.items():
        where = "" if len(names) == machines or names == ["all"] else f"{', '.join(names)}: "
        fixed = " (fixed)" if finding.fixed else ""
        console.print(
            Text.assemble(
                (f"{finding.result:<14}", STYLES[finding.result]), f"{check:<17}", f"{where}{finding.found}{fixed}"
            )
        )
    for label, texts in (
        ("impact", [entry.finding.impact for entry in entries]),
        ("fix", [entry.finding.fix for entry in entries]),
    ):
        for text in dict.fromkeys(filter(None, texts)):
            console.print(Text(f"{'':<31}{label}: {text}", style="dim"))


def _keep(folder: Path, entries: list, cluster) -> Path:
    kept = folder / "preflight.json"
    content = {
        "created": time.time(),
        "cluster": cluster.name if cluster else None,
        "findings": [entry.as_json() for entry in entries],
    }
    kept.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return kept

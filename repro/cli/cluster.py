"""The tasks around a cluster's description: a new one, what its nodes are, and the tests over simulated nodes."""

import os
import sys
import time
from pathlib import Path

from invoke import Exit, task

from repro.cli.tasks import BAD_INPUT, FAILED, SETTINGS, check_settings, setting

SETTINGS |= {"LIMIT", "FIX", "LAUNCHER", "TAGS", "LONG"}
SETTINGS |= {
    "NAME",
    "HOSTS",
    "LOGIN",
    "KEY",
    "FINGERPRINTS",
    "GPU",
    "GPUS",
    "INTERFACE",
    "HCA",
    "GBITS",
    "STACK",
    "IMAGE",
    "DIGEST",
    "DATA",
}
SHOWN = (
    "system.distribution",
    "system.kernel",
    "cpu.model",
    "memory.total",
    "gpu.count",
    "gpu.model",
    "gpu.driver",
    "interface.rate",
    "docker.version",
    "image.id",
)


class cluster_errors:
    """Turns what is wrong with a cluster's description, or a node, into a message and an exit status."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        from repro.cluster.fingerprint import FingerprintError
        from repro.cluster.inventory import ClusterError

        if isinstance(error, ClusterError | EOFError):
            raise Exit(str(error) or "no answer; nothing was written", BAD_INPUT) from error
        if isinstance(error, FingerprintError):
            raise Exit(str(error), FAILED) from error


@task
def new_cluster(c):
    """Describe a cluster: asks what no setting gives, shows the nodes' host keys, and writes an inventory.

    NAME= HOSTS="address …" LOGIN= KEY= FINGERPRINTS="SHA256:… …" GPU= GPUS= INTERFACE= HCA= GBITS= STACK= IMAGE=
    DIGEST= DATA=; without a terminal, NAME, HOSTS, FINGERPRINTS and what the first node does not show must be given.
    """
    from repro.cluster.prompts import Answers
    from repro.cluster.prompts import new_cluster as described

    check_settings()
    with cluster_errors():
        cluster = described(Answers(os.environ.get, input if sys.stdin.isatty() else None), print)
    print(
        f"{cluster.folder}: {len(cluster.nodes)} nodes, {cluster.world_size} ranks, read back and right\n"
        f"next: make provision CLUSTER={_name(cluster)}, then make preflight CLUSTER={_name(cluster)}"
    )


def _name(cluster) -> str:
    from repro.cluster.inventory import INVENTORIES

    return cluster.name if cluster.folder.parent == INVENTORIES else str(cluster.folder)


@task
def fingerprint(c):
    """What each node is, and where nodes differ; keeps it as JSON beside the runs [CLUSTER= CHECK=1].

    CHECK=1 exits 1 if nodes differ in a field that the inventory's cluster_accepted_differences does not name.
    """
    from repro.cluster.cluster import load_cluster
    from repro.cluster.fingerprint import differences, gather, write
    from repro.runs.record import RUNS

    check_settings()
    if not setting("CLUSTER"):
        raise Exit("CLUSTER=NAME: name the inventory of the nodes to look at", BAD_INPUT)
    if setting("CHECK", "0") not in ("0", "1"):
        raise Exit(f"CHECK={setting('CHECK')}: it is 1 to exit by the differences, or 0", BAD_INPUT)
    with cluster_errors():
        cluster = load_cluster(setting("CLUSTER"))
        found = gather(cluster)
    apart = differences(found, cluster.accepted)
    kept = Path(setting("RUNS", RUNS)) / f"fingerprint-{cluster.name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    write(kept, cluster, found)
    _show_fingerprint(found, apart)
    print(kept)
    if refused := [each.field for each in apart if not each.accepted]:
        said = f"nodes differ in {len(refused)} fields; make them the same, or accept fields in {cluster.variables}"
        if setting("CHECK") == "1":
            raise Exit(said, FAILED)
        print(said)


def _show_fingerprint(found: dict, apart: list) -> None:
    from rich.console import Console
    from rich.table import Table

    from repro.cluster.fingerprint import differences_table

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    first = next(iter(found.values()))
    differing = {each.field for each in apart}
    for field in SHOWN:
        if field in first.fields and field not in differing:
            console.print(f"{field:<22}{first.fields[field]}", soft_wrap=True, markup=False)
    for node, each in found.items():
        for note in each.notes:
            console.print(f"note: {node}: {note}", soft_wrap=True, markup=False)
    if apart:
        columns, rows = differences_table(apart)
        table = Table(*columns, header_style="bold", show_lines=True)
        for row in rows:
            table.add_row(*row)
        console.print(table, markup=False)
    console.print(f"{len(found)} nodes, {len(first.fields)} fields, {len(apart)} of them differ")


@task
def e2e(c):
    """The tests over simulated nodes; they need root and start an engine of their own [ONLY=expression LONG=1]."""
    check_settings()
    only = ["-k", setting("ONLY")] if setting("ONLY") else []
    quick = [] if setting("LONG") else ["-m", "not long"]
    arguments = ["-m", "pytest", "tests/cluster", "--timeout=900", "--durations=12", *quick, *only]
    os.execv(sys.executable, [sys.executable, *arguments])


class provision_errors:
    """Turns what is wrong with an inventory or a setting into a message and an exit status."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        from repro.cluster.inventory import ClusterError
        from repro.cluster.provision import ProvisionError
        from repro.images.pins import PinError

        if isinstance(error, ClusterError | PinError | ProvisionError):
            raise Exit(str(error), BAD_INPUT) from error


def _cluster():
    from repro.cluster.cluster import load_cluster
    from repro.cluster.inventory import inventory_names

    check_settings()
    if not setting("CLUSTER"):
        raise Exit(
            f"CLUSTER=NAME: name the cluster; there are {', '.join(inventory_names())}, or the path of an inventory",
            BAD_INPUT,
        )
    with provision_errors():
        return load_cluster(setting("CLUSTER"))


def _check() -> bool:
    if setting("CHECK") not in (None, "0", "1"):
        raise Exit(f"CHECK={setting('CHECK')}: it is 1 for a dry run, or left out", BAD_INPUT)
    return setting("CHECK") == "1"


def _tell(done, what: str, check: bool) -> None:
    """One line a node, and the exit status."""
    what = f"dry run of {what}" if check else what
    for outcome in done.outcomes:
        print(outcome.line(), *(f"    {note}" for note in outcome.notes), sep="\n")
    if not done.succeeded:
        failed = [outcome.node for outcome in done.outcomes if outcome.failed]
        raise Exit(
            f"{what} failed on {', '.join(failed) or 'no node in particular'}, see above; what is done stays "
            "done, so mend the cause and run the same command again",
            FAILED,
        )
    changed = "; nothing was changed" if check else ""
    print(f"{what}: {len(done.outcomes)} nodes in {done.seconds:.1f} s{changed}")


@task
def provision(c):
    """Set every node of a cluster up the same [CLUSTER= CHECK=1 LIMIT= TAGS= BUNDLE=]."""
    from repro.cluster.provision import provision as set_up

    cluster, check = _cluster(), _check()
    bundle = Path(setting("BUNDLE")) if setting("BUNDLE") else None
    with provision_errors():
        done = set_up(cluster, check=check, limit=setting("LIMIT", ""), tags=setting("TAGS", ""), bundle=bundle)
    _tell(done, "provisioning", check)
    if not check:
        from repro.cli.cluster import fingerprint

        fingerprint(c)


@task
def deprovision(c):
    """Take back what provisioning added to the nodes [CLUSTER= CHECK=1 LIMIT=]."""
    from repro.cluster.provision import deprovision as take_back

    cluster, check = _cluster(), _check()
    with provision_errors():
        done = take_back(cluster, check=check, limit=setting("LIMIT", ""))
    _tell(done, "deprovisioning", check)

"""The tasks on clusters: describe a new one, provision its nodes, and show their fingerprints."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.cli.settings import Exit, FolderThere, Invocation, OptionError, exit_statuses, task
from repro.images.stack import ImageStack
from repro.runs.record import RUNS, check_creatable
from repro.utils.errors import BAD_INPUT, FAILED
from repro.utils.output import TerminalColumn, print_table
from repro.utils.paths import named_by_time
from repro.utils.printable import one_line

if TYPE_CHECKING:
    from repro.cluster.cluster import Cluster
    from repro.cluster.provision import Provisioned

CLUSTER = "an inventory, by its name or folder"
KEY = r"(?m)(?:^|[\s{{,'\"]){}['\"]?\s*:"
"""Where the text of an inventory has a name as a key."""
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
WITHOUT_ROOT = (
    "platform,python,work,trainer,data,shared-results,gpus,container,memlock,shared-memory,disk,clock,link,ssh"
)
"""The checks of what provisioning is for."""


@task(
    name="name of the cluster",
    hosts="its nodes, the one of rank 0 first: address, address:port or name=address",
    login="user to log in as",
    jump="jump hosts on the way to all nodes, this machine's neighbour first: address or user@address",
    key="private SSH key, empty for SSH's own choice",
    fingerprints="the right fingerprints of the nodes' host keys",
    gpu="GPU as nvidia-smi prints it, empty for none",
    gpus="ranks per node",
    interface="network interface between the nodes",
    hca="InfiniBand or RoCE adapters, empty for none",
    gbits="speed of one port in Gb/s",
    stack="cu102, or cu102-modern for GPUs newer than Turing",
    image="where the image is from: a registry, an archive (path), or empty if it is on the nodes",
    digest="the image's ID, sha256:…, empty if unknown",
    data="folder of the data set on the nodes, empty for synthetic data",
)
def new_cluster(
    invocation: Invocation,
    name: str | None = None,
    hosts: str | None = None,
    login: str | None = None,
    jump: str | None = None,
    key: str | None = None,
    fingerprints: str | None = None,
    gpu: str | None = None,
    gpus: str | None = None,
    interface: str | None = None,
    hca: str | None = None,
    gbits: str | None = None,
    stack: ImageStack | None = None,
    image: str | None = None,
    digest: str | None = None,
    data: str | None = None,
) -> None:
    """Describe a cluster: ask for what the options do not give, show the nodes' host keys, and write an inventory.

    Without a terminal the name, the hosts, the fingerprints and what the first node does not show must be given.
    Exit status: 0 written; 2 an answer is missing or wrong, and nothing was written.
    """
    answers = {option.upper(): value for option, value in locals().items()}

    from repro.cluster.prompts import Answers
    from repro.cluster.prompts import new_cluster as describe

    try:
        cluster = describe(Answers(answers.get, input if sys.stdin.isatty() else None), print)
    except EOFError:
        raise Exit("no answer; nothing was written", BAD_INPUT) from None
    shown = cluster.setting
    print(
        f"{cluster.folder}: {len(cluster.nodes)} nodes, {cluster.world_size} ranks, read back and right\n"
        f"next: make provision CLUSTER={shown}, then make preflight CLUSTER={shown}"
    )


@new_cluster.checks
def _check_answers(values: Mapping[str, Any]) -> None:
    """Refuse a wrong answer, and a missing one where nobody can be asked, of those that need no node."""
    from repro.cluster.prompts import check_given

    check_given({name.upper(): value for name, value in values.items()}, sys.stdin.isatty())


@task(cluster=CLUSTER, check="exit 1 if nodes differ in a field that cluster_accepted_differences does not name")
def fingerprint(invocation: Invocation, cluster: str | None = None, runs: Path = RUNS, check: bool = False) -> None:
    """Show each node's fingerprint and the differences between nodes, and keep them as JSON with the runs.

    Exit status: 0 shown; 1 a node cannot be asked, or with --check nodes differ; 2 wrong input.
    """
    _fingerprint(_cluster(cluster), runs, check)


def _fingerprint(cluster: Cluster, runs: Path, check: bool) -> None:
    from repro.cluster.fingerprint import differences, gather, write

    fingerprints = gather(cluster)
    apart = differences(fingerprints, cluster.accepted)
    file = named_by_time(runs, f"fingerprint-{cluster.name}-", ".json")
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, cluster, fingerprints)
    _show_fingerprint(fingerprints, apart)
    print(file)
    if refused := [difference.field for difference in apart if not difference.accepted]:
        message = f"nodes differ in {len(refused)} fields; make them the same, or accept fields in {cluster.variables}"
        if check:
            raise Exit(message, FAILED)
        print(message)


def _show_fingerprint(fingerprints: dict, apart: list) -> None:
    from repro.cluster.fingerprint import differences_table

    first = next(iter(fingerprints.values()))
    differing = {difference.field for difference in apart}
    for field in SHOWN:
        if field in first.fields and field not in differing:
            print(f"{field:<22}{first.fields[field]}")
    for node, node_fingerprint in fingerprints.items():
        for note in node_fingerprint.notes:
            print(f"note: {node}: {note}")
    if apart:
        columns, rows = differences_table(apart)
        print_table([TerminalColumn(title, wraps=True) for title in columns], rows)
    print(f"{len(fingerprints)} nodes, {len(first.fields)} fields, {len(apart)} of them differ")


def _only_cluster(name: str | None, limit: str | None) -> Cluster:
    """The named cluster; without a name, that of the only inventory written in this checkout, after saying which."""
    from repro.cluster.inventory import own_inventories
    from repro.cluster.provision import chosen_names

    if name or len(own_inventories()) != 1:
        return _cluster(name)
    chosen = _cluster(own_inventories()[0])
    hosts = ", ".join(chosen_names(chosen, limit or ""))
    print(f"CLUSTER={chosen.name}, the only inventory that was written in this checkout. Provisioned will be: {hosts}")
    return chosen


def _cluster(name: str | None) -> Cluster:
    from repro.cluster.inventory import inventory_names

    if not name:
        names = ", ".join(inventory_names())
        raise OptionError(f"CLUSTER=NAME: name the cluster; there are {names}, or the path of an inventory")
    from repro.cluster.cluster import load_cluster

    return load_cluster(name)


@fingerprint.checks
def _check_named(values: Mapping[str, Any]) -> None:
    """Refuse a task without the cluster that it needs."""
    if not values["cluster"]:
        _cluster(None)


@fingerprint.checks
def _check_place(values: Mapping[str, Any]) -> None:
    """Refuse a place for the fingerprints that cannot be written."""
    check_creatable(values["runs"])


@task(
    cluster=CLUSTER,
    check="dry run: show what would change, or, without root, what nodes have and what a run would miss",
    tags="only these parts, such as base,ssh_mesh",
    bundle="offline bundle, which `make bundle` writes, to take packages and images from",
)
def provision(
    invocation: Invocation,
    cluster: str | None = None,
    check: bool = False,
    limit: str | None = None,
    tags: str | None = None,
    bundle: FolderThere | None = None,
    runs: Path = RUNS,
) -> None:
    """Set every node of a cluster up the same, and show where nodes differ.

    Where exactly one inventory was written in this checkout, --cluster may be left out.
    With --check, nodes without sudo, apt or a distribution that the roles know are looked at without root: what they have,
    and what a run would miss.
    Exit status: 0 done; 1 it failed on a node, named in the last line, or a run would miss something; 2 wrong input.
    """
    from repro.cluster.provision import chosen_names, unmanaged
    from repro.cluster.provision import provision as set_up

    chosen = _only_cluster(cluster, limit)
    with exit_statuses(BAD_INPUT):
        without_root = unmanaged(chosen, limit or "") if check else {}
        lacking = _show_without_root(chosen, without_root)
        if managed := [name for name in chosen_names(chosen, limit or "") if name not in without_root]:
            named = ",".join(managed) if without_root else limit or ""
            with _alone(chosen, managed, "provision", check):
                done = set_up(chosen, check=check, limit=named, tags=tags or "", bundle=bundle)
    if managed:
        _show_outcome(done, "provisioning", check)
    if lacking:
        raise Exit(f"{lacking} things that a run needs are missing; the lines above say how to get each", FAILED)
    if not check:
        _fingerprint(chosen, runs, check=False)


def _check_limit(values: Mapping[str, Any]) -> None:
    """Refuse nodes that the text of an inventory does not name; one with ranges has to be read for that."""
    from repro.cluster.inventory import inventory_folder, own_inventories

    if limit := values["limit"]:
        file = inventory_folder(values["cluster"] or own_inventories()[0]) / "hosts.yml"
        text = file.read_text(encoding="utf-8", errors="replace")
        missing = [name for name in limit.split(",") if not re.search(KEY.format(re.escape(name)), text)]
        if missing and "[" not in text:
            raise OptionError(
                f"LIMIT={one_line(limit)}: {file} has no node {missing[0]!r}; separate names by commas alone"
            )


@provision.checks
def _check_meant(values: Mapping[str, Any]) -> None:
    """Refuse parts that there are not, a place for the fingerprints that cannot be written, and provisioning where not
    exactly one cluster can be meant.
    """
    from repro.cluster.inventory import own_inventories
    from repro.cluster.provision import ROLES, checked_names

    checked_names("TAGS", values["tags"] or "", ROLES)
    if not values["check"]:
        check_creatable(values["runs"])
    if len(own_inventories()) != 1:
        _check_named(values)
    _check_limit(values)


@contextmanager
def _alone(cluster: Cluster, names: list[str], task: str, check: bool) -> Iterator[None]:
    """Hold nodes while they are changed: a run on them would lose its engine, and one that begins is told of this."""
    from repro.cluster.inventory import ClusterError
    from repro.launch.ssh.holding import held

    if check:
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(held(cluster, names, f"make {task} CLUSTER={cluster.setting}"))
        except ClusterError as error:
            raise Exit(str(error), FAILED) from None
        yield


def _show_without_root(cluster: Cluster, reasons: dict[str, str]) -> int:
    """Show what the nodes have that cannot be provisioned, and what a run would miss: the number of such findings."""
    from repro.cli.preflight import look, nodes_of
    from repro.preflight import framework, gpu, installed, network, node

    if not reasons:
        return 0
    for name, why in reasons.items():
        print(f"{name} cannot be provisioned: {why}. Seen without root:")
    machines, entries = nodes_of(cluster, reasons)
    every = (*installed.checks(cluster), *gpu.CHECKS, *node.CHECKS, *network.CHECKS)
    look(framework.choose(every, WITHOUT_ROOT), machines, entries)
    return sum(entry.finding.result == framework.FAILED for entry in entries)


@task(cluster=CLUSTER, check="dry run: show what would change")
def deprovision(
    invocation: Invocation, cluster: str | None = None, check: bool = False, limit: str | None = None
) -> None:
    """Take back what provisioning added to the nodes.

    Exit status: 0 done; 1 it failed on a node, named in the last line; 2 wrong input.
    """
    from repro.cluster.provision import chosen_names
    from repro.cluster.provision import deprovision as take_back

    chosen = _cluster(cluster)
    nodes = chosen_names(chosen, limit or "")
    with exit_statuses(BAD_INPUT), _alone(chosen, nodes, "deprovision", check):
        done = take_back(chosen, check=check, limit=limit or "")
    _show_outcome(done, "deprovisioning", check)


deprovision.checks(_check_named)
deprovision.checks(_check_limit)


@task(
    cluster=CLUSTER,
    check="only show who holds the nodes and what would be ended",
    yes="end what is shown without asking",
    force="end also a run that is still heard of",
)
def unlock(
    invocation: Invocation, cluster: str | None = None, check: bool = False, yes: bool = False, force: bool = False
) -> None:
    """Free a cluster's nodes of a run that has stopped or hangs: show what would be ended, ask, and end it.

    Exit status: 0 the nodes are free, or with --check shown; 1 a node stays locked, or cannot be asked; 2 wrong input.
    """
    from repro.launch.nodes.unlock import Occupancy, free, survey

    chosen, left = _cluster(cluster), []
    ending = []
    for answer in survey(chosen).values():
        if not isinstance(answer, Occupancy):
            left.append(str(answer))
            continue
        print(*answer.lines(), sep="\n")
        if refusal := answer.refusal(force):
            left.append(refusal)
        elif not answer.nothing:
            ending.append(answer)
    if ending and not check:
        if not (yes or _agreed(f"End this on {', '.join(occupancy.node for occupancy in ending)}?")):
            raise Exit("\n".join([*left, "nothing was ended; YES=1 ends what is shown without asking"]), FAILED)
        for node, outcome in free(chosen, ending).items():
            if outcome:
                left.append(str(outcome) if isinstance(outcome, Exception) else f"{node}: {outcome}")
            else:
                print(f"{node}: free now")
    if left:
        raise Exit("\n".join(left), FAILED)


unlock.checks(_check_named)


def _agreed(question: str) -> bool:
    """Whether a person at the terminal says yes; without a terminal nobody does."""
    if not sys.stdin.isatty():
        return False
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _show_outcome(done: Provisioned, what: str, check: bool) -> None:
    """One line per node; Exit if one failed."""
    what = f"dry run of {what}" if check else what
    for outcome in done.outcomes:
        print(outcome.line(), *(f"    {note}" for note in outcome.notes), sep="\n")
        for change in dict.fromkeys(outcome.changes) if check else ():
            print(f"    would change: {change}")
    if not done.succeeded:
        failed = [outcome.node for outcome in done.outcomes if outcome.failed]
        raise Exit(
            f"{what} failed on {', '.join(failed) or 'no node in particular'}, see above; what is done stays "
            "done, so fix the cause and run the same command again",
            FAILED,
        )
    print(f"{what}: {len(done.outcomes)} nodes in {done.seconds:.1f} s{'; nothing was changed' if check else ''}")
    if check:
        apart = [outcome.node for outcome in done.outcomes if outcome.changes]
        print(f"not up to date: {', '.join(apart)}; what would change is above" if apart else "up to date")

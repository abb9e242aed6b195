"""Who holds a node: what a run tells others of itself, and the sentences for whoever wants the node meanwhile."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time

from repro.cluster.cluster import Cluster
from repro.launch.nodes.work import LEASE_S


def holder(what: str, run: str = "") -> dict[str, str]:
    """What others are told of a run of this process that holds nodes: who, for what, since when; with a mark of its own."""
    return {
        "who": f"{getpass.getuser()}@{socket.gethostname()} process {os.getpid()}",
        "what": what,
        "run": run,
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "mark": secrets.token_hex(8),
    }


def is_heard(occupant: dict, patience: float) -> bool:
    """Whether a node's holder, as its agent reports it, still gives signs of life; `patience` is the cluster's."""
    lease_s = LEASE_S * patience
    return not occupant.get("stopped") and occupant.get("silent_s", lease_s) < lease_s


def described(occupant: dict) -> str:
    """Who holds a node, since when and for what, and its process there."""
    where = f"process {occupant['pid']}" if occupant["pid"] else "a process that cannot be seen from there"
    process = f"{where} of account {occupant.get('account', '?')}"
    if "who" not in occupant:
        return f"{process}, which recorded nothing of itself"
    run = f", run {occupant['run']}" if occupant.get("run") else ""
    job = f", job {occupant['job']}" if occupant.get("job") else ""
    return f"{occupant['who']} since {occupant.get('since')} for `{occupant.get('what')}`{run}{job} ({process})"


def last_heard(occupant: dict) -> str:
    """When the holder was last heard of, by this machine's clock."""
    stopped = "; it is stopped" if occupant.get("stopped") else ""
    if "silent_s" not in occupant:
        return f"it is not known when it was last heard of{stopped}"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - occupant["silent_s"]))
    return f"not heard of since {when} ({occupant['silent_s']:.0f} s){stopped}"


def held_text(cluster: Cluster, occupant: dict) -> str:
    """That a node is in use, and what to do: wait, end the holder, or ask who can."""
    text = f"in use by {described(occupant)}"
    if is_heard(occupant, cluster.patience):
        return f"{text}; wait for that to end"
    if not occupant.get("may_end"):
        return f"{text}; {last_heard(occupant)}. {whom_to_ask(occupant)}"
    way = f"scancel {occupant['job']}" if occupant.get("job") else f"make unlock CLUSTER={cluster.setting}"
    return f"{text}; {last_heard(occupant)}. End it with `{way}`"


def whom_to_ask(occupant: dict) -> str:
    """Who has the right to end a holder that this account may not end."""
    account, pid = occupant.get("account"), occupant["pid"]
    who = f"account {account} or an administrator" if account else "an administrator"
    return f"Ask {who} of the node to end it" + (f" (`kill {pid}`, if need be `kill -KILL {pid}`)" if pid else "")


def others_text(cluster: Cluster, others: list[dict]) -> str:
    """That containers of other runs run on a node, and what to do about them."""
    shown = "; ".join(container_text(container) for container in others)
    text = f"containers of other runs are still there: {shown}"
    if all(container["mine"] and container["abandoned"] for container in others):
        return f"{text}. End them with `make unlock CLUSTER={cluster.setting}`"
    return f"{text}. Wait for their runs to end, or ask whose they are to remove them (`docker rm --force NAME`)"


def container_text(container: dict) -> str:
    """A container, and whose it is."""
    account = container["account"] or "unknown"
    of_dead = ", whose run is dead" if container["abandoned"] else ""
    return f"{container['name']} (run {container['run']}, account {account}{of_dead})"

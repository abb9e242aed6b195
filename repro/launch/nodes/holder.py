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


def is_heard(found: dict) -> bool:
    """Whether a node's holder, as its agent reports it, still gives signs of life."""
    return not found.get("stopped") and found.get("silent_s", LEASE_S) < LEASE_S


def described(found: dict) -> str:
    """Who holds a node, since when and for what, and its process there."""
    where = f"process {found['pid']}" if found["pid"] else "a process that cannot be seen from there"
    process = f"{where} of account {found.get('account', '?')}"
    if "who" not in found:
        return f"{process}, which recorded nothing of itself"
    run = f", run {found['run']}" if found.get("run") else ""
    job = f", job {found['job']}" if found.get("job") else ""
    return f"{found['who']} since {found.get('since')} for `{found.get('what')}`{run}{job} ({process})"


def last_heard(found: dict) -> str:
    """When the holder was last heard of, by this machine's clock."""
    stopped = "; it is stopped" if found.get("stopped") else ""
    if "silent_s" not in found:
        return f"it is not known when it was last heard of{stopped}"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - found["silent_s"]))
    return f"not heard of since {when} ({found['silent_s']:.0f} s){stopped}"


def held_text(cluster: Cluster, found: dict) -> str:
    """That a node is in use, and what to do: wait, end the holder, or ask who can."""
    text = f"in use by {described(found)}"
    if is_heard(found):
        return f"{text}; wait for that to end"
    if not found.get("may_end"):
        return f"{text}; {last_heard(found)}. {whom_to_ask(found)}"
    way = f"scancel {found['job']}" if found.get("job") else f"make unlock CLUSTER={cluster.setting}"
    return f"{text}; {last_heard(found)}. End it with `{way}`"


def whom_to_ask(found: dict) -> str:
    """Who has the right to end a holder that this account may not end."""
    account, pid = found.get("account"), found["pid"]
    who = f"account {account} or an administrator" if account else "an administrator"
    return f"Ask {who} of the node to end it" + (f" (`kill {pid}`, if need be `kill -KILL {pid}`)" if pid else "")


def others_text(cluster: Cluster, others: list[dict]) -> str:
    """That containers of other runs run on a node, and what to do about them."""
    shown = "; ".join(container_text(each) for each in others)
    text = f"containers of other runs are still there: {shown}"
    if all(each["mine"] and each["abandoned"] for each in others):
        return f"{text}. End them with `make unlock CLUSTER={cluster.setting}`"
    return f"{text}. Wait for their runs to end, or ask whose they are to remove them (`docker rm --force NAME`)"


def container_text(found: dict) -> str:
    """A container, and whose it is."""
    account = found["account"] or "unknown"
    of_dead = ", whose run is dead" if found["abandoned"] else ""
    return f"{found['name']} (run {found['run']}, account {account}{of_dead})"

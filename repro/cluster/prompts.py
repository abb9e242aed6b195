"""The answers for a new inventory: from settings, otherwise from the user, with defaults detected on the first node."""

from __future__ import annotations

import getpass
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from repro.cluster.cluster import Cluster, Node
from repro.cluster.create import (
    Found,
    detect,
    image_of,
    jump_hosts_of,
    key_of,
    nodes_of,
    target_folder,
    unwritten,
    write_inventory,
)
from repro.cluster.host_keys import AT_THE_MACHINE, HostKey, confirmed, scan
from repro.cluster.inventory import ClusterError
from repro.cluster.jump_hosts import Refused, close, open_checked
from repro.cluster.ssh import on_all
from repro.images.stack import IMAGE_STACKS
from repro.utils.typed_numbers import number_of

NAME = ("NAME", "name of the cluster")
NUMBERS = ("GPUS", "GBITS")
"""The answers that are numbers."""
ANYTHING = Found(gpus=1, interface="eth0", network_gbits=1, image_ids=dict.fromkeys(IMAGE_STACKS, f"sha256:{'0' * 64}"))
"""A placeholder for the first node before it is queried; all of its values are valid in an inventory."""


class Answers:
    """Answers from settings, otherwise from the user if `ask` can reach one, otherwise the default."""

    def __init__(self, given: Callable[[str], str | None], ask: Callable[[str], str] | None) -> None:
        self._given, self._ask = given, ask

    @property
    def person(self) -> bool:
        """Whether there is somebody to ask."""
        return self._ask is not None

    def of_settings(self) -> Answers:
        """The same without anybody to ask."""
        return Answers(self._given, None)

    def get(self, name: str, question: str, default: str | None = None) -> str:
        """One answer; ClusterError if nobody can give it."""
        if (value := self._given(name)) is not None:
            return value
        if self._ask is None:
            if default is None:
                raise ClusterError(f"{name} is missing ({question}), and there is no terminal to ask at: give {name}=…")
            return default
        while True:
            shown = f" [{default}]" if default else ""
            value = self._ask(f"{question}{shown}: ").strip() or default
            if value is not None:
                return value

    def number(self, name: str, question: str, default: float | None) -> float:
        """An answer that is a number; whole where it has no fraction."""
        text = self.get(name, question, f"{default:g}" if default else None)
        if (value := number_of(text)) is None:
            raise ClusterError(f"{name}={text}: it is a number, such as 8 or 2.5")
        return int(value) if value == int(value) else value


def new_cluster(answers: Answers, say: Callable[[str], None]) -> Cluster:
    """Ask, check the host keys with the person, write the inventory and read it back; ClusterError stops it."""
    folder = target_folder(answers.get(*NAME))
    nodes, jump, key = _way(answers)
    _refuse_given(answers, nodes, jump, key)
    keys = _checked_keys(answers, nodes, jump, key, say)
    suggestions = _suggestions(nodes, jump, key, keys, say)
    cluster = write_inventory(folder, nodes, keys, _variables(answers, suggestions), key, jump)
    for name, result in on_all(cluster, lambda remote: remote.run(["true"])).items():
        if isinstance(result, Exception):
            say(f"note: {name} does not answer yet: {result}")
    return cluster


def check_given(given: Mapping[str, str | None], person: bool) -> None:
    """ClusterError for a name, host, key or number that is malformed, or missing without a person to ask.

    This connects to no node and asks nobody, and needs nothing that is installed.
    """
    later = {"HOSTS": "asked", "LOGIN": "asked"} if person else {}
    answers = Answers({name: later.get(name) if text is None else text for name, text in given.items()}.get, None)
    if not person or given[NAME[0]] is not None:
        target_folder(answers.get(*NAME))
    _way(answers)
    for name in NUMBERS:
        answers.number(name, "", 1)


def _refuse_given(answers: Answers, nodes: tuple[Node, ...], jump: tuple[Node, ...], key: Path | None) -> None:
    """ClusterError for a setting that no inventory may have, before a node or a person is asked: a draft is read back."""
    with tempfile.TemporaryDirectory() as scratch:
        values = _variables(answers.of_settings(), ANYTHING)
        write_inventory(Path(scratch) / "draft", nodes, [], values, key, jump)


def _way(answers: Answers) -> tuple[tuple[Node, ...], tuple[Node, ...], Path | None]:
    """The nodes, the jump hosts on the way to them, and the SSH key."""
    hosts = answers.get("HOSTS", "its nodes, the one of rank 0 first: address, address:port or name=address")
    user = answers.get("LOGIN", "user to log in as", getpass.getuser())
    nodes = nodes_of(hosts, user)
    hops = answers.get(
        "JUMP", "jump hosts on the way, this machine's neighbour first: address or user@address, empty for none", ""
    )
    jump = jump_hosts_of(hops, user)
    return nodes, jump, key_of(answers.get("KEY", "private SSH key, empty for SSH's own choice", ""))


def _checked_keys(
    answers: Answers, nodes: tuple[Node, ...], jump: tuple[Node, ...], key: Path | None, say: Callable[[str], None]
) -> list[HostKey]:
    """The keys of all hosts; those behind a jump host are asked for only once its own are known to be right."""
    trusted_keys: list[HostKey] = []
    for position, hop in enumerate(jump):
        trusted_keys += _confirmed(answers, _shown_by((hop,), jump[:position], key, trusted_keys), say)
    return trusted_keys + _confirmed(answers, _shown_by(nodes, jump, key, trusted_keys), say)


def _shown_by(
    hosts: tuple[Node, ...], jump: tuple[Node, ...], key: Path | None, trusted_keys: list[HostKey]
) -> list[HostKey]:
    asked = [(host.name, host.address, host.port) for host in hosts]
    if not jump:
        return scan(asked)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            way = open_checked(
                unwritten(jump[-1:], jump[:-1], key=key, keys=trusted_keys, scratch=Path(scratch)), jump[-1]
            )
        except Refused as refused:
            raise ClusterError(f"the jump host {refused.host.address} cannot be used: {refused.error}") from refused
        try:
            return scan(asked, way[-1])
        finally:
            close(way)


def _confirmed(answers: Answers, keys: list[HostKey], say: Callable[[str], None]) -> list[HostKey]:
    for key in keys:
        say(f"{key.node:<16}{key.kind:<22}{key.fingerprint}")
    if answers.person:
        say(f"Each machine prints its own fingerprints at its console: {AT_THE_MACHINE}")
    given = answers.get("FINGERPRINTS", 'are these the machines\' own keys? "yes", or the right fingerprints')
    if answers.person and given.lower() in ("yes", "y"):
        return keys
    return confirmed(keys, given.replace(",", " ").split())


def _suggestions(
    nodes: tuple[Node, ...],
    jump: tuple[Node, ...],
    key: Path | None,
    keys: list[HostKey],
    say: Callable[[str], None],
) -> Found:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return detect(unwritten(nodes, jump, key=key, keys=keys, scratch=Path(scratch)))
        except ClusterError as error:
            say(f"note: {error}; so there are no suggestions below")
            return Found()


def _variables(answers: Answers, suggestions: Found) -> dict:
    gpu = answers.get("GPU", "GPU as nvidia-smi prints it, empty for none", suggestions.gpu)
    gpus = answers.number(
        "GPUS", "ranks per node: its GPUs" if gpu else "ranks per node", suggestions.gpus or (0 if gpu else 2)
    )
    interface = answers.get("INTERFACE", "network interface between the nodes", suggestions.interface or None)
    hca = answers.get("HCA", "InfiniBand or RoCE adapters, empty for none", suggestions.hca)
    gbits = answers.number("GBITS", "what one port does, in Gb/s", suggestions.network_gbits)
    stack = answers.get("STACK", "stack: cu102, or cu102-modern for GPUs newer than Turing", suggestions.stack)
    source = answers.get("IMAGE", "image from: a registry, an archive (path), or empty if it is on the nodes", "")
    digest = answers.get("DIGEST", "the image's ID, sha256:…, empty if unknown", suggestions.image_ids.get(stack, ""))
    data = answers.get("DATA", "folder of the data set on the nodes, empty for synthetic data", "")
    return {
        "gpu": gpu,
        "gpus_per_node": gpus,
        "interface": interface,
        "hca": hca,
        "gid_index": Cluster.gid_index,
        "network_gbits": gbits,
        "stack": stack,
        "image": asdict(image_of(stack, source, digest)),
        "data": data,
        "shared_results": Cluster.shared_results,
        "work": Cluster.work,
        "port": Cluster.port,
        "runtime": Cluster.runtime_name,
        "launcher": Cluster.launcher,
        "accepted_differences": sorted(Cluster.accepted),
    }

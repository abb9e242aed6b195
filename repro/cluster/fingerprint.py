"""Hardware and software of every node of a cluster, gathered in parallel, and where nodes differ."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from repro.cluster.cluster import Cluster
from repro.cluster.node_fields import PACKAGES, NodeFields
from repro.cluster.ssh import Remote, RemoteError, on_all
from repro.utils.errors import FAILED, ReproError

SCHEMA = 1
SCRIPT = Path(__file__).with_name("node_probe.py")
GATHER_S, TOOL_S = 90, 60
CLOCKS_APART_S = 0.1
CLOCK = "time.offset"
ABSENT = "absent"


class FingerprintError(ReproError):
    """Nodes that could not be probed, each with the reason."""

    status = FAILED


@dataclass(frozen=True)
class Fingerprint:
    """One node.

    Attributes
    ----------
    fields : values that equal nodes share, by dotted names such as "gpu.driver"; as text.
    readings : values that change all the time, never compared except for the clock: `time.offset_s` is the node's
        clock minus this machine's, `time.uncertainty_s` the largest error of that.
    topology : `nvidia-smi topo -m` as {"devices", "links", "affinity"}, None without GPUs.
    notes : tools whose output could not be read, or that failed.
    """

    node: str
    fields: dict[str, str]
    readings: dict[str, float]
    topology: dict | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FieldDifference:
    """A field that is not the same on all nodes: {value: nodes}, the value of most nodes first."""

    field: str
    values: dict[str, list[str]]
    accepted: bool

    def as_json(self) -> dict:
        return asdict(self)


Over = Callable[[Callable[[Remote], "Fingerprint"]], Mapping[str, "Fingerprint | Exception"]]
"""Does something on all nodes: gives its result, or the exception that it or the connection raised, by their names."""


def gather(cluster: Cluster, over: Over | None = None) -> dict[str, Fingerprint]:
    """Probe all nodes in parallel, each in one exchange over SSH; FingerprintError names those that failed and why.

    `over` is for connections that are open already; without it each node is connected to, and disconnected.
    """
    script = SCRIPT.read_text(encoding="utf-8")
    argv = [*cluster.interpreter, "-", *probe_arguments(cluster)]

    def probe(remote: Remote) -> Fingerprint:
        sent = time.time()
        output = remote.run(argv, stdin=script, timeout=GATHER_S).stdout
        return probed(cluster, remote.node.name, output=json.loads(output), sent=sent, received=time.time())

    results = over(probe) if over else on_all(cluster, probe)
    failed = [_why(node, result) for node, result in results.items() if isinstance(result, Exception)]
    if failed:
        raise FingerprintError("\n".join(("not every node could be probed:", *failed)))
    return {node: result for node, result in results.items() if isinstance(result, Fingerprint)}


def probe_arguments(cluster: Cluster) -> list[str]:
    """The arguments of the script that probes a node."""
    return [f"{TOOL_S * cluster.patience:g}", cluster.interface, cluster.hca, *PACKAGES]


def probed(cluster: Cluster, node: str, output: dict, sent: float, received: float) -> Fingerprint:
    """A node's fingerprint from the output of the script, which was started and received at these times of ours."""
    return fingerprint_of(node, NodeFields(output, cluster.interface, cluster.image.name), sent, received)


def _why(node: str, error: Exception) -> str:
    if isinstance(error, RemoteError):
        return str(error)
    return f"{node}: the output of {SCRIPT.name} cannot be read: {type(error).__name__}: {error}"


def fingerprint_of(node: str, fields: NodeFields, sent: float, received: float) -> Fingerprint:
    """A node's fingerprint from its fields; the probe was sent and its output received at these times of ours."""
    began, ended = fields.times
    clock = {
        "time.offset_s": round((began - sent + ended - received) / 2, 4),
        "time.uncertainty_s": round((received - sent - (ended - began)) / 2, 4),
    }
    return Fingerprint(
        node, fields.fields, readings=fields.readings | clock, topology=fields.topology, notes=tuple(fields.notes)
    )


def differences(fingerprints: Mapping[str, Fingerprint], accepted: Iterable[str] = ()) -> list[FieldDifference]:
    """The fields in which nodes differ, those not accepted first.

    `accepted` holds names of fields; a name such as "gpu.topology" covers all fields that begin with it and a dot.
    Clocks differ if one is further from their median than CLOCKS_APART_S plus the measurement's uncertainty.
    """
    accepted = tuple(accepted)
    differing = []
    for field in sorted({name for fingerprint in fingerprints.values() for name in fingerprint.fields}):
        values: dict[str, list[str]] = {}
        for node, fingerprint in fingerprints.items():
            values.setdefault(fingerprint.fields.get(field, ABSENT), []).append(node)
        if len(values) > 1:
            differing.append(FieldDifference(field, _most_first(values), _accepts(accepted, field)))
    differing += _clock_difference(fingerprints, _accepts(accepted, CLOCK))
    return sorted(differing, key=lambda difference: (difference.accepted, difference.field))


def unaccepted(fingerprints: Mapping[str, Fingerprint], accepted: Iterable[str] = ()) -> list[FieldDifference]:
    """Those of the `differences` that are not accepted."""
    return [difference for difference in differences(fingerprints, accepted) if not difference.accepted]


def changes(
    before: Mapping[str, Fingerprint], now: Mapping[str, Fingerprint], accepted: Iterable[str]
) -> list[FieldDifference]:
    """In what nodes are not what they were, by their names in both; their clocks, and what is accepted, are left out."""
    pairs = [{f"{node} then": then, f"{node} now": now[node]} for node, then in before.items() if node in now]
    return [difference for pair in pairs for difference in unaccepted(pair, [*accepted, CLOCK])]


def _accepts(accepted: tuple[str, ...], field: str) -> bool:
    return any(field == name or field.startswith(f"{name}.") for name in accepted)


def _most_first(values: dict[str, list[str]]) -> dict[str, list[str]]:
    return dict(sorted(values.items(), key=lambda item: -len(item[1])))


def _clock_difference(fingerprints: Mapping[str, Fingerprint], accepted: bool) -> list[FieldDifference]:
    readings = {node: fingerprint.readings for node, fingerprint in fingerprints.items()}
    if not readings:
        return []
    middle = statistics.median_low(reading["time.offset_s"] for reading in readings.values())
    values: dict[str, list[str]] = {f"within {CLOCKS_APART_S:g} s": []}
    for node, reading in readings.items():
        apart = reading["time.offset_s"] - middle
        far = abs(apart) > CLOCKS_APART_S + reading["time.uncertainty_s"]
        values.setdefault(f"{apart:+.2f} s" if far else f"within {CLOCKS_APART_S:g} s", []).append(node)
    return [FieldDifference(CLOCK, values, accepted)] if len(values) > 1 else []


def as_json(cluster: Cluster, fingerprints: dict[str, Fingerprint]) -> dict:
    """The form in which files keep it: schema, cluster, time of writing (UTC), nodes in order, and differences."""
    return {
        "schema": SCHEMA,
        "cluster": cluster.name,
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "nodes": {node: asdict(fingerprint) for node, fingerprint in fingerprints.items()},
        "differences": [difference.as_json() for difference in differences(fingerprints, cluster.accepted)],
    }


def write(path: Path, cluster: Cluster, fingerprints: dict[str, Fingerprint]) -> None:
    """Write it as JSON."""
    text = json.dumps(as_json(cluster, fingerprints), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def differences_table(differing: list[FieldDifference], width: int = 60) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: each field with the value of most nodes, and those of the others; long values are cut."""
    rows = []
    for difference in differing:
        (most, nodes), *others = difference.values.items()
        field = f"{difference.field} (accepted)" if difference.accepted else difference.field
        rows.append(
            [
                field,
                f"{_cut(most, width)} [{len(nodes)}]",
                "; ".join(f"{', '.join(nodes)}: {_cut(value, width)}" for value, nodes in others),
            ]
        )
    return ["field", "most nodes", "other nodes"], rows


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"

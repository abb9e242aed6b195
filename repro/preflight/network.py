"""Checks of the network: links and their errors, names, SSH, and the bandwidth between every two nodes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address

from repro.cluster.ssh import CommandResult
from repro.preflight.framework import (
    OK,
    CheckAborted,
    CheckResult,
    Machine,
    PreflightCheck,
    failed,
    last_line,
    ok,
    unavailable,
    warning,
)
from repro.utils.i18n import Message

NET, IB = "/sys/class/net", "/sys/class/infiniband"
IB_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
NET_ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "tx_carrier_errors")
GIDS, ROCE_V2 = 16, "RoCE v2"
WATCHED_S = 1.0
IPERF3_PORT, IPERF3_GBITS = 5201, 20.0
TEST_S, LONG_TEST_S = 2, 10
"""The longer test follows where nothing was transferred in the other, as by a start that takes seconds; a cluster's `patience`
times as long."""
MEASURED_S = 30
"""The most that a measurement may take with its start, which on an emulated machine takes most of it."""
TIMED_OUT = 124
BANDWIDTH_GOOD, BANDWIDTH_LEAST = 0.85, 0.5
CABLE = "reseat or replace the cable; compare with the switch port's counters"


def ports(machine: Machine) -> list[tuple[str, str]]:
    """InfiniBand devices and port numbers to use: those of the inventory, or all on this machine."""
    if machine.expected.hca:
        return [
            (device, port or "1")
            for device, _, port in (entry.partition(":") for entry in machine.expected.hca.split(","))
        ]
    if machine.expected.interface:
        return []
    return [(device, "1") for device in machine.run(["ls", IB]).stdout.split()]


def check_link(machine: Machine) -> CheckResult:
    """The state and rate of each InfiniBand port, or of the network interface without InfiniBand."""
    findings = [_ib_link(machine, *port) for port in ports(machine)] or [_net_link(machine)]
    worst = next((finding for finding in findings if finding.result != OK), None)
    return worst or ok(Message("{items}", items=[finding.facts for finding in findings]))


def _ib_link(machine: Machine, device: str, port: str) -> CheckResult:
    folder = f"{IB}/{device}/ports/{port}"
    values = machine.read([f"{folder}/{name}" for name in ("state", "phys_state", "rate")])
    if len(values) < 3:
        return failed(
            Message("no {device} port {port}", device=device, port=port),
            "NCCL and OneFlow cannot use InfiniBand.",
            "load mlx5_ib (`make provision`), or correct cluster_hca",
        )
    state, physical, rate = (
        values[f"{folder}/{name}"].partition(": ")[2] or values[f"{folder}/{name}"]
        for name in ("state", "phys_state", "rate")
    )
    name = f"{device} port {port}"
    if state != "ACTIVE":
        fix = "start a subnet manager (opensm) or ask for one" if physical == "LinkUp" else "plug in the cable"
        return failed(
            Message("{name} is {state} ({physical})", name=name, state=state, physical=physical),
            "This node cannot be reached over InfiniBand.",
            fix,
        )
    return _rate(name, float(rate.split()[0]), rate, machine.expected.network_gbits)


def _net_link(machine: Machine) -> CheckResult:
    name = machine.expected.interface
    if not name:
        return unavailable(Message("a single machine needs no network"))
    values = machine.read([f"{NET}/{name}/{file}" for file in ("operstate", "speed", "mtu")])
    state = values.get(f"{NET}/{name}/operstate")
    if state is None:
        return failed(
            Message("no interface {name}", name=name),
            "NCCL and OneFlow cannot reach the other nodes.",
            "`ip -br link` lists them; correct cluster_interface",
        )
    if state not in ("up", "unknown"):
        return failed(
            Message("{name} is {state}", name=name, state=state),
            "This node cannot be reached.",
            f"plug in the cable; ip link set {name} up",
        )
    speed = values.get(f"{NET}/{name}/speed", "-1")
    mtu = values.get(f"{NET}/{name}/mtu", "?")
    if not speed.isdigit():
        return ok(Message("{name} is up, MTU {mtu}; it does not report its rate", name=name, mtu=mtu))
    return _rate(name, int(speed) / 1000, f"{int(speed) / 1000:g} Gb/s, MTU {mtu}", machine.expected.network_gbits)


def _rate(name: str, gbits: float, text: str, expected: float) -> CheckResult:
    if gbits < 0.99 * expected:
        return failed(
            Message("{name} runs at {rate}; expected {expected:g} Gb/s", name=name, rate=text, expected=expected),
            "Every exchange between nodes takes longer in proportion.",
            CABLE,
        )
    return ok(Message("{name} at {rate}", name=name, rate=text))


def check_errors(machine: Machine) -> CheckResult:
    """Failed where error counters of links rise within WATCHED_S seconds; a warning where they are not 0."""
    paths = [f"{IB}/{device}/ports/{port}/counters/{name}" for device, port in ports(machine) for name in IB_ERRORS]
    if not paths and machine.expected.interface:
        paths = [f"{NET}/{machine.expected.interface}/statistics/{name}" for name in NET_ERRORS]
    before = machine.read(paths) if paths else {}
    if not before:
        return unavailable(Message("no link with counters"))
    time.sleep(WATCHED_S)
    after = machine.read(paths)
    rising = {
        path: int(after[path]) - int(value)
        for path, value in before.items()
        if path in after and int(after[path]) > int(value)
    }
    if rising:
        counters = ", ".join(f"{_counter(path)} +{count}" for path, count in rising.items())
        return failed(
            Message("within {seconds:g} s: {counters}", seconds=WATCHED_S, counters=counters),
            "Data is lost and sent again: slow now, and the link may fail soon.",
            CABLE,
        )
    past = {path: int(value) for path, value in after.items() if int(value)}
    if past:
        counters = ", ".join(f"{_counter(path)} {count}" for path, count in past.items())
        return warning(
            Message("not rising, but not zero since the last reset: {counters}", counters=counters),
            "The link had errors before.",
            "watch them during a run; `perfquery -R` resets InfiniBand counters",
        )
    return ok(Message("no errors"))


def _counter(path: str) -> str:
    parts = path.split("/")
    return f"{parts[4]} {parts[-1]}"


def check_gid(machine: Machine) -> CheckResult:
    """Failed where a RoCE port has this node's IPv4 address for RoCE v2 at another index than the inventory's.

    Index 0 is usually a link-local IPv6 address, and RoCE v1 and v2 have an index each.
    """
    roce = [port for port in ports(machine) if _layer(machine, *port) == "Ethernet"]
    if not roce:
        return unavailable(Message("no RoCE port, so no GID index is needed"))
    own, wanted = address(machine), machine.expected.gid_index
    at = {device: _gid_index(machine, device, port, own) for device, port in roce}
    shown = [
        Message("{device}: {index}", device=name, index="–" if index is None else index) for name, index in at.items()
    ]
    message = Message("RoCE v2 for {address} is at GID index {items}", address=own, items=shown)
    indices = set(at.values())
    if indices == {wanted}:
        return ok(message)
    impact = "NCCL and OneFlow would use another index, from which other nodes may not be reached."
    if len(indices) > 1 or None in indices:
        return failed(message, impact, "give each port the same addresses; `rdma link` and `show_gids` list them")
    return failed(message, impact, f"set cluster_gid_index: {next(iter(indices))}")


def _layer(machine: Machine, device: str, port: str) -> str:
    return next(iter(machine.read([f"{IB}/{device}/ports/{port}/link_layer"]).values()), "")


def _gid_index(machine: Machine, device: str, port: str, own: str) -> int | None:
    """Where a port has an IPv4 address for RoCE v2, among its first GIDS; None if it has not."""
    folder = f"{IB}/{device}/ports/{port}"
    values = machine.read([f"{folder}/{name}/{index}" for index in range(GIDS) for name in ("gids", "gid_attrs/types")])
    for index in range(GIDS):
        gid = values.get(f"{folder}/gids/{index}")
        kind = values.get(f"{folder}/gid_attrs/types/{index}")
        if gid and kind == ROCE_V2 and IPv6Address(gid).ipv4_mapped == IPv4Address(own):
            return index
    return None


def check_names(machine: Machine) -> CheckResult:
    """Failed where a node does not resolve the others' names, or resolves them to itself."""
    if not machine.other_nodes:
        return unavailable(Message("a single machine has no other nodes"))
    unknown, loops = [], []
    for node in machine.other_nodes:
        done = machine.run(["getent", "ahostsv4", node])
        address = done.stdout.split()[0] if done.stdout.split() else ""
        if done.status or not address:
            unknown.append(node)
        elif address.startswith("127."):
            loops.append(node)
    impact, fix = (
        "Nodes that address each other by name cannot connect.",
        "`make provision` writes /etc/hosts on each node",
    )
    if unknown or loops:
        problems = [Message("cannot resolve {nodes}", nodes=unknown)] * bool(unknown)
        problems += [Message("resolves {nodes} to itself", nodes=loops)] * bool(loops)
        return failed(Message("{items}", items=problems), impact, fix)
    return ok(Message("resolves {nodes}", nodes=machine.other_nodes))


def check_ssh(machine: Machine) -> CheckResult:
    """A warning where a node cannot log in to the others, their host keys being checked."""
    if not machine.other_nodes:
        return unavailable(Message("a single machine has no other nodes"))
    options = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=5")
    closed = {}
    for node in machine.other_nodes:
        done = machine.run(["ssh", *options, node, "true"])
        if done.status:
            closed[node] = (done.stderr.strip() or f"status {done.status}").splitlines()[-1]
    if closed:
        message = Message(
            "{items}", items=[Message("to {node}: {why}", node=node, why=why) for node, why in closed.items()]
        )
        return warning(
            message,
            "Tools that run on one node cannot reach the others; `make bench` does not need this.",
            "`make provision` exchanges keys and host keys among the nodes",
        )
    return ok(Message("reaches {nodes}", nodes=machine.other_nodes))


def rounds(machines: Sequence[Machine]) -> list[list[tuple[Machine, Machine]]]:
    """Every pair of machines once, in rounds with each machine in at most one pair (a round-robin tournament)."""
    circle: list = [*machines, *([None] if len(machines) % 2 else [])]
    made = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        made.append([(one, other) for one, other in pairs if one and other])
        circle.insert(1, circle.pop())
    return made


def check_bandwidth(machines: Sequence[Machine]) -> CheckResult:
    """The bandwidth (Gb/s) of every pair of nodes, several at a time, each node in one pair.

    Below BANDWIDTH_GOOD of the inventory's figure it is a warning, below BANDWIDTH_LEAST failed.
    """
    if len(machines) < 2:
        return unavailable(Message("a single machine has no other nodes"))
    expected = machines[0].expected
    measure, tool, limit = _with_iperf3, "iperf3", min(expected.network_gbits, IPERF3_GBITS)
    if expected.hca:
        measure, tool, limit = _with_ib_write_bw, "ib_write_bw", expected.network_gbits
    for machine in machines:
        machine.run([tool, "--version"])
    rates: dict[str, float] = {}
    with ThreadPoolExecutor(len(machines)) as pool:
        for pairs in rounds(machines):
            for pair, gbits in zip(pairs, pool.map(lambda pair: measure(*pair), pairs), strict=True):
                rates["-".join(machine.name for machine in pair)] = gbits
    slowest, fastest = min(rates, key=lambda pair: rates[pair]), max(rates.values())
    message = Message("{gbits:.3g} Gb/s ({pair})", gbits=rates[slowest], pair=slowest)
    if len(rates) > 1:
        message = Message(
            "{gbits:.3g} Gb/s ({pair}) to {fastest:.3g} Gb/s over {n} pairs",
            gbits=rates[slowest],
            pair=slowest,
            fastest=fastest,
            n=len(rates),
        )
    share = rates[slowest] / limit
    effect = f"take {1 / share:.1f} times as long" if share else "do not end"
    impact = f"Expected {limit:g} Gb/s: exchanges between nodes {effect}."
    fix = "see the checks link and link-errors of both nodes, their MTU, and what else uses the network"
    if share < BANDWIDTH_LEAST:
        return failed(message, impact, fix)
    return warning(message, impact, fix) if share < BANDWIDTH_GOOD else ok(message)


def _with_iperf3(server: Machine, client: Machine) -> float:
    """Gb/s from client to server over TCP."""
    listen = ["iperf3", "-s", "-1", "-p", str(IPERF3_PORT)]
    send = ["iperf3", "-c", address(server), "-p", str(IPERF3_PORT), "-t", str(TEST_S), "-P", "4", "-J"]
    report = json.loads(_between(server, listen, client, send))
    if "sum_received" not in report["end"]:
        reason = report.get("error") or Message("its report has no received bytes")
        raise CheckAborted(unavailable(Message("iperf3 did not measure: {reason}", reason=reason)))
    return report["end"]["sum_received"]["bits_per_second"] / 1e9


def _with_ib_write_bw(server: Machine, client: Machine) -> float:
    """Gb/s from client to server by RDMA, over the slowest of their ports."""
    rates = []
    for device, port in ports(server):
        argv = ["ib_write_bw", "-d", device, "-i", port, "-F"]
        if server.expected.gid_index is not None:
            argv += ["-x", str(server.expected.gid_index)]
        for seconds in (TEST_S, round(LONG_TEST_S * server.expected.patience)):
            timed = [*argv, "-D", str(seconds)]
            rate = write_bandwidth(_between(server, timed, client, [*timed, address(server)]))
            if rate:
                break
        rates.append(rate)
    return min(rates)


def write_bandwidth(text: str) -> float:
    """Average bandwidth in the table of `ib_write_bw`, Gb/s.

    The table has MiB/s with two decimals. Its Gb/s, with `--report_gbits`, have no more, so that emulated machines seem to
    transfer nothing.
    """
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", text, re.MULTILINE)
    if not rows:
        raise CheckAborted(unavailable(Message("ib_write_bw printed no bandwidth")))
    return float(rows[-1]) * 2**20 * 8 / 1e9


def _between(server: Machine, listen: list[str], client: Machine, send: list[str]) -> str:
    """The output of a client once its server listens; CheckAborted if they cannot connect."""
    limit = round(MEASURED_S * server.expected.patience)
    ended = ["timeout", str(limit)]
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.run, [*ended, *listen], timeout=MEASURED_S + 5)
        for _ in range(10):
            time.sleep(0.3)
            done = client.run([*ended, *send], timeout=MEASURED_S + 5)
            if done.status == 0 or serving.done():
                break
        if done.status:
            raise CheckAborted(
                failed(
                    Message(
                        "{client} does not reach {tool} on {server}: {reason}",
                        client=client.name,
                        tool=send[0],
                        server=server.name,
                        reason=_reason(done, limit),
                    ),
                    "The nodes cannot exchange data, or only over other ports.",
                    "open the firewall between the nodes; check routes and cluster_interface",
                )
            )
    return done.stdout


def _reason(done: CommandResult, limit_s: int) -> str:
    """Why a program with a time limit of `limit_s` failed; iperf3 reports it in its JSON."""
    if done.status == TIMED_OUT:
        return Message("it took longer than {seconds} s", seconds=limit_s)
    try:
        return json.loads(done.stdout)["error"]
    except (ValueError, KeyError):
        return last_line(done)


def address(machine: Machine) -> str:
    """A machine's IPv4 address on the inventory's interface."""
    interfaces = json.loads(machine.text(["ip", "-j", "-4", "addr", "show", "dev", machine.expected.interface]))
    addresses = [entry["local"] for link in interfaces for entry in link.get("addr_info", ())]
    if not addresses:
        raise CheckAborted(
            failed(
                Message(
                    "{interface} of {machine} has no IPv4 address",
                    interface=machine.expected.interface,
                    machine=machine.name,
                ),
                "Ranks cannot connect to it.",
                "assign one, or correct cluster_interface",
            )
        )
    return addresses[0]


CHECKS = (
    PreflightCheck("link", "the link is up and fast", check_link),
    PreflightCheck("link-errors", "error counters of the link", check_errors),
    PreflightCheck("gid", "the index of the address for RoCE", check_gid),
    PreflightCheck("names", "nodes resolve each other's names", check_names),
    PreflightCheck("ssh", "nodes reach each other by SSH", check_ssh),
    PreflightCheck("bandwidth", "bandwidth between every two nodes", check_bandwidth, together=True),
)

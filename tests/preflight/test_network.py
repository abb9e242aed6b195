"""Checks of links, names, SSH and bandwidth, over recorded output, for what is right, wrong and not there."""

import itertools
import json

import pytest

from repro.preflight import network as preflight_network
from repro.preflight.framework import FAILED, OK, UNAVAILABLE, WARNING, run_checks
from repro.preflight.network import CHECKS, rounds, write_bandwidth
from tests.support.recorded import machine

NAMED = {check.name: check for check in CHECKS}
PORT = "/sys/class/infiniband/mlx5_0/ports/1"
ETH = "/sys/class/net/eth0"
# github.com/linux-rdma/perftest/issues/132 (columns) with the rate of an EDR port.
WRITE_BW = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Mtu             : 4096[B]
 Link type       : IB
---------------------------------------------------------------------------------------
 local address: LID 0x02 QPN 0x0032 PSN 0x5f2841 RKey 0x002440 VAddr 0x007f2e5f64b000
 remote address: LID 0x01 QPN 0x003a PSN 0xc0fd7e RKey 0x002442 VAddr 0x007f443b2f8000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             11669.40            {rate}   \t\t   0.186592
---------------------------------------------------------------------------------------
"""


def infiniband(state="4: ACTIVE", physical="5: LinkUp", rate="100 Gb/sec (4X EDR)"):
    """What `grep -sH ""` prints of a port's files in sysfs."""
    return f"{PORT}/state:{state}\n{PORT}/phys_state:{physical}\n{PORT}/rate:{rate}\n"


def ethernet(state="up", speed="10000"):
    return f"{ETH}/operstate:{state}\n{ETH}/speed:{speed}\n{ETH}/mtu:1500\n"


def counters(symbol=0, downed=0):
    return f"{PORT}/counters/symbol_error:{symbol}\n{PORT}/counters/link_downed:{downed}\n"


def roce(index, kind="RoCE v2"):
    """What a node says of a port of rdma_rxe with its IPv4 address at an index; index 0 is its link-local address."""
    gids = {0: ("fe80:0000:0000:0000:5054:00ff:fe01:0001", "RoCE v2")}
    gids[index] = ("0000:0000:0000:0000:0000:ffff:0a58:000b", kind)
    lines = [
        f"{PORT}/gids/{at}:{gid}\n{PORT}/gid_attrs/types/{at}:{said}\n" for at, (gid, said) in sorted(gids.items())
    ]
    addresses = '[{"addr_info": [{"local": "10.88.0.11", "prefixlen": 24}]}]'
    return {"grep": [f"{PORT}/link_layer:Ethernet\n", "".join(lines)], "ip -j": addresses}


HCA = {"hca": "mlx5_0", "interface": "ib0", "network_gbits": 100}
NET = {"interface": "eth0", "network_gbits": 10}
CASES = [
    ("link", {"grep": infiniband()}, HCA, OK, "mlx5_0 port 1 at 100 Gb/sec (4X EDR)"),
    (
        "link",
        {"grep": infiniband(rate="56 Gb/sec (4X FDR)")},
        HCA,
        FAILED,
        "runs at 56 Gb/sec (4X FDR); expected 100 Gb/s",
    ),
    ("link", {"grep": infiniband("1: DOWN", "2: Polling")}, HCA, FAILED, "mlx5_0 port 1 is DOWN (Polling)"),
    ("link", {"grep": infiniband("2: INIT")}, HCA, FAILED, "mlx5_0 port 1 is INIT (LinkUp)"),
    ("link", {"grep": (2, "")}, HCA, FAILED, "no mlx5_0 port 1"),
    ("link", {"grep": ethernet()}, NET, OK, "eth0 at 10 Gb/s, MTU 1500"),
    ("link", {"grep": ethernet(speed="1000")}, NET, FAILED, "eth0 runs at 1 Gb/s"),
    ("link", {"grep": ethernet(speed="-1")}, NET, OK, "does not report its rate"),
    ("link", {"grep": ethernet(state="down")}, NET, FAILED, "eth0 is down"),
    ("link", {"grep": (2, "")}, NET, FAILED, "no interface eth0"),
    ("link", {"ls": (2, "")}, {}, UNAVAILABLE, "needs no network"),
    ("link", {"ls": "mlx5_0\n", "grep": infiniband()}, {}, OK, "mlx5_0 port 1"),
    ("link-errors", {"grep": counters()}, HCA, OK, "no errors"),
    ("link-errors", {"grep": [counters(3), counters(7)]}, HCA, FAILED, "mlx5_0 symbol_error +4"),
    ("link-errors", {"grep": counters(3, 1)}, HCA, WARNING, "symbol_error 3, mlx5_0 link_downed 1"),
    ("link-errors", {"grep": (2, "")}, HCA, UNAVAILABLE, "no link with counters"),
    ("link-errors", {"grep": f"{ETH}/statistics/rx_errors:0\n"}, NET, OK, "no errors"),
    ("gid", {"grep": f"{PORT}/link_layer:InfiniBand\n"}, HCA, UNAVAILABLE, "no RoCE port"),
    ("gid", roce(1), {**HCA, "gid_index": 1}, OK, "RoCE v2 for 10.88.0.11 is at GID index mlx5_0: 1"),
    ("gid", roce(1), HCA, FAILED, "mlx5_0: 1"),
    ("gid", roce(3), {**HCA, "gid_index": 1}, FAILED, "mlx5_0: 3"),
    ("gid", roce(1, "IB/RoCE v1"), {**HCA, "gid_index": 1}, FAILED, "mlx5_0: –"),
    ("names", {"getent ahostsv4 node2": "10.1.0.12      STREAM node2\n"}, {}, OK, "resolves node2"),
    ("names", {"getent": (2, "")}, {}, FAILED, "cannot resolve node2"),
    ("names", {"getent": "127.0.1.1      STREAM node2\n"}, {}, FAILED, "resolves node2 to itself"),
    ("names", {}, {}, UNAVAILABLE, "getent is not installed"),
    ("ssh", {"ssh": ""}, {}, OK, "reaches node2"),
    ("ssh", {"ssh": (255, "Host key verification failed.\n")}, {}, WARNING, "to node2: Host key verification failed."),
    ("ssh", {}, {}, UNAVAILABLE, "ssh is not installed"),
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(preflight_network.time, "sleep", lambda seconds: None)


@pytest.mark.parametrize(("check", "answers", "expected", "result", "message"), CASES)
def test_a_check_finds(check, answers, expected, result, message):
    (entry,) = next(run_checks([NAMED[check]], [machine(answers, other_nodes=["node2"], **expected)]))
    assert entry.finding.result == result
    assert message in entry.finding.facts
    assert bool(entry.finding.impact and entry.finding.fix) == (result in (WARNING, FAILED))


@pytest.mark.parametrize("check", ["names", "ssh"])
def test_a_single_machine_has_no_peers(check):
    (entry,) = next(run_checks([NAMED[check]], [machine({})]))
    assert entry.finding.result == UNAVAILABLE


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_rounds_hold_each_pair_once_and_no_machine_twice(count):
    machines = list(range(1, count + 1))
    made = rounds(machines)
    pairs = [tuple(sorted(pair)) for each in made for pair in each]
    assert sorted(pairs) == list(itertools.combinations(machines, 2))
    for each in made:
        members = [member for pair in each for member in pair]
        assert len(members) == len(set(members))


def answers(program, outcome):
    return {
        program: "",
        f"timeout 30 {program}": outcome,
        "ip -j": '[{"addr_info": [{"local": "10.1.0.11", "prefixlen": 24}]}]',
    }


def bandwidth(*each, **expected):
    machines = [machine(answer, name=f"node{number}", **expected) for number, answer in enumerate(each, 1)]
    (entry,) = next(run_checks([NAMED["bandwidth"]], machines))
    return entry.finding


def iperf3(gbits):
    """The part that is read of what `iperf3 -J` prints (github.com/esnet/iperf/issues/1784)."""
    return json.dumps({"end": {"sum_received": {"seconds": 2.0, "bits_per_second": gbits * 1e9, "sender": False}}})


@pytest.mark.parametrize(("gbits", "result"), [(9.4, OK), (7.0, WARNING), (0.9, FAILED)])
def test_bandwidth_over_tcp(gbits, result):
    found = bandwidth(*[answers("iperf3", iperf3(gbits))] * 3, **NET)
    assert found.result == result
    assert found.facts.startswith(f"{gbits:.3g} Gb/s (")
    assert "over 3 pairs" in found.facts


def test_a_measurement_that_broke_off_is_said():
    """Under load iperf3 may end with status 0, an error in its JSON, and nothing received."""
    broken = answers("iperf3", '{"start": {}, "end": {}, "error": "unable to receive results"}')
    found = bandwidth(broken, broken, **NET)
    assert found.result == UNAVAILABLE
    assert found.facts == "iperf3 did not measure: unable to receive results"


def test_the_slowest_pair_is_named():
    fast, slow = answers("iperf3", iperf3(9.4)), answers("iperf3", iperf3(2.0))
    found = bandwidth(fast, fast, slow, **NET)
    assert found.result == FAILED
    assert found.facts.startswith("2 Gb/s (node") and "node3) to 9.4 Gb/s" in found.facts


@pytest.mark.parametrize(
    ("rate", "gbits", "result"),
    [
        ("11658.67", 97.8, OK),
        ("7295.61", 61.2, WARNING),
        ("1418.59", 11.9, FAILED),
        ("0.48", 0.004, FAILED),
        ("0.00", 0, FAILED),
    ],
)
def test_bandwidth_over_infiniband(rate, gbits, result):
    table = WRITE_BW.format(rate=rate)
    assert write_bandwidth(table) == pytest.approx(gbits, rel=0.01)
    assert bandwidth(*[answers("ib_write_bw", table)] * 2, **HCA).result == result


def test_a_tool_that_is_missing_is_named_with_its_package():
    found = bandwidth({"ip -j": "[]"}, {"ip -j": "[]"}, **NET)
    assert found.result == UNAVAILABLE
    assert (found.facts, found.fix) == ("iperf3 is not installed", "install it (apt-get install iperf3)")


def test_nodes_that_do_not_meet():
    refused = answers("iperf3", (1, '{"error": "unable to connect to server: No route to host"}'))
    found = bandwidth(refused, refused, **NET)
    assert found.result == FAILED
    assert "No route to host" in found.facts


def test_a_test_in_which_nothing_was_transferred_is_followed_by_a_longer_one():
    client = answers("ib_write_bw", [WRITE_BW.format(rate="0.00"), WRITE_BW.format(rate="11658.67")])
    assert bandwidth(*[client] * 2, **HCA).result == OK


def test_a_measurement_without_an_end_is_said():
    hangs = answers("ib_write_bw", (124, ""))
    found = bandwidth(hangs, hangs, **HCA)
    assert found.result == FAILED
    assert found.facts.endswith("does not reach ib_write_bw on node1: it took longer than 30 s")


def test_an_interface_without_an_address():
    bare = {**answers("iperf3", iperf3(9.4)), "ip -j": "[{}]"}
    assert "eth0 of node1 has no IPv4 address" in bandwidth(bare, bare, **NET).facts


def test_slow_machines_get_more_time_for_a_measurement():
    """Emulated ones need most of it for the start alone, and on busy processors transferred nothing in ten seconds."""
    asked = "timeout 180 ib_write_bw -d mlx5_0 -i 1 -F"
    tables = {f"{asked} -D 2": WRITE_BW.format(rate="0.00"), f"{asked} -D 60": WRITE_BW.format(rate="11658.67")}
    answer = answers("ib_write_bw", "") | tables
    assert bandwidth(*[answer] * 2, **HCA, patience=6).result == OK

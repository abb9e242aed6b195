"""Recorded outputs of ibstat and iblinkinfo, and the files of /sys/class/infiniband, are read."""

import pytest

from repro.cluster.infiniband import Link, Port, parse_iblinkinfo, parse_ibstat, ports_from_files
from repro.utils.errors import FormatError
from tests.support.paths import HARDWARE

RECORDED = HARDWARE


def recorded(name):
    return (RECORDED / name).read_text()


def test_ibstat_of_the_published_kind_of_adapter():
    assert parse_ibstat(recorded("edr/ibstat.txt")) == [
        Port("mlx5_0", 1, "MT4115", "12.23.1020", "Active", "LinkUp", 100, "InfiniBand")
    ]


def test_ibstat_of_ethernet_ports_up_and_down():
    up, down = parse_ibstat(recorded("roce/ibstat.txt"))
    assert (up.device, up.state, up.rate_gbits, up.layer) == ("mlx5_0", "Active", 200, "Ethernet")
    assert (down.device, down.model, down.state, down.physical) == ("mlx5_10", "MT4125", "Down", "Disabled")


def test_ibstat_of_the_simulator():
    (port,) = parse_ibstat(recorded("ibsim/ibstat.txt"))
    assert (port.device, port.state, port.rate_gbits, port.layer) == ("ibsim0", "Active", 10, "InfiniBand")


def test_files_tell_the_same_as_ibstat():
    base = "/sys/class/infiniband/mlx5_0"
    files = {
        f"{base}/hca_type": "MT4115",
        f"{base}/fw_ver": "12.23.1020",
        f"{base}/ports/1/state": "4: ACTIVE",
        f"{base}/ports/1/phys_state": "5: LinkUp",
        f"{base}/ports/1/rate": "100 Gb/sec (4X EDR)",
        f"{base}/ports/1/link_layer": "InfiniBand",
        "/sys/class/net/ib0/mtu": "2044",
    }
    assert ports_from_files(files) == parse_ibstat(recorded("edr/ibstat.txt"))
    assert ports_from_files({}) == []


@pytest.mark.parametrize("name", ["iblinkinfo.txt", "iblinkinfo-line.txt"])
def test_links_of_a_fabric(name):
    links = parse_iblinkinfo(recorded(f"ibsim/{name}"))
    assert len(links) == 11
    node = next(link for link in links if link.owner == "node3")
    assert node == Link("node3", 4, 1, 4, 2.5, "Active", "LinkUp", "S1", "Could be 12X Could be 10.0 Gbps")
    assert {link.port for link in links if link.state == "Down"} == {4, 5, 6, 7, 8}
    assert all(link.owner == "S1" and link.width == 0 for link in links if link.state == "Down")


def test_links_at_full_rate_have_no_remark():
    links = parse_iblinkinfo(recorded("edr/iblinkinfo-up.txt"))
    assert {(link.width, link.lane_gbits, link.remark) for link in links} == {(4, 25.78125, "")}
    assert links[0].peer == "MF0;SB7700:MSB7700/U1"


@pytest.mark.parametrize("parse", [parse_ibstat, parse_iblinkinfo])
def test_what_is_neither_is_named(parse):
    with pytest.raises(FormatError, match="begins: ibpanic: no such device"):
        parse("ibpanic: no such device\n")

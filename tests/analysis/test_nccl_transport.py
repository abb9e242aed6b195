"""NCCL's log: which network each rank chose, and the ways between ranks."""

import pytest

from repro.analysis.nccl_transport import lacks_verbs, transport, transport_of, ways_in

IB = """\
node1:41:55 [0] NCCL INFO Bootstrap : Using [0]ib0:10.1.0.1<0>
node1:41:55 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
node1:41:55 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.1.0.1<0>
node1:41:55 [0] NCCL INFO Using network IB
NCCL version 2.7.8+cuda10.2
node1:41:71 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1b000] via P2P/IPC
node1:41:71 [0] NCCL INFO Channel 00 : 8[1a000] -> 0[1a000] [receive] via NET/IB/0/GDRDMA
node1:41:71 [0] NCCL INFO Channel 00 : 0[1a000] -> 8[1a000] [send] via NET/IB/0
"""
SOCKET = """\
node2:41:55 [1] NCCL INFO NET/IB : No device found.
node2:41:55 [1] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>
node2:41:55 [1] NCCL INFO Using network Socket
node2:41:71 [1] NCCL INFO Channel 00 : 1[1a000] -> 0[1b000] via direct shared memory
node2:41:71 [1] NCCL INFO Channel 00/02 : 1[1a000] -> 8[1a000] [send] via NET/Socket/0
"""
OLDER = "node1:41:55 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.1.0.1<0>\n"


HPCX = """\
node1:41:55 [3] NCCL INFO Plugin Path : /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so
node1:41:55 [3] NCCL INFO P2P plugin IBext
node1:41:55 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB ibp25s0:10.20.0.119<0>
node1:41:55 [3] NCCL INFO Using network IBext
node1:41:71 [3] NCCL INFO Channel 01/0 : 6[4f000] -> 3[9d000] [receive] via NET/IBext/1/GDRDMA
"""
NEWER_HPCX = "n:1:2 [0] NCCL INFO Channel 02/0 : 5[a4000] -> 6[4f000] [send] via NET/IBext_v6/1\n"
ROCE = """\
node1:41:55 [7] NCCL INFO NET/IB : Using [0]mlx5_9:1/RoCE [1]mlx5_bond_0:1/RoCE [RO]; OOB eth0:10.224.3.48<0>
node1:41:55 [7] NCCL INFO Using network IBext_v8
node1:41:71 [7] NCCL INFO Channel 00/0 : 1[7] -> 8[0] [send] via NET/IBext_v8/1/GDRDMA
"""
MIXED = """\
node1:41:55 [7] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE ; OOB eth0:10.224.3.48<0>
node1:41:55 [7] NCCL INFO Using network IB
node1:41:71 [7] NCCL INFO Channel 00/0 : 1[7] -> 8[0] [send] via NET/IB/0
"""
WITHOUT_VERBS = """\
node1:41:55 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]
node1:41:55 [0] NCCL INFO NET/Socket : Using [0]eth0:172.17.0.2<0>
node1:41:55 [0] NCCL INFO Using network Socket
"""


def logs(folder, *texts):
    for rank, text in enumerate(texts):
        path = folder / "logs" / f"local_rank_{rank}"
        path.mkdir(parents=True)
        (path / "stdout").write_text(text)
    return folder


def test_each_rank_says_its_network(tmp_path):
    found = transport_of(logs(tmp_path, IB, SOCKET, "no NCCL here\n"), 4)
    assert found.networks == {0: "IB", 1: "Socket"}
    assert found.ways == ("NET/IB", "NET/Socket", "P2P", "SHM")
    assert found.as_json() == {"networks": {"IB": [0], "Socket": [1]}, "ways": ["NET/IB", "NET/Socket", "P2P", "SHM"]}


@pytest.mark.parametrize(
    ("text", "network", "ways"),
    [
        (HPCX, {0: "IB"}, ("NET/IB",)),
        (NEWER_HPCX, {}, ("NET/IB",)),
        (ROCE, {0: "RoCE"}, ("NET/RoCE",)),
        (MIXED, {0: "IB+RoCE"}, ("NET/IB",)),
        (IB.replace("mlx5_0:1/IB", "mlx5_0:1/RoCE"), {0: "RoCE"}, ("NET/RoCE", "P2P")),
        ("n:1:2 [0] NCCL INFO Using network AWS Libfabric\n", {0: "AWS"}, ()),
    ],
)
def test_a_vendors_plugin_is_infiniband_and_roce_is_not(tmp_path, text, network, ways):
    found = transport_of(logs(tmp_path, text), 1)
    assert (found.networks, found.ways) == (network, ways)
    assert ways_in([tmp_path / "logs/local_rank_0/stdout"]) == set(ways)


@pytest.mark.parametrize(("text", "lacks"), [(WITHOUT_VERBS, True), (SOCKET, False), (IB, False)])
def test_why_sockets_are_used(tmp_path, text, lacks):
    folder = logs(tmp_path, text, SOCKET)
    files = [folder / f"logs/local_rank_{rank}/stdout" for rank in (0, 1)]
    assert lacks_verbs(files[:1]) == lacks_verbs(files) == lacks


@pytest.mark.parametrize(("text", "network"), [(OLDER, "IB"), (SOCKET.splitlines()[1] + "\n", "Socket")])
def test_a_log_without_the_newer_line(tmp_path, text, network):
    assert transport_of(logs(tmp_path, text), 1).networks == {0: network}


def test_that_no_device_was_found_is_no_network(tmp_path):
    assert transport_of(logs(tmp_path, SOCKET.splitlines()[0] + "\n"), 1).networks == {}


def test_what_a_trainer_prints_about_a_network_is_not_taken(tmp_path):
    found = transport_of(logs(tmp_path, "we go via NET/IB, Using network IB\n"), 1)
    assert found.as_json() == {"networks": {}, "ways": []}


@pytest.mark.parametrize(("size", "seen"), [(4_000_000, {"P2P"}), (4_000_001, set())])
def test_the_first_four_million_bytes_are_read(tmp_path, size, seen):
    line = "NCCL INFO Channel 00 : 0[1a000] -> 1[1b000] via P2P"
    (tmp_path / "log").write_text("x" * (size - len(line) - 1) + "\n" + line)
    assert ways_in([tmp_path / "log"]) == seen


def test_standard_error_is_read_too(tmp_path):
    (tmp_path / "stderr").write_text(IB)
    assert transport({3: [tmp_path / "stdout", tmp_path / "stderr"]}).networks == {3: "IB"}

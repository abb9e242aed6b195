"""What adapters counted during an attempt, whichever driver counts, and whatever a node sends in its place."""

import json

import pytest

from repro.analysis.adapter_traffic import FILE, adapter_changes, claims, readings, silent_nodes, traffic

# Of mlx5 on InfiniBand, and of rdma_rxe in Linux 6.1, whose readings these are of two nodes in a virtual machine each.
MLX5 = {"counters/port_xmit_data": 1000, "counters/port_rcv_data": 20, "counters/port_xmit_packets": 7}
RXE = {"hw_counters/sent_pkts": 539, "hw_counters/rcvd_pkts": 539}


def write(folder, node, before, after):
    (folder / FILE.format(node)).write_text(json.dumps({"before": before, "after": after}))


def test_words_become_bytes_and_a_driver_need_not_count_them(tmp_path):
    more = {"counters/port_xmit_data": 1250, "counters/port_rcv_data": 20, "counters/port_xmit_packets": 9}
    write(tmp_path, "n1", {"mlx5_0:1": MLX5}, {"mlx5_0:1": more})
    write(tmp_path, "n2", {"rxe0:1": RXE}, {"rxe0:1": {"hw_counters/sent_pkts": 806, "hw_counters/rcvd_pkts": 806}})
    one, other = traffic(adapter_changes(tmp_path))
    assert (one.node, one.adapter, one.sent_bytes, one.received_bytes, one.sent_packets) == (
        "n1",
        "mlx5_0:1",
        1000,
        0,
        2,
    )
    assert (other.sent_bytes, other.sent_packets, other.received_packets) == (None, 267, 267)


def test_a_counter_that_was_reset_or_appeared_meanwhile_says_nothing(tmp_path):
    write(tmp_path, "n1", {"rxe0:1": RXE}, {"rxe0:1": {"hw_counters/sent_pkts": 3, "counters/x": 1}, "new:1": RXE})
    assert adapter_changes(tmp_path) == {"n1": {"rxe0:1": {}, "new:1": {}}}


def test_nodes_without_a_file_are_absent(tmp_path):
    assert adapter_changes(tmp_path) == {}


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [],
        {"before": 1, "after": "x"},
        {
            "before": {},
            "after": {"../x:1": RXE, "rxe0:1": {"counters/a b": 1, "hw_counters/y": -1, "counters/z": True}},
        },
    ],
)
def test_only_counters_are_taken_from_a_node(sent):
    after = readings(sent)["after"]
    assert after in ({}, {"rxe0:1": {}})


@pytest.mark.parametrize(("packets", "silent"), [(0, {"n1": 0}), (9, {"n1": 9}), (10, {}), (9000, {})])
def test_an_exchange_in_each_iteration_takes_a_packet_at_least(packets, silent):
    assert silent_nodes({"n1": {"rxe0:1": {"hw_counters/sent_pkts": packets}}, "n2": {"other:1": {}}}, 10) == silent


def test_what_an_attempt_claims():
    assert claims({"ways": ["P2P", "NET/IB", "NET/Socket"]}, False, "cuda") == ["NET/IB"]
    assert claims({}, True, "cpu") == ["OneFlow RDMA"]
    assert claims({}, True, "cuda") == claims({}, False, "cpu") == claims({}, None, "cpu") == []

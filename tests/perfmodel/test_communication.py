"""Bandwidths of groups of ranks, and the time of collectives."""

import pytest

from repro.perfmodel.communication import BUCKET_BYTES, Path, all_reduce_s, in_buckets_s, path, ring_half_s, transfer_s
from repro.perfmodel.hardware import describe

V100 = describe("v100x32")


@pytest.mark.parametrize(
    ("first", "stride", "count", "links"),
    [(0, 1, 2, 1), (2, 1, 2, 2), (0, 1, 4, 4), (0, 1, 8, 6), (0, 2, 4, 2), (0, 4, 2, 2)],
)
def test_links_of_a_group_in_the_cube(first, stride, count, links):
    way = path(V100, first, stride, count, 0.8)
    assert way == Path(count, 1, "link", links * 22.0)


def test_no_link_between_sockets():
    assert path(V100, 0, 5, 2, 0.8).inside == "pci"


def test_a_node_shares_one_port():
    assert path(V100, 0, 1, 16, 0.8) == Path(16, 2, "link", pytest.approx(10.0))
    assert path(V100, 0, 8, 4, 0.8) == Path(4, 4, "link", pytest.approx(10.0 / 8))


def test_a_switch_gives_every_pair_all_links():
    way = path(describe("dgx-a100-80x1"), 0, 1, 2, 0.8)
    assert way.gbs == 240


def test_ring_moves_its_bytes_twice_less_one_share():
    way, size = Path(8, 1, "link", 100.0), 1e9
    assert all_reduce_s(way, size) == pytest.approx(2 * 7 / 8 * size / 100e9, rel=0.01)
    assert ring_half_s(way, size) == pytest.approx(all_reduce_s(way, size) / 2)


def test_tree_wins_for_little_on_many_nodes():
    way = Path(1024, 128, "link", 10.0)
    ring = 2 * ring_half_s(way, 1e5)
    assert all_reduce_s(way, 1e5) < ring / 2
    assert all_reduce_s(Path(16, 2, "link", 10.0), 1e9) == pytest.approx(
        2 * ring_half_s(Path(16, 2, "link", 10.0), 1e9)
    )


def test_alone_or_with_nothing_to_say():
    assert all_reduce_s(Path(1, 1, "link", 1.0), 1e9) == all_reduce_s(Path(8, 1, "link", 1.0), 0) == 0


def test_buckets_cost_a_latency_each():
    way = Path(16, 2, "link", 10.0)
    whole = all_reduce_s(way, 64 * BUCKET_BYTES)
    assert in_buckets_s(way, 64 * BUCKET_BYTES) > whole


def test_transfers_share_the_port():
    assert transfer_s(V100, 1e8, 8, 0.8) == pytest.approx(8 * 1e8 / 10e9, rel=0.01)
    assert transfer_s(V100, 1e8, 0, 0.8) < transfer_s(V100, 1e8, 1, 0.8)

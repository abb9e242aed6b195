"""What a report says of RDMA adapters: counted, claimed, and whether both agree."""

from types import SimpleNamespace

import pytest

from repro.report.document import Document, markdown
from repro.report.run.network import network_section
from repro.utils.i18n import catalogue
from tests.support.attempts import recorded

NCCL = {"networks": {}, "ways": ["P2P", "NET/IB"]}


def plan():
    units = [
        SimpleNamespace(name=name, label="published", config=SimpleNamespace(iterations=10, device="cpu"))
        for name in ("a", "b")
    ]
    return SimpleNamespace(units=units)


def attempt(transport=None, rdma=False, status="ok", **packets):
    """One in which nodes sent so many packets, and a thousand times as many words."""
    adapters = {
        node: {"mlx5_0:1": {"counters/port_xmit_packets": sent, "counters/port_xmit_data": sent << 18}}
        for node, sent in packets.items()
    }
    said = {"transport": transport} if transport else {}
    return recorded({"unit": "a", "status": status, "adapters": adapters, "rdma": rdma, **said})


def shown(*attempts):
    sections = network_section(catalogue("en").gettext, plan(), list(attempts))
    return [line for line in markdown(Document("en", "", "", tuple(sections)), None).splitlines() if "mlx5" in line]


def test_sums_over_nodes_of_the_least_and_the_most_of_attempts():
    (row,) = shown(attempt(NCCL, n1=100, n2=200), attempt(NCCL, n1=101, n2=201), attempt(NCCL, status="failed", n1=0))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["a", "`mlx5_0:1`", "300–302", "–", "300–302", "NET/IB", "yes"]


@pytest.mark.parametrize(
    ("transport", "rdma", "said", "agrees"),
    [
        (NCCL, False, "NET/IB", "NO"),
        (None, True, "OneFlow RDMA", "NO"),
        ({"networks": {}, "ways": ["NET/Socket"]}, False, "–", "–"),
    ],
)
def test_a_claim_without_packets_is_contradicted(transport, rdma, said, agrees):
    (row,) = shown(attempt(transport, rdma, n1=100, n2=9))
    assert [cell.strip() for cell in row.strip("|").split("|")][-2:] == [said, agrees]


def test_without_adapters_there_is_no_section():
    assert shown(recorded({"unit": "a"})) == []

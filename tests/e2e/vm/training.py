"""One training over verbs, GPT as of May 2021, which asked for RDMA: rehearsed, and proved by the adapters' counters."""

import json
from pathlib import Path

from repro.analysis.adapter_traffic import traffic
from tests.e2e.launching import note
from tests.support import tasks
from tests.support.runs import attempts, only_run

CASE = "2D_2x4x1_16_1536x16"
RANK_S = 2 * 3600


def trained_over_verbs(machines, folder: Path, inventory: Path, how: str) -> Path:
    """Rehearse with one rank on each machine; the run's folder, once its attempt's own words and counters agree."""
    done = tasks.run(
        "rehearse",
        RANK_S,
        RUNS=folder / "runs",
        CASES=CASE,
        MAX_RANKS=2,
        ITERATIONS=6,
        STALL_TIMEOUT=2400,
        CLUSTER=inventory,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(folder)
    (attempt,) = (each for each in attempts(run) if len(each.get("nodes", ())) == 2)
    start = json.loads((run / attempt["folder"] / "metrics-rank0.jsonl").read_text().splitlines()[0])
    assert start["rdma"] is True
    assert start["switches"]["ONEFLOW_COMM_NET_IB_GID_INDEX"] == "1"
    ports = traffic(attempt["adapters"])
    assert {(port.node, port.adapter) for port in ports} == {(node, "rxe0:1") for node in machines.names}
    assert all(port.sent_packets > 6 and port.received_packets > 6 for port in ports)
    note(f"virtual machines: packets sent over verbs, {how}", 0, str([port.sent_packets for port in ports]))
    return run

"""What a launch over simulated nodes costs: time to the first iteration, and the controller's time and memory.

Needs root and what `make e2e` needs. Prints, for 2 and 4 nodes, the seconds from the command to the first attempt
(connections, lock, checks, fingerprints) and from an attempt's start to the first iteration of the real OneFlow, beside
the same layout on this machine; then the controller's processor time and memory while trainers that only print run on
4, 64 and 256 ranks of 4 nodes.

    python tests/benchmarks/cluster_overhead.py [first] [ranks]
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from repro.cluster.cluster import load_cluster  # noqa: E402
from repro.launch.attempt import Limits  # noqa: E402
from repro.launch.nodes.code_upload import UploadedCode  # noqa: E402
from repro.launch.ssh.attempt import ssh_attempts  # noqa: E402
from repro.launch.ssh.nodes import NodePool  # noqa: E402
from repro.simulation.nodes import up  # noqa: E402
from tests.e2e.launching import prepare, unit_of  # noqa: E402
from tests.support import tasks  # noqa: E402

ROWS = 40


def first_iteration(settings: dict, folder: Path) -> tuple[float, dict[int, float]]:
    """Seconds from the command to the first attempt, and by world size from its start to its first row."""
    started = time.time()
    done = tasks.run("bench", **{"RUNS": folder, "MODEL": "bert", "REPEATS": 1, "STALL_TIMEOUT": 300, **settings})
    if done.returncode:
        sys.exit(done.stderr)
    (run,) = folder.iterdir()
    units = {unit["name"]: unit for unit in json.loads((run / "run.json").read_text())["plan"]["units"]}
    attempts = [json.loads(line) for line in (run / "attempts.jsonl").read_text().splitlines()]
    rows = {}
    for attempt in attempts:
        layout = units[attempt["unit"]]["config"]["layout"]
        rows[layout["data"] * layout["tensor"] * layout["pipeline"]] = attempt["first_row_s"]
    return attempts[0]["started"] - started, rows


def printing(inventory: Path, ranks: int, folder: Path) -> None:
    """One attempt whose ranks only print; says what the controller used meanwhile."""
    cluster = load_cluster(str(inventory))
    cluster = replace(cluster, gpus_per_node=max(1, ranks // len(cluster.nodes)))
    code = UploadedCode(Path(__file__).with_name("printing_trainer.py"))
    with NodePool(cluster, code, "benchmark") as pool:
        unit = unit_of(ranks)
        unit = replace(unit, config=replace(unit.config, iterations=ROWS))
        target = folder / f"ranks{ranks}"
        target.mkdir()
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        first, events = [], []
        outcome = ssh_attempts(pool, "benchmark", Limits(), True)(unit, target).run(
            lambda event: (events.append(0), first or first.append(time.monotonic() - started))
        )
        wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
    if outcome.failure:
        sys.exit(outcome.failure.text() + "\n" + outcome.log_tail)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{ranks} ranks on {len(cluster.nodes)} nodes: first event after {first[0]:.1f} s, {wall:.1f} s in all, "
        f"{len(events)} events; controller {used:.2f} s of processor time ({used / wall:.1%}), peak "
        f"{after.ru_maxrss / 1024:.0f} MiB"
    )


def main() -> None:
    chosen = sys.argv[1:] or ["first", "ranks"]
    print(f"load: {' '.join(f'{each:.1f}' for each in os.getloadavg())}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in (2, 4):
            nodes = up(f"overhead-{os.getpid()}", count, image=True)
            try:
                nodes.write_inventory()
                inventory = prepare(nodes, folder / f"nodes{count}")
                if "first" in chosen:
                    before, rows = first_iteration({"CLUSTER": str(inventory)}, folder / f"runs{count}")
                    print(
                        f"{count} nodes: {before:.1f} s from the command to the first attempt; to the first "
                        f"iteration {', '.join(f'{row:.1f} s with {ranks} ranks' for ranks, row in rows.items())}"
                    )
                if "ranks" in chosen and count == 4:
                    for ranks in ("4", "64", "256"):
                        command = [sys.executable, __file__, "printing", str(inventory), ranks, name]
                        subprocess.run(command, check=True)
            finally:
                nodes.down()
        if "first" in chosen:
            before, rows = first_iteration({}, folder / "here")
            print(
                f"this machine: {before:.1f} s from the command to the first attempt; to the first iteration "
                f"{', '.join(f'{row:.1f} s with {ranks} ranks' for ranks, row in rows.items())}"
            )
    print(f"load: {' '.join(f'{each:.1f}' for each in os.getloadavg())}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["printing"]:
        printing(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()

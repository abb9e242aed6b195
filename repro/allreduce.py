"""What OneFlow's collectives reach between some ranks, measured by a program of its own beside the trainers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from repro.communication import path
from repro.hardware import Cluster
from repro.launch import ROOT, TRAINER_PYTHON, Attempt, Limits, Outcome
from repro.observed import readable, transports

PROGRAM = ROOT / "repro" / "trainers" / "allreduce.py"
LIMITS = Limits(silence_s=600.0, total_s=1200.0)
SIZES = {"cuda": tuple(2**power for power in range(10, 29, 2)), "cpu": (2**10, 2**20)}
WINDOW_S = {"cuda": 0.1, "cpu": 0.02}
REPEATS = {"cuda": 5, "cpu": 3}


class MeasurementError(Exception):
    """The measuring program did not come to its end; the message holds the reason and the end of its log."""


@dataclass(frozen=True)
class Table:
    """What was measured: a row a size (`bytes`, `seconds`, `algorithm_gbs`, `bus_gbs`), and pairs of neighbours.

    GB are 10^9 bytes; bus bandwidth is 2(n-1)/n · S/T, the rate at which each rank's link sends, were the sum taken in
    a ring. Of two neighbouring ranks, `pairs` has `from`, `to`, `bytes`, `seconds` and `gbs` in that direction.
    """

    device: str
    ranks: int
    rows: tuple[dict, ...]
    pairs: tuple[dict, ...]
    versions: dict
    libraries: tuple[str, ...]
    transports: tuple[str, ...]

    @property
    def bus_gbs(self) -> float:
        """The best bus bandwidth over all sizes, GB/s."""
        return max(row["bus_gbs"] for row in self.rows)

    @property
    def latency_us(self) -> float:
        """Time of the smallest all-reduce in microseconds, with what OneFlow needs to start one."""
        return self.rows[0]["seconds"] * 1e6

    def as_json(self) -> dict:
        return {**asdict(self), "bus_gbs": self.bus_gbs, "latency_us": self.latency_us}

    def lines(self) -> list[str]:
        """The table as lines of text."""
        head = f"{'bytes':>12} {'time':>12} {'algorithm GB/s':>15} {'bus GB/s':>10}"
        rows = [
            f"{row['bytes']:>12,} {row['seconds'] * 1e6:>9,.1f} us {row['algorithm_gbs']:>15.2f} "
            f"{row['bus_gbs']:>10.2f}"
            for row in self.rows
        ]
        pairs = [f"rank {pair['from']} to {pair['to']}: {pair['gbs']:.2f} GB/s" for pair in self.pairs]
        return [head, *rows, *pairs]


def measure(attempt_of: Callable[[dict, Path], Attempt], ranks: int, device: str, folder: Path) -> Table:
    """Measure between `ranks` ranks on "cpu" or "cuda"; files stay in `folder`, which must not exist yet.

    `attempt_of` makes, from a configuration and a folder, what starts the measuring program: `local_attempt_of`, or
    a cluster's.

    Raises
    ------
    MeasurementError
        The program failed, or a sum was wrong.
    """
    config = {
        "device": device,
        "layout": {"data": ranks, "tensor": 1, "pipeline": 1},
        "sizes": list(SIZES[device]),
        "repeats": REPEATS[device],
        "window_s": WINDOW_S[device],
        "pairs": ranks > 1,
    }
    folder.mkdir(parents=True)
    events: list[dict] = []
    outcome = attempt_of(config, folder).run(events.append)
    if outcome.failure:
        raise MeasurementError(_reason(outcome))
    mine = [event for event in events if event.get("rank", 0) == 0]
    start = next(event for event in mine if event["event"] == "start")
    return Table(
        device,
        ranks,
        tuple(
            _row(event, "bytes", "calls", "windows_s", "seconds", "algorithm_gbs", "bus_gbs")
            for event in mine
            if event["event"] == "all_reduce"
        ),
        tuple(_row(event, "from", "to", "bytes", "seconds", "gbs") for event in mine if event["event"] == "pair"),
        readable(start["versions"]),
        tuple(start["libraries"]),
        tuple(sorted(transports(folder))),
    )


def _row(event: dict, *names: str) -> dict:
    return {name: event[name] for name in names}


def _reason(outcome: Outcome) -> str:
    return "\n".join((outcome.failure.text(), *outcome.log_tail.splitlines()[-5:]))


def local_attempt_of(environment: dict, python: str = str(TRAINER_PYTHON)) -> Callable[[dict, Path], Attempt]:
    """Starts the program on this machine; `environment` is that of the stack."""
    return lambda config, folder: Attempt(
        config, folder.resolve(), LIMITS, None, (python, str(PROGRAM)), environment=environment
    )


def link_gbs(cluster: Cluster) -> float:
    """What the links between all GPUs of a cluster can do: the bandwidth of a ring through them, GB/s.

    Inside a node that is NVLink as NCCL counts it (repro/data/hardware/gpus.toml), between nodes the ports' full rate.
    """
    return path(cluster, 0, 1, cluster.gpus, 1.0).gbs

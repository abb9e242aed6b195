"""What the ranks of an attempt that never took place would have written, and its record, read from that as a run reads it.

Figures are printed with all their digits, so that a test gets back what it asked for.
"""

import json

from repro.analysis.measurement import LOG, RankZero, measure, read_log
from repro.runs.metrics import METRICS

HEADER = "| step     | micro_batches   | samples         | throughput | latency    | loss       |"


def events(unit, samples_per_s, first_at, start=(), memory_mib=None):
    """The events of a rank that trains all its iterations at one speed, its loss falling from 10 to 9."""
    config, seconds = unit.config, unit.global_batch / samples_per_s
    steps = range(config.log_interval, config.iterations + 1, config.log_interval)
    rows = [
        {
            "event": "iteration",
            "iteration": step,
            "time": first_at + seconds * step,
            "loss": 10.0 - step / config.iterations,
            "throughput": samples_per_s,
            "latency_ms": 1e3 * seconds,
            "memory_mib": memory_mib,
        }
        for step in steps
    ]
    return [
        {"event": "start", "time": first_at, **dict(start)},
        *rows,
        {"event": "end", "time": first_at + seconds * config.iterations, "iterations": config.iterations},
    ]


def seconds(unit, samples_per_s):
    """From the start event to the end, at this speed."""
    return unit.config.iterations * unit.global_batch / samples_per_s


def log_text(unit, of_rank_0, memory_mib=None):
    """Rank 0's log of these events, in the unit's generation, with a reading of memory if there is one."""
    generation = unit.config.log_generation
    lines = [f"50 %, {memory_mib} MiB"] if memory_mib else []
    lines += [HEADER] if generation == "E" else []
    for event in (each for each in of_rank_0 if each["event"] == "iteration"):
        step, loss, rate, time = event["iteration"], event["loss"], event["throughput"], event["time"]
        if generation in "AB":
            stamp = f" {time}" if generation == "B" else ""
            lines.append(f"train: epoch 0, iter {step}, loss: {loss}, top_1: 0.0, top_k: 0.0, samples/s: {rate}{stamp}")
        elif generation == "C":
            lines.append(
                f"step: {step - 1}, total_loss: {loss}, mlm_loss: {loss}, nsp_loss: 0.0, throughput: {rate} {time}"
            )
        elif generation == "D":
            lines.append(f"step: {step}, loss: {loss}, throughput: {rate} {time}")
        else:
            latency = event["latency_ms"] / 1e3
            lines.append(f"| {step} | {step} | {step * unit.global_batch} | {rate} | {latency} | {loss} |")
    return "".join(f"{line}\n" for line in lines)


def write(folder, unit, samples_per_s, started, start_of=lambda rank: {}, memory_mib=None, before_log=""):
    """Write the metrics of every rank and rank 0's log into an attempt's folder; `start_of` adds to start events."""
    for rank in range(unit.world_size):
        written = events(unit, samples_per_s, started + 1, {"rank": rank, **start_of(rank)}, memory_mib)
        lines = [json.dumps(event) + "\n" for event in written]
        (folder / METRICS.format(rank)).write_text("".join(lines))
        if rank == 0:
            (folder / LOG).parent.mkdir(parents=True, exist_ok=True)
            (folder / LOG).write_text(before_log + log_text(unit, written, memory_mib))


def figures(folder, unit, started):
    """What a run records of a successful attempt with these files."""
    rank_zero = RankZero(started)
    for line in (folder / METRICS.format(0)).read_text().splitlines():
        rank_zero.see(json.loads(line))
    return {**measure(unit, read_log(folder)), **rank_zero.figures()}

"""Stands in for the trainer: no OneFlow, the log lines and metrics of a training that takes 10 ms an iteration.

Faults for tests are asked for by the environment variable STANDIN: "exit=3@2" (rank 2 exits with status 3),
"quiet@1" (rank 1 exits with status 0 before its end), "slow=2@0" (rank 0 begins 2 s later), "hang@0", "kill@0",
"full@0", "damage@1" (half a line is left in its metrics, and more follows), "garbage@0", "nan@0", "stay@0" (hangs after its rows), "print=40@1" (rank 1 prints 40 MiB before its rows); "census" has rank 0 write one of a
compiled job, and with "learns" its loss depends on the seed and the learning rate, as a training's does.
Where a tracer of kernels is asked for, its file is written, of an iteration that is made up (`trace`).
"""

import json
import os
import signal
import sys
import time

DAY = 86_400 * 10**9


def rows(config, batch, stamp):
    """The log lines of all iterations, which took 10 ms each."""
    generation, count = config["log_generation"], config["iterations"]
    rate = batch / 0.01
    if generation == "E":
        yield "| step     | micro_batches   | samples         | throughput | latency    | loss       |"
    for i in range(1, count + 1):
        at, loss = stamp + 0.01 * i, loss_at(i, config)
        if generation in "AB":
            accuracy = "top_1: 0.000000, top_k: 0.000000"
            stamp_of_b = f" {at}" if generation == "B" else ""
            yield f"train: epoch 0, iter {i}, loss: {loss:.6f}, {accuracy}, samples/s: {rate:.3f}{stamp_of_b}"
        elif generation == "C":
            yield (
                f"step: {i - 1}, total_loss: {loss:.3f}, mlm_loss: {loss:.3f}, nsp_loss: 0.000, "
                f"throughput: {rate:.3f} {at}"
            )
        elif generation == "D":
            yield f"step: {i}, loss: {loss:.6f}, throughput: {rate:.3f} {at}"
        else:
            yield f"| {i:<8} | {i:<15} | {i * batch:<15} | {rate:<10.5f} | {0.01:<10.5f} | {loss:<10.5f} |"


def misbehave(rank, launched):
    """Do what STANDIN asks of this rank."""
    for fault in os.environ.get("STANDIN", "").split():
        kind, _, where = fault.partition("@")
        if int(where or 0) != rank:
            continue
        if kind.startswith("exit="):
            print("this rank gives up", file=sys.stderr, flush=True)
            sys.exit(int(kind[5:]))
        if kind == "quiet":
            sys.exit(0)
        if kind == "hang":
            time.sleep(3600)
        if kind.startswith("slow="):
            time.sleep(float(kind[5:]))
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "full":
            sys.exit("OSError: [Errno 28] No space left on device")
        if kind.startswith("print="):
            for _ in range(int(kind[6:])):
                os.write(1, (b"x" * 1023 + b"\n") * 1024)
        if kind == "garbage":
            print("nothing that any generation printed", flush=True)
            launched["iterations"] = 0
    if os.environ.get("STANDIN") and rank:
        time.sleep(float(os.environ.get("STANDIN_WAIT", "0")))


def loss_at(i, config):
    """A loss that falls; from iteration 3 on no number, if STANDIN says so."""
    asked = os.environ.get("STANDIN", "")
    if "learns" in asked.split():
        return (10 + config["seed"] / 1e4) / i ** (1 + config["optimizer"]["lr"])
    return float("nan") if i > 2 and "nan" in asked else 10 / i


OPERATORS = {"matmul": 4, "layer_norm": 2}
"""The census of a compiled job that is made up."""

TRACED = (
    ("void (anonymous namespace)::AddReluGpu<float>(float*)", 0.5, 1.5),
    ("nvjet_sm90_hsh_256x128_TNT", 2, 5),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 4, 6),
    ("void made_up<1>(int)", 6.01, 9.5),
)
"""What each traced iteration of 10 ms launches: name, start and end in ms."""


def trace(path, iterations, began):
    """Write what the tracer writes: times are on a clock that is a day behind."""
    with open(f"{path}.{os.getpid()}", "w") as file:
        now = int(began * 1e9)
        file.write(f"trace 1 0 stand-in\nclock {now - DAY} {now}\n")
        file.writelines(f"name {number} {name}\n" for number, (name, _, _) in enumerate(TRACED))
        for i in range(iterations):
            for number, (_, start, end) in enumerate(TRACED):
                start, end = (now - DAY + round((10 * i + ms) * 1e6) for ms in (start, end))
                file.write(f"{start} {end} 0 7 {number}\n")


def main():
    with open(sys.argv[sys.argv.index("--config") + 1]) as file:
        config = json.load(file)
    rank, layout = int(os.environ.get("RANK", 0)), config["layout"]
    batch = config["micro_batch"] * config["accumulation_steps"] * layout["data"]
    framework = "torch" if "baseline" in config else "oneflow"
    with open(os.path.join(config["output"], f"metrics-rank{rank}.jsonl"), "w", buffering=1) as metrics:
        now = time.time()
        start = {"event": "start", "rank": rank, "time": now, "pid": os.getpid(), "versions": {framework: "stand-in"}}
        metrics.write(json.dumps(start) + "\n")
        if rank == 0 and "census" in os.environ.get("STANDIN", ""):
            metrics.write(json.dumps({"event": "census", "rank": rank, "time": now, "operators": OPERATORS}) + "\n")
        if f"damage@{rank}" in os.environ.get("STANDIN", "").split():
            metrics.write('{"event": "iterat' + json.dumps(start) + "\n")
        misbehave(rank, config)
        if rank == 0 and os.environ.get("KERNEL_TRACE_FILE") and "untraced" not in os.environ.get("STANDIN", ""):
            trace(os.environ["KERNEL_TRACE_FILE"], config["iterations"], now)
        for i in range(1, config["iterations"] + 1):
            row = {
                "event": "iteration",
                "iteration": i,
                "time": now + 0.01 * i,
                "samples": i * batch,
                "loss": loss_at(i, config),
                "throughput": batch / 0.01,
                "latency_ms": 10.0,
                "memory_mib": 100,
            }
            metrics.write(json.dumps(row) + "\n")
        if rank == 0:
            for line in rows(config, batch, now):
                print(line, flush=True)
        if f"stay@{rank}" in os.environ.get("STANDIN", "").split():
            time.sleep(3600)
        ended = now + 0.01 * config["iterations"]
        time.sleep(max(0.0, ended - time.time()))
        metrics.write(json.dumps({"event": "end", "time": ended, "iterations": config["iterations"]}) + "\n")


if __name__ == "__main__":
    main()

"""Trains nothing: each rank writes a row of metrics and a line of log every half second, as many as iterations."""

import json
import os
import sys
import time

EVERY_S = 0.5


def main():
    with open(sys.argv[sys.argv.index("--config") + 1]) as file:
        config = json.load(file)
    rank = int(os.environ.get("RANK", 0))
    with open(f"{config['output']}/metrics-rank{rank}.jsonl", "w", buffering=1) as metrics:
        metrics.write(json.dumps({"event": "start", "rank": rank, "time": time.time()}) + "\n")
        for i in range(1, config["iterations"] + 1):
            time.sleep(EVERY_S)
            row = {
                "event": "iteration",
                "iteration": i,
                "time": time.time(),
                "samples": 8 * i,
                "loss": 10 / i,
                "throughput": 16.0,
                "latency_ms": 500.0,
                "memory_mib": 100,
                "learning_rate": 0.001,
            }
            metrics.write(json.dumps(row) + "\n")
            print(f"step: {i}, loss: {10 / i:.6f}, throughput: 16.000 {time.time()}", flush=True)
        metrics.write(json.dumps({"event": "end", "time": time.time()}) + "\n")


if __name__ == "__main__":
    main()

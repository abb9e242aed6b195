"""Stands in for the program that compares operators with the CPU: writes the metrics of one that took no time.

KERNELS_STANDIN=wrong has a convolution of ResNet50 wrong, KERNELS_STANDIN=wrong@HOST on that host alone. A line in the
file KERNELS_STANDIN_CALLS says each time on which host it ran, and what the loader was told to load.
"""

import json
import os
import socket
import sys

OPERATORS = {"convolution 64 to 64, 1x1": "resnet50", "product": "gpt"}


def main():
    with open(sys.argv[sys.argv.index("--config") + 1]) as file:
        config = json.load(file)
    fault, _, where = os.environ.get("KERNELS_STANDIN", "").partition("@")
    wrong = fault == "wrong" and where in ("", socket.gethostname())
    if "KERNELS_STANDIN_CALLS" in os.environ:
        with open(os.environ["KERNELS_STANDIN_CALLS"], "a") as file, open("/proc/self/maps") as maps:
            preloaded, mapped = os.environ.get("LD_PRELOAD", "").split(":"), maps.read()
            found = [path for path in preloaded if path and path in mapped]
            folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
            file.write(json.dumps({"host": socket.gethostname(), "loaded": found, "folders": folders}) + "\n")
    with open(os.path.join(config["output"], "metrics-rank0.jsonl"), "w") as metrics:

        def write(event, **values):
            metrics.write(json.dumps({"event": event, **values}) + "\n")

        write("start", rank=0, world_size=1, versions={"oneflow": "0.8.0", "cudnn": 91900}, libraries=[])
        write("operators", names=list(OPERATORS))
        for name, model in OPERATORS.items():
            about = {"operator": name, "models": [model], "programs": ["published", "tuned"], "precision": "fp32"}
            error = 2.7 if wrong and model == "resnet50" else 3e-7
            write("begin", **about)
            write("error", **about, part="forward", error=error, tolerance=1e-4)
        write("end")


if __name__ == "__main__":
    main()

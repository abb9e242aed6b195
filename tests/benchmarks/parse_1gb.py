"""Measures the parsing of a 1 GB log: seconds and peak memory. `python tests/benchmarks/parse_1gb.py [rows|noise]`."""

import resource
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from repro.published.logs import parse

BYTES = 1_000_000_000
SECONDS_ALLOWED, MIB_ALLOWED = 60, 300
KINDS = {"noise": 99, "rows": 0}
"""Lines of noise to each row."""


def write_log(path: Path, noise_lines: int) -> int:
    """Write a generation D log of `BYTES` and return its number of rows."""
    rows = size = 0
    with path.open("wb") as stream:
        for chunk in count():
            lines = []
            for step in range(chunk * 1000 + 1, chunk * 1000 + 1001):
                lines.append(
                    f"step: {step}, loss: {9 + step % 97 / 100:.3f}, throughput: {95 + step % 89 / 100:.3f} "
                    f"{1607400000 + step * 0.0421:.7f}\n"
                )
                lines += [
                    f"W20201208 03:34:53.188560   661 loader.cpp:28] part {n}: queue is empty, waiting\n"
                    for n in range(noise_lines)
                ]
            rows += 1000
            size += stream.write("".join(lines).encode())
            if size >= BYTES:
                return rows


def measure(kind: str, folder: Path) -> bool:
    path = folder / f"{kind}.log"
    rows = write_log(path, KINDS[kind])
    started = time.perf_counter()
    log = parse(path)
    seconds = time.perf_counter() - started
    path.unlink()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{kind}: {log.row_count} rows, {log.noise_lines} lines of noise, {seconds:.1f} s, peak {peak_mib:.0f} MiB")
    return log.row_count == rows and seconds < SECONDS_ALLOWED and peak_mib < MIB_ALLOWED


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        results = [measure(kind, Path(name)) for kind in sys.argv[1:] or KINDS]
    sys.exit(not all(results))

"""Times a whole `make bench` of one stand-in case against ReFrame's no-op test with one figure, on this machine.

Both are timed in turns, from command line to end; the stand-in prints the log lines of a training that takes no
time. Prints the medians, the peak memory and the ratio; exits 1 if `make bench` takes longer than ReFrame.

    python tests/benchmarks/overhead.py [TURNS]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFRAME = "reframe-hpc==4.10.0"
NOOP = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Noop(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    executable_opts = ["throughput: 800.0"]

    @sanity_function
    def printed(self):
        return sn.assert_found("throughput", self.stdout)

    @performance_function("samples/s")
    def throughput(self):
        return sn.extractsingle(r"throughput: (\\S+)", self.stdout, 1, float)
"""


def timed(command, environment, folder):
    """(seconds, peak MiB of the largest process) of one command, which must succeed."""
    started = time.perf_counter()
    with open(folder / "printed", "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder if "reframe" in str(command[0]) else ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit(f"{command} failed:\n{(folder / 'printed').read_text()}")
    return seconds, usage.ru_maxrss / 1024


def install_reframe(folder):
    """ReFrame in an environment of its own; returns its command."""
    uv = ROOT / ".tools" / "bin" / "uv"
    subprocess.run([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, folder / "env"], check=True)
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", folder / "env/bin/python", REFRAME]
    subprocess.run(install, check=True)
    (folder / "noop.py").write_text(NOOP)
    return [folder / "env/bin/reframe", "-c", folder / "noop.py", "-r"]


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {
            "ReFrame 4.10.0, no-op test": install_reframe(folder),
            "make bench, stand-in case": [
                "make",
                "bench",
                "MODEL=bert",
                "CASES=bert_1n1g_bs96",
                "REPEATS=1",
                f"RUNS={folder / 'runs'}",
            ],
        }
        trainer = f"{ROOT / '.venv-trainer/bin/python'} {ROOT / 'tests/support/standin/trainer.py'}"
        environment = {**os.environ, "REPRO_TRAINER_COMMAND": trainer, "HOME": str(folder)}
        environment.pop("MAKEFLAGS", None)
        for command in commands.values():
            timed(command, environment, folder)
        seen = {what: [] for what in commands}
        for _ in range(turns):
            for what, command in commands.items():
                seen[what].append(timed(command, environment, folder))
    medians = []
    for what, figures in seen.items():
        seconds = [second for second, _ in figures]
        medians.append(statistics.median(seconds))
        print(
            f"{what}: median {medians[-1]:.3f} s (from {min(seconds):.3f} to {max(seconds):.3f}), "
            f"{max(memory for _, memory in figures):.0f} MiB"
        )
    print(f"ratio: {medians[1] / medians[0]:.2f}")
    sys.exit(medians[1] > medians[0])


if __name__ == "__main__":
    main()

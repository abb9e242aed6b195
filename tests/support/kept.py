"""Builds folders of runs and preflights on GPUs that never took place, as the tasks leave them on some machine."""

import calendar
import time
from dataclasses import replace

from repro.analysis.nccl_transport import transport_of
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.run.page import render
from repro.runs.failures import Failure
from repro.runs.manifest import record
from repro.runs.record import STAMPED, Run, write_json
from repro.utils.paths import ROOT
from tests.support import raw_output
from tests.support.attempts import recorded
from tests.support.synthetic import NCCL_LINE, VERSIONS, environment

PYTORCH_VERSIONS = {"torch": "2.8.0", "cuda": "12.8", "nccl": "2.27.3", "python": "3.12.3"}

CASES = "DP_1x1x1_2_1536x16,DP_8x1x1_16_1536x16,MP_1x8x1_16_1536x16"
CHECKOUT = "/home/someone/checkout"
RUNS = "/scratch/someone/runs"
UUID = "GPU-79d32954-53f7-0135-2bd5-d2f66d04944{}"
H200 = {"name": "NVIDIA H200", "memory.total": "143771", "driver_version": "580.1", "clocks.max.sm": "1980"}
SAMPLES = "".join(
    f"{index}, {UUID.format(0)}, {rest}\n"
    for index, rest in enumerate(("99, 20000, 1500, 61", "3, 20000, 345, 40", "97, 20000, 1700, 64"))
)
HOST, ADDRESS = "lab-7", "10.20.30.40"
REPEATS = (1.0, 1.002, 0.998, 1.0, 1.001, 0.999)


def throughput(unit) -> float:
    """Samples/s: 90 a GPU for OneFlow and 100 for PyTorch, with less on several GPUs."""
    speed = 100.0 if unit.baseline_of else 90.0
    return speed * unit.world_size * (0.98 if unit.world_size > 1 else 1.0)


def bench_run(
    runs,
    name="20261121-080000-gpt-published",
    cases=CASES,
    speed=throughput,
    repeats=REPEATS,
    failed=True,
    baselines=("pytorch",),
    programs=("published",),
    report=False,
):
    """A run of GPT cases with baselines on 4 GPUs, recorded, with its report if that is asked for; one attempt failed."""
    selected = load_catalogue().select(None, cases)
    plan = make_plan(
        selected,
        4,
        Wanted(scale="published", repeats=len(repeats), max_gpus=(2, 4), baselines=baselines, programs=programs),
    )
    described = environment(
        H200,
        4,
        host=HOST,
        gpus=[dict(H200, uuid=UUID.format(n)) for n in range(4)],
        stack={
            "name": "cu102-modern",
            "notes": [f"cuDNN {CHECKOUT}/.cache/libcudnn.so.9"],
            "environment": {"LD_PRELOAD": f"{CHECKOUT}/.cache/compat/libx.so"},
        },
        jit_cache={"path": f"{CHECKOUT}/.cache/cuda-x", "mib": 300, "warm": True},
    )
    run = Run(runs / name)
    run.folder.mkdir(parents=True)
    command = f"make bench MODEL=gpt MAX_GPUS=2,4 RUNS={RUNS}"
    write_json(
        run.folder / "run.json",
        {"id": name, "created": began(name), "command": command, "environment": described, "plan": plan.as_json()},
    )
    started = began(name)
    if failed:
        started += _attempt(run, plan.units[0], 1, None, started)
    for repeat, factor in enumerate(repeats, 1):
        for unit in plan.units:
            started += _attempt(run, unit, repeat, speed(unit) * factor, started)
    if report:
        render(run, figures=False)
    record(run)
    return run


def began(name) -> float:
    """When a run was created, UTC: what its name says, if that has a time."""
    if not STAMPED.match(name):
        return 1.79e9
    return float(calendar.timegm(time.strptime(name[:15], "%Y%m%d-%H%M%S")))


def preflight_folder(folder):
    """A preflight of one machine, with a measured all-reduce."""
    (folder / "allreduce-node1").mkdir(parents=True)
    found = {
        "check": "names",
        "what": "",
        "machine": "node1",
        "result": "ok",
        "found": f"{ROOT}/x is there",
        "means": "",
        "fix": "",
        "mended": False,
        "seconds": 1.0,
    }
    write_json(folder / "preflight.json", {"created": 1.79e9, "cluster": None, "findings": [found]})
    rows = [
        {
            "bytes": 4**n,
            "calls": 1,
            "windows_s": [0.1] * 40,
            "seconds": 1e-4 * n,
            "algorithm_gbs": 1.0 * n,
            "bus_gbs": 1.5 * n,
        }
        for n in range(5, 14)
    ]
    write_json(
        folder / "allreduce-node1" / "allreduce.json",
        {
            "device": "cuda",
            "ranks": 4,
            "rows": rows,
            "pairs": [],
            "versions": {},
            "libraries": [],
            "transports": ["P2P"],
            "bus_gbs": 19.5,
            "latency_us": 500.0,
            "link_gbs": 39.0,
        },
    )
    return folder


def _attempt(run, unit, repeat, speed, started):
    """An attempt and its files, and how long it took in s; one without a speed has failed."""
    folder = run.attempt_folder(unit.name, repeat)
    here = folder.relative_to(run.folder).as_posix()
    output = f"{RUNS}/{run.id}/{here}"
    write_json(folder / "config.json", replace(unit.config, output=output).as_json())
    write_json(
        folder / "command.json",
        [
            f"{CHECKOUT}/.venv-trainer/bin/python",
            "-u",
            f"{CHECKOUT}/repro/trainers/run.py",
            "--config",
            f"{output}/config.json",
        ],
    )
    start = {
        "host": HOST,
        "device": "cuda",
        "gpu": H200["name"],
        "versions": PYTORCH_VERSIONS if unit.baseline_of else VERSIONS,
        "parameters": 1,
        "libraries": [f"{CHECKOUT}/.venv-trainer/lib/libcudnn.so.7.6.5", "/usr/local/cuda/lib/libcublas.so.13.1"],
    }
    several = unit.world_size > 1
    printed = f"reading {CHECKOUT}/repro\n"
    if several:
        printed = f"{HOST}:41:77 [0] NCCL INFO Bootstrap : Using eth0:{ADDRESS}<0>\n"
        printed += NCCL_LINE.format("P2P/IPC").replace("node1", HOST) * 100
    raw_output.write(folder, unit, speed or 1.0, started, lambda rank: start, 9000, before_log=printed)
    for rank in range(unit.world_size):
        logs = folder / "logs" / f"local_rank_{rank}"
        (logs / HOST).mkdir(parents=True)
        if rank:
            (logs / "stdout").write_text(printed)
        (logs / "stderr").write_text("")
        (logs / HOST / f"oneflow.{HOST}.root.log.INFO.20261121-080000.1").write_text(f"Running on machine: {HOST}\n")
    (folder / "gpu.csv").write_text(SAMPLES)
    attempt = {
        "unit": unit.name,
        "repeat": repeat,
        "started": started,
        "folder": here,
        "wall_s": raw_output.seconds(unit, speed or 1.0) + 2,
        "trainer_s": raw_output.seconds(unit, speed or 1.0) + 1.9,
        **raw_output.figures(folder, unit, started),
        "status": "ok",
        "failure": None,
        "log_tail": "",
    }
    if several:
        attempt["transport"] = transport_of(folder, unit.world_size).as_json()
    if speed is None:
        failure = Failure("rank {rank} exited with status {status}", {"rank": 0, "status": 1}).as_json()
        attempt |= {"status": "failed", "failure": failure, "log_tail": f"no {CHECKOUT}/x", "throughput": None}
    run.add_attempt(recorded(attempt))
    return attempt["wall_s"]


def faster(attempt, factor):
    """A recorded attempt with this much more throughput, by the rule and in the steady state; as it was if it failed."""
    if attempt.status != "ok":
        return attempt
    windows = attempt.windows and replace(
        attempt.windows, steady_samples_per_s=attempt.windows.steady_samples_per_s * factor
    )
    return replace(attempt, throughput=attempt.throughput * factor, windows=windows)

"""Builds the folder of a run that never took place: the published cluster's environment, and attempts as asked."""

import json
from dataclasses import replace

from repro.analysis.results import Result
from repro.launch.host_environment import LOCKS
from repro.models.programs import PUBLISHED
from repro.planning.plan import Wanted, make_plan
from repro.planning.programs import tuned_name
from repro.published.cases import load_catalogue
from repro.runs.description import RunDescription
from repro.runs.environment import Environment
from repro.runs.failures import Failure
from repro.runs.plan import Plan
from repro.runs.record import Run, write_json
from tests.support import raw_output
from tests.support.attempts import recorded

VERSIONS = {"oneflow": "0.8.0+cu102", "cuda": "10.2", "cudnn": "7.6.5", "nccl": "2.7.8", "python": "3.10.4"}
GPU = {"name": "Tesla V100-SXM2-16GB", "driver_version": "440.33.01", "memory.total": "16160"}
SIX = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0)
"""Ratios of six repeats, the fewest from which a verdict is drawn."""
NOTHING = Plan("smoke", "cpu", 1, ())
"""A plan without a unit."""
CODE = {"sha256": "0" * 64, "changed": []}
NCCL_LINE = "node1:41:77 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1c000] via {}\n"


def environment(gpu=None, count=8, **changes):
    """What a run on a node of the published cluster records of it."""
    return {
        "host": "node1",
        "system": "Ubuntu 16.04.7 LTS",
        "kernel": "4.4.0-116-generic",
        "cpu": "Xeon Gold 5118",
        "cpu_count": 48,
        "cpu_affinity": 48,
        "memory_mib": 386_000,
        "controller_python": "3.11.9",
        "gpus": [dict(GPU, **(gpu or {}), uuid=f"GPU-{n}") for n in range(count)],
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "git_changed_files": 0,
        "locks_sha256": {name: "0" * 64 for name in LOCKS},
        **changes,
    }


def ran_on(gpu=None, count=8, **changes) -> Environment:
    """The same as it is read from a record."""
    return Environment.from_json(environment(gpu, count, **changes))


def described(plan=NOTHING, **more) -> RunDescription:
    """The description of a run of a plan, on that node unless `more` says otherwise."""
    return RunDescription(**{"plan": plan, "created": 1.6e9, "command": "make bench", "environment": ran_on(), **more})


def published_run(folder, names, ratios=SIX, scale=None, env=None, label="run", programs=("published",)):
    """A run of cases by name; a repeat's throughput is the published one times its ratio, and times `scale(case)`.

    That of the tuned program is 5 % higher.
    """
    cases = load_catalogue().select(None, ",".join(names))
    gpus = max(case.layout.world_size for case in cases)
    plan = make_plan(cases, gpus, Wanted(scale="published", repeats=len(ratios) or 1, programs=programs))
    description = described(plan, id=label, environment=Environment.from_json(env or environment()))
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder / label)
    run.folder.mkdir()
    write_json(run.folder / "run.json", description.as_json())
    for repeat, factor in enumerate(ratios, 1):
        for case in cases:
            for program in programs:
                unit = case if program == PUBLISHED else replace(case, name=tuned_name(case.name))
                gain = 1.0 if program == PUBLISHED else 1.05
                add_attempt(run, unit, repeat, gain * factor * (scale(case) if scale else 1.0))
    return run


def add_attempt(run, case, repeat, factor=1.0, status="ok", **changes):
    """One more attempt, with what its ranks and NCCL wrote; `changes` are made in its record alone."""
    unit = next(each for each in run.description().plan.units if each.name == case.name)
    started = 1.6e9 + 1000 * len(run.attempts())
    folder = run.attempt_folder(case.name, repeat)
    gpus = case.layout.world_size
    speed = float(case.published.throughput) * factor

    def start(rank):
        return {"host": f"node{1 + rank // 8}", "device": "cuda", "versions": VERSIONS, "parameters": 1}

    raw_output.write(folder, unit, speed, started, start, int(case.published.memory_mib or 0) or None)
    transports = ["P2P/IPC"] * (gpus > 1) + ["NET/IB/0"] * (case.layout.data * case.layout.tensor > 8)
    (folder / "launcher.log").write_text("".join(NCCL_LINE.format(each) for each in transports))
    attempt = {
        "unit": case.name,
        "repeat": repeat,
        "started": started,
        "folder": str(folder.relative_to(run.folder)),
        "status": status,
        "wall_s": 2.0,
        "code": CODE,
        "losses": [],
    }
    if status == "ok":
        attempt |= {
            **raw_output.figures(folder, unit, started),
            "wall_s": raw_output.seconds(unit, speed) + 2,
            "trainer_s": raw_output.seconds(unit, speed) + 1.9,
            "failure": None,
            "log_tail": "",
        }
    elif status == "failed":
        failure = Failure("rank {rank} exited with status {status}", {"rank": 0, "status": 1}).as_json()
        attempt |= {"failure": failure, "log_tail": "CUDA error", "versions": VERSIONS, "trainer_s": 1.0}
    run.add_attempt(recorded(attempt, **changes))


def edit_starts(run, edit, pattern="*"):
    """Rewrite the start event of every rank whose metrics file matches; an edit that returns None removes the file."""
    for path in sorted((run.folder / "units").rglob(f"metrics-rank{pattern}.jsonl")):
        first, _, rest = path.read_text().partition("\n")
        start = edit(json.loads(first))
        if start is None:
            path.unlink()
        else:
            path.write_text(json.dumps(start) + "\n" + rest)


def measured(*names, throughput=None, memory=None):
    """These cases with results: as published, times the factors by name."""
    case_results = []
    for name in names:
        case = load_catalogue().case(name)
        (unit,) = make_plan([case], case.layout.world_size, Wanted(scale="published", repeats=1)).units
        value = float(case.published.throughput) * (throughput or {}).get(name, 1.0)
        mib = case.published.memory_mib and float(case.published.memory_mib) * (memory or {}).get(name, 1.0)
        spread = (0.99 * value, value, 1.01 * value)
        result = Result(unit, spread, value, 0.01, 1.0, mib, 1.0, 1.0, None, 0, 3)
        case_results.append((case, result))
    return case_results

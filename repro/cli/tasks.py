"""The tasks behind `make`: they read their settings and call the package, nothing else.

Settings come from the environment, where `make NAME=value` puts them; no shell ever sees them. The tasks are
Fabric tasks, which are Invoke's; Fabric with its SSH stack is imported only where a cluster is spoken to.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

from invoke import Exit, task

SETTINGS = {
    "MODEL",
    "CASES",
    "SCALE",
    "REPEATS",
    "RUN",
    "RUNS",
    "CLUSTER",
    "PORT",
    "SILENCE",
    "LOG",
    "TRAINER_PYTHON",
    "CHECK",
    "LOGS",
    "DATA",
    "TOLERANCE",
    "SHAPE",
    "BATCH",
    "PYTHON",
    "FIT",
    "PRECISION",
    "ITERATIONS",
    "PEER_PYTHON",
    "PEERS",
    "DRY",
    "RETRIES",
    "AT_ONCE",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
}
BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


def setting(name: str, default=None):
    """A setting's value, or the default where it is unset or empty."""
    return os.environ.get(name) or default


def whole_number(name: str, default=None) -> int | None:
    """A setting that must be a whole number from 1 on."""
    value = setting(name)
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise Exit(f"{name}={value}: it is a whole number from 1 on", BAD_INPUT)
    return int(value)


def check_settings() -> None:
    """Refuse a misspelt setting: make itself would pass over it in silence."""
    import difflib

    given = [word.split("=", 1)[0] for word in _make_variables()]
    for name in given:
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise Exit(f"{name}: no such setting{meant} Settings: {', '.join(sorted(SETTINGS))}", BAD_INPUT)


def _make_variables() -> list[str]:
    """The NAME=value words of make's command line, as make hands them down in MAKEFLAGS."""
    words = re.split(r"(?<!\\) ", os.environ.get("MAKEFLAGS", "").partition("-- ")[2])
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words if "=" in word]


@task
def cases(c):
    """Print the catalogue of published cases [MODEL= CASES=]."""
    from rich.console import Console
    from rich.table import Table

    from repro.published.cases import cases_table, load_catalogue

    check_settings()
    with bad_input():
        chosen = load_catalogue().select(chosen_model(), setting("CASES"))
    columns, rows = cases_table(chosen)
    table = Table(*columns, box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 400)
    console.print(table)
    console.print(f"{len(rows)} cases")


@task
def bench(c):
    """Run cases and report on them [MODEL= CASES= SCALE= FIT= PRECISION= ITERATIONS= REPEATS= PEERS= RUN=].

    ITERATIONS runs so many of every case; where the rule then reads others than the published ones, the case is no
    published one. PEERS run in PEER_PYTHON; RETRIES tries failed attempts again; RUN goes on with a run as planned.
    With CLUSTER, an inventory's name or folder, the ranks run on its nodes; DRY=1 only prints the commands for them.
    """
    from repro.runs.record import RUNS, Run

    check_settings()
    if setting("AT_ONCE"):
        raise Exit("AT_ONCE is for curves and learn: speed is measured one attempt after another", BAD_INPUT)
    runs, port = Path(setting("RUNS", RUNS)), whole_number("PORT")
    with bad_input():
        before = Run.open(setting("RUN"), runs) if setting("RUN") else None
        cluster = _cluster_of(before)
    if cluster:
        _bench_on_cluster(cluster, runs, before, port)
    else:
        run_here(before, lambda: _new_run(runs, whole_number("REPEATS")))


def run_here(before, new_run, name: str = "bench", changed=lambda attempt_of: attempt_of, lanes_of=None) -> None:
    """Go on with a run, or with the one that `new_run()` makes, on this machine; `name` is the task's.

    `changed` may put something around what makes the attempts; `lanes_of` gives a plan's lanes for those that run side
    by side.
    """
    from repro.launch.local import local_attempts

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    port = whole_number("PORT")
    with bad_input():
        _check_local(port)
        run = before or new_run()
        plan = _planned(run)
        baseline = _baseline_command(run.description())
        chosen = stack(plan.device, run.description())
        if before and (kernels := _kernels(plan, chosen)):
            kernels.refuse_wrong(plan)
        gpu_pool = lanes_of(plan) if lanes_of else None
    attempt_of = local_attempts(_limits(plan), port, _trainer(), baseline, chosen.environment)
    _run_and_report(run, plan, changed(attempt_of), name, gpu_pool)


def _bench_on_cluster(name: str, runs: Path, before, port: int | None) -> None:
    from repro.launch.host_environment import capture
    from repro.launch.ssh.site import SshLauncher
    from repro.planning.plan import PlanError
    from repro.published.cases import load_catalogue

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with bad_input():
        if any(map(setting, ("PEER_PYTHON", "PEER_COMMAND", "PEERS"))):
            raise PlanError("PEERS and PEER_PYTHON are for runs on one machine; leave them out with CLUSTER")
        site = SshLauncher.of(name, port, _trainer(), setting("LAUNCHER"))
        chosen = load_catalogue().select(chosen_model(), setting("CASES"))
        plan = (
            _planned(before)
            if before
            else site.plan(chosen, setting("SCALE"), whole_number("REPEATS"), fitted(), whole_number("ITERATIONS"))
        )
    if _flag("DRY"):
        print("\n".join(site.dry(plan)))
        return
    with bad_input(), site.opened(_command()) as nodes:
        if before:
            nodes.check_unchanged(before.description()["environment"])
        run = before or create_run(runs, plan, capture() | nodes.environment())
        _run_and_report(run, plan, nodes.attempts(run, plan, _limits(plan)))


def _run_and_report(run, plan, attempt_of, name: str = "bench", gpu_pool=None) -> None:
    from repro.launch.progress import progress_display
    from repro.launch.runner import Bench
    from repro.report.run.page import render
    from repro.runs.manifest import record
    from repro.utils.signals import held

    with held() as interrupts, bad_input(FAILED):
        progress = progress_display()
        with contextlib.closing(progress), contextlib.suppress(KeyboardInterrupt):
            Bench(run, plan, progress, attempt_of, whole_number("RETRIES", 0), gpu_pool).run_all()
        rendered = render(run)
        record(run)
        for path in (*rendered.reports, rendered.results):
            print(path)
        if interrupts.came:
            raise Exit(f"interrupted; go on with: make {name} RUN={run.id}", INTERRUPTED)
    shown = rendered.shown
    problems = "\n".join(shown.problems) if shown else _problems(run, plan)
    if problems:
        raise Exit(f"{problems}; the reports say why. Try the failed ones again with: make {name} RUN={run.id}", FAILED)
    if shown:
        print(shown.summary())


def _cluster_of(before) -> str | None:
    """CLUSTER, or the cluster of the run that is gone on with, which must be the same."""
    from repro.planning.plan import PlanError

    name = setting("CLUSTER")
    if before is None:
        return name
    recorded = before.description()["environment"].get("cluster", {})
    if name and Path(name).name != recorded.get("name"):
        where = f"on cluster {recorded['name']}" if recorded else "on one machine"
        raise PlanError(f"RUN={before.id} was begun {where}; go on with it there, or leave RUN out")
    return name or recorded.get("folder")


def _planned(run):
    from repro.planning.plan import Plan

    return Plan.from_json(run.description()["plan"])


def _limits(plan):
    from repro.launch.local import Limits

    return Limits(silence_s=whole_number("SILENCE", 120 if plan.scale == "smoke" else 900))


def _trainer() -> tuple[str, ...]:
    """TRAINER_COMMAND replaces the trainer in tests."""
    return tuple(shlex.split(setting("TRAINER_COMMAND", "")))


def _command(name: str = "bench") -> str:
    """What was called, with the settings of make's command line and then those that came from the environment."""
    given = _make_variables()
    known = {word.split("=", 1)[0] for word in given} | {"PYTHON"}  # which the Makefile itself exports
    inherited = [f"{name}={value}" for name in sorted(SETTINGS - known) if (value := setting(name))]
    return shlex.join(["make", name, *given, *inherited])


def create_run(runs: Path, plan, environment: dict, name: str = "bench", **more):
    """Make the folder of a new run of this task; `more` is kept in its description beside the plan."""
    from repro.runs.record import Run

    description = {
        "created": time.time(),
        "command": _command(name),
        "environment": environment,
        "plan": plan.as_json(),
    }
    return Run.create(f"{chosen_model() or 'all'}-{plan.scale}", description | more, runs)


def _new_run(runs: Path, repeats: int | None):
    from repro.launch.host_environment import gpu_count
    from repro.planning.plan import make_plan
    from repro.published.cases import load_catalogue

    chosen, scale = load_catalogue().select(chosen_model(), setting("CASES")), setting("SCALE")
    gpus = gpu_count()
    baseline = baseline_program_of(0 if scale == "smoke" else gpus)
    plan = make_plan(
        chosen,
        gpus,
        scale,
        repeats,
        fitted(),
        baseline.variants if baseline else (),
        precision=setting("PRECISION"),
        iterations=whole_number("ITERATIONS"),
    )
    more = {"baseline": baseline.as_json()} if baseline else {}
    plan, environment = on_this_machine(plan, leave_out=True)
    return create_run(runs, plan, environment, **more)


def on_this_machine(plan, leave_out: bool = False) -> tuple:
    """A new plan, and what its run records of this machine; models that it computes wrongly are left out or refused."""
    from repro.launch.host_environment import capture

    chosen = stack(plan.device)
    environment = capture(chosen)
    if kernels := _kernels(plan, chosen):
        kernels.refuse_wrong(plan, all_of_it=leave_out)
        plan = kernels.without_wrong(plan)
        environment["kernels"] = kernels.record()
    return plan, environment


def _kernels(plan, chosen):
    """What this machine's GPUs compute beside the CPU; None without GPUs, or with a stand-in for the trainer."""
    if plan.device != "cuda" or _trainer():
        return None
    from repro.launch.host_environment import gpus
    from repro.preflight.kernels import kernels_here

    return kernels_here(gpus(), chosen)


def baseline_program_of(gpus: int):
    """The peers' program if one is wanted; PEER_COMMAND replaces it in tests."""
    if not any(map(setting, ("PEER_PYTHON", "PEER_COMMAND", "PEERS"))):
        return None
    from repro.planning.baselines import baseline_program

    return baseline_program(
        setting("PEER_PYTHON"), tuple(shlex.split(setting("PEER_COMMAND", ""))), setting("PEERS"), gpus
    )


def _baseline_command(description: dict) -> tuple[str, ...]:
    """The peers' command of a run, also of one that is gone on with; empty if it has no peers."""
    if "baseline" not in description:
        return ()
    from repro.planning.baselines import recorded_command

    return recorded_command(description["baseline"])


def stack(device: str, description: dict | None = None):
    """What trainers need on this machine's GPUs: by STACK, as the run that is gone on with had it, or by the GPU."""
    from repro.images.stack import stack_of
    from repro.launch.host_environment import gpus

    before = (description or {}).get("environment", {}).get("stack") or {}
    return stack_of(gpus() if device == "cuda" else [], setting("STACK") or before.get("name"))


def fitted() -> tuple[int, ...]:
    """FIT as numbers of GPUs in ascending order."""
    given = setting("FIT", "").replace(" ", ",").split(",")
    if not all(each.isascii() and each.isdigit() for each in given if each):
        raise Exit(f"FIT={setting('FIT')}: numbers of GPUs, such as 4 or 2,4", BAD_INPUT)
    return tuple(sorted({int(each) for each in given if each}))


def chosen_model() -> str | None:
    """MODEL, None for all."""
    model = setting("MODEL")
    return None if model == "all" else model


def _check_local(port: int | None) -> None:
    from repro.launch.agent.node import port_is_free
    from repro.planning.plan import PlanError

    if _flag("DRY"):
        raise PlanError("DRY=1 prints what would be started on a cluster's nodes; name it with CLUSTER")
    if port is not None and (port > 65535 or not port_is_free(port)):
        raise PlanError(f"PORT={port} is taken or no port number; choose another, or leave it out to get a free one")


def _problems(run, plan) -> str:
    from repro.analysis.results import parities, summarise

    attempts = run.attempts()
    bad = [result.unit.name for result in summarise(plan, attempts) if not result.complete]
    apart = [p.unit.name for p in parities(plan, attempts) if not p.holds and p.unit.name not in bad]
    said = [f"{len(bad)} configurations failed ({', '.join(bad)})"] if bad else []
    said += [f"{len(apart)} layouts do not print the losses of their reference ({', '.join(apart)})"] if apart else []
    return "; ".join(said)


class bad_input:
    """Turns what is wrong with the input or the disk into a message and an exit status."""

    def __init__(self, status: int = BAD_INPUT):
        self._status = status

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        from repro.cluster.inventory import ClusterError
        from repro.images.stack import StackError
        from repro.perfmodel.hardware import HardwareError
        from repro.planning.plan import PlanError
        from repro.published.cases import CaseError
        from repro.published.logs import LogError
        from repro.runs.record import RecordError

        known = CaseError | ClusterError | HardwareError | PlanError | RecordError | LogError | StackError
        if isinstance(error, known):
            raise Exit(str(error), self._status) from error


@task
def report(c):
    """Write a run's report, verdicts and tables anew [RUN= CHECK=1 TOLERANCE=%].

    RUN is a name or a folder, the latest run if left out. CHECK=1 exits by the verdicts: 0 if every comparable case is
    reproduced or faster in all its repeats, 1 if one is not or none of its repeats succeeded, 3 if nothing can be
    judged (a smoke run, or other hardware); make itself turns 1 and 3 into 2, and names the number in its last line.
    TOLERANCE, in per cent, replaces every tolerance the verdicts derive.
    """
    from repro.analysis.results import write_results_parquet
    from repro.report.run.page import render
    from repro.runs.manifest import alterations, record

    check_settings()
    tolerance, check = _tolerance(), _check()
    with bad_input():
        run = _chosen_run()
    with bad_input(FAILED):
        if altered := alterations(run.folder):
            raise Exit("\n".join((f"{run.folder} is not as it was recorded; no report was made:", *altered)), FAILED)
        rendered = render(run, tolerance, figures=True)
        table = write_results_parquet(run)
        record(run)
    for path in (*rendered.reports, rendered.results, table, run.folder / "verdicts.json"):
        print(path)
    if rendered.shown:
        if check and rendered.shown.problems:
            raise Exit(rendered.shown.summary(), FAILED)
        print(rendered.shown.summary())
        return
    if check and rendered.judgement.status:
        raise Exit(rendered.judgement.summary(), rendered.judgement.status)
    print(rendered.judgement.summary())


@task
def verify(c):
    """Name every file of a run that was changed, added or removed since it was recorded; exit 1 if any was [RUN=]."""
    from repro.runs.manifest import verify as verified

    check_settings()
    with bad_input():
        run = _chosen_run()
    with bad_input(FAILED):
        found = verified(run.folder)
    if not found.holds:
        raise Exit("\n".join((f"{run.folder} is not as it was recorded:", *found.lines())), FAILED)
    print(f"{run.folder}: {found.files} files are as recorded; SHA-256 of the record: {found.digest}")


@task
def bundle_run(c):
    """Pack a run's folder into one archive to hand over, if it is as it was recorded [RUN=]."""
    from repro.runs.archive import bundle

    check_settings()
    with bad_input():
        run = _chosen_run()
    with bad_input(FAILED):
        packed = bundle(run)
    print(f"{packed.path}\nSHA-256 {packed.digest}")


@task
def compare(c):
    """Compare two runs, by name or folder, and write the comparison beside the first, RUNS="A B" [TOLERANCE=%]."""
    from repro.analysis.compare_runs import compare as compared
    from repro.report.compare import print_table, write
    from repro.runs.record import Run

    check_settings()
    names = (setting("RUNS") or "").split()
    if len(names) != 2:
        raise Exit('RUNS="A B": name the two runs to compare', BAD_INPUT)
    tolerance = _tolerance()
    with bad_input():
        first, second = (Run.find(name) for name in names)
        comparison = compared(first, second, tolerance)
    with bad_input(FAILED):
        written = write(comparison, first.folder.parent)
    print_table(comparison)
    for path in written:
        print(path)


def _chosen_run():
    """The run that RUN names or whose folder it is; without RUN the latest."""
    from repro.runs.record import RUNS, Run

    return Run.find(setting("RUN"), Path(setting("RUNS", RUNS)))


def _tolerance() -> float | None:
    given = setting("TOLERANCE")
    if given is None:
        return None
    try:
        share = float(given.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise Exit(f"TOLERANCE={given}: it is a number of per cent between 0 and 100, such as 2.5", BAD_INPUT)
    return share


def _check() -> bool:
    return _flag("CHECK")


def _flag(name: str) -> bool:
    if setting(name, "0") not in ("0", "1"):
        raise Exit(f"{name}={setting(name)}: it is 0 or 1", BAD_INPUT)
    return setting(name) == "1"


@task
def audit(c):
    """Print what is wrong in the published reports and keep it as audit.json [LOGS=DIR DATA=DIR CHECK=1].

    LOGS recomputes the figures from the original logs in a folder instead; DATA audits a copy of repro/data and keeps
    nothing. CHECK=1 keeps nothing either and exits 1 if a log's figure, or the audit, is not the published one.
    """
    check_settings()
    with bad_input():
        if setting("LOGS"):
            _audit_logs(Path(setting("LOGS")), _check())
        else:
            _audit_data(setting("DATA"), _check())


def _audit_logs(folder: Path, check: bool) -> None:
    from repro.published.audit.logs import from_logs
    from repro.published.cases import load_catalogue

    found = from_logs(folder, load_catalogue())
    print("\n".join(found.lines()))
    if check and not found.agrees:
        raise Exit("not every figure is the published one", FAILED)


def _audit_data(data: str | None, check: bool) -> None:
    from repro.published.audit.engine import as_json, differences
    from repro.published.audit.engine import audit as audited
    from repro.report.published.page import FOLDER, overview
    from repro.utils.paths import DATA

    kept = FOLDER / "audit.json"
    result = audited(Path(data or DATA))
    print(overview(result))
    if check:
        apart = differences(result, kept)
        if apart:
            raise Exit("\n".join((f"not as in {kept.relative_to(FOLDER.parent.parent)}:", *apart)), FAILED)
    elif not data:
        kept.write_text(as_json(result), encoding="utf-8")
        print(kept)


@task
def published(c):
    """Write the published reports in both languages and their audit, reports/published/; CHECK=1 only compares."""
    from repro.report.published.page import differing, render

    check_settings()
    with bad_input():
        if not _check():
            print("\n".join(map(str, render())))
        elif stale := differing():
            raise Exit("not as the data gives them: " + ", ".join(path.name for path in stale), FAILED)


@task
def model(c):
    """Fit the performance model and write its report and figures, reports/model/."""
    from repro.report.perfmodel.page import render

    check_settings()
    with bad_input(FAILED):
        for path in render():
            print(path)


@task
def plan(c):
    """Print what to expect of each case before anything starts [CLUSTER= MODEL= CASES= REPEATS= ITERATIONS=]."""
    from repro.perfmodel.hardware import describe
    from repro.perfmodel.plan_table import plan_rows, plan_summary, plan_table
    from repro.planning.plan import of_length
    from repro.published.cases import load_catalogue

    check_settings()
    with bad_input():
        chosen = load_catalogue().select(chosen_model(), setting("CASES"))
        chosen = of_length(chosen, iterations) if (iterations := whole_number("ITERATIONS")) else chosen
        cluster = describe(setting("CLUSTER", "v100x32"))
    rows = plan_rows(chosen, cluster, whole_number("REPEATS"))
    _show(*plan_table(rows), plan_summary(rows, cluster))


@task
def explore(c):
    """Print the ten quickest layouts for a GPT by the model [CLUSTER= SHAPE=HIDDENxLAYERS BATCH=]."""
    from repro.perfmodel.hardware import describe
    from repro.perfmodel.layout_search import SHOWN, candidates_table, search, shape_of

    check_settings()
    with bad_input():
        cluster, shape = describe(setting("CLUSTER", "v100x32")), shape_of(setting("SHAPE", "2304x24"))
    batch = whole_number("BATCH", 4 * cluster.gpus)
    found = search(shape, cluster, batch)
    if not found:
        raise Exit(f"{cluster.name}: no layout of this shape with global batch {batch} fits into its memory", FAILED)
    shown = f"the best {min(SHOWN, len(found))} of {len(found)} layouts that fit"
    _show(*candidates_table(found, cluster), f"{cluster.name}, global batch {batch}: {shown}; all figures modelled")


def _show(columns: list[str], rows: list[list[str]], below: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 400)
    console.print(table)
    console.print(below, highlight=False)


@task
def parse(c):
    """Print one JSON object for a log of any generation, LOG=FILE."""
    from repro.published.log_summary import summary

    check_settings()
    if not setting("LOG"):
        raise Exit("LOG=FILE: name the log to read", BAD_INPUT)
    with bad_input(FAILED):
        print(json.dumps(summary(setting("LOG")), ensure_ascii=False, indent=1))


@task
def test(c):
    """Lint and tests, several files at a time; those that train on all cores come by themselves, after the others."""
    check_settings()
    workers = min(len(os.sched_getaffinity(0)), 8) + 1
    several = f"pytest --numprocesses={workers} --dist=loadfile --ignore=tests/trainers"
    commands = ("ruff check .", several, "pytest tests/trainers")
    failed = [
        command
        for command in commands
        if not c.run(f"{sys.executable} -m {command}", pty=sys.stdout.isatty(), warn=True)
    ]
    if failed:
        raise Exit(f"failed: {', '.join(failed)}", FAILED)


@task
def lock(c):
    """Write the lock files anew from their inputs; nothing else changes a version."""
    from repro.bootstrap import find_uv

    uv = shlex.quote(find_uv())
    c.run(f"{uv} lock --upgrade")
    for name in ("trainer", "tools"):
        c.run(
            f"{uv} pip compile --upgrade --no-header --universal --python-version 3.9 --generate-hashes "
            f"docker/{name}.in -o docker/{name}.lock"
        )

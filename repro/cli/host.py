"""The tasks that measure everything on one host or cluster, and write the page that its kept runs give."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repro.cli import bench, correctness, plan, preflight, rehearse
from repro.cli.options import AttemptOptions, LibraryOptions, refuse_misplaced
from repro.cli.session import OF_ANY_RUN, check_wanted, chosen_cases
from repro.cli.settings import Exit, Invocation, OptionError, OptionTask, task
from repro.models.registry import spec_of
from repro.planning.baselines import variants_by_default, variants_of
from repro.planning.plan import Wanted, make_plan, refuse_idle, runnable
from repro.planning.programs import DEFAULT_PROGRAMS, Programs
from repro.runs.digests import archives_of, hosts, runs_of
from repro.runs.files import read_json
from repro.runs.plan import SMOKE
from repro.runs.record import write_json
from repro.targets import NO_BASELINE, command_line
from repro.utils.errors import BAD_INPUT, FAILED, INTERRUPTED, ReproError
from repro.utils.signals import heed_signals

if TYPE_CHECKING:
    from repro.published.cases import Case
    from repro.runs.unit import Unit

Scale = Literal["smoke", "published"]
STEPS = ("rehearse", "preflight", "bench", "curves", "convergence", "profile")
CLUSTER_STEPS = ("rehearse", "preflight", "bench", "curves", "convergence")
NOT_KEPT = ("rehearse",)
"""Tasks whose runs are no result of a host."""
FOR_BENCH = ("CASES", "MAX_GPUS", "ITERATIONS", "REPEATS")
"""Variables that mean something else to the tasks after the bench, or much time."""
GOES_ON = "interrupted; the same command goes on"


@task(
    host="name of the host whose page the runs belong to, such as h200x8 (default with a cluster: the cluster's name)",
    steps="only these, separated by commas: rehearse, preflight, bench, curves, convergence, profile",
    scale="smoke rehearses every step with tiny shapes, on a cluster without GPUs too (default: the published shapes)",
)
def reproduce(
    invocation: Invocation,
    host: str | None = None,
    steps: tuple[str, ...] = STEPS,
    model: str = "all",
    cases: str | None = None,
    program: Programs = DEFAULT_PROGRAMS,
    scale: Scale | None = None,
    max_gpus: tuple[int, ...] = (),
    precision: str | None = None,
    iterations: int | None = None,
    repeats: int | None = None,
    baseline_python: str | None = None,
    baselines: tuple[str, ...] = (),
    jobs: int | None = None,
    cupti: str | None = None,
    *,
    options: AttemptOptions,
    libraries: LibraryOptions,
) -> None:
    """Measure everything on this machine's GPUs or on a cluster, keep the runs as a host's, and write the host's page.

    That begins with a rehearsal of the cases on processors. Then, per model: the preflight's checks of kernels and
    links, the published cases that fit with their baselines if --baseline-python is given, loss curves, convergence,
    and a profile. On a cluster: what to expect and for how many hours, all checks, the cases of all models in one run,
    loss curves, convergence, and the claims table besides the page. The same command again goes on where it was
    interrupted, and tries again what failed. Exit status: 0 all succeeded; 1 something failed, listed at the end; 2
    wrong input, or no GPU; 130 interrupted.
    """
    from repro.launch.host_environment import gpu_count

    cluster, runs = options.cluster, options.runs
    host = host or Path(cluster or "").name
    if cluster and scale != SMOKE:
        _require_gpus_of(cluster)
    gpus = 0 if cluster else gpu_count()
    planned = _planned(model, cases, steps=steps, cluster=cluster, scale=scale, gpus=gpus)
    outer = {name: text for name, text in invocation.texts.items() if name != "HOST"}
    commands = [Step(step.task, step.given(outer, options_of(step.task))) for step in planned]
    if not cluster:
        named = variants_of(baselines)
        default = variants_by_default(baseline_python, precision) if baseline_python and not baselines else ()
        commands = with_runnable(commands, named or default, gpus, named=bool(named))
    journal = Journal(runs / f"reproduce-{host}.json")

    heed_signals()
    failed = carry_out(
        commands,
        runs,
        call=call,
        keep=lambda name: call(Step("archive", {"RUN": name, "HOST": host, "RUNS": str(runs)})),
        journal=journal,
    )
    pages = [
        *([Step("host-reports", {"HOST": host})] if any(runs_of(host).glob("*")) else []),
        *([Step("site")] if cluster else []),
    ]
    failed += [str(page) for page in pages if call(page)]
    if failed:
        raise Exit(
            "failed:\n  "
            + "\n  ".join(failed)
            + "\nThe same command tries this again; a run that fails twice is kept as it is",
            FAILED,
        )


@reproduce.checks
def _check_reproduce(values: Mapping[str, Any]) -> None:
    """Refuse a host without a name, steps and options that there are not, and a machine without a GPU."""
    from repro.launch.host_environment import gpu_count

    cluster, host, steps = values["cluster"], values["host"], values["steps"]
    if not (host or cluster):
        raise OptionError("HOST=<name>: name this machine, such as h200x8; its page is kept under that name")
    if not steps:
        raise OptionError(f"STEPS names no step; there are {', '.join(STEPS)}")
    if unknown := sorted(set(steps) - set(STEPS)):
        raise OptionError(f"STEPS={','.join(steps)}: no step {', '.join(unknown)}; there are {', '.join(STEPS)}")
    runs_of(host or Path(cluster).name)
    refuse_misplaced(values, cluster, ("CUPTI",), ("SCALE",))
    check_wanted(values)
    _planned(values["model"], values["cases"], steps=steps, cluster=cluster, scale=values["scale"], gpus=1)
    if not cluster and not gpu_count():
        raise Exit(
            "nvidia-smi shows no GPU here that may be used: there is nothing to reproduce on; make bench checks the machinery",
            BAD_INPUT,
        )


def _planned(
    model: str, cases: str | None, steps: tuple[str, ...], cluster: str | None, scale: Scale | None, gpus: int
) -> list[Step]:
    chosen = chosen_cases(model, cases)
    if cluster:
        return plan_cluster_steps(chosen, steps, scale == SMOKE)
    return plan_steps(chosen, steps, gpus, narrowed=bool(cases))


@task(host="only this host's page (default: all hosts')", check="write nothing; exit 1 if a page is not up to date")
def host_reports(invocation: Invocation, host: str | None = None, check: bool = False) -> None:
    """Write the pages of the kept runs, reports/reproduced/.

    Exit status: 0 written; 1 with --check, a page differs from the kept runs; 2 wrong input.
    """
    from repro.report.host import page
    from repro.report.host.results import load
    from repro.utils.progress import Stages, said_meanwhile

    names = [host] if host else hosts()
    stages, stale = Stages("reading the kept runs"), []
    with said_meanwhile(stages.now):
        for loaded in [load(name) for name in names]:
            stages.begin(f"the page of {loaded.name}")
            if check:
                stale += page.differing(loaded)
            else:
                print(*page.render(loaded), sep="\n")
    if stale:
        raise Exit("not as the kept runs give them: " + ", ".join(map(str, stale)), FAILED)
    if check:
        print("up to date")
        return
    if not names:
        print("no run is kept; `make archive RUN=<id> HOST=<name>` keeps one")


host_reports.checks(lambda values: values["host"] and archives_of(values["host"]))


def _require_gpus_of(cluster: str) -> None:
    """Exit where a cluster's nodes have no GPUs, so that nothing can be measured there."""
    from repro.cluster.cluster import load_cluster

    described = load_cluster(cluster)
    if not described.gpu:
        raise Exit(
            f"cluster_gpu is empty in {described.variables}: there is nothing to reproduce on; "
            "SCALE=smoke rehearses every step with tiny shapes",
            BAD_INPUT,
        )


def call(step: Step) -> int:
    """Run a step as a process; its exit status. A signal to this process ends the step first: Exit once it has ended.

    The step is out of the reach of the terminal, or Ctrl-C would reach it twice.
    """
    given = [f"{name}={value}" for name, value in step.variables.items()]
    process = subprocess.Popen([sys.executable, "-m", "repro", step.task, *given], process_group=0)
    interrupted = False
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            interrupted = True
            process.terminate()
            continue
        if interrupted:
            raise Exit(GOES_ON, INTERRUPTED)
        return status


def _task_of(name: str) -> OptionTask:
    """The task of a step."""
    steps = (
        plan.plan,
        preflight.preflight,
        rehearse.rehearse,
        bench.bench,
        correctness.curves,
        correctness.convergence,
        correctness.profile,
    )
    (step,) = (candidate for candidate in steps if candidate.target == name)
    return step


def options_of(task: str) -> set[str]:
    """The variables that the task of a step has."""
    return {option.variable for option in _task_of(task).options.values()}


@dataclass(frozen=True)
class Step:
    """A task and the variables that it gets besides those of the whole."""

    task: str
    variables: dict[str, str] = field(default_factory=dict)

    def given(self, outer: Mapping[str, str], accepted: Iterable[str]) -> dict[str, str]:
        """The variables for it, of those that the whole was called with; `known` are those that its task has."""
        dropped = () if self.task in ("plan", "bench", "rehearse") else FOR_BENCH
        return {
            name: value for name, value in outer.items() if name in accepted and name not in dropped
        } | self.variables

    def with_baselines(self, names: Iterable[str]) -> Step:
        """The step with these baselines, or expressly without any; BASELINE_PYTHON may have libraries that it needs."""
        return Step(self.task, self.variables | {"BASELINES": ",".join(names) or NO_BASELINE})

    def going_on(self, run: str) -> Step:
        """The step that goes on with its run, which knows what was planned."""
        variables = {name: value for name, value in self.variables.items() if name in OF_ANY_RUN}
        return Step(self.task, variables | {"RUN": run})

    def __str__(self) -> str:
        return command_line(self.task, self.variables)


def plan_steps(
    cases: Iterable[Case], tasks: Iterable[str] = STEPS, gpus: int = 1, narrowed: bool = False
) -> list[Step]:
    """What to do for the models of these cases, in order.

    The cases are rehearsed and the machine is checked first, then speed is measured, then correctness. A profile is made
    of each model's first case on one GPU. Layouts are rehearsed on at most as many ranks as there are `gpus`. Where the
    cases are `narrowed`, not all of their models, each bench names those of its model.
    """
    cases, tasks = list(cases), tuple(tasks)
    models = list(dict.fromkeys(case.model for case in cases))
    names = {model: ",".join(case.name for case in cases if case.model == model) for model in models}
    alone = [
        next((case.name for case in cases if case.model == model and case.layout.world_size == 1), None)
        for model in models
    ]
    by_task = {
        "rehearse": [Step("rehearse", {"MAX_RANKS": f"{max(1, gpus)}"})],
        "preflight": [Step("preflight", {"ONLY": "kernels,allreduce"})],
        "bench": [Step("bench", {"MODEL": model} | ({"CASES": names[model]} if narrowed else {})) for model in models],
        "curves": [Step("curves", {"MODEL": model}) for model in models],
        "convergence": [Step("convergence", {"MODEL": model}) for model in models if spec_of(model).convergence],
        "profile": [
            Step("profile", {"MODEL": model, "CASES": name}) for model, name in zip(models, alone, strict=True) if name
        ],
    }
    return [step for task in STEPS if task in tasks for step in by_task[task]]


def plan_cluster_steps(cases: Iterable[Case], tasks: Iterable[str] = STEPS, rehearsed: bool = False) -> list[Step]:
    """What to do for the models of these cases on a cluster, in order.

    One bench has the cases of all models, so that small cases of one run beside those of another. At the smoke scale
    nothing is expected, and the cases are not rehearsed: all of it is a rehearsal.
    """
    tasks = tuple(tasks)
    if unknown := [task for task in tasks if task not in CLUSTER_STEPS and tasks != STEPS]:
        raise OptionError(
            f"STEPS={','.join(tasks)}: with CLUSTER there are {', '.join(CLUSTER_STEPS)}, no {unknown[0]}"
        )
    models = {case.model for case in cases}
    learns = any(spec_of(model).convergence for model in models)
    steps = [Step("plan")] if "bench" in tasks and not rehearsed else []
    dropped = {*(("convergence",) if not learns else ()), *(("rehearse",) if rehearsed else ())}
    return steps + [Step(task) for task in CLUSTER_STEPS if task in tasks and task not in dropped]


def with_runnable(steps: list[Step], names: tuple[str, ...], gpus: int, named: bool = True) -> list[Step]:
    """The steps, each with those of the baselines that can run one of its cases on one machine; as they are without any.

    PlanError for a baseline that was `named` and that none of them can run, and if there is none by default that one can.
    """
    asking = {"BASELINES", "BASELINE_PYTHON"} if names else set()
    units = [_units(step, gpus) if asking & step.variables.keys() else () for step in steps]
    if every := [unit for of_step in units for unit in of_step]:
        refuse_idle(every, names, named)
    chosen = []
    for step, of_step in zip(steps, units, strict=True):
        fitting = runnable(of_step, names)
        as_it_is = not of_step or (fitting and not named)
        chosen.append(step if as_it_is else step.with_baselines(fitting))
    return chosen


def _units(step: Step, gpus: int) -> tuple[Unit, ...]:
    """What a step trains, without its baselines; nothing where it cannot be planned, which its task says."""
    values = _task_of(step.task).of_variables(step.variables)
    changes = {name: values[name] for name in ("max_gpus", "iterations", "precision") if name in values}
    try:
        cases = chosen_cases(values.get("model", "all"), values.get("cases"))
        return make_plan(cases, gpus, Wanted(**changes)).units
    except ReproError:
        return ()


class Journal:
    """Which steps have ended, and with which runs, in a file; so the same command goes on where it was interrupted.

    A step that failed is tried again; its run is gone on with once. Steps are known by their commands: another setting makes another step.
    """

    def __init__(self, path: Path):
        self._path = path
        self._steps: dict[str, dict] = read_json(path) if path.is_file() else {}

    def ended(self, step: Step) -> bool:
        """Whether nothing is left to do for a step."""
        return bool(self._of(step).get("ended"))

    def failed(self, step: Step) -> bool:
        """Whether the last try of a step failed."""
        return bool(self._of(step).get("failed"))

    def runs(self, step: Step, there: Iterable[str]) -> list[str]:
        """The runs of a step, of those that are there now."""
        entry = self._of(step)
        new = set(there) - set(entry["before"]) if "before" in entry else set()
        return sorted(new | set(entry.get("runs", ())) & set(there))

    def begin(self, step: Step, there: Iterable[str], going_on: Iterable[str]) -> None:
        """A try of a step begins; `there` are the runs that there are now, `going_on` those of the step before that count."""
        self._steps[str(step)] = {**self._of(step), "runs": [*going_on], "before": sorted(there)}
        self._write()

    def end(self, step: Step, there: Iterable[str], failed: bool, ended: bool) -> None:
        """A try of a step has ended; `ended` says that there will be no other."""
        self._steps[str(step)] = {"runs": self.runs(step, there), "failed": failed, "ended": ended}
        self._write()

    def _of(self, step: Step) -> dict:
        return self._steps.get(str(step), {})

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, self._steps)


def carry_out(
    planned: list[Step],
    runs: Path,
    call: Callable[[Step], int],
    keep: Callable[[str], int],
    journal: Journal,
) -> list[str]:
    """Run each step that has not ended and keep its results from `runs`; name the failures.

    A run that failed is kept once it has failed twice: until then it can be gone on with. Exit if a step was interrupted.

    Parameters
    ----------
    call : runs a step and returns its exit status.
    keep : keeps the run with an id and returns the exit status.
    """
    failed = []
    for number, step in enumerate(planned, 1):
        if journal.ended(step):
            print(
                f"== {number} of {len(planned)}: {step}: {'failed' if journal.failed(step) else 'done'} before",
                flush=True,
            )
            failed += [str(step)] if journal.failed(step) else []
            continue
        print(f"== {number} of {len(planned)}: {step}", flush=True)
        before = _runs(runs, journal.runs(step, _ids(runs)))
        journal.begin(step, _ids(runs), before)
        status = call(step.going_on(before[-1]) if before else step)
        if status == INTERRUPTED:
            raise Exit(GOES_ON, INTERRUPTED)
        ended = not status or (journal.failed(step) and bool(before))
        run_ids = [run_id for run_id in journal.runs(step, _ids(runs)) if ended and step.task not in NOT_KEPT]
        unkept = [f"make archive RUN={run_id}" for run_id in run_ids if keep(run_id)]
        failed += [*([str(step)] if status else []), *unkept]
        journal.end(step, _ids(runs), bool(status or unkept), ended)
    return failed


def _runs(folder: Path, names: Iterable[str]) -> list[str]:
    """Those that are runs, which can be gone on with; a preflight is none."""
    return [name for name in names if (folder / name / "run.json").is_file()]


def _ids(runs: Path) -> set[str]:
    return {path.name for path in runs.iterdir() if path.is_dir()} if runs.is_dir() else set()

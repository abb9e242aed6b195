"""The tasks that measure everything on one host, and write the page that its kept runs give."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from repro.cli import bench, correctness, preflight
from repro.cli.session import chosen_model
from repro.cli.settings import Exit, Invocation, OptionError, task
from repro.models.registry import spec_of
from repro.planning.programs import DEFAULT_PROGRAMS, Programs
from repro.runs.record import RUNS
from repro.targets import command_line
from repro.utils.errors import BAD_INPUT, FAILED

if TYPE_CHECKING:
    from repro.published.cases import Case

STEPS = ("preflight", "bench", "curves", "convergence", "profile")
FOR_BENCH = ("CASES", "MAX_GPUS", "ITERATIONS", "REPEATS")
"""Variables that mean something else to the other tasks, or much time."""


@task(steps="only these, separated by commas: preflight, bench, curves, convergence, profile")
def reproduce(
    invocation: Invocation,
    host: str | None = None,
    steps: tuple[str, ...] = STEPS,
    model: str = "all",
    cases: str | None = None,
    program: Programs = DEFAULT_PROGRAMS,
    max_gpus: tuple[int, ...] = (),
    precision: str | None = None,
    iterations: int | None = None,
    repeats: int | None = None,
    baseline_python: str | None = None,
    baselines: tuple[str, ...] = (),
    runs: Path = RUNS,
    retries: int = 0,
    stall_timeout: int | None = None,
    attempt_timeout: int | None = None,
    port: int | None = None,
    jobs: int | None = None,
    stack: str | None = None,
    cublas: str | None = None,
    cudnn: str | None = None,
    cupti: str | None = None,
) -> None:
    """Measure everything on this machine's GPUs, keep the runs as a host's, and write the host's page.

    That is, per model: the preflight's checks of kernels and links, the published cases that fit with their baselines
    if --baseline-python is given, loss curves, convergence, and a profile. Exit status: 0 all succeeded; 1 something
    failed, listed at the end, while the rest was kept; 2 wrong input, or no GPU.
    """
    from repro.launch.host_environment import gpus
    from repro.published.cases import load_catalogue
    from repro.report.host.keep import runs_of

    if not host:
        raise OptionError("HOST=<name>: name this machine, such as h200x8; its page is kept under that name")
    if unknown := sorted(set(steps) - set(STEPS)):
        raise OptionError(f"STEPS={','.join(steps)}: no step {', '.join(unknown)}; there are {', '.join(STEPS)}")
    runs_of(host)
    planned = plan_steps(load_catalogue().select(chosen_model(model), cases or None), steps)
    if not gpus():
        raise Exit(
            "nvidia-smi shows no GPU here: there is nothing to reproduce on; make bench checks the machinery", BAD_INPUT
        )

    def call(task: str, variables: Mapping[str, str]) -> int:
        given = [f"{name}={value}" for name, value in variables.items()]
        return subprocess.run([sys.executable, "-m", "repro", task, *given]).returncode

    failed = carry_out(
        planned,
        runs,
        lambda step: call(step.task, step.given(invocation.texts, options_of(step.task))),
        lambda name: call("archive", {"RUN": name, "HOST": host, "RUNS": str(runs)}),
    )
    failed += ["make host-reports"] if call("host-reports", {}) else []
    if failed:
        raise Exit("failed:\n  " + "\n  ".join(failed), FAILED)


@task(host="only this host's page (default: all hosts')", check="write nothing; exit 1 if a page is not up to date")
def host_reports(invocation: Invocation, host: str | None = None, check: bool = False) -> None:
    """Write the pages of the kept runs, reports/reproduced/.

    Exit status: 0 written; 1 with --check, a page differs from the kept runs; 2 wrong input.
    """
    from repro.report.host import page
    from repro.report.host.results import hosts, load

    every = {name: load(name) for name in dict.fromkeys([*hosts(), *([host] if host else [])])}
    chosen = [every[host]] if host else every.values()
    if check:
        if stale := [path for each in chosen for path in page.differing(each)]:
            raise Exit("not as the kept runs give them: " + ", ".join(map(str, stale)), FAILED)
        return
    for each in chosen:
        print(*page.render(each), sep="\n")
    if not every:
        print("no run is kept; `make archive RUN=<id> HOST=<name>` keeps one")


def options_of(task: str) -> set[str]:
    """The variables that the task of a step has."""
    steps = (preflight.preflight, bench.bench, correctness.curves, correctness.convergence, correctness.profile)
    (found,) = (each for each in steps if each.target == task)
    return {option.variable for option in found.options.values()}


@dataclass(frozen=True)
class Step:
    """A task and the variables that it gets besides those of the whole."""

    task: str
    variables: dict[str, str] = field(default_factory=dict)

    def given(self, outer: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
        """The variables for it, of those that the whole was called with; `known` are those that its task has."""
        dropped = () if self.task == "bench" else FOR_BENCH
        return {name: value for name, value in outer.items() if name in known and name not in dropped} | self.variables

    def __str__(self) -> str:
        return command_line(self.task, self.variables)


def plan_steps(cases: Iterable[Case], tasks: Iterable[str] = STEPS) -> list[Step]:
    """What to do for the models of these cases, in order.

    The machine is checked first, then speed is measured, then correctness. A profile is made of each model's first
    case on one GPU.
    """
    cases, tasks = list(cases), tuple(tasks)
    models = list(dict.fromkeys(case.model for case in cases))
    alone = [
        next((case.name for case in cases if case.model == model and case.layout.world_size == 1), None)
        for model in models
    ]
    found = {
        "preflight": [Step("preflight", {"ONLY": "kernels,allreduce"})],
        "bench": [Step("bench", {"MODEL": model}) for model in models],
        "curves": [Step("curves", {"MODEL": model}) for model in models],
        "convergence": [Step("convergence", {"MODEL": model}) for model in models if spec_of(model).convergence],
        "profile": [
            Step("profile", {"MODEL": model, "CASES": name}) for model, name in zip(models, alone, strict=True) if name
        ],
    }
    return [step for task in STEPS if task in tasks for step in found[task]]


def carry_out(planned: list[Step], runs: Path, call: Callable[[Step], int], keep: Callable[[str], int]) -> list[str]:
    """Run each step and keep its results from `runs`; name the failures.

    Parameters
    ----------
    call : runs a step and returns its exit status.
    keep : keeps the run with an id and returns the exit status.
    """
    failed = []
    for number, step in enumerate(planned, 1):
        print(f"== {number} of {len(planned)}: {step}", flush=True)
        before = _ids(runs)
        if call(step):
            failed.append(str(step))
        failed += [f"make archive RUN={each}" for each in sorted(_ids(runs) - before) if keep(each)]
    return failed


def _ids(runs: Path) -> set[str]:
    return {path.name for path in runs.iterdir() if path.is_dir()} if runs.is_dir() else set()

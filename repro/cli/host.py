"""The tasks that keep runs for good, and write what they give: a page for each host, and a table in the READMEs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from invoke import Exit, task

from repro.cli.tasks import BAD_INPUT, FAILED, SETTINGS, bad_input, check_settings, chosen_model, setting
from repro.models.registry import spec_of
from repro.published.cases import Case

SETTINGS |= {"HOST", "STEPS"}


@task
def reproduce(c):
    """Measure everything on this machine's GPUs and keep it as HOST's, STEPS=bench,curves only these [and as bench].

    That is, for each model or MODEL: what the preflight tells of kernels and links, the published cases that fit with
    their peers if PEER_PYTHON is given, loss curves, learning, and a profile. What fails is told at the end.
    """
    from repro.cli.host import TASKS, carry_out, steps
    from repro.launch.host_environment import gpus
    from repro.published.cases import load_catalogue
    from repro.report.host.keep import runs_of
    from repro.runs.record import RUNS

    check_settings()
    if not setting("HOST"):
        raise Exit("HOST=<name>: name this machine, such as h200x8; its page is kept under that name", BAD_INPUT)
    tasks = [name.strip() for name in setting("STEPS", ",".join(TASKS)).split(",")]
    if unknown := sorted(set(tasks) - set(TASKS)):
        raise Exit(f"STEPS={setting('STEPS')}: no step {', '.join(unknown)}; there are {', '.join(TASKS)}", BAD_INPUT)
    with bad_input():
        runs_of(setting("HOST"))
        planned = steps(load_catalogue().select(chosen_model(), setting("CASES")), tasks)
    if not gpus():
        raise Exit(
            "nvidia-smi shows no GPU here: there is nothing to reproduce on; make bench checks the machinery", BAD_INPUT
        )

    def call(task: str, environment: dict) -> int:
        return subprocess.run([sys.executable, "-m", "repro", task], env=environment).returncode

    failed = carry_out(
        planned,
        Path(setting("RUNS", RUNS)),
        lambda step: call(step.task, step.environment(os.environ)),
        lambda name: call("keep", os.environ | {"RUN": name}),
    )
    failed += ["make reproduced"] if call("reproduced", os.environ) else []
    if failed:
        raise Exit("failed:\n  " + "\n  ".join(failed), FAILED)


@task
def keep(c):
    """Pack a run or a preflight into reports/reproduced/HOST/runs/, to be committed, RUN= HOST=.

    Host names, GPU UUIDs and paths of this machine are replaced; nothing is kept unless the run is as it was recorded
    and the archive gives the same results and verdicts.
    """
    from repro.report.host.keep import keep as kept
    from repro.report.host.keep import runs_of
    from repro.runs.files import ARCHIVE, PREFLIGHT
    from repro.runs.record import RUNS, Run

    check_settings()
    if not setting("HOST") or not setting("RUN"):
        raise Exit("RUN=<id> HOST=<name>: name the run to keep, and the host that it is of, such as h200", BAD_INPUT)
    runs, name = Path(setting("RUNS", RUNS)), setting("RUN")
    with bad_input():
        folder = next((each for each in (runs / name, Path(name)) if (each / PREFLIGHT).is_file()), None)
        source = folder or Run.find(name, runs).path
        target = runs_of(setting("HOST")) / (source.name.removesuffix(ARCHIVE) + ARCHIVE)
    with bad_input(FAILED):
        found = kept(source, target)
    print(f"{found.path}: {found.files} files, {found.size / 1e6:.1f} MB")
    print(f"paths outside the checkout that it names: {', '.join(found.named) or 'none'}")
    print(f"make reproduced HOST={setting('HOST')} puts it into the host's page and the READMEs")


@task
def reproduced(c):
    """Write the pages of the kept runs and the table in the READMEs; CHECK=1 only compares [HOST= CHECK=1]."""
    from repro.report.host import page, readme
    from repro.report.host.results import hosts, load

    check_settings()
    if setting("CHECK", "0") not in ("0", "1"):
        raise Exit(f"CHECK={setting('CHECK')}: it is 0 or 1", BAD_INPUT)
    with bad_input():
        every = {name: load(name) for name in dict.fromkeys([*hosts(), *filter(None, [setting("HOST")])])}
        chosen = [every[setting("HOST")]] if setting("HOST") else every.values()
        if setting("CHECK") == "1":
            stale = [path for host in chosen for path in page.differing(host)]
            if stale := [*stale, *readme.differing(every.values())]:
                raise Exit("not as the kept runs give them: " + ", ".join(map(str, stale)), FAILED)
            return
        written = [path for host in chosen for path in page.render(host)]
        for path in (*written, *readme.render(every.values())):
            print(path)
    if not every:
        print("no run is kept; `make keep RUN=<id> HOST=<name>` keeps one")


TASKS = ("preflight", "bench", "curves", "learn", "profile")
FOR_BENCH = ("CASES", "FIT", "ITERATIONS", "REPEATS")
"""Settings that mean something else to the other tasks, or much time."""
FOR_CORRECTNESS = ("AT_ONCE",)
"""Settings that only curves and learn have."""


@dataclass(frozen=True)
class Step:
    """A task and the settings that it gets besides those of the whole."""

    task: str
    settings: dict[str, str] = field(default_factory=dict)

    def environment(self, outer: Mapping[str, str]) -> dict[str, str]:
        """The environment variables for it, of those that the whole was called with.

        make's own command line is left out: it would win over what a step sets.
        """
        dropped = {"MAKEFLAGS", "HOST", "STEPS"} | (set() if self.task == "bench" else set(FOR_BENCH))
        dropped |= set() if self.task in ("curves", "learn") else set(FOR_CORRECTNESS)
        return {name: value for name, value in outer.items() if name not in dropped} | self.settings

    def __str__(self) -> str:
        return " ".join(("make", self.task, *(f"{name}={value}" for name, value in self.settings.items())))


def steps(cases: Iterable[Case], tasks: Iterable[str] = TASKS) -> list[Step]:
    """What to do for the models of these cases, in order.

    What is told about the machine comes first, then speed, then correctness. A profile is made of each model's first
    case on one GPU.
    """
    cases, tasks = list(cases), tuple(tasks)
    models = list(dict.fromkeys(case.model for case in cases))
    exclusive = [
        next((case.name for case in cases if case.model == model and case.layout.world_size == 1), None)
        for model in models
    ]
    found = {
        "preflight": [Step("preflight", {"ONLY": "kernels,allreduce"})],
        "bench": [Step("bench", {"MODEL": model}) for model in models],
        "curves": [Step("curves", {"MODEL": model}) for model in models],
        "learn": [Step("learn", {"MODEL": model}) for model in models if spec_of(model).convergence],
        "profile": [
            Step("profile", {"MODEL": model, "CASES": name})
            for model, name in zip(models, exclusive, strict=True)
            if name
        ],
    }
    return [step for task in TASKS if task in tasks for step in found[task]]


def carry_out(planned: list[Step], runs: Path, call: Callable[[Step], int], keep: Callable[[str], int]) -> list[str]:
    """Run each step and keep what it left in `runs`; name what failed.

    Parameters
    ----------
    call : runs a step, gives its exit status.
    keep : keeps the run of an id, gives the exit status.
    """
    failed = []
    for number, step in enumerate(planned, 1):
        print(f"== {number} of {len(planned)}: {step}", flush=True)
        before = _ids(runs)
        if call(step):
            failed.append(str(step))
        failed += [f"make keep RUN={each}" for each in sorted(_ids(runs) - before) if keep(each)]
    return failed


def _ids(runs: Path) -> set[str]:
    return {path.name for path in runs.iterdir() if path.is_dir()} if runs.is_dir() else set()

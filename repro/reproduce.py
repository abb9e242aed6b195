"""Measures all that a host's page shows, one task after another, and keeps each run as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro.cases import Case

TASKS = ("preflight", "bench", "curves", "learn", "profile")
LEARNING = ("gpt", "resnet50")
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
    alone = [
        next((case.name for case in cases if case.model == model and case.layout.world_size == 1), None)
        for model in models
    ]
    found = {
        "preflight": [Step("preflight", {"ONLY": "kernels,allreduce"})],
        "bench": [Step("bench", {"MODEL": model}) for model in models],
        "curves": [Step("curves", {"MODEL": model}) for model in models],
        "learn": [Step("learn", {"MODEL": model}) for model in models if model in LEARNING],
        "profile": [
            Step("profile", {"MODEL": model, "CASES": name}) for model, name in zip(models, alone, strict=True) if name
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

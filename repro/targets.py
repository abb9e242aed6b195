"""What `make` and the set-up know of the tasks before anything is installed. Standard library only, Python 3.8+.

Which environments a task needs, the old names that still work, and the variables of make's command line. The tasks
themselves, with their options, are in `repro.cli`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

TESTING = ("cluster", "export", "image", "test")
"""The dependency groups that the tests need, and with which every target but `mutation` runs."""

GROUPS = (*TESTING, "mutation")
"""The dependency groups of pyproject.toml; without any, the controller is what `make bench` needs."""

TASK_GROUPS = {
    "archive": ("export",),
    "bundle": ("image",),
    "deprovision": ("cluster",),
    "e2e": TESTING,
    "fingerprint": ("cluster",),
    "image": ("image",),
    "image-check": ("image",),
    "image-reproduce": ("image",),
    "image-test": TESTING,
    "mutation": ("mutation", "test"),
    "new-cluster": ("cluster",),
    "pins": ("image",),
    "provision": ("cluster",),
    "report": ("export",),
    "reproduce": ("export",),
    "sbom": ("image",),
    "setup": TESTING,
    "test": TESTING,
}
"""The groups that a task needs; one that is not named here needs none."""

VARIABLE_GROUPS = {"CLUSTER": ("cluster",)}
"""The groups that any task needs where this variable is given: inventories are read through ansible-inventory."""

TRAINER_TASKS = (
    "bench",
    "compile-cache",
    "convergence",
    "curves",
    "e2e",
    "image-test",
    "preflight",
    "profile",
    "reproduce",
    "setup",
    "test",
)
"""The tasks that also need the trainer environment."""

RENAMED_TASKS = {
    "bundle-run": "archive",
    "keep": "archive",
    "learn": "convergence",
    "reproduced": "host-reports",
    "warm": "compile-cache",
}
"""Old name of a task -> its name. The old ones work for this release."""

RENAMED_VARIABLES = {
    "AT_ONCE": "JOBS",
    "DRY": "DRY_RUN",
    "FIT": "MAX_GPUS",
    "PEERS": "BASELINES",
    "PEER_PYTHON": "BASELINE_PYTHON",
    "SILENCE": "STALL_TIMEOUT",
}
"""Old name of a make variable -> its name. The old ones work for this release."""

REQUIRED_BY_OLD_NAME = {"keep": ("RUN", "HOST")}
"""Variables that an old name cannot do without, for its task would do something else."""

ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "DOCKER",
    "DOCKER_HOST",
    "OMP_NUM_THREADS",
    "PYTHON",
    "TRAINER_PYTHON",
    "UV_DEFAULT_INDEX",
)
"""Variables of make's command line that belong to the environment of the processes and are no task's options."""


def make_variables(flags: str) -> list[tuple[str, str]]:
    """The variables of make's command line as pairs of name and value, decoded from MAKEFLAGS.

    make writes them behind a word `--`, with a backslash before each blank and backslash and `$` doubled, and has not
    expanded the values. The variables that it exports to recipes, in contrast, it does expand.
    """
    arguments = re.findall(r"(?:[^\\ ]|\\.)+", flags, re.DOTALL)
    assignments = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    pairs = (re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL).replace("$$", "$").partition("=") for word in assignments)
    return [(name.rstrip(":"), value) for name, equals, value in pairs if equals]


def groups_of(task: str, variables: Mapping[str, str] | None = None) -> set[str]:
    """The dependency groups of the controller that a task needs when it is given these variables, a dict."""
    found = set(TASK_GROUPS.get(task, ()))
    for name, value in (variables or {}).items():
        found.update(VARIABLE_GROUPS.get(name, ()) if value else ())
    return found


def renamed(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The variables by today's names, as a dict, and the pairs of old and new name among them."""
    found: dict[str, str] = {}
    old: list[tuple[str, str]] = []
    for name, value in pairs:
        if name in RENAMED_VARIABLES:
            old.append((name, RENAMED_VARIABLES[name]))
        found[RENAMED_VARIABLES.get(name, name)] = value
    return found, old


def command_line(task: str, texts: Mapping[str, str]) -> str:
    """The make command with these values, for a shell."""
    return shlex.join(["make", task] + [f"{name}={value}" for name, value in texts.items()])

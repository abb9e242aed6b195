"""What an inventory may add to the environment of ranks, and what runs before them on a node."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache

from repro.utils.paths import DATA

OWN = re.compile(
    r"(LD_|PYTHON|GLOG_|APPTAINER|SINGULARITY|REPRODUCTION_|SLURM_|CUDA_VISIBLE_DEVICES$|PATH$|HOME$"
    r"|ATTENTION_OPERATOR$|CU(BLAS|DNN)_FORWARD_TF32$|NVIDIA_TF32_OVERRIDE$)"
)
OF_THE_LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NCCL_SOURCE = DATA / "nccl.toml"


@cache
def nccl_variables() -> tuple[str, ...]:
    """The variables that NCCL reads in one of the versions that ranks or baselines may have, sorted."""
    versions = tomllib.loads(NCCL_SOURCE.read_text(encoding="utf-8"))
    return tuple(sorted({name for names in versions.values() for name in names}))


def wrong_name(name: str) -> str:
    """Why ranks cannot be given a variable of this name; "" if they can."""
    if not NAME.fullmatch(name):
        return "it is no name of a variable"
    if OWN.match(name) or name in OF_THE_LAUNCHER:
        return "a run sets this itself"
    if name.startswith("NCCL_") and name not in nccl_variables():
        near = difflib.get_close_matches(name, nccl_variables(), 1)
        return "NCCL has no such variable" + (f"; did you mean {near[0]}?" if near else "")
    return ""


def wrong_environment(values: Mapping[str, object]) -> str:
    """What is wrong with an inventory's environment of ranks; "" if nothing."""
    for name, value in values.items():
        if why := wrong_name(str(name)):
            return f"{name}: {why}"
        if isinstance(value, bool) or not isinstance(value, str | int) or "\n" in str(value):
            return f"{name} is {value!r}; it is text or a number, in quotes where YAML would read something else"
    return ""


def after_prologue(lines: Sequence[str], argv: Sequence[str]) -> list[str]:
    """A command that runs after these lines of a login shell, such as `module load`; one that fails ends it.

    What the lines and the login shell's own files print goes to the standard error.
    """
    if not lines:
        return list(argv)
    script = "\n".join(["set -e", *lines, 'exec "$0" "$@" >&3 3>&-'])
    return ["sh", "-c", 'exec "$@" 3>&1 >&2', "sh", "bash", "-lc", script, *argv]

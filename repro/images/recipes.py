"""What the image of each stack is made of: those of the trainers on one Debian, that of the baselines on a newer one."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from repro.images.stack import ImageStack
from repro.utils.paths import CACHE

LAYOUT = CACHE / "image"
"""Where a build leaves the images of the trainers."""
BASELINE = "baseline"
"""The stack of the baselines: PyTorch and Megatron-Core of docker/baseline.lock."""
RecipeStack = Literal[ImageStack, "baseline"]


@dataclass(frozen=True)
class Recipe:
    """How the image of a stack is made.

    Attributes
    ----------
    suite, python : the Debian below it, and the version of its Python.
    lock : the file that pins its Python packages, in the repository.
    base, packages : the pins of its base image and of its Debian packages.
    layers : its layers by the names of their pins, the base first; above them is one with the project's own code.
    layout : the folder that a build leaves it in.
    needed_mib : the disk that layout, and the wheels of baselines, take on this machine; an engine needs more.
    probe : what reports its libraries when it runs in the image.
    """

    suite: str
    python: str
    lock: str
    base: str
    packages: str
    layers: tuple[str, ...]
    layout: Path
    needed_mib: int
    probe: tuple[str, ...]


_TRAINERS = Recipe(
    suite="bullseye",
    python="3.9",
    lock="docker/trainer.lock",
    base="base image",
    packages="Debian packages",
    layers=("base", "packages", "user", "environment", "folder"),
    layout=LAYOUT,
    needed_mib=2500,
    probe=("python", "/opt/repro/probe.py", "--image"),
)
RECIPES = {
    "cu102": replace(_TRAINERS, layers=(*_TRAINERS.layers, "nccl")),
    "cu102-modern": replace(_TRAINERS, layers=(*_TRAINERS.layers, "compat")),
    BASELINE: Recipe(
        suite="bookworm",
        python="3.11",
        lock="docker/baseline.lock",
        base="base image of the baselines",
        packages="Debian packages of the baselines",
        layers=tuple(f"baseline-{name}" for name in ("base", "packages", "user", "compiler", "environment", "folder")),
        layout=LAYOUT.with_name("image-baseline"),
        needed_mib=11600,
        probe=("python", "/opt/repro/packages.py", "--image"),
    ),
}
"""By the name of the stack. Stacks with one layout are built together."""


def stack_option(stack: str) -> str:
    """What `make image` and `make base` need for a stack that they do not build without being asked; "" for others."""
    return f" STACK={stack}" if stack == BASELINE else ""

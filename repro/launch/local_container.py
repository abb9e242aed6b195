"""An image on this machine, of trainers or baselines: which one it is, what its containers see, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from repro.bootstrap import answer
from repro.images.kernel_overlay import FOLDER
from repro.images.recipes import BASELINE, RECIPES, stack_option
from repro.images.runtime import (
    ALL_GPUS,
    IMAGE_PYTHON,
    RUNTIMES,
    Bind,
    Container,
    Runtime,
    baseline_home,
    check_runtime,
)
from repro.images.stack import IMAGE_STACKS, Stack, sif_path, tag_of
from repro.launch.agent.leftovers import RUN, USER, WORK, labels
from repro.launch.agent.node import image_file, image_ids, remove_containers
from repro.launch.agent.ranks import launcher_of
from repro.launch.check_programs import ProgramConfig
from repro.models.extensions import VARIABLE, folders
from repro.planning.program_data import STANDINS
from repro.utils.errors import ReproError
from repro.utils.paths import PACKAGE, ROOT, TRAINER, in_home

PASSED_ON = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", VARIABLE)
PREFIXES = ("NCCL_", "ONEFLOW_")
"""Variables of this environment that ranks in an image get as ranks in the venv do."""
NEWER = {"CUBLAS_FORWARD_LIBRARY": "/opt/cublas", "CUDNN_FORWARD_LIBRARY": "/opt/cudnn"}
"""The variables of a stack that name newer libraries, and where the image looks for them."""
CACHE_INSIDE = "/cache"
SITE_INSIDE = "/opt/venv/lib/python3.9/site-packages"
"""Where the image has OneFlow."""


class RuntimeUnavailable(ReproError):
    """Ranks cannot run in the image on this machine; the message says why and what to do."""


@dataclass(frozen=True)
class LocalContainer:
    """An image as this machine has it: of the trainers, or with stack `baseline` that of the baselines.

    Attributes
    ----------
    image : its ID in the engine, or the path of its file.
    sha256 : that of the file; "" in an engine, where the ID is one.
    """

    runtime: Runtime
    name: str
    image: str
    sha256: str
    version: str
    stack: Stack

    @classmethod
    def of(cls, name: str, stack: Stack, image: str | None = None, ask: bool = True) -> LocalContainer:
        """The image of a stack, or the one that is named: an engine's by name or ID, a SIF by its path.

        RuntimeUnavailable if it is not here; without `ask` nothing looks for it.
        """
        check_runtime(name, here=True)
        runtime, wanted = RUNTIMES[name], stack.name if stack.name in RECIPES else IMAGE_STACKS[0]
        option = stack_option(wanted)
        if runtime.from_file:
            path = in_home(image).resolve() if image else sif_path(wanted)
            if not ask:
                return cls(runtime, str(path), str(path), "", "", stack)
            facts = image_file(str(path), runtime.tool)
            if "error" in facts:
                raise RuntimeUnavailable(
                    f"RUNTIME={name}: {path}: {facts['error']}; `make image{option} FORMAT=sif` writes it"
                )
            return cls(runtime, str(path), str(path), facts["sha256"], _version(runtime.tool), stack)
        given = image or tag_of(wanted)
        if not ask:
            return cls(runtime, given, given, "", "", stack)
        ids = image_ids([given])
        if not (ids.get("found") or {}).get(given):
            why = ids.get("error", f"the engine has no such image; `make image{option}` builds it")
            raise RuntimeUnavailable(f"RUNTIME={name}: {given}: {why}")
        return cls(runtime, given, ids["found"][given], "", _version(runtime.tool), stack)

    @property
    def of_baselines(self) -> bool:
        return self.stack.name == BASELINE

    def record(self) -> dict:
        """What a run keeps of it."""
        description = {"name": self.runtime.name, "version": self.version, "image": self.name}
        return {**description, "sha256": self.sha256} if self.sha256 else {**description, "id": self.image}

    def command(
        self, folder: Path, config: ProgramConfig, environment: dict[str, str], name: str, script: Path
    ) -> list[str]:
        """The words in front of a program that is an attempt's, on all GPUs that `environment` shows."""
        cuda = config.device == "cuda"
        container = Container(
            image=self.image,
            folder=str(folder),
            binds=self._binds(folder, config, script),
            environment=self._environment(environment),
            user=f"{os.getuid()}:{os.getgid()}",
            compiles=self.of_baselines,
            gpus=ALL_GPUS if cuda else "",
            locks_memory=cuda,
            name=name,
            labels=((RUN, folder.name),),
        )
        return self._labelled(container)

    def check_mounts(self, runs: Path, configs: Iterable[ProgramConfig]) -> None:
        """PlanError if a path that these programs need cannot be mounted, with their attempts in the folder `runs`."""
        for config in configs:
            self.command(runs.absolute(), config, {}, "", TRAINER)

    def probe_command(self, gpus: bool) -> list[str]:
        """The words in front of a program that only says what the image has, with all GPUs or without."""
        container = Container(
            image=self.image,
            folder="/tmp",
            binds=(),
            environment=baseline_home(self.runtime),
            user=f"{os.getuid()}:{os.getgid()}",
            gpus=ALL_GPUS if gpus else "",
            locks_memory=gpus,
            name=f"reproduction-{secrets.token_hex(5)}-probe",
            labels=((RUN, "probe"),),
        )
        return self._labelled(container)

    def _labelled(self, container: Container) -> list[str]:
        argv = self.runtime.command(container)
        return [*argv[:2], *labels(str(ROOT)), *argv[2:]] if self.runtime.engine else argv

    def launcher_of(self, started: int, name: str, launcher: str) -> Callable[[], int]:
        """What finds the process of the launcher with this script, 0 until it runs."""
        container = name if self.runtime.engine else ""
        return launcher_of(started, container, [IMAGE_PYTHON, launcher] if self.runtime.wrapped else [])

    def end(self, name: str) -> None:
        """Remove a container of an engine, whatever its client did."""
        if self.runtime.engine:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                remove_containers(f"name=^/?{name}$", f"label={USER}={os.getuid()}", f"label={WORK}={ROOT}")

    def _environment(self, given: dict[str, str]) -> dict[str, str]:
        passed = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith(PREFIXES)}
        outside = {name for name in self.stack.environment if not name.startswith(PREFIXES)}
        own = {name: value for name, value in given.items() if name not in outside}
        own |= baseline_home(self.runtime) if self.of_baselines else {}
        return {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **passed, **own}

    def _binds(self, folder: Path, config: ProgramConfig, script: Path) -> tuple[Bind, ...]:
        """The code at the paths that it has here, the attempt's folder, stand-ins and data, libraries and compiled code."""
        read = {str(PACKAGE), str(script.parent), *(str(path) for path in folders())}
        read |= {config.data.own_folder} if config.data.own_folder else set()
        read = {path for path in read if not any(path != other and path.startswith(f"{other}/") for other in read)}
        STANDINS.mkdir(parents=True, exist_ok=True)
        binds = [*(Bind(path, path) for path in sorted(read)), Bind(str(STANDINS), str(STANDINS), True)]
        binds.append(Bind(str(folder), str(folder), True))
        given = self.stack.environment
        binds += [Bind(_folder(given[name]), target) for name, target in NEWER.items() if name in given]
        binds += _compiled(given.get("PYTHONPATH", "").partition(os.pathsep)[0])
        if cache := given.get("CUDA_CACHE_PATH"):
            Path(cache).mkdir(parents=True, exist_ok=True)
            binds.append(Bind(cache, CACHE_INSIDE, True))
        return tuple(binds)


def _compiled(overlay: str) -> list[Bind]:
    """The libraries of an overlay in place of the image's, which come from the same wheel or one that is equal in them."""
    own = sorted(path for path in (Path(overlay) / FOLDER).iterdir() if not path.is_symlink()) if overlay else []
    return [Bind(str(path), f"{SITE_INSIDE}/{FOLDER}/{path.name}") for path in own]


def _folder(library: str) -> str:
    path = Path(library)
    return str(path if path.is_dir() else path.parent)


def _version(tool: str) -> str:
    return answer([tool, "--version"]) or ""

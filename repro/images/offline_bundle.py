"""The bundle for places without a network: one folder with images, wheels, code, lists and checksums."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from repro.images.build import LAYOUT
from repro.images.oci_layout import CHUNK, Image, pack, read_layout
from repro.images.pins import Pins
from repro.images.sbom import FOLDER as SBOM
from repro.images.wheels import artefact_wheel, trainer_wheels
from repro.report.document import Code, Column, Document, Section, Table, Text, markdown, words
from repro.utils.errors import FAILED, ReproError
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.paths import ROOT

SUMS = "SHA256SUMS"
ARCHIVE = "images.tar"
PART = ".part-"


class BundleError(ReproError):
    """A bundle cannot be written, or is not whole; the message says what is wrong with which file."""

    status = FAILED


class Parts:
    """A file to write to, cut into parts of a given size; one file of its own name if that is enough."""

    def __init__(self, path: Path, part_bytes: int | None):
        self._path, self._limit = path, part_bytes
        self._file, self._room, self._count = None, 0, 0

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            if self._room == 0:
                self._next()
            piece = view[: self._room]
            self._file.write(piece)
            self._room -= len(piece)
            view = view[len(piece) :]
        return len(data)

    def _next(self) -> None:
        self.close()
        name = f"{self._path.name}{PART}{self._count:03}" if self._limit else self._path.name
        self._file = open(self._path.with_name(name), "wb")  # noqa: SIM115
        self._room, self._count = self._limit or 2**63, self._count + 1

    def close(self) -> None:
        if self._file:
            self._file.close()


def write_bundle(folder: Path, pins: Pins, part_mib: int | None = None) -> Path:
    """Write the bundle of what `make image` built last.

    Parameters
    ----------
    folder : must not exist yet.
    part_mib : files larger than this are cut into parts of this size; without it nothing is cut.
    """
    if not LAYOUT.exists():
        raise BundleError("there are no images; `make image` first")
    if folder.exists():
        raise BundleError(f"{folder} is there already; remove it or name another folder with BUNDLE=")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    limit = part_mib * 2**20 if part_mib else None
    images = Parts(partial / ARCHIVE, limit)
    pack(LAYOUT, images)
    images.close()
    _wheels(partial / "wheels", pins, limit)
    for source, name in (
        ("docker/trainer.lock", "trainer.lock"),
        ("docker/pins.toml", "pins.toml"),
        ("docker/build/apt.lock", "apt.lock"),
        ("docker/node-setup.sh", "setup.sh"),
    ):
        shutil.copy(ROOT / source, partial / name)
    if SBOM.exists():
        shutil.copytree(SBOM, partial / "sbom")
    _code(partial / "code.tar")
    described = read_layout(LAYOUT)
    names = {image.tag: {"id": image.id, "digest": image.digest} for image in described}
    (partial / "images.json").write_text(json.dumps(names, indent=1) + "\n")
    for language in LANGUAGES:
        name = "README.md" if language == "en" else f"README.{language}.md"
        (partial / name).write_text(markdown(readme(language, described, pins), partial))
    (partial / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in _sums(partial)))
    partial.rename(folder)
    return folder


def _wheels(folder: Path, pins: Pins, limit: int | None) -> None:
    folder.mkdir()
    wheels = sorted(trainer_wheels(pins).iterdir())
    wheels += [artefact_wheel(pins, name) for name in ("NCCL 2.7.8", "cuBLAS", "cuDNN", "uv")]
    for wheel in wheels:
        if limit and wheel.stat().st_size > limit:
            with open(wheel, "rb") as source:
                target = Parts(folder / wheel.name, limit)
                shutil.copyfileobj(source, target, CHUNK)
                target.close()
        else:
            _link(wheel, folder / wheel.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def _code(target: Path) -> None:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--output", str(target.resolve()), "HEAD"], capture_output=True, text=True
    )
    if done.returncode:
        raise BundleError(f"git cannot pack the code: {done.stderr.strip()}")


def _sums(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS):
        with open(path, "rb") as file:
            yield path.relative_to(folder).as_posix(), hashlib.file_digest(file, "sha256").hexdigest()


def check_bundle(folder: Path) -> list[str]:
    """What is wrong with a bundle, one sentence each: files missing, added or changed, images not those it names."""
    if not (folder / SUMS).is_file():
        return [f"{folder}/{SUMS} is missing: this is no bundle, or not a whole one"]
    lines = (folder / SUMS).read_text().splitlines()
    wanted = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = dict(_sums(folder))
    problems = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    problems += [f"{name} does not belong to the bundle" for name in sorted(found.keys() - wanted.keys())]
    problems += [
        f"{name} is not what it was: SHA-256 {found[name]}, wanted {wanted[name]}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name] != found[name]
    ]
    return problems or _check_images(folder)


def _check_images(folder: Path) -> list[str]:
    """Hold the archive to itself (each blob is named by its digest) and to images.json."""
    problems, digests = [], set()
    with tarfile.open(fileobj=_Joined(folder, ARCHIVE), mode="r|") as archive:
        for member in archive:
            if member.name == "index.json":
                digests = {entry["digest"] for entry in json.load(archive.extractfile(member))["manifests"]}
            elif member.isfile() and member.name.startswith("blobs/"):
                content = archive.extractfile(member)
                if hashlib.file_digest(content, "sha256").hexdigest() != Path(member.name).name:
                    problems.append(f"{ARCHIVE}: {member.name} is not what its name says")
    named = {entry["digest"] for entry in json.loads((folder / "images.json").read_text()).values()}
    if named != digests:
        problems.append(f"images.json names {sorted(named)}, {ARCHIVE} has {sorted(digests)}")
    return problems


class _Joined:
    """Reads a file of a bundle, whole or in parts, from its beginning to its end."""

    def __init__(self, folder: Path, name: str):
        whole = folder / name
        self._paths = [whole] if whole.exists() else sorted(folder.glob(f"{name}{PART}*"))
        self._file = None

    def read(self, size: int = -1) -> bytes:
        while True:
            data = self._file.read(size) if self._file else b""
            if data or not self._paths:
                return data
            if self._file:
                self._file.close()
            self._file = open(self._paths.pop(0), "rb")  # noqa: SIM115


def readme(language: str, images: list[Image], pins: Pins) -> Document:
    """What stands in the bundle's README."""
    _ = catalogue(language).gettext
    files = [
        ("setup.sh", _("sets a node up; needs a shell, `sha256sum`, and Docker or Python 3.9")),
        (ARCHIVE, _("the images: an OCI layout that `docker load` reads too")),
        ("wheels/", _("the Python packages, and the wheels that NCCL, cuBLAS, cuDNN and uv are taken from")),
        (
            "trainer.lock, apt.lock, pins.toml",
            _("what everything was held to while building; the Debian packages are in the images already"),
        ),
        ("code.tar", _("this project's code")),
        ("sbom/", _("bill of materials, licences and known vulnerabilities, if they were made")),
        (SUMS, _("SHA-256 of every file; `sha256sum --check SHA256SUMS` needs nothing else")),
    ]
    listed = tuple(words(f"`{name}`", text) for name, text in files)
    table = Table("files", (Column(_("File")), Column(_("Content"))), listed)
    rows = tuple(words(f"`{image.tag}`", f"`{image.id}`", f"`{image.digest}`") for image in images)
    columns = (Column(_("Image")), Column(_("Image ID (classic store)")), Column(_("Manifest digest")))
    return Document(
        language,
        _("Trainer environment for places without a network"),
        _(
            "This folder is all that a node needs. Large files may be in parts (`.part-000` and on); the script joins them."
        ),
        (
            Section(
                "setup",
                _("Setting a node up"),
                (
                    Text(_("With a Docker engine:")),
                    Code("sh setup.sh image"),
                    Text(_("Without one, with Python 3.9:")),
                    Code("sh setup.sh venv /opt/trainer"),
                    Text(
                        _(
                            "Both first check every file. On a GPU newer than Turing, the `cu102-modern` image also needs a "
                            "newer cuBLAS at `/opt/cublas` and a newer cuDNN at `/opt/cudnn`, both mounted: unzip them from the "
                            "`nvidia_cublas` and `nvidia_cudnn` wheels."
                        )
                    ),
                ),
            ),
            Section("images", _("The images"), (Table("images", columns, rows),)),
            Section("files", _("The files"), (table,)),
        ),
    )

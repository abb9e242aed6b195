"""The bundle for places without a network: one folder with images, wheels, code, lists and checksums."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from repro.images.build import LAYOUT
from repro.images.oci_layout import Image, is_complete, packed, read_layout, sha256_of
from repro.images.pins import Pins
from repro.images.sbom import FOLDER as SBOM
from repro.images.wheels import artefact_wheel, trainer_wheels
from repro.utils.errors import FAILED, ReproError
from repro.utils.i18n import LANGUAGES
from repro.utils.paths import ROOT, sha256

SUMS = "SHA256SUMS"
ARCHIVE = "images.tar"
TEMPLATES = Path(__file__).with_name("templates")


class BundleError(ReproError):
    """A bundle cannot be written; the message says why and what to do."""

    status = FAILED


def write_bundle(folder: Path, pins: Pins) -> Path:
    """Write the bundle of what `make image` built last, into a folder that must not exist yet."""
    if not is_complete(LAYOUT):
        raise BundleError("there are no images; `make image` first")
    if folder.exists():
        raise BundleError(f"{folder} exists already; remove it or name another folder with BUNDLE=")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with open(partial / ARCHIVE, "wb") as archive:
        archive.writelines(packed(LAYOUT))
    _wheels(partial / "wheels", pins)
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
    images = read_layout(LAYOUT)
    names = {image.tag: {"id": image.id, "digest": image.digest} for image in images}
    (partial / "images.json").write_text(json.dumps(names, indent=1) + "\n")
    for language in LANGUAGES:
        name = "README.md" if language == "en" else f"README.{language}.md"
        (partial / name).write_text(readme(language, images, SBOM.exists()), encoding="utf-8")
    (partial / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in _sums(partial).items()))
    partial.rename(folder)
    return folder


def _wheels(folder: Path, pins: Pins) -> None:
    folder.mkdir()
    wheels = sorted(trainer_wheels(pins).iterdir())
    wheels += [artefact_wheel(pins, name) for name in ("NCCL 2.7.8", "cuBLAS", "cuDNN", "uv")]
    for wheel in wheels:
        try:
            os.link(wheel, folder / wheel.name)
        except OSError:
            shutil.copy(wheel, folder / wheel.name)


def _code(target: Path) -> None:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--output", str(target.resolve()), "HEAD"], capture_output=True, text=True
    )
    if done.returncode:
        raise BundleError(f"git cannot pack the code: {done.stderr.strip()}")


def _sums(folder: Path) -> dict[str, str | None]:
    """The SHA-256 of each file of a bundle by its name; None for a link, which does not belong there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def check_bundle(folder: Path) -> list[str]:
    """Faults of a bundle, one sentence each: missing, added or changed files, or images other than those it names."""
    if not (folder / SUMS).is_file():
        return [f"{folder}/{SUMS} is missing: this is no bundle, or an incomplete one"]
    lines = (folder / SUMS).read_text().splitlines()
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = _sums(folder)
    problems = [f"{name} is missing" for name in sorted(recorded.keys() - found.keys())]
    problems += [f"{name} does not belong to the bundle" for name in sorted(found.keys() - recorded.keys())]
    problems += [
        f"{name} was changed: its SHA-256 is {found[name]}, recorded is {recorded[name]}"
        for name in sorted(recorded.keys() & found.keys())
        if recorded[name] != found[name]
    ]
    return problems or _check_images(folder)


def _check_images(folder: Path) -> list[str]:
    """Compare the archive with itself (each blob is named by its digest) and with images.json."""
    problems: list[str] = []
    digests: set[str] = set()
    with tarfile.open(folder / ARCHIVE, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content and member.name == "index.json":
                digests = {entry["digest"] for entry in json.load(content)["manifests"]}
            elif content and member.name.startswith("blobs/") and sha256_of(content) != Path(member.name).name:
                problems.append(f"{ARCHIVE}: the content of {member.name} does not have that digest")
    named = {entry["digest"] for entry in json.loads((folder / "images.json").read_text()).values()}
    if named != digests:
        problems.append(f"images.json names {sorted(named)}, {ARCHIVE} has {sorted(digests)}")
    return problems


def readme(language: str, images: Sequence[Image], sbom: bool) -> str:
    """The bundle's README; `sbom` says whether the folder with the bill of materials is part of it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    template = environment.get_template(f"bundle.{language}.md.j2")
    return template.render(images=images, archive=ARCHIVE, sums=SUMS, sbom=sbom)

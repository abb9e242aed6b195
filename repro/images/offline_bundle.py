"""The bundle for places without a network: one folder with images, wheels, code, lists and checksums."""

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from repro.images.oci_layout import is_complete, packed, read_layout, sha256_of
from repro.images.offline_folder import SUMS, OfflineError, new_folder, sum_faults, write_readmes
from repro.images.pins import Pins
from repro.images.recipes import LAYOUT
from repro.images.sbom import FOLDER as SBOM
from repro.images.wheels import artefact_wheel, trainer_wheels
from repro.utils.paths import ROOT

ARCHIVE = "images.tar"


def write_bundle(folder: Path, pins: Pins) -> Path:
    """Write the bundle of what `make image` built last, into a folder that must not exist yet."""
    if not is_complete(LAYOUT):
        raise OfflineError("there are no images; `make image` first")
    with new_folder(folder, "BUNDLE") as partial:
        with open(partial / ARCHIVE, "wb") as archive:
            archive.writelines(packed(LAYOUT))
        _wheels(partial / "wheels", pins)
        for source, name in (
            ("docker/trainer.lock", "trainer.lock"),
            ("docker/pins.toml", "pins.toml"),
            ("docker/build/apt-bullseye.lock", "apt.lock"),
            ("docker/node-setup.sh", "setup.sh"),
        ):
            shutil.copy(ROOT / source, partial / name)
        if SBOM.exists():
            shutil.copytree(SBOM, partial / "sbom")
        _code(partial / "code.tar")
        images = read_layout(LAYOUT)
        names = {image.tag: {"id": image.id, "digest": image.digest} for image in images}
        (partial / "images.json").write_text(json.dumps(names, indent=1) + "\n")
        write_readmes(partial, "bundle", images=images, archive=ARCHIVE, sbom=SBOM.exists())
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
        raise OfflineError(f"git cannot pack the code: {done.stderr.strip()}")


def check_bundle(folder: Path) -> list[str]:
    """Faults of a bundle, one sentence each: missing, added or changed files, or images other than those it names."""
    if not (folder / SUMS).is_file():
        return [f"{folder}/{SUMS} is missing: this is no bundle, or an incomplete one"]
    return sum_faults(folder) or _check_images(folder)


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

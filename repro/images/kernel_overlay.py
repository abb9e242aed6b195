"""The wheel's libraries with GPU code that was compiled ahead of the first start, for one architecture.

The wheel holds machine code up to Turing, and PTX that the driver compiles on later GPUs: for minutes, on each host. An
overlay has copies of OneFlow's library and of cuDNN's in which the compiled code takes the place of the code for older
GPUs, in every fatbin; all else in them is the wheel's, at the same place. NCCL's code is relocatable, so its pieces are
compiled and then linked. Python imports `oneflow` from the overlay, where all other files are links to the wheel, which
stays as it is.
"""

import base64
import csv
import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path

from repro.utils.errors import FAILED, ReproError
from repro.utils.paths import CACHE, TRAINER_PYTHON, sha256, sha256_of

OVERLAYS = CACHE / "overlay"
DESCRIPTION = "overlay.json"
FOLDER = "oneflow.libs"
LIBRARIES = ("liboneflow-*.so", "libcudnn-*.so*")
"""Those of the wheel's libraries that have GPU code."""
AGAIN = "remove it, or make it again with `make compile-kernels`"


class OverlayError(ReproError):
    """GPU code cannot be compiled, or an overlay is not usable; the message says which, and what to do."""

    status = FAILED


@dataclass(frozen=True)
class Overlay:
    """An overlay: where it is, its architecture, such as 90, and the SHA-256 of what describes it.

    `compiled` counts the fatbins with new code, `left` those that kept their PTX for lack of room.
    """

    folder: Path
    architecture: int
    digest: str
    compiled: int
    left: int

    def text(self) -> str:
        """What a run's record says of it."""
        left = f", {self.left} fatbins left to the driver" if self.left else ""
        return f"GPU code compiled ahead for sm_{self.architecture}: overlay {self.digest[:12]}{left}"

    def record(self) -> dict:
        """What an offline kit that has its libraries says of it."""
        return {"architecture": self.architecture, "digest": self.digest, "left": self.left, "text": self.text()}


def trainer_site() -> Path | None:
    """The site-packages of the trainer environment, if OneFlow is there."""
    folders = TRAINER_PYTHON.parent.parent.glob("lib/python3*/site-packages/oneflow.libs")
    return next((path.parent for path in folders), None)


def libraries_of(site: Path) -> dict[str, Path]:
    """The wheel's libraries with GPU code, by name."""
    paths = [path for pattern in LIBRARIES for path in sorted((site / FOLDER).glob(pattern))]
    return {path.name: path for path in paths}


def wheel_hashes(site: Path) -> dict[str, str]:
    """The SHA-256 of these libraries that the wheel's RECORD states, in hexadecimal."""
    stated = {}
    for record in site.glob("oneflow-*.dist-info/RECORD"):
        with open(record, newline="") as file:
            for name, digest, _ in csv.reader(file):
                if name.startswith(f"{FOLDER}/") and digest.startswith("sha256="):
                    stated[name.partition("/")[2]] = base64.urlsafe_b64decode(digest[7:] + "==").hex()
    return {name: stated.get(name, "") for name in libraries_of(site)}


def overlay_for(architecture: int, site: Path | None = None, overlays: Path | None = None) -> Overlay | None:
    """The overlay for GPUs of this architecture, None if none was made.

    Raises
    ------
    OverlayError
        It is damaged, or was made for another wheel.
    """
    site, overlays = site or trainer_site(), overlays or OVERLAYS
    folders = sorted(overlays.glob(f"sm_{architecture}-*")) if site else []
    folders = [folder for folder in folders if not folder.name.endswith(".partial")]
    if not folders or site is None:
        return None
    if len(folders) > 1:
        raise OverlayError(f"{overlays} has several overlays for sm_{architecture}; keep one of them")
    return _verified(folders[0], site)


@functools.cache
def _verified(folder: Path, site: Path) -> Overlay:
    """The overlay in a folder, once all of it was held to its digest; once per process."""
    overlay, content = described(folder)
    if content["wheel"] != wheel_hashes(site):
        raise OverlayError(f"{folder} was made for another wheel than the installed one; {AGAIN}")
    for name, digest in content["libraries"].items():
        if sha256(folder / FOLDER / name) != digest:
            raise OverlayError(f"{folder}: {name} is missing or damaged; {AGAIN}")
    link(folder, site)
    return overlay


def described(folder: Path) -> tuple[Overlay, dict]:
    """An overlay with its description, which its name vouches for."""
    try:
        text = (folder / DESCRIPTION).read_bytes()
        content = json.loads(text)
        overlay = Overlay(folder, content["architecture"], sha256_of(text), content["compiled"], content["left"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OverlayError(f"{folder}: {DESCRIPTION} cannot be read: {error}; {AGAIN}") from error
    if folder.name != name_of(overlay):
        raise OverlayError(f"{folder}: {DESCRIPTION} is damaged, its SHA-256 is {overlay.digest}; {AGAIN}")
    return overlay, content


def name_of(overlay: Overlay) -> str:
    """What an overlay's folder is called."""
    return f"sm_{overlay.architecture}-{overlay.digest[:16]}"


def link(folder: Path, site: Path) -> None:
    """Make the package in an overlay's folder: links to the wheel's files, beside the libraries that are there."""
    for part in ("oneflow", FOLDER):
        (folder / part).mkdir(exist_ok=True)
        for source in (site / part).iterdir():
            target = folder / part / source.name
            if source.name == "__pycache__" or (target.exists() and not target.is_symlink()):
                continue
            if not target.is_symlink() or os.readlink(target) != str(source):
                target.unlink(missing_ok=True)
                target.symlink_to(source)

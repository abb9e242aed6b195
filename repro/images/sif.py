"""SIF files for Apptainer, built from the OCI layout that `make image` writes, and what is recorded of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from repro.images.engine import ImageError
from repro.images.oci_layout import LayoutImage, lone_image
from repro.images.stack import sif_path
from repro.utils.paths import sha256

LINES_OF_ERROR = 5


@dataclass(frozen=True)
class Sif:
    """A SIF: its file and SHA-256, the ID of the image in it, and what built it.

    Two builds of one image differ: Apptainer writes identifiers and times of its own into each.
    """

    file: str
    sha256: str
    image: str
    built_with: str


def build_sif(layout: Path, image: LayoutImage, stack: str, epoch: int) -> Sif:
    """Build the SIF of an image that is in a layout, next to a JSON file that describes it; ImageError says why not."""
    target = sif_path(stack)
    target.parent.mkdir(parents=True, exist_ok=True)
    tool = shutil.which("apptainer")
    if tool is None:
        raise ImageError("FORMAT=sif: apptainer is not installed; distributions and its releases have packages")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    partial = target.with_suffix(".partial")
    with lone_image(layout, image) as alone:  # some versions of Apptainer read no tag behind a path
        command = [tool, "build", "--force", str(partial), f"oci:{alone}"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        partial.unlink(missing_ok=True)
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ImageError(f"{target.name} cannot be built:\n" + "\n".join(lines[-LINES_OF_ERROR:]))
    partial.replace(target)
    made = Sif(str(target), sha256(target) or "", image.id, version)
    target.with_suffix(".json").write_text(json.dumps(asdict(made), indent=1) + "\n", encoding="utf-8")
    return made

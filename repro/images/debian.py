"""A minimal Debian for engines that can ask no registry, made by debootstrap."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from repro.images.build import say
from repro.images.engine import Engine, ImageError
from repro.utils.paths import CACHE

SUITE = "bullseye"
"""The Debian of the trainer images, for which docker/build/apt.lock has the packages."""
BASE = "oneflow-reproduction-base:bullseye"
ARCHIVE = "http://deb.debian.org/debian"
LINES_OF_ERROR = 15
# What an official slim image leaves out too.
LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/locale", "usr/share/man", "usr/share/info")


def make_base(mirror: str = "") -> str:
    """Make a base image for `make image` from a mirror of Debian, and give it to the engine; its name there.

    ImageError if debootstrap, root or the engine is missing, or a mirror does not serve the suite.
    """
    if shutil.which("debootstrap") is None:
        raise ImageError("debootstrap is missing: install it (sudo apt-get install debootstrap)")
    if os.geteuid():
        raise ImageError("debootstrap needs root: sudo make base")
    engine = Engine.connect()
    CACHE.mkdir(parents=True, exist_ok=True)
    say(f"making Debian {SUITE} from {mirror or ARCHIVE}")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        engine.import_root(pack_debian(SUITE, mirror or ARCHIVE, Path(folder)), BASE)
    return BASE


def pack_debian(suite: str, mirror: str, folder: Path) -> Path:
    """A tar of the root folder of a suite, as `docker import` takes it, in a folder."""
    root, archive = folder / f"root-{suite}", folder / f"root-{suite}.tar"
    shutil.rmtree(root, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", suite, str(root), mirror]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-LINES_OF_ERROR:])
        raise ImageError(f"debootstrap cannot make {suite} from {mirror}; DEBIAN=<mirror> names another:\n{end}")
    for name in LEFT_OUT:
        shutil.rmtree(root / name)
        (root / name).mkdir()
    with tarfile.open(archive, "w") as target:
        target.add(root, arcname=".")
    shutil.rmtree(root)
    return archive

"""A minimal Debian for engines that can ask no registry, made by debootstrap: the same bytes on every machine and day."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from repro.images.build import base_tag, say
from repro.images.engine import Engine, ImageError
from repro.images.oci_layout import plain
from repro.images.pins import load_pins
from repro.images.recipes import RECIPES
from repro.utils.paths import CACHE, sha256

ARCHIVE = "http://deb.debian.org/debian"
LINES_OF_ERROR = 15
# What an official slim image leaves out too.
LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/locale", "usr/share/man", "usr/share/info")
# What debootstrap takes from the machine that it runs on, or what tells when it ran; an engine gives its own of these.
ACCIDENTS = (
    "etc/hostname",
    "etc/resolv.conf",
    "etc/machine-id",
    "etc/.pwd.lock",
    "etc/*-",
    "var/cache/ldconfig/aux-cache",
    "var/cache/debconf/*-old",
    "var/lib/dpkg/*-old",
    "var/lib/dpkg/lock*",
    "debootstrap",
)
DAY_S = 86400


def make_base(stack: str, mirror: str = "") -> str:
    """Make the base of a stack's image from a mirror of Debian, and give it to the engine; its name there.

    ImageError if debootstrap, root or the engine is missing, or a mirror does not serve the suite.
    """
    if shutil.which("debootstrap") is None:
        raise ImageError("debootstrap is missing: install it (sudo apt-get install debootstrap)")
    if os.geteuid():
        raise ImageError("debootstrap needs root: sudo make base")
    engine = Engine.connect()
    CACHE.mkdir(parents=True, exist_ok=True)
    recipe, base = RECIPES[stack], base_tag(stack)
    say(f"making Debian {recipe.suite} from {mirror or ARCHIVE}")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        pins = load_pins()
        archive = pack_debian(recipe.suite, mirror or ARCHIVE, Path(folder), pins.source_date_epoch)
        engine.import_root(archive, base)
        digest = sha256(archive)
    pinned = pins.layers[recipe.layers[0]]
    same = "as pinned" if digest == pinned else f"NOT as pinned ({pinned}): images on it differ"
    say(f"{base}: {digest}, {same}")
    return base


def pack_debian(suite: str, mirror: str, folder: Path, epoch: int) -> Path:
    """A tar of the root folder of a suite, as `docker import` takes it, in a folder; no time in it is after `epoch`.

    It depends on the packages that the mirror has, which no longer change for a closed suite, and on nothing else.
    """
    root, archive = folder / f"root-{suite}", folder / f"root-{suite}.tar"
    debootstrap(suite, mirror, root)
    for name in LEFT_OUT:
        shutil.rmtree(root / name)
        (root / name).mkdir()
    _remove_accidents(root, suite, epoch)
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as target:
        target.add(root, arcname=".", filter=lambda member: plain(member, epoch))
    shutil.rmtree(root)
    return archive


def debootstrap(suite: str, mirror: str, root: Path, packages: Sequence[str] = ()) -> None:
    """Make a minimal root folder of a suite with these packages besides; ImageError says why it cannot be made.

    What debootstrap mounts in it, it sometimes leaves mounted, as when it is killed, or a program looks at the files: here
    no other process sees these mounts, and they end with it.
    """
    shutil.rmtree(root, ignore_errors=True)
    if mirror.startswith("-"):
        raise ImageError(f"DEBIAN={mirror}: it is the address of a mirror")
    include = [f"--include={','.join(packages)}"] if packages else []
    command = ["unshare", "--mount", "debootstrap", "--variant=minbase", "--arch=amd64"]
    command += [*include, suite, str(root), mirror]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-LINES_OF_ERROR:])
        raise ImageError(f"debootstrap cannot make {suite} from {mirror}; DEBIAN=<mirror> names another:\n{end}")


def _remove_accidents(root: Path, suite: str, epoch: int) -> None:
    for pattern in ACCIDENTS:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "etc/apt/sources.list").write_text(f"deb {ARCHIVE} {suite} main\n")
    shadow = root / "etc/shadow"  # its third field is the day on which a password was set
    shadow.write_text(re.sub(r"(?m)^([^:]*:[^:]*:)\d+:", rf"\g<1>{epoch // DAY_S}:", shadow.read_text()))

"""A minimal Debian for engines that can ask no registry, made by debootstrap."""

import shutil
import subprocess
import tarfile
from pathlib import Path

# What an official slim image leaves out too.
LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/locale", "usr/share/man", "usr/share/info")


def pack_debian(suite: str, mirror: str, folder: Path) -> Path:
    """A tar of the root folder of a suite, as `docker import` takes it, in a folder."""
    root, archive = folder / f"root-{suite}", folder / f"root-{suite}.tar"
    shutil.rmtree(root, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", suite, str(root), mirror]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"debootstrap {suite}:\n{(done.stdout + done.stderr)[-3000:]}")
    for name in LEFT_OUT:
        shutil.rmtree(root / name)
        (root / name).mkdir()
    with tarfile.open(archive, "w") as target:
        target.add(root, arcname=".")
    shutil.rmtree(root)
    return archive

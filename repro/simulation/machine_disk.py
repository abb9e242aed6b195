"""The disks of simulated machines: one that boots a freshly installed distribution, one with the trainer image for Docker.

Both are made once and kept; machines start from copies on write. The packages of the first are pinned by their SHA-256, so
any archive that still has them will do.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from repro.images.debian import LEFT_OUT, debootstrap
from repro.simulation.distributions import FILES, PACKAGES, Distribution
from repro.simulation.engine import SimulationEngineError, start
from repro.simulation.images import trainer_image, trainer_layout
from repro.simulation.mirror import ARCHIVES
from repro.simulation.places import HOME
from repro.simulation.seed import seed
from repro.utils.paths import sha256

DISKS = HOME / "disks"
NEEDED = {"debootstrap": "debootstrap", "chroot": "coreutils", "mke2fs": "e2fsprogs", "ssh-keygen": "openssh-client"}
"""The programs that making disks takes, with the Debian packages that have them."""
INSTALLED = {
    "make-disk.sh": "root/make-disk.sh",
    "machine.sh": "usr/local/sbin/machine.sh",
    "machine.service": "etc/systemd/system/machine.service",
    "soft-roce.service": "etc/systemd/system/soft-roce.service",
    "10-control.network": "etc/systemd/network/10-control.network",
}
"""Where these files go."""
SIZE_GIB = 20
"""What a machine may write to a disk; a file takes what was written to it."""
SHOWN = 5


@dataclass(frozen=True)
class Disk:
    """A made disk, with the kernel and the initial RAM disk that boot it."""

    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "disk.img"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"


def system_disk_of_these_files(distribution: Distribution) -> Disk:
    """Where the disk that machines boot from is, once it is made of the files as they are now."""
    content = hashlib.sha256(repr((distribution, PACKAGES, INSTALLED, SIZE_GIB)).encode())
    for path in (*(FILES / name for name in sorted(INSTALLED)), distribution.lock):
        content.update(f"{path.name} {path.stat().st_mode} ".encode() + path.read_bytes())
    return Disk(DISKS / f"{distribution.suite}-{content.hexdigest()[:12]}")


def system_disk(distribution: Distribution) -> Disk:
    """That disk, made unless it is there; EngineError says why it cannot be."""
    disk = system_disk_of_these_files(distribution)
    if not disk.kernel.exists():
        scratch = _scratch()
        root = _make_root(scratch / "root", distribution)
        differing = _differing(root, distribution.lock)
        if differing:
            names = ", ".join(differing[:SHOWN]) + (" …" if len(differing) > SHOWN else "")
            raise SimulationEngineError(
                f"{len(differing)} packages of {ARCHIVES[distribution.archive]} are not those of {distribution.lock}: {names}. "
                f"{distribution.archive.upper()}=<mirror> names an archive that has them, such as a snapshot; "
                "`python -m repro.simulation.machines lock` pins these"
            )
        _finish(root)
        for name, file in (("vmlinuz-*", disk.kernel), ("initrd.img-*", disk.initrd)):
            (made,) = (root / "boot").glob(name)
            shutil.copy(made, scratch / file.name)
        _write_disk(root, scratch / disk.image.name)
        shutil.rmtree(root)
        _keep(scratch, disk.folder)
    return disk


def lock(distribution: Distribution) -> None:
    """Pin the packages that the archive has now."""
    root = _make_root(_scratch() / "root", distribution)
    distribution.lock.write_text("".join(f"{line}\n" for line in _packages(root)))
    shutil.rmtree(root.parent)


def docker_disk_of(image: str) -> Path:
    """The disk for /var/lib/docker that has the trainer image with this ID."""
    return DISKS / f"docker-{image.removeprefix('sha256:')[:12]}" / "disk.img"


def image_with_disk() -> str | None:
    """The ID of the trainer image of the tree, if there is a disk with it."""
    built = trainer_layout()
    return built[1].id if built and docker_disk_of(built[1].id).exists() else None


def docker_disk() -> str:
    """Make a disk with the trainer image, as `make image STACK=cu102` builds it from the tree, unless it is there; its ID."""
    if image := image_with_disk():
        return image
    image = trainer_image(start())
    folder = docker_disk_of(image).parent
    if not folder.exists():
        scratch = _scratch()
        seed(HOME / "data", scratch / "root", image)
        _write_disk(scratch / "root", scratch / "disk.img", "docker")
        shutil.rmtree(scratch / "root")
        _keep(scratch, folder)
    return image


def _scratch() -> Path:
    """An empty folder; what an interrupted build left in it is removed."""
    folder = DISKS / "making"
    if folder.exists():
        subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)
    folder.mkdir(parents=True)
    return folder


def _keep(made: Path, folder: Path) -> None:
    """Give a disk its name, and remove those that other files had made."""
    kind = folder.name.partition("-")[0]
    for old in DISKS.glob(f"{kind}-*"):
        shutil.rmtree(old)
    made.rename(folder)


def _make_root(root: Path, distribution: Distribution) -> Path:
    mirror = ARCHIVES[distribution.archive]
    debootstrap(distribution.suite, mirror, root, PACKAGES)
    for name, target in INSTALLED.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FILES / name, root / target)
    done = subprocess.run(
        ["chroot", str(root), "sh", "/root/make-disk.sh"],
        env={
            "ARCHIVE": mirror,
            "NAME": distribution.archive,
            "SUITE": f"{distribution.suite} {distribution.components}",
            "KERNEL": " ".join(distribution.kernel),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SimulationEngineError(
            f"{distribution.suite} cannot be made to boot:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return root


def _packages(root: Path) -> list[str]:
    """A line of SHA-256 and file name for each package that the root was made of, as sha256sum writes it."""
    archives = sorted((root / "var/cache/apt/archives").glob("*.deb"))
    return [f"{sha256(path)}  {path.name}" for path in archives]


def _differing(root: Path, lock: Path) -> list[str]:
    """The names of packages that the lock does not have, or has with another SHA-256."""
    pinned = set(lock.read_text().splitlines())
    return [line.split()[1] for line in _packages(root) if line not in pinned]


def _finish(root: Path) -> None:
    """Remove what a fresh machine does not have: packages' files, documents, the script that made it."""
    for name in LEFT_OUT:
        shutil.rmtree(root / name)
        (root / name).mkdir()
    (root / "var/log/journal").mkdir()
    (root / "root/make-disk.sh").unlink()


def _write_disk(root: Path, disk: Path, label: str = "system") -> None:
    """A file system with what is in a folder; its size is the most that it can hold."""
    with open(disk, "wb") as file:
        os.truncate(file.fileno(), SIZE_GIB << 30)
    options = ["-q", "-t", "ext4", "-i", "32768", "-m", "0", "-L", label, "-E", "assume_storage_prezeroed=1"]
    done = subprocess.run(["mke2fs", *options, "-d", str(root), str(disk)], capture_output=True, text=True)
    if done.returncode:
        raise SimulationEngineError(f"mke2fs cannot write {disk}: {done.stderr.strip()}")

"""The distributions that simulated machines boot, and the packages that each disk is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FILES = Path(__file__).resolve().parent / "machine"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "libpam-systemd",
    "udev",
    "dbus",
    "kmod",
    "initramfs-tools",
    "zstd",
    "openssh-server",
    "sudo",
    "python3",
    "python3-apt",
    "gnupg",
    "ca-certificates",
    "iproute2",
    "iputils-ping",
    "iptables",
    "procps",
    "netbase",
)
"""What an installed server has, besides the kernel and a minimal system."""


@dataclass(frozen=True)
class Distribution:
    """One release of a distribution.

    `archive` names its package archive in `repro.simulation.mirror`, `components` the parts of it that machines install from.
    `kernel` lists the packages of its kernel, including the InfiniBand drivers.
    """

    suite: str
    archive: str
    components: str
    kernel: tuple[str, ...]

    @property
    def lock(self) -> Path:
        """The file that pins its packages by their SHA-256."""
        return FILES / f"packages-{self.suite}.lock"


DISTRIBUTIONS = {
    "debian": Distribution("bookworm", "debian", "main", ("linux-image-amd64",)),
    "ubuntu": Distribution(
        "jammy",
        "ubuntu",
        "main universe",
        ("linux-image-5.15.0-25-generic", "linux-modules-extra-5.15.0-25-generic"),
    ),
}

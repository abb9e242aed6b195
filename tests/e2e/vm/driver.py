"""A package that stands in for the vendor's driver: a kernel module of that name and version, which drives nothing."""

import shutil
import subprocess
from pathlib import Path

from repro.simulation.places import HOME
from repro.simulation.qemu import ARCHIVE_ADDRESS
from tests.e2e.vendor import Repository

SOURCE = """#include <linux/module.h>
static int __init begin(void) { return 0; }
static void __exit end(void) { }
module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_VERSION("%s");
"""


def headers(kernel: str) -> Path:
    """Where this machine has the headers of the machines' kernel, once linux-headers-KERNEL is installed."""
    return Path("/lib/modules") / kernel / "build"


def build_module(folder: Path, kernel: str, version: str) -> bytes:
    """The module `nvidia` of a version, for a kernel."""
    (folder / "nvidia.c").write_text(SOURCE % version)
    (folder / "Makefile").write_text("obj-m := nvidia.o\n")
    command = ["make", "-C", str(headers(kernel)), f"M={folder}", "modules"]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "nvidia.ko").read_bytes()


def driver_repository(folder: Path, kernel: str, version: str) -> Repository:
    """A signed repository with cuda-drivers in this version, as machines find it; `remove` it in the end."""
    made = Repository(HOME / "web/vm-driver", f"http://{ARCHIVE_ADDRESS.removesuffix(':80')}/vm-driver")
    made.remove()
    made.folder.mkdir(parents=True)
    root = folder / "package"
    module = root / f"lib/modules/{kernel}/updates/nvidia.ko"
    for path, content in {
        module: build_module(folder, kernel, version),
        root / "etc/modules-load.d/nvidia.conf": b"nvidia\n",
        root / "DEBIAN/control": (
            f"Package: cuda-drivers\nVersion: {version}-1\nArchitecture: amd64\n"
            "Maintainer: Nobody <nobody@example.org>\nDescription: a module that drives nothing, for tests\n"
        ).encode(),
        root / "DEBIAN/postinst": f"#!/bin/sh\nexec depmod {kernel}\n".encode(),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / "DEBIAN/postinst").chmod(0o755)
    target = made.folder / f"cuda-drivers_{version}-1_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, target], check=True, capture_output=True)
    made.publish()
    shutil.rmtree(root)
    return made

"""Finds the CUPTI of this node, with which a rank's kernels are traced; needs Python 3.8 alone."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess

OLDEST = 11
TOOLKITS = ("/usr/local/cuda*/targets/*/lib", "/usr/local/cuda*/extras/CUPTI/lib64")
BY_VERSION = "libcupti.so.1*"
"""Other names of the toolkits' libraries hold a year."""


def link_cupti(order: dict[str, str]) -> None:
    """Let the path `link` be the CUPTI that `given` names, or the one that is found; OSError if there is none."""
    if order:
        os.symlink(os.path.realpath(find_cupti(order["given"])), order["link"])


def find_cupti(given: str = "", toolkits: tuple[str, ...] = TOOLKITS) -> str:
    """A CUPTI of version 11 or later: the file, or of the folder, that is given, the newest toolkit's or the loader's.

    OSError if there is none.
    """
    if given:
        library = given if os.path.isfile(given) else newest(glob.glob(os.path.join(given, "libcupti.so.*")))
        if not library:
            raise OSError(
                f"CUPTI={given}: on a cluster it is a libcupti.so of version {OLDEST} or later on its nodes, or a "
                "folder there that holds one"
            )
        return library
    library = newest([path for folder in toolkits for path in glob.glob(os.path.join(folder, BY_VERSION))])
    library = library or newest(of_the_loader())
    if not library:
        raise OSError(
            "a GPU's kernels are traced with CUPTI, a part of the CUDA toolkit, and none was found there; "
            f"CUPTI=<folder> names a folder of the nodes that holds libcupti.so.{OLDEST} or later"
        )
    return library


def newest(paths: list[str]) -> str:
    """The path with the highest version of those that are new enough, "" if none is."""
    versions = {path: [int(part) for part in re.findall(r"\d+", path.rpartition(".so.")[2])] for path in paths}
    return max((path for path in paths if versions[path][:1] >= [OLDEST]), key=lambda path: versions[path], default="")


def of_the_loader() -> list[str]:
    """The versions that the dynamic loader knows."""
    tool = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    if tool is None:
        return []
    listing = subprocess.run(
        [tool, "-p"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    ).stdout
    return [line.rpartition(" => ")[2] for line in listing.splitlines() if "libcupti.so." in line]

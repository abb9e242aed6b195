"""Programs in the place of the trainers', and a GPU as far as nvidia-smi tells."""

import shutil
from pathlib import Path

from tests.support.paths import STANDIN

CAPABILITIES = {"Tesla V100-SXM2-16GB": "7.0", "NVIDIA H200": "9.0"}
TOOL = """#!/bin/sh
case "$*" in
*compute_cap*) echo {capability};;
*name,driver_version*) echo "{name}, {driver}, GPU-1";;
*) exit 1;;
esac
"""


def lay_gpu(folder: Path, name: str, driver: str = "535.183.06") -> None:
    """A tool in a folder that is on PATH, which shows one GPU."""
    folder.mkdir(exist_ok=True)
    tool = folder / "nvidia-smi"
    tool.write_text(TOOL.format(name=name, driver=driver, capability=CAPABILITIES[name]))
    tool.chmod(0o755)


def standins(folder: Path) -> Path:
    """A trainer that trains nothing, with the program that compares operators beside it."""
    folder.mkdir(exist_ok=True)
    shutil.copy(STANDIN, folder / "run.py")
    shutil.copy(STANDIN.with_name("kernels.py"), folder / "kernels.py")
    return folder / "run.py"

"""Programs in the place of the trainers', and a GPU as far as nvidia-smi tells."""

import shutil
from pathlib import Path

from tests.support.paths import STANDIN

V100, H200 = "Tesla V100-SXM2-16GB", "NVIDIA H200"
CAPABILITIES = {V100: "7.0", H200: "9.0"}
TOOL = """#!/bin/sh
case "$*" in
*compute_cap*) echo '{capabilities}';;
*driver_version,memory*) echo '{all_fields}';;
*name,driver_version*) echo '{few_fields}';;
*) exit 1;;
esac
"""


def lay_gpu(folder: Path, *names: str, driver: str = "535.183.06") -> None:
    """A tool in a folder that is on PATH, which shows a GPU of each name."""
    folder.mkdir(exist_ok=True)
    named = list(enumerate(names, 1))
    lay_smi(
        folder,
        TOOL.format(
            capabilities="\n".join(CAPABILITIES[name] for name in names),
            all_fields="\n".join(f"{name}, {driver}, 16160, 88.00, 1530, 877, GPU-{place}" for place, name in named),
            few_fields="\n".join(f"{name}, {driver}, GPU-{place}" for place, name in named),
        ),
    )


def lay_smi(folder: Path, script: str) -> None:
    """A script in the place of nvidia-smi, in a folder that is on PATH."""
    tool = folder / "nvidia-smi"
    tool.write_text(script)
    tool.chmod(0o755)


def standins(folder: Path) -> Path:
    """A trainer that trains nothing, with the program that compares operators beside it."""
    folder.mkdir(exist_ok=True)
    shutil.copy(STANDIN, folder / "run.py")
    shutil.copy(STANDIN.with_name("kernels.py"), folder / "kernels.py")
    return folder / "run.py"

"""Folders outside the project that add models; each is structured like `repro/` and named in REPRO_MODELS.

Such a folder has `models/NAME.py`, `trainers/models/NAME.py`, `baselines/NAME.py`, `perfmodel/NAME.py` and
`data/cases/*.toml`. The packages of these names append its subfolders to their search path, so an external model is
imported like any other and cannot replace one of the project's modules.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REPRO_MODELS"


def folders() -> list[Path]:
    """The folders in REPRO_MODELS, a colon-separated list."""
    return [Path(name).resolve() for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def missing_folders() -> list[Path]:
    """The folders that do not exist."""
    return [folder for folder in folders() if not folder.is_dir()]


def folders_of(package: str) -> list[str]:
    """The folders that extend a package, given by its path below `repro/` such as "trainers/models"."""
    return [str(folder / package) for folder in folders() if (folder / package).is_dir()]

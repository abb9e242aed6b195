"""Folders outside the project that add models; each is structured like `repro/` and named in REPRO_MODELS.

Such a folder has `models/NAME.py`, `trainers/models/NAME.py`, `baselines/NAME.py`, `perfmodel/NAME.py` and
`data/cases/*.toml`. The packages of these names append its subfolders to their search path, so an external model is
imported like any other. It cannot replace one of the project: `repro.models.registry` refuses a file of the same name.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REPRO_MODELS"
ADDED = {
    **dict.fromkeys(("models", "trainers/models", "trainers/tuning", "baselines", "perfmodel"), "*.py"),
    **dict.fromkeys(("data/cases", "data/clusters"), "*.toml"),
}
"""The subfolders whose files a folder adds to those of `repro/`."""


def folders() -> list[Path]:
    """The folders in REPRO_MODELS, a colon-separated list."""
    return [Path(name).resolve() for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def missing_folders() -> list[Path]:
    """The folders that do not exist."""
    return [folder for folder in folders() if not folder.is_dir()]


def files_of_one_name() -> list[tuple[Path, Path]]:
    """Each file that a folder cannot add, since one of the project or of an earlier folder has its name, with that one."""
    pairs = []
    for subfolder, pattern in ADDED.items():
        first: dict[str, Path] = {}
        for folder in dict.fromkeys((Path(__file__).parents[1], *folders())):
            for file in sorted((folder / subfolder).glob(pattern)):
                earlier = first.setdefault(file.name, file)
                pairs += [(file, earlier)] if earlier != file and file.name != "__init__.py" else []
    return pairs


def folders_of(package: str) -> list[str]:
    """The folders that extend a package, given by its path below `repro/` such as "trainers/models"."""
    return [str(folder / package) for folder in folders() if (folder / package).is_dir()]

"""The driver's cache of compiled GPU code: on a GPU newer than the wheel's code, a cold one costs minutes."""

import json
import os
from pathlib import Path

NOTE = "warm.json"
DEFAULT = Path.home() / ".nv" / "ComputeCache"


def jit_cache(gpus: list[dict], path: Path | None = None) -> dict | None:
    """The cache that trainers here will use, None without a GPU.

    Parameters
    ----------
    gpus : the GPUs as `repro.launch.host_environment.gpus` gives them.
    path : the cache's folder; without it, the driver's own choice.

    Returns a dict with `path`, `mib`, `warm` (the note that `make compile-cache` leaves is for this very GPU), and `warmed_for`,
    the note's GPU or None.
    """
    if not gpus:
        return None
    path = path or Path(os.environ.get("CUDA_CACHE_PATH") or DEFAULT)
    note = _note(path / NOTE)
    return {
        "path": str(path),
        "mib": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) // 2**20,
        "warm": note.get("gpu") == gpus[0]["name"],
        "warmed_for": note.get("gpu"),
    }


def _note(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}

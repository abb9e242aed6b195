"""The site, rendered once for all tests of a run of pytest, whichever of its processes needs it first."""

import fcntl
from pathlib import Path

from repro.report.site import build

DONE = "done"


def rendered(scratch: Path) -> Path:
    """The folder with the site's pages below a folder that all of pytest's processes share."""
    folder = scratch / "site"
    with open(scratch / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (scratch / DONE).exists():
            build.render(folder)
            (scratch / DONE).touch()
    return folder


def place(path: Path, folder: Path) -> Path:
    """Where a path that a page of the site in `folder` links to is now; links start from where `make site` writes."""
    return folder / path.relative_to(build.FOLDER) if path.is_relative_to(build.FOLDER) else path

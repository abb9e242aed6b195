"""Where the parts of a checkout are, and what identifies a file."""

import hashlib
import os
import time
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "repro"
DATA = PACKAGE / "data"


def cache_folder(root: Path) -> Path:
    """Where what can be made again is kept: `.cache` of a checkout, or in the user's cache if that is read-only."""
    own = root / ".cache"
    if os.access(own if own.exists() else root, os.W_OK):
        return own
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return users / "oneflow-reproduction" / hashlib.sha256(bytes(root)).hexdigest()[:12]


CACHE = cache_folder(ROOT)
REPORTS = ROOT / "reports"
TRAINERS = PACKAGE / "trainers"
TRAINER = TRAINERS / "run.py"
TRAINER_PYTHON = ROOT / ".venv-trainer" / "bin" / "python"


def sha256(path: Path) -> str | None:
    """The SHA-256 of a plain file in hexadecimal; None if it is missing or a link, which could lead anywhere."""
    if path.is_symlink() or not path.is_file():
        return None
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(content: bytes) -> str:
    """The SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def named_by_time(folder: Path, prefix: str = "", suffix: str = "") -> Path:
    """A path in a folder that is not there yet, named by the time; a second one in the same second gets a number."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (f"{prefix}{stamp}{f'-{number}' if number > 1 else ''}{suffix}" for number in count(1))
    return next(path for path in map(folder.joinpath, names) if not path.exists())


def ssh_path(path: Path) -> str:
    """A path as the value of an option of OpenSSH, which parts values at blanks and replaces what follows a %."""
    escaped = str(path).replace("\\", r"\\").replace('"', r"\"").replace("%", "%%")
    return f'"{escaped}"'


def in_home(path: str) -> Path:
    """A path in which ~ and ~user are folders; unlike `Path.expanduser`, it leaves the ~ of an unknown user as it is."""
    return Path(os.path.expanduser(path))

"""The available stand-ins, and their atomic generation: once per machine, with identical bytes from the same seed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from repro.trainers.validators import ConfigError

WRITERS = {
    "images": "repro.trainers.data.standin.images",
    "features": "repro.trainers.data.standin.features",
    "text": "repro.trainers.data.standin.text",
    "tokens": "repro.trainers.data.standin.tokens",
}
"""The module that writes each, by `write(folder, standin)`, which gives its facts."""
SCALES = ("published", "small")
"""As the published sets are; or of a few hundred kilobytes, for tiny shapes."""
PREFIX = "tokens"
"""Of token files within a stand-in's folder."""
FACTS = "facts.json"
SEED = 12345
VERSION = 1
"""Goes up with every change of what is written, so that folders of before are not taken."""


@dataclass(frozen=True)
class StandIn:
    """Parameters of a stand-in; sizes that its kind does not use are 0."""

    name: str
    scale: str
    parts: int
    seq_length: int = 0
    max_predictions: int = 0
    vocab_size: int = 0
    seed: int = SEED

    @classmethod
    def of(cls, name: str, scale: str, parts: int, shape: Mapping[str, int]) -> StandIn:
        """The stand-in `name` for a model with the sizes in `shape`."""
        keys = {"features": ("seq_length", "max_predictions", "vocab_size"), "tokens": ("vocab_size",)}
        keys["text"] = keys["tokens"]
        return cls(name, scale, parts, **{key: shape[key] for key in keys.get(name, ())})

    @property
    def key(self) -> str:
        """Name of its folder."""
        content = json.dumps([VERSION, asdict(self)], sort_keys=True)
        return f"{self.name}-{self.scale}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"

    def path(self, folder: str) -> Path:
        """Path for the reader: the stand-in's folder, or the prefix of its token files."""
        return Path(folder) / self.key / PREFIX if self.name == "tokens" else Path(folder) / self.key

    def folder_of(self, path: str) -> Path:
        """The stand-in's folder, from the reader's path."""
        return Path(path).parent if self.name == "tokens" else Path(path)


def make(standin: StandIn, path: str) -> None:
    """Generate a stand-in at `path` unless it exists; concurrent processes wait.

    Raises
    ------
    ConfigError
        The folder cannot be written, or a file's length has changed since it was generated.
    """
    folder = standin.folder_of(path)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not (folder / FACTS).is_file():
            with locked(folder.with_name(f".{folder.name}.lock")):
                if not (folder / FACTS).is_file():
                    write(standin, folder)
    except OSError as error:
        raise ConfigError(f"data.folder: no stand-in can be made in {folder.parent}: {error}") from error
    for name, size in json.loads((folder / FACTS).read_text(encoding="utf-8"))["files"].items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != size:
            raise ConfigError(
                f"data.standin: {folder / name} is not what it was when it was made; remove {folder} to have it made again"
            )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that excludes other processes of this machine; without effect on file systems without locks."""
    with open(path, "w", encoding="utf-8") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write(standin: StandIn, folder: Path) -> None:
    """Write a stand-in to a temporary folder and rename it; on shared storage the first one to finish is kept."""
    print(f"writing a stand-in for the published data to {folder}", file=sys.stderr, flush=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        facts = writer_of(standin.name)(partial, standin)
        files = {path.name: path for path in sorted(partial.iterdir())}
        content = {
            "standin": standin.name,
            "scale": standin.scale,
            "seed": standin.seed,
            "version": VERSION,
            **facts,
            "parts": standin.parts,
            "bytes": sum(path.stat().st_size for path in files.values()),
            "sha256": digest(files),
            "files": {name: path.stat().st_size for name, path in files.items()},
        }
        (partial / FACTS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.chmod(0o755)
        try:
            os.rename(partial, folder)
        except OSError:
            if not (folder / FACTS).is_file():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def writer_of(name: str) -> Callable[[Path, StandIn], dict[str, Any]]:
    return import_module(WRITERS[name]).write


def digest(files: Mapping[str, Path]) -> str:
    """SHA-256 of the names and contents of files, sorted by name."""
    hasher = hashlib.sha256()
    for name, path in sorted(files.items()):
        hasher.update(json.dumps([name, hashlib.sha256(path.read_bytes()).hexdigest()]).encode())
    return hasher.hexdigest()


def facts_of(folder: Path) -> dict[str, Any]:
    """A stand-in's facts without its list of files."""
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return {key: value for key, value in facts.items() if key != "files"}

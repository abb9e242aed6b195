"""Gives the engine inside a node an image of the engine around it: its layers by hard link, at once and for no space.

It writes what overlay2 and the image store of Docker 20 to 28 keep below their data root, while no engine runs there.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

STORE = Path("image/overlay2")


def seed(outer: Path, inner: Path, image: str) -> None:
    """Put an image (its ID) with its tags and layers from one data root into another, which no engine uses yet."""
    digest = image.removeprefix("sha256:")
    config = json.loads((outer / STORE / "imagedb/content/sha256" / digest).read_text())
    for folder in ("imagedb/content/sha256", "imagedb/metadata/sha256", "layerdb/sha256", "distribution"):
        (inner / STORE / folder).mkdir(parents=True, exist_ok=True)
    (inner / "overlay2/l").mkdir(parents=True)
    inner.chmod(0o710)
    shutil.copy2(outer / STORE / "imagedb/content/sha256" / digest, inner / STORE / "imagedb/content/sha256")
    (inner / STORE / "repositories.json").write_text(json.dumps({"Repositories": _tags(outer, image)}))
    for chain in _chain(config["rootfs"]["diff_ids"]):
        described = outer / STORE / "layerdb/sha256" / chain
        shutil.copytree(described, inner / STORE / "layerdb/sha256" / chain)
        _link_layer(outer / "overlay2", inner / "overlay2", (described / "cache-id").read_text())


def _tags(outer: Path, image: str) -> dict[str, dict[str, str]]:
    """Docker's {name: {name:tag: ID}} of the tags that name an image."""
    repositories = json.loads((outer / STORE / "repositories.json").read_text())["Repositories"]
    kept_tags = {name: {tag: to for tag, to in tags.items() if to == image} for name, tags in repositories.items()}
    return {name: tags for name, tags in kept_tags.items() if tags}


def _chain(layers: list[str]) -> Iterator[str]:
    """Docker's name of each layer: the SHA-256 of that of the layer below and its own digest."""
    name = None
    for layer in layers:
        name = f"sha256:{hashlib.sha256(f'{name} {layer}'.encode()).hexdigest()}" if name else layer
        yield name.removeprefix("sha256:")


def _link_layer(outer: Path, inner: Path, cache: str) -> None:
    (inner / cache).mkdir()
    for entry in (outer / cache).iterdir():
        target = inner / cache / entry.name
        if entry.name == "work":
            target.mkdir()
        elif entry.is_dir():
            shutil.copytree(entry, target, symlinks=True, copy_function=_link)
        else:
            os.link(entry, target)
    (inner / "l" / (outer / cache / "link").read_text()).symlink_to(f"../{cache}/diff")


def _link(source: str, target: str) -> None:
    os.link(source, target, follow_symlinks=False)

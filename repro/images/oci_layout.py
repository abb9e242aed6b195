"""Turns the output of `docker save` into an OCI image layout whose bytes depend only on the image's content.

Engines put the time of the build into layers and configuration, so two builds of the same inputs differ. Here every
time after the pinned one is set to it, owners' names and other accidents are dropped, and all digests are computed
again. The folder is an OCI image layout and, with its manifest.json, what any version of `docker load` reads.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from repro.images.engine import ImageError

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
CHUNK, PIECE = 2**18, 2**16
LAST = "manifest.json"
"""The file of a layout that is written last."""
WHITEOUT = ".wh."
RUN_ARGUMENTS = re.compile(r"(?s)^(RUN )\|\d+ .*?(?=/bin/sh -c )")
ARGUMENT = re.compile(r"^(ARG \w+)=.*$")
"""Steps as BuildKit names them: a command with the arguments it had, and an argument with its value."""
SETTINGS = ("Cmd", "Entrypoint", "Env", "Labels", "User", "Volumes", "WorkingDir")


@dataclass(frozen=True)
class LayoutImage:
    """One image of a layout. `id` is the digest of its configuration, `digest` that of its manifest."""

    tag: str
    id: str
    digest: str
    layers: tuple[str, ...]
    size: int


def normalise(archive: IO[bytes], folder: Path, epoch: int, rename: Callable[[str], str] = str) -> list[LayoutImage]:
    """Write the images of a `docker save` stream into a new layout folder.

    Parameters
    ----------
    archive : a readable binary stream; it is read once from its beginning to its end.
    folder : replaced if it exists.
    epoch : Unix time that no time in the images may exceed.
    rename : gives an image's tag in the layout from its tag in the engine.
    """
    shutil.rmtree(folder, ignore_errors=True)
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layers: dict[str, str] = {}
    documents: dict[str, bytes] = {}
    links: dict[str, str] = {}
    with tarfile.open(fileobj=archive, mode="r|", bufsize=PIECE) as saved:
        for member in saved:
            name = os.path.normpath(member.name)
            if member.issym():
                links[name] = os.path.normpath(os.path.join(os.path.dirname(name), member.linkname))
            elif content := saved.extractfile(member) if member.isfile() else None:
                if name.endswith("layer.tar"):
                    layers[name] = write_layer(content, blobs, epoch)
                else:
                    _sort_out(name, content, layers=layers, documents=documents, blobs=blobs, epoch=epoch)
    images = []
    for entry in json.loads(documents["manifest.json"]):
        digests = [layers[links.get(path, path)] for path in map(os.path.normpath, entry["Layers"])]
        config = json.loads(documents[os.path.normpath(entry["Config"])])
        images.append(_write_image(rename(entry["RepoTags"][0]), config, digests, blobs, epoch))
    _write_index(folder, images)
    return images


def _sort_out(
    name: str, content: IO[bytes], layers: dict[str, str], documents: dict[str, bytes], blobs: Path, epoch: int
) -> None:
    """Newer engines name all files by their digests: what is JSON is kept, what is not is a layer."""
    with tempfile.SpooledTemporaryFile(max_size=16 * CHUNK) as spooled:
        shutil.copyfileobj(content, spooled, CHUNK)
        spooled.seek(0)
        if spooled.read(1) in (b"{", b"["):
            spooled.seek(0)
            documents[name] = spooled.read()
        elif name.startswith("blobs/"):
            spooled.seek(0)
            layers[name] = write_layer(spooled, blobs, epoch)


def write_layer(source: IO[bytes], blobs: Path, epoch: int) -> str:
    """Write a layer (a tar, compressed or not) as a blob without accidents; returns its digest in hexadecimal."""
    partial = blobs / "layer.partial"
    with open(partial, "wb") as file:
        digesting = _Digesting(file)
        with tarfile.open(fileobj=source, mode="r|*", bufsize=PIECE) as layer, _tar(digesting) as target:
            for member in layer:
                content = layer.extractfile(member) if member.isreg() and member.size else None
                target.addfile(plain(member, epoch), content)
    digest = digesting.hexdigest()
    partial.replace(blobs / digest)
    return digest


def _tar(file: Any) -> tarfile.TarFile:
    """A tar that is written straight into a file, each member in large pieces: tarfile's own streams copy all they hold."""
    return tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, copybufsize=CHUNK)


def plain(member: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    """A member with its name, kind, mode, numeric owner, extended attributes and a time that is not too late."""
    member.mtime = min(int(member.mtime), epoch)
    member.uname = member.gname = ""
    member.pax_headers = {key: value for key, value in member.pax_headers.items() if key.startswith("SCHILY.xattr")}
    if member.islnk() and os.path.basename(member.name).startswith(WHITEOUT):
        member.type, member.linkname = tarfile.REGTYPE, ""
    return member


class _Digesting:
    """A file to write to that computes the SHA-256 of what passes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sha256 = file, hashlib.sha256()

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: bytes) -> int:
        self._sha256.update(data)
        return self._file.write(data)

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


def _write_image(tag: str, config: dict, layers: list[str], blobs: Path, epoch: int) -> LayoutImage:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    settings = {key: value for key, value in config["config"].items() if key in SETTINGS and value}
    plain_config = {
        "architecture": config["architecture"],
        "os": config["os"],
        "created": stamp,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in layers]},
        "history": [_plain_step(step, stamp) for step in config.get("history", [])],
    }
    config_entry = _write_json(blobs, plain_config, CONFIG)
    entries = [
        {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": (blobs / digest).stat().st_size} for digest in layers
    ]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config_entry, "layers": entries}
    size = sum((blobs / digest).stat().st_size for digest in layers)
    return LayoutImage(
        tag, config_entry["digest"], _write_json(blobs, manifest, MANIFEST)["digest"], tuple(layers), size
    )


def _plain_step(step: dict, stamp: str) -> dict:
    """A step of a build without its time, and without its arguments' values: a mirror leaves nothing in an image."""
    stripped = {"created": stamp, **{key: step[key] for key in ("empty_layer",) if key in step}}
    if "created_by" in step:
        stripped["created_by"] = RUN_ARGUMENTS.sub(r"\1", ARGUMENT.sub(r"\1", step["created_by"]))
    return stripped


def _write_json(blobs: Path, content: dict, media_type: str) -> dict:
    """Write a JSON blob; returns its descriptor."""
    data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _write_index(folder: Path, images: list[LayoutImage]) -> None:
    def path(digest: str) -> str:
        return f"blobs/sha256/{digest.removeprefix('sha256:')}"

    index = [
        {
            "mediaType": MANIFEST,
            "digest": image.digest,
            "size": (folder / path(image.digest)).stat().st_size,
            "annotations": {
                "io.containerd.image.name": f"docker.io/library/{image.tag}",
                "org.opencontainers.image.ref.name": image.tag.rpartition(":")[2],
            },
        }
        for image in images
    ]
    saved = [
        {"Config": path(image.id), "RepoTags": [image.tag], "Layers": [path(layer) for layer in image.layers]}
        for image in images
    ]
    files = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "manifests": index},
        LAST: saved,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, sort_keys=True, indent=1) + "\n")


def is_complete(folder: Path) -> bool:
    """Whether a folder has a layout that `normalise` wrote to its end."""
    return (folder / LAST).is_file()


def read_layout(folder: Path) -> list[LayoutImage]:
    """The images of a layout that `normalise` wrote; ImageError if there is none, or one that is not complete."""
    if not is_complete(folder):
        raise ImageError(f"{folder} holds no images; `make image` builds them")
    index = json.loads((folder / "index.json").read_text())["manifests"]
    saved = json.loads((folder / LAST).read_text())
    images = []
    for entry, names in zip(index, saved, strict=True):
        manifest = json.loads((folder / "blobs/sha256" / entry["digest"].removeprefix("sha256:")).read_text())
        layers = tuple(layer["digest"].removeprefix("sha256:") for layer in manifest["layers"])
        size = sum(layer["size"] for layer in manifest["layers"])
        images.append(LayoutImage(names["RepoTags"][0], manifest["config"]["digest"], entry["digest"], layers, size))
    return images


@contextmanager
def lone_image(layout: Path, image: LayoutImage) -> Iterator[Path]:
    """A layout of one image that shares the blobs of another, for tools that do not choose an image by its tag."""
    with tempfile.TemporaryDirectory(dir=layout.parent) as scratch:
        folder = Path(scratch)
        index = json.loads((layout / "index.json").read_text())
        index["manifests"] = [manifest for manifest in index["manifests"] if manifest["digest"] == image.digest]
        (folder / "index.json").write_text(json.dumps(index))
        shutil.copy(layout / "oci-layout", folder)
        (folder / "blobs").symlink_to((layout / "blobs").resolve())
        yield folder


def packed(folder: Path) -> Iterator[bytes]:
    """A layout as a tar, in pieces; always the same bytes for the same layout."""
    for path in sorted(folder.rglob("*")):
        member = tarfile.TarInfo(path.relative_to(folder).as_posix())
        if path.is_dir():
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            yield member.tobuf(tarfile.GNU_FORMAT)
            continue
        member.size, member.mode = path.stat().st_size, 0o644
        yield member.tobuf(tarfile.GNU_FORMAT)
        with open(path, "rb") as content:
            while piece := content.read(CHUNK):
                yield piece
        yield bytes(-member.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def sha256_of(content: IO[bytes]) -> str:
    """The SHA-256 of a stream, from its position to its end, in hexadecimal."""
    digest = hashlib.sha256()
    while piece := content.read(CHUNK):
        digest.update(piece)
    return digest.hexdigest()


def differences(first: Path, second: Path) -> list[str]:
    """The files in which two layers differ, each with what differs in it."""
    ours, theirs = dict(_members(first)), dict(_members(second))
    lines = [f"{name}: only in one of them" for name in sorted(ours.keys() ^ theirs.keys())]
    for name in sorted(ours.keys() & theirs.keys()):
        differing = [field for field in ours[name] if ours[name][field] != theirs[name][field]]
        if differing:
            lines.append(f"{name}: {', '.join(differing)}")
    return lines


def _members(layer: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with tarfile.open(layer) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            yield (
                member.name,
                {
                    "kind": member.type,
                    "mode": member.mode,
                    "owner": (member.uid, member.gid),
                    "time": member.mtime,
                    "link": member.linkname,
                    "content": sha256_of(content or io.BytesIO()),
                },
            )

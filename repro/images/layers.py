"""Whether a built image has the layers that docker/pins.toml says a build must give."""

from __future__ import annotations

from dataclasses import dataclass

from repro.images.oci_layout import LayoutImage
from repro.images.pins import Pins, suite_of
from repro.targets import PINNED_BASELINES

CODE = "code"
OF_BASELINES = ("packages", "user", "compiler", "environment", "folder", CODE)
ABOVE = {
    "cu102": ("packages", "user", "environment", "folder", "nccl", CODE),
    "cu102-modern": ("packages", "user", "environment", "folder", "compat", CODE),
    **dict.fromkeys(PINNED_BASELINES, OF_BASELINES),
}
"""The layers of a stack's image above those of its base."""
OF_DEBIAN = ("base", "packages", "user", "folder")
"""The layers that images on one Debian share."""
OF_ANY_BASE = ("environment", "nccl", "compat")
"""What holds nothing of the base image."""
PINNED_NCCL = "2.7.8"
FIRST = 12
"""Digits of a digest that tell layers apart for a reader."""


@dataclass(frozen=True)
class Layer:
    """A layer by its name, its SHA-256 in hexadecimal, and the pinned one, "" where none is."""

    name: str
    digest: str
    pinned: str

    @property
    def differs(self) -> bool:
        return self.pinned not in ("", self.digest)


@dataclass(frozen=True)
class LayerComparison:
    """An image's layers beside the pinned ones, base first; `known_base` is whether its base is that of `make base`."""

    tag: str
    layers: tuple[Layer, ...]
    known_base: bool

    @property
    def problems(self) -> list[str]:
        """A line for each layer that is not as pinned, the lowest first: it may be the cause of the others."""
        return [
            f"{self.tag}: layer '{layer.name}' is {layer.digest[:FIRST]}…, and docker/pins.toml has {layer.pinned[:FIRST]}…"
            for layer in self.layers
            if layer.differs
        ]

    def line(self) -> str:
        """What is as pinned, and what is not pinned, in one line."""
        same = [layer.name for layer in self.layers if layer.pinned and not layer.differs]
        unknown = [layer.name for layer in self.layers if not layer.pinned]
        parts = [f"as pinned: {', '.join(same)}"] if same else []
        if self.problems:
            parts.append(f"NOT as pinned: {', '.join(layer.name for layer in self.layers if layer.differs)}")
        others = "not pinned" if self.known_base else "not pinned, as the base is not that of `make base`"
        return "; ".join([*parts, f"{others}: {', '.join(unknown)}"])


def compare(image: LayoutImage, stack: str, pins: Pins, nccl: str = "") -> LayerComparison:
    """Compare the layers of a stack's image; `nccl` is the version it was built with, "" for the pinned one.

    All but the project's own code, which follows from the commit, are pinned on the base that `make base` makes. On
    another base only those are that hold nothing of it.
    """
    above = ABOVE[stack]
    bases, rest = image.layers[: -len(above)], image.layers[-len(above) :]
    known_base = bases == (pinned(pins, stack, "base"),)
    named = [("base", digest) for digest in bases] + list(zip(above, rest, strict=True))
    names = {name for name, _ in named if known_base or name in OF_ANY_BASE}
    names -= {"nccl"} if nccl not in ("", PINNED_NCCL) else set()
    return LayerComparison(
        image.tag,
        tuple(Layer(name, digest, pinned(pins, stack, name) if name in names else "") for name, digest in named),
        known_base,
    )


def pinned(pins: Pins, stack: str, name: str) -> str:
    """The pinned SHA-256 of a layer, "" if there is none: the stack's own `STACK.NAME`, or one of several images."""
    shared = stack not in PINNED_BASELINES or (name in OF_DEBIAN and suite_of(stack) == suite_of("cu102"))
    return pins.layers.get(f"{stack}.{name}", pins.layers.get(name, "") if shared else "")

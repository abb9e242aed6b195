"""Whether a built image has the layers that docker/pins.toml says a build must give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from repro.images.oci_layout import LayoutImage
from repro.images.pins import Pins
from repro.images.recipes import RECIPES

CODE = "code"
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
    base, *above = (*RECIPES[stack].layers, CODE)
    bases, rest = image.layers[: -len(above)], image.layers[-len(above) :]
    known_base = bases == (pins.layers[base],)
    named = [(base, digest) for digest in bases] + list(zip(above, rest, strict=True))
    pinned = _pinned(pins.layers, known_base, nccl in ("", PINNED_NCCL))
    return LayerComparison(
        image.tag, tuple(Layer(name, digest, pinned.get(name, "")) for name, digest in named), known_base
    )


def _pinned(layers: Mapping[str, str], known_base: bool, known_nccl: bool) -> dict[str, str]:
    names = set(layers) if known_base else set(OF_ANY_BASE)
    return {name: layers[name] for name in names if known_nccl or name != "nccl"}

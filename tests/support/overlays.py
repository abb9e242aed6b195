"""Overlays of small files in place of OneFlow's libraries with GPU code."""

import json

from repro.images.kernel_overlay import DESCRIPTION, Overlay, name_of
from repro.utils.paths import sha256, sha256_of

LIBRARIES = {"liboneflow-1.so": b"\x7fELF 1", "libcudnn-2.so.7": b"\x7fELF 2", "libprotobuf-3.so": b"\x7fELF 3"}
"""What a wheel has that overlays are made for: two with GPU code, and one without."""


def write(overlays, site, of_wheel, architecture=90, content=b"\x7fELF sm_90"):
    partial = overlays / "partial"
    (partial / "oneflow.libs").mkdir(parents=True)
    names = ("liboneflow-1.so", "libcudnn-2.so.7")
    for name in names:
        (partial / "oneflow.libs" / name).write_bytes(content)
    digests = {name: sha256(partial / "oneflow.libs" / name) for name in names}
    text = json.dumps(
        {"architecture": architecture, "wheel": of_wheel, "libraries": digests, "compiled": 2, "left": 0}
    ).encode()
    (partial / DESCRIPTION).write_bytes(text)
    made = Overlay(partial, architecture, sha256_of(text), 2, 0)
    return partial.rename(overlays / name_of(made))

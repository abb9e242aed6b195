"""What nodes are made of: their own images, by content; and the trainer image, which their engines get at once."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from repro.images import debian as debian_image
from repro.images.build import LAYOUT, Sources, build_layout, say
from repro.images.engine import Engine as LocalEngine
from repro.images.oci_layout import packed, read_layout
from repro.images.pins import load_pins
from repro.images.stack import tag_of
from repro.simulation.engine import Engine
from repro.simulation.places import HOME
from repro.utils.paths import ROOT

HERE = Path(__file__).resolve().parent / "node"
STACK = "cu102"
# What goes into the trainer image of that stack.
PARTS = (
    "docker/Dockerfile",
    "docker/pins.toml",
    "docker/trainer.lock",
    "docker/build/*",
    "docker/inside/*.py",
    "repro/__init__.py",
    "repro/models/*.py",
    "repro/trainers/**/*.py",
)


def node_image(engine: Engine, kind: str) -> str:
    """The tag of the image of nodes of a kind, bare or engine, built if these files have not been built yet."""
    content = hashlib.sha256()
    for path in sorted(HERE.iterdir()):
        content.update(f"{path.name} {path.stat().st_mode} ".encode() + path.read_bytes())
    tag = f"node-{kind}:{content.hexdigest()[:12]}"
    if not engine.docker("image", "ls", "--quiet", tag):
        say(f"building simulated nodes ({kind}), once, which takes minutes")
        base = debian(engine, "bookworm")
        engine.docker(
            "build",
            "--network",
            "host",
            "--target",
            kind,
            "--tag",
            tag,
            "--build-arg",
            f"BASE={base}",
            "--build-arg",
            f"DEBIAN={engine.web}/debian",
            HERE,
        )
    return tag


def debian(engine: Engine, suite: str) -> str:
    """The tag of a minimal Debian in the engine, made by debootstrap once for the code that makes it."""
    made_by = hashlib.sha256(Path(debian_image.__file__).read_bytes()).hexdigest()[:12]
    tag = f"debootstrapped:{suite}-{made_by}"
    if engine.docker("image", "ls", "--quiet", tag):
        return tag
    archive = debian_image.pack_debian(suite, f"{engine.web}/debian", HOME, load_pins().source_date_epoch)
    engine.docker("import", archive, tag)
    archive.unlink()
    return tag


def trainer_image(engine: Engine) -> str:
    """The ID of the trainer image in the engine, as `make image STACK=cu102` builds it from the tree as it is."""
    own = HOME / "image"
    layout = next((layout for layout in (own, LAYOUT) if _is_current(layout)), None)
    with _as_client_of(engine):
        if layout is None:
            sources = Sources(debian(engine, "bullseye"), f"{engine.web}/debian", f"{engine.web}/debian-security")
            build_layout([STACK], load_pins(), sources, own)
            layout = own
        (image,) = (image for image in read_layout(layout) if image.tag == tag_of(STACK))
        if image.id not in engine.docker("image", "ls", "--quiet", "--no-trunc"):
            LocalEngine.connect().load(packed(layout))
            engine.docker("image", "prune", "--force")
    return image.id


def _is_current(layout: Path) -> bool:
    """Whether a layout has the image and is younger than everything that goes into it."""
    if not (layout / "index.json").exists() or tag_of(STACK) not in [image.tag for image in read_layout(layout)]:
        return False
    parts = [path for pattern in PARTS for path in ROOT.glob(pattern)]
    return (layout / "index.json").stat().st_mtime > max(part.stat().st_mtime for part in parts)


@contextlib.contextmanager
def _as_client_of(engine: Engine) -> Iterator[None]:
    """Docker clients that are started meanwhile talk to this engine."""
    before = dict(os.environ)
    os.environ.update(engine.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

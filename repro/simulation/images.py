"""What nodes are made of: their own images, by content; and the trainer image, which their engines get at once."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from repro.images import debian as debian_image
from repro.images.build import Sources, build_layout, say
from repro.images.engine import Engine as LocalEngine
from repro.images.oci_layout import LayoutImage, packed, read_layout
from repro.images.pins import load_pins
from repro.images.recipes import LAYOUT
from repro.images.stack import tag_of
from repro.simulation.engine import SimulationEngine
from repro.simulation.places import HOME
from repro.utils.paths import ROOT

HERE = Path(__file__).resolve().parent / "node"
OWN_LAYOUT = HOME / "image"
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


def node_image(engine: SimulationEngine, kind: str) -> str:
    """The tag of the image of nodes of a kind (bare, engine, hpc), built if these files have not been built yet."""
    tag = _node_tag(kind)
    if not has_node_image(engine, kind):
        say(f"building simulated nodes ({kind}), once, which takes minutes")
        base = debian(engine, "bookworm")
        engine.docker(
            *("build", "--network", "host", "--target", kind, "--tag", tag),
            *("--build-arg", f"BASE={base}", "--build-arg", f"DEBIAN={engine.web}/debian", HERE),
        )
    return tag


def has_node_image(engine: SimulationEngine, kind: str) -> bool:
    """Whether the engine has the image of nodes of a kind."""
    return bool(engine.docker("image", "ls", "--quiet", _node_tag(kind)))


def _node_tag(kind: str) -> str:
    content = hashlib.sha256()
    for path in sorted(path for path in HERE.iterdir() if path.is_file()):
        content.update(f"{path.name} {path.stat().st_mode} ".encode() + path.read_bytes())
    return f"node-{kind}:{content.hexdigest()[:12]}"


def debian(engine: SimulationEngine, suite: str) -> str:
    """The tag of a minimal Debian in the engine, made by debootstrap once for the code that makes it."""
    made_by = hashlib.sha256(Path(debian_image.__file__).read_bytes()).hexdigest()[:12]
    tag = f"debootstrapped:{suite}-{made_by}"
    if engine.docker("image", "ls", "--quiet", tag):
        return tag
    archive = debian_image.pack_debian(suite, f"{engine.web}/debian", HOME, load_pins().source_date_epoch)
    engine.docker("import", archive, tag)
    archive.unlink()
    return tag


def trainer_image(engine: SimulationEngine) -> str:
    """The ID of the trainer image in the engine, as `make image STACK=cu102` builds it from the tree as it is."""
    with _as_client_of(engine):
        layout, image = trainer_layout() or _build_layout(engine)
        if image.id not in engine.docker("image", "ls", "--quiet", "--no-trunc"):
            LocalEngine.connect().load(packed(layout))
            engine.docker("image", "prune", "--force")
    return image.id


def trainer_layout() -> tuple[Path, LayoutImage] | None:
    """A layout that has that image and is younger than everything that goes into it, and the image; None without one."""
    changed = max(path.stat().st_mtime for pattern in PARTS for path in ROOT.glob(pattern))
    for layout in (OWN_LAYOUT, LAYOUT):
        if (layout / "index.json").exists() and (layout / "index.json").stat().st_mtime > changed:
            for image in read_layout(layout):
                if image.tag == tag_of(STACK):
                    return layout, image
    return None


def _build_layout(engine: SimulationEngine) -> tuple[Path, LayoutImage]:
    sources = Sources(debian(engine, "bullseye"), f"{engine.web}/debian", f"{engine.web}/debian-security")
    (image,) = build_layout([STACK], load_pins(), sources, OWN_LAYOUT)
    return OWN_LAYOUT, image


@contextlib.contextmanager
def _as_client_of(engine: SimulationEngine) -> Iterator[None]:
    """Docker clients that are started meanwhile talk to this engine."""
    before = dict(os.environ)
    os.environ.update(engine.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

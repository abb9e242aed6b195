"""Builds the images from the pins, normalises them, and loads them into the engine."""

import os
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from repro.images import layers
from repro.images.engine import Engine, ImageError
from repro.images.oci_layout import LayoutImage, differences, is_complete, normalise, packed, read_layout
from repro.images.pins import PINS, PinError, Pins, check
from repro.images.recipes import BASELINE, RECIPES, stack_option
from repro.images.stack import IMAGE_NAME, tag_of
from repro.images.wheels import artefact_wheel, baseline_wheels, trainer_wheels
from repro.utils.paths import ROOT, sha256

BUILDKIT_ALONE_BEFORE = 23
LINES_OF_ERROR = 15


@dataclass(frozen=True)
class Sources:
    """Where a build downloads from; empty means as pinned. `ca` is a file with CA certificates."""

    base: str = ""
    debian: str = ""
    debian_security: str = ""
    nccl: str = ""
    ca: str = ""

    def arguments(self, pins: Pins, stack: str) -> list[str]:
        """The client's options that pass these sources, and the SHA-256 of the stack's lock, to the build."""
        recipe = RECIPES[stack]
        debian, debian_security = pins.artefact(recipe.packages).source.split()
        values = {
            "BASE": self.base or pins.artefact(recipe.base).pulled,
            "DEBIAN": self.debian or debian,
            "DEBIAN_SECURITY": self.debian_security or debian_security,
            "NCCL": self.nccl,
            "LOCK_SHA256": sha256(ROOT / recipe.lock),
        }
        options = [word for name, value in values.items() if value for word in ("--build-arg", f"{name}={value}")]
        return [*options, "--secret", f"id=ca,src={self.ca}"] if self.ca else options


def base_tag(stack: str) -> str:
    """The name in an engine of the base that `make base` makes for a stack."""
    return f"{IMAGE_NAME}-base:{RECIPES[stack].suite}"


def find_docker() -> str:
    """A Docker client that can build with BuildKit: with buildx, or so old that it needs none."""
    tried = []
    for client in dict.fromkeys([os.environ.get("DOCKER"), shutil.which("docker"), "/usr/bin/docker"]):
        if client and shutil.which(client):
            if _answer([client, "buildx", "version"]) is not None:
                return client
            version = _answer([client, "version", "--format", "{{.Client.Version}}"]) or ""
            if version.partition(".")[0].isdigit() and int(version.partition(".")[0]) < BUILDKIT_ALONE_BEFORE:
                return client
            tried.append(client)
    missing = f"{' and '.join(tried)} cannot: install docker-buildx" if tried else "none is here"
    raise ImageError(f"a Docker client with buildx is needed, and {missing}. DOCKER=<path> names another client.")


def _answer(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def build(stacks: list[str], pins: Pins, sources: Sources) -> tuple[list[LayoutImage], list[str]]:
    """Build stacks of one layout, normalise them into it, load them into the engine, and compare their layers.

    The images, and a line for each layer that is not as pinned.
    """
    layout = RECIPES[stacks[0]].layout
    images = build_layout(stacks, pins, sources, layout)
    Engine.connect().load(packed(layout))
    return images, _compare_layers(images, stacks, pins, sources)


def _compare_layers(images: list[LayoutImage], stacks: list[str], pins: Pins, sources: Sources) -> list[str]:
    stack_of = {tag_of(stack): stack for stack in stacks}
    comparisons = [layers.compare(image, stack_of[image.tag], pins, sources.nccl) for image in images]
    for comparison in comparisons:
        say(f"{comparison.tag}: layers {comparison.line()}")
    return [problem for comparison in comparisons for problem in comparison.problems]


def build_layout(
    stacks: list[str], pins: Pins, sources: Sources, layout: Path, options: tuple[str, ...] = ()
) -> list[LayoutImage]:
    """Build stacks and write them, normalised, into a layout; the engine keeps only its build cache.

    `options` are further options of `docker build`, for the first of the stacks.
    """
    problems = check()
    if problems:
        raise PinError("the pins do not hold:\n" + "\n".join(problems))
    client, engine = find_docker(), Engine.connect()
    _check_space(layout, RECIPES[stacks[0]].needed_mib)
    _fetch_wheels(stacks, pins)
    drafts = [f"{tag_of(stack)}-draft" for stack in stacks]
    for number, (stack, draft) in enumerate(zip(stacks, drafts, strict=True)):
        _build_one(client, stack, tag=draft, pins=pins, sources=sources, options=() if number else options)
    try:
        return _normalise_saved(engine, drafts, layout, pins.source_date_epoch)
    finally:
        engine.remove(drafts)


def _fetch_wheels(stacks: list[str], pins: Pins) -> None:
    """Those that builds of these stacks install or take files from."""
    if BASELINE in stacks:
        baseline_wheels(BASELINE, RECIPES[BASELINE].python)
    else:
        trainer_wheels(pins)
        artefact_wheel(pins, "NCCL 2.7.8")


def _check_space(layout: Path, needed_mib: int) -> None:
    """ImageError unless a layout fits on the disk; the one it replaces is counted as free space."""
    there = next(path for path in (layout, *layout.parents) if path.exists())
    replaced = sum(path.stat().st_size for path in layout.rglob("*") if path.is_file())
    free = (shutil.disk_usage(there).free + replaced) >> 20
    if free < needed_mib:
        raise ImageError(f"{there} has {free} MiB free, and the images need {needed_mib} MiB there: free some space.")


def _build_one(client: str, stack: str, tag: str, pins: Pins, sources: Sources, options: tuple[str, ...]) -> None:
    command = [
        *(client, "build", "--file", "docker/Dockerfile", "--target", stack, "--tag", tag),
        *("--network", "host", "--progress", "plain", *options, *sources.arguments(pins, stack), "."),
    ]
    environment = dict(os.environ, DOCKER_BUILDKIT="1", BUILDX_NO_DEFAULT_ATTESTATIONS="1")
    say(f"building {stack}")
    started = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if sys.stderr.isatty():
                sys.stderr.write(line)
    if process.returncode:
        raise ImageError(_why(stack, lines, sources))
    say(f"{stack}: built in {time.monotonic() - started:.1f} s")


def _why(stack: str, lines: list[str], sources: Sources) -> str:
    """Why a build stopped: the pin named by a step, or the end of the build's output."""
    named = [line[line.index("pin '") :] for line in lines if "pin '" in line and "docker/build" not in line]
    if named:
        start = next(i for i, line in enumerate(lines) if "pin '" in line)
        details = [line.partition(" ")[2] for line in lines[start + 1 : start + 6] if " DONE " not in line]
        other = [f"{PACKAGES}, from one that has them"] if "Debian packages" in named[0] else []
        return "\n".join([f"{stack}: {named[0]}", *(details if named[0].endswith(":") else []), *other])
    end = "\n".join(line for line in lines[-LINES_OF_ERROR:] if line)
    if any("failed to solve" in line and "@sha256:" in line for line in lines):
        recipe = RECIPES[stack]
        base = f"BASE={sources.base}" if sources.base else PINS
        advice = NO_REGISTRY.format(suite=recipe.suite, option=stack_option(stack), base=base_tag(stack))
        return f"{stack}: pin '{recipe.base}' ({base}) cannot be pulled from its registry. {advice}:\n{end}"
    if any(word in line for line in lines for word in NO_ARCHIVE):
        return f"{stack}: the archive of Debian's packages cannot be reached. {PACKAGES}:\n{end}"
    if any("DO NOT MATCH THE HASHES" in line for line in lines):
        return f"{stack}: a wheel is not the one that {RECIPES[stack].lock} pins:\n{end}"
    return f"{stack} cannot be built:\n{end}"


NO_REGISTRY = (
    "BASE=<image> names another Debian ({suite}) that the engine has or can pull; `make base{option}` makes one with "
    "debootstrap, for `make image{option} BASE={base}`"
)
PACKAGES = "DEBIAN=<mirror> and DEBIAN_SECURITY=<mirror> take Debian's packages from elsewhere"
NO_ARCHIVE = ("Failed to fetch", "Temporary failure resolving", "Could not connect to", "Unable to locate package")


def _normalise_saved(engine: Engine, tags: list[str], layout: Path, epoch: int) -> list[LayoutImage]:
    started = time.monotonic()
    try:
        with engine.save(tags) as archive:
            images = normalise(archive, layout, epoch, rename=lambda tag: tag.removesuffix("-draft"))
    except BaseException as error:
        shutil.rmtree(layout, ignore_errors=True)  # an incomplete layout is of no use
        if isinstance(error, tarfile.ReadError | KeyError):
            raise ImageError("the engine did not save the image whole; is the disk with its data full?") from error
        raise
    say(f"normalised in {time.monotonic() - started:.1f} s")
    return images


def reproduce(stacks: list[str], pins: Pins, sources: Sources) -> list[str]:
    """Build stacks a second time without a cache; the differences from the first build and from the pinned layers."""
    layout = RECIPES[stacks[0]].layout
    first = {image.tag: image for image in read_layout(layout)} if is_complete(layout) else {}
    missing = [stack for stack in stacks if tag_of(stack) not in first]
    if missing:
        raise ImageError(f"{' and '.join(missing)}: not built yet; `make image` first")
    again = layout.with_name(f"{layout.name}-again")
    second = build_layout(stacks, pins, sources, again, ("--no-cache",))
    problems = []
    for image in second:
        before = first[image.tag]
        same = "the same" if before.digest == image.digest else "ANOTHER"
        say(f"{image.tag}: {before.digest}, built again: {image.digest}: {same}")
        if before.digest != image.digest:
            problems.append(f"{image.tag}: {before.digest} is {image.digest} when built again")
            problems += _layer_differences(before, image, layout, again)
    if not problems:
        shutil.rmtree(again)
    return problems + _compare_layers(second, stacks, pins, sources)


def _layer_differences(before: LayoutImage, after: LayoutImage, layout: Path, again: Path) -> list[str]:
    lines = []
    for number, (ours, theirs) in enumerate(zip(before.layers, after.layers, strict=False), 1):
        if ours != theirs:
            files = differences(layout / "blobs/sha256" / ours, again / "blobs/sha256" / theirs)
            lines += [f"  layer {number}: {line}" for line in files[:20]]
    return lines


def say(text: str) -> None:
    """A line of progress, on standard error."""
    print(f"image: {text}", file=sys.stderr, flush=True)

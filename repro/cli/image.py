"""The tasks around images: build, check, reproduce and describe them, bundle them, and compile for newer GPUs."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repro.cli.options import SourceOptions
from repro.cli.settings import Exit, FolderThere, Invocation, OptionError, PathThere, exit_statuses, task
from repro.images.offline_folder import check_new
from repro.images.recipes import RecipeStack
from repro.images.stack import IMAGE_STACKS, ImageStack, Libraries
from repro.utils.errors import FAILED
from repro.utils.output import print_table
from repro.utils.signals import heed_signals

if TYPE_CHECKING:
    from repro.images.build import Sources
    from repro.images.pins import Pins

CACHE = "/cache"
STACK = "cu102 or cu102-modern (default: both)"
ANY_STACK = f"{STACK}, or baseline for that of PyTorch"
BUNDLE = FolderThere(Path("bundle"))
KIT = Path("kit")
MOUNTED_FROM = {name.lower(): f"the folder of a newer {name}" for name in ("cuBLAS", "cuDNN")}
OLDEST_ARCH = 60
"""The oldest architecture for which the wheel has all of its code: Pascal."""


def _stacks(stack: str | None) -> list[str]:
    """The stacks that STACK= names, those of the trainers without it."""
    return [stack] if stack else list(IMAGE_STACKS)


def _sources(options: SourceOptions) -> Sources:
    from repro.images.build import Sources

    return Sources(**{name: value or "" for name, value in vars(options).items()})


def _newer(pins: Pins, stacks: list[str], cublas: str | Path | None, cudnn: str | Path | None) -> dict[str, Path]:
    """The folders with the libraries that cu102-modern mounts: those that were named, or the pinned ones."""
    from repro.images.verify import MOUNTED
    from repro.images.wheels import unpack

    named = {"CUBLAS": cublas, "CUDNN": cudnn}
    folders = {}
    for name in MOUNTED if "cu102-modern" in stacks else ():
        folder, pattern = named[name.upper()], f"lib{name.lower()}.so.*"
        if folder and not any(Path(folder).glob(pattern)):
            raise OptionError(f"{name.upper()}={folder}: no {pattern} in this folder")
        folders[name] = Path(folder).resolve() if folder else unpack(pins, name)
    return folders


@task()
def pins(invocation: Invocation) -> None:
    """Check that pins, locks, Dockerfile and code agree, and print the pins.

    Exit status: 0 they agree; 1 they do not.
    """
    from repro.images.pins import check, load_pins, pins_table

    with exit_statuses(FAILED):
        print_table(*pins_table(load_pins()))
        problems = check()
    if problems:
        raise Exit("the pins do not hold:\n" + "\n".join(problems), FAILED)
    print("pins, locks, Dockerfile and code agree")


@task(
    stack="the image that it is for: baseline stands on another Debian (default: those of the trainers)",
    debian="mirror of Debian (default: deb.debian.org)",
)
def base(invocation: Invocation, stack: RecipeStack | None = None, debian: str | None = None) -> None:
    """Make a base image with debootstrap, for `make image BASE=…` where no registry can be reached; needs root.

    Exit status: 0 made; 1 it cannot be made, with the reason.
    """
    from repro.images.debian import make_base
    from repro.images.recipes import stack_option

    chosen = _stacks(stack)[0]
    with exit_statuses(FAILED):
        name = make_base(chosen, debian or "")
    print(f"{name}; next: make image{stack_option(chosen)} BASE={name}")


@task(
    stack=ANY_STACK,
    format="docker, or sif for Apptainer: from what was built last, which is built first if it lacks the image",
)
def image(
    invocation: Invocation,
    sources: SourceOptions,
    stack: RecipeStack | None = None,
    format: Literal["docker", "sif"] = "docker",
) -> None:
    """Build, normalise and load the images; with FORMAT=sif, write those that were built as files for Apptainer.

    Exit status: 0 built; 1 an image cannot be built, or has other layers than docker/pins.toml, with the reason; 2 wrong
    input.
    """
    from repro.images.build import build
    from repro.images.oci_layout import is_complete, read_layout
    from repro.images.pins import load_pins
    from repro.images.recipes import RECIPES
    from repro.images.sif import build_sif
    from repro.images.stack import tag_of

    stacks, pinned = _stacks(stack), load_pins()
    places, layout = _sources(sources), RECIPES[stacks[0]].layout
    tags = {tag_of(name): name for name in stacks}
    with exit_statuses(FAILED):
        there = read_layout(layout) if is_complete(layout) else []
        if format == "docker" or not tags.keys() <= {built.tag for built in there}:
            there, differing = build(stacks, pinned, places)
            for made in there:
                print(f"{made.tag}  image {made.id}  manifest {made.digest}  {made.size / 1e9:.2f} GB")
            if differing:
                raise Exit("\n".join(("built and loaded, but not the pinned images:", *differing)), FAILED)
        for built in there if format == "sif" else ():
            if built.tag in tags:
                sif = build_sif(layout, built, tags[built.tag], pinned.source_date_epoch)
                print(f"{sif.file}  SHA-256 {sif.sha256}  image {sif.image}  {sif.built_with}")


@task(stack=ANY_STACK, **MOUNTED_FROM)
def image_check(
    invocation: Invocation,
    stack: RecipeStack | None = None,
    cublas: FolderThere | None = None,
    cudnn: FolderThere | None = None,
) -> None:
    """Start the images and compare what their libraries report with the pins.

    Exit status: 0 they are as pinned; 1 they are not, or cannot be started; 2 wrong input.
    """
    from repro.images.engine import Engine
    from repro.images.pins import load_pins
    from repro.images.verify import check_image, findings_table
    from repro.launch.host_environment import gpu_count

    stacks = _stacks(stack)
    with exit_statuses(FAILED):
        pinned, engine = load_pins(), Engine.connect()
    newer = _newer(pinned, stacks, cublas, cudnn)
    with exit_statuses(FAILED):
        reports = [check_image(name, pinned, engine=engine, newer=newer, gpus=gpu_count() > 0) for name in stacks]
    for report in reports:
        print_table(*findings_table(report))
        print(
            f"the container ran for {report.start_s:.1f} s; importing the framework took {report.import_s:.1f} s of them\n"
        )
    if not all(report.holds for report in reports):
        raise Exit("an image is not what the pins say", FAILED)
    print(f"as pinned: {', '.join(stacks)}")


@task(stack=ANY_STACK)
def image_reproduce(invocation: Invocation, sources: SourceOptions, stack: RecipeStack | None = None) -> None:
    """Build the images again without a cache and compare the digests, and the layers with docker/pins.toml.

    Exit status: 0 they are the same; 1 they differ, or an image cannot be built; 2 wrong input.
    """
    from repro.images.build import reproduce
    from repro.images.pins import load_pins

    stacks, places = _stacks(stack), _sources(sources)
    with exit_statuses(FAILED):
        problems = reproduce(stacks, load_pins(), places)
    if problems:
        raise Exit("not reproduced:\n" + "\n".join(problems), FAILED)
    print("reproduced: both builds have the same digests")


@task(stack=STACK)
def sbom(invocation: Invocation, stack: ImageStack | None = None) -> None:
    """Write bill of materials and licences, and scan the lock for known vulnerabilities.

    Exit status: 0 none but accepted ones; 1 there are others, no answer, or no image; 2 wrong input.
    """
    from repro.images.pins import load_pins
    from repro.images.sbom import scan, scan_lines, write_sbom

    stacks = _stacks(stack)
    with exit_statuses(FAILED):
        pinned = load_pins()
        for name in stacks:
            print(*write_sbom(name, pinned), sep="\n")
        result = scan(pinned)
    print(*scan_lines(result), sep="\n")
    if result.problem:
        raise Exit(result.problem, FAILED)


@task()
def bundle(invocation: Invocation, bundle: Path = BUNDLE) -> None:
    """Write one folder from which a node without a network is set up.

    Exit status: 0 written; 1 it could not be; 2 wrong input.
    """
    from repro.images.offline_bundle import write_bundle
    from repro.images.pins import load_pins

    heed_signals()
    with exit_statuses(FAILED):
        print(write_bundle(bundle, load_pins()))


bundle.checks(lambda values: check_new(values["bundle"], "BUNDLE"))


@task()
def bundle_check(invocation: Invocation, bundle: FolderThere = BUNDLE) -> None:
    """Check that an offline bundle is complete.

    Exit status: 0 it is; 1 a file is missing or changed; 2 there is no such folder.
    """
    from repro.images.offline_bundle import check_bundle

    with exit_statuses(FAILED):
        problems = check_bundle(bundle)
    if problems:
        raise Exit("\n".join(problems), FAILED)
    print(f"{bundle} is complete")


@task(
    tests="also what `make test` needs (default: only what runs need)",
    baselines="also the pinned PyTorch and Megatron-Core, about 3 GB (default: baselines need BASELINE_PYTHON on the host)",
    **MOUNTED_FROM,
)
def kit(
    invocation: Invocation,
    arch: tuple[int, ...] = (),
    part_mib: int = 60,
    kit: Path = KIT,
    libraries: bool = True,
    tests: bool = False,
    baselines: bool = False,
    images: bool = False,
    cublas: FolderThere | None = None,
    cudnn: FolderThere | None = None,
) -> None:
    """Write a folder from which one host without a network runs `make bench`: environments, interpreters and code.

    GPU code of other architectures is left out. Exit status: 0 written; 1 it could not be; 2 wrong input.
    """
    from repro.images import stack
    from repro.images.offline_kit import make_kit, summary
    from repro.images.pins import load_pins
    from repro.planning.datasets import datasets_for

    chosen = _architectures(arch)
    folders: list[Path] = []
    if libraries and stack.needs_newer_libraries(chosen):
        folders = list(_newer(load_pins(), ["cu102-modern"], cublas, cudnn).values())
    heed_signals()
    with exit_statuses(FAILED):
        made = make_kit(
            kit,
            chosen,
            part_mib=part_mib,
            libraries=folders,
            datasets=[dataset.folder for dataset in datasets_for(None).values()],
            images=images,
            tests=tests,
            baselines=baselines,
        )
    print("\n".join(summary(made)))


@task(jobs="pieces compiled at a time (default: the number of processors)")
def compile_kernels(invocation: Invocation, arch: tuple[int, ...] = (), jobs: int | None = None) -> None:
    """Compile the wheel's GPU code for GPUs later than Turing, on any machine; trainers here then start without doing so.

    Exit status: 0 compiled; 1 it could not be; 2 wrong input.
    """
    from repro.images.kernel_compiler import Compiler, make_overlay

    architectures = _compiled(arch)
    with exit_statuses(FAILED):
        for architecture in architectures:
            made = make_overlay(Compiler.pinned(architecture), jobs or os.cpu_count() or 1)
            print(
                f"{made.folder}: {made.compiled} fatbins compiled, {made.left} left to the driver, SHA-256 {made.digest}"
            )


def _architectures(arch: tuple[int, ...]) -> tuple[int, ...]:
    """The architectures that ARCH= names, or else those of the GPUs here."""
    from repro.launch.host_environment import gpus

    here = {int(float(gpu["compute_cap"]) * 10) for gpu in gpus() if gpu.get("compute_cap")}
    chosen = arch or tuple(sorted(here))
    if not chosen:
        raise OptionError("ARCH= names the architecture of the host's GPUs, such as 90 for an H100 or H200")
    if strange := [str(architecture) for architecture in chosen if not OLDEST_ARCH <= architecture < 1000]:
        raise OptionError(f"ARCH={','.join(strange)}: the compute capability without its point, from {OLDEST_ARCH} on")
    return chosen


def _compiled(arch: tuple[int, ...]) -> tuple[int, ...]:
    """Those of `_architectures` if all of them are to be compiled for, and the pinned compilers can."""
    from repro.images.kernel_compiler import ARCHITECTURES
    from repro.images.stack import needs_newer_libraries

    chosen = _architectures(arch)
    if old := [str(architecture) for architecture in chosen if not needs_newer_libraries([architecture])]:
        raise OptionError(f"ARCH={','.join(old)}: the wheel has the machine code for it; nothing is to be compiled")
    if unheard := sorted(set(chosen) - set(ARCHITECTURES)):
        there = ", ".join(map(str, ARCHITECTURES))
        raise OptionError(f"ARCH={','.join(map(str, unheard))}: the pinned compilers know no such GPU; it is {there}")
    return chosen


compile_kernels.checks(lambda values: _compiled(values["arch"]))


@kit.checks
def _check_kit(values: Mapping[str, Any]) -> None:
    """Refuse architectures that there are not, and a folder that is there or cannot be made."""
    from repro.images import stack

    folder = values["kit"]
    _architectures(values["arch"])
    if folder.resolve() == stack.KIT:
        raise OptionError(
            f"KIT={folder}: there a checkout keeps what it says of the kit that it was set up from; take another folder"
        )
    check_new(folder, "KIT")


@task(stack="compile in this stack's image, cu102 or cu102-modern (default: in the local environment)")
def compile_cache(
    invocation: Invocation,
    stack: ImageStack | None = None,
    cublas: PathThere | None = None,
    cudnn: PathThere | None = None,
) -> None:
    """Compile the GPU code for this machine's GPU into the driver's cache, on all cores.

    Exit status: that of the compilation; 1 if it cannot be started; 2 wrong input.
    """
    from repro.images.engine import Engine
    from repro.images.pins import load_pins
    from repro.images.stack import stack_of, tag_of
    from repro.images.verify import mounts_of
    from repro.launch.host_environment import gpus
    from repro.utils.paths import ROOT, TRAINER_PYTHON

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with exit_statuses(FAILED):
        needed = stack_of(gpus(), libraries=Libraries(cublas, cudnn)).environment
    cache = Path(needed.get("CUDA_CACHE_PATH") or Path.home() / ".nv" / "ComputeCache")
    if stack:
        cache.mkdir(parents=True, exist_ok=True)
        newer = _newer(load_pins(), [stack], cublas, cudnn)
        with exit_statuses(FAILED):
            mounts = (f"{cache}:{CACHE}", *mounts_of(stack, newer))
            program = ["python", "/opt/repro/warm.py"]
            if status := Engine.connect().follow(tag_of(stack), program, _print, mounts, gpus=True):
                raise Exit("the GPU code was not compiled; the lines above say why", status)
        return
    os.environ |= {**needed, "CUDA_CACHE_PATH": str(cache)}
    os.execv(TRAINER_PYTHON, [str(TRAINER_PYTHON), str(ROOT / "docker/inside/warm.py")])


def _print(text: str) -> None:
    print(text, end="", flush=True)

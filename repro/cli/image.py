"""The tasks around images: what they read from the settings, and what they print."""

import os
import signal
import sys
from pathlib import Path

from invoke import Exit, task

from repro.cli.tasks import BAD_INPUT, FAILED, SETTINGS, check_settings, setting

SETTINGS |= {
    "STACK",
    "BASE",
    "DEBIAN",
    "DEBIAN_SECURITY",
    "NCCL",
    "CA",
    "CUBLAS",
    "CUDNN",
    "BUNDLE",
    "DOCKER",
    "DOCKER_HOST",
    "ONLY",
}
CACHE = "/cache"


class image_errors:
    """Turns what stops an image or a bundle into a message and an exit status."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        from repro.images.engine import ImageError
        from repro.images.offline_bundle import BundleError
        from repro.images.pins import PinError
        from repro.images.stack import StackError
        from repro.runs.record import is_full

        if isinstance(error, PinError | ImageError | BundleError | StackError):
            raise Exit(str(error), FAILED) from error
        if isinstance(error, OSError) and is_full(error):
            where = f"{error.filename} could" if error.filename else "an image or a bundle could"
            raise Exit(f"the disk is full: {where} not be written; free some space and start again", FAILED) from error


def _stacks() -> list[str]:
    from repro.images.stack import IMAGE_STACKS

    if setting("STACK") not in (None, *IMAGE_STACKS):
        raise Exit(f"STACK={setting('STACK')}: it is {' or '.join(IMAGE_STACKS)}, or left out for both", BAD_INPUT)
    return [setting("STACK")] if setting("STACK") else list(IMAGE_STACKS)


def _sources():
    from repro.images.build import Sources

    if setting("NCCL") not in (None, "2.7.3", "2.7.8"):
        raise Exit(f"NCCL={setting('NCCL')}: it is 2.7.8, from a wheel, or 2.7.3, from NVIDIA's repository", BAD_INPUT)
    if setting("CA") and not Path(setting("CA")).is_file():
        raise Exit(f"CA={setting('CA')}: no such file; it holds the CA certificates that the build trusts", BAD_INPUT)
    return Sources(*(setting(name, "") for name in ("BASE", "DEBIAN", "DEBIAN_SECURITY", "NCCL", "CA")))


def _newer(pins, stacks: list[str]) -> dict[str, Path]:
    """The folders with the libraries that cu102-modern mounts: those that CUBLAS and CUDNN name, or the pinned ones."""
    from repro.images.verify import MOUNTED
    from repro.images.wheels import unpack

    folders = {}
    for name in MOUNTED if "cu102-modern" in stacks else ():
        given, wanted = setting(name.upper()), f"lib{name.lower()}.so.*"
        if given and not any(Path(given).glob(wanted)):
            raise Exit(f"{name.upper()}={given}: no {wanted} in this folder", BAD_INPUT)
        folders[name] = Path(given).resolve() if given else unpack(pins, name)
    return folders


def _print_table(columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 400).print(table)


@task
def pins(c):
    """Check that pins, locks, Dockerfile and code agree, and print the pins."""
    from repro.images.pins import check, load_pins, pins_table

    check_settings()
    with image_errors():
        _print_table(*pins_table(load_pins()))
        problems = check()
    if problems:
        raise Exit("the pins do not hold:\n" + "\n".join(problems), FAILED)


@task
def image(c):
    """Build, normalise and load the images [STACK= NCCL= BASE= DEBIAN= DEBIAN_SECURITY= CA=]."""
    from repro.images.build import build
    from repro.images.pins import load_pins

    check_settings()
    stacks, sources = _stacks(), _sources()
    with image_errors():
        for made in build(stacks, load_pins(), sources):
            print(f"{made.tag}  image {made.id}  manifest {made.digest}  {made.size / 1e9:.2f} GB")


@task
def image_check(c):
    """Start the images and hold what their libraries say to the pins [STACK= CUBLAS= CUDNN=]."""
    from repro.images.engine import Engine
    from repro.images.pins import load_pins
    from repro.images.verify import check_image, findings_table
    from repro.launch.host_environment import gpu_count

    check_settings()
    with image_errors():
        pinned, engine = load_pins(), Engine.connect()
        newer = _newer(pinned, _stacks())
        reports = [check_image(stack, pinned, engine, newer, gpu_count() > 0) for stack in _stacks()]
    for report in reports:
        _print_table(*findings_table(report))
        print(f"started, read and ended in {report.start_s:.1f} s, of which OneFlow's import {report.import_s:.1f} s\n")
    if not all(report.holds for report in reports):
        raise Exit("an image is not what the pins say", FAILED)


@task
def image_reproduce(c):
    """Build the images again without a cache and compare the digests [STACK= and as image]."""
    from repro.images.build import reproduce
    from repro.images.pins import load_pins

    check_settings()
    with image_errors():
        problems = reproduce(_stacks(), load_pins(), _sources())
    if problems:
        raise Exit("not reproduced:\n" + "\n".join(problems), FAILED)
    print("reproduced: both builds have the same digests")


@task
def sbom(c):
    """Bill of materials, licences, and a scan of the lock for known vulnerabilities [STACK=]."""
    from repro.images.pins import load_pins
    from repro.images.sbom import scan, scan_lines, write_sbom

    check_settings()
    with image_errors():
        pinned = load_pins()
        for stack in _stacks():
            print(*write_sbom(stack, pinned), sep="\n")
        result = scan(pinned)
    print(*scan_lines(result), sep="\n")
    if not result.holds:
        raise Exit("there are vulnerabilities that docker/vulnerabilities.toml does not accept", FAILED)


@task
def bundle(c):
    """One folder from which a node without a network is set up [BUNDLE=folder]."""
    from repro.images.offline_bundle import write_bundle
    from repro.images.pins import load_pins

    check_settings()
    with image_errors():
        print(write_bundle(Path(setting("BUNDLE", "bundle")), load_pins()))


@task
def bundle_check(c):
    """Whether a bundle is whole [BUNDLE=folder]."""
    from repro.images.offline_bundle import check_bundle

    check_settings()
    folder = Path(setting("BUNDLE", "bundle"))
    with image_errors():
        problems = check_bundle(folder)
    if problems:
        raise Exit("\n".join(problems), FAILED)
    print(f"{folder} is whole")


@task
def warm(c):
    """Compile the GPU code for this machine's GPU into the driver's cache, on all cores [STACK=]."""
    from repro.images.engine import Engine
    from repro.images.pins import load_pins
    from repro.images.stack import stack_of, tag_of
    from repro.images.verify import mounts_of
    from repro.launch.host_environment import gpus
    from repro.utils.paths import ROOT, TRAINER_PYTHON

    check_settings()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with image_errors():
        needed = stack_of(gpus()).environment
        cache = Path(needed.get("CUDA_CACHE_PATH") or Path.home() / ".nv" / "ComputeCache")
        if setting("STACK"):
            (stack,) = _stacks()
            cache.mkdir(parents=True, exist_ok=True)
            mounts = (f"{cache}:{CACHE}", *mounts_of(stack, _newer(load_pins(), [stack])))
            program = ["python", "/opt/repro/warm.py"]
            if status := Engine.connect().follow(tag_of(stack), program, _print, mounts, gpus=True):
                raise Exit("the GPU code was not compiled; the lines above say why", status)
            return
    os.environ |= {**needed, "CUDA_CACHE_PATH": str(cache)}
    os.execv(TRAINER_PYTHON, [str(TRAINER_PYTHON), str(ROOT / "docker/inside/warm.py")])


def _print(text: str) -> None:
    print(text, end="", flush=True)


@task
def image_test(c):
    """The tests that need root and a Docker engine; they start one of their own [ONLY=expression]."""
    check_settings()
    only = ["-k", setting("ONLY")] if setting("ONLY") else []
    os.execv(sys.executable, [sys.executable, "-m", "pytest", "tests/docker", "--timeout=900", "--durations=12", *only])

"""Starts an image and compares the versions that its libraries report with the pins."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.images.engine import Engine, ImageError
from repro.images.pins import Pins, read_lock
from repro.images.recipes import BASELINE, RECIPES
from repro.images.stack import tag_of
from repro.utils.output import TerminalColumn
from repro.utils.paths import ROOT

PROBE_S = 300
PRELOADED = {
    "cu102": {"nccl": "libnccl.so.2"},
    "cu102-modern": {"cublas": "libcublas_forward.so", "cudnn": "libcudnn_forward.so"},
}
MOUNTED = {"cuBLAS": "/opt/cublas", "cuDNN": "/opt/cudnn"}
OWN_IN_THE_WHEEL = ("cublasLt", "cublasXerbla", "cublasCgemmEx")


@dataclass(frozen=True)
class LibraryComparison:
    """One comparison. `holds` is None where it can only be made on a machine with a GPU."""

    what: str
    expected: str
    actual: str
    holds: bool | None
    source: str = ""


@dataclass(frozen=True)
class ImageReport:
    """The comparisons of an image. `start_s` is the container's lifetime, `import_s` the time of importing the framework."""

    stack: str
    findings: tuple[LibraryComparison, ...]
    start_s: float
    import_s: float

    @property
    def holds(self) -> bool:
        """Whether nothing that could be compared differs from the pins."""
        return all(finding.holds is not False for finding in self.findings)


def mounts_of(stack: str, newer: Mapping[str, Path]) -> tuple[str, ...]:
    """The mounts of a stack's containers: for `cu102-modern` the folders with a newer cuBLAS and a newer cuDNN."""
    return tuple(f"{newer[name]}:{MOUNTED[name]}:ro" for name in MOUNTED) if stack == "cu102-modern" else ()


def check_image(stack: str, pins: Pins, engine: Engine, newer: Mapping[str, Path], gpus: bool = False) -> ImageReport:
    """Start a stack's image and compare it with the pins.

    `newer` are the folders that `cu102-modern` mounts: the pinned ones, or others, whose versions are then reported
    and not compared with the pins.
    """
    image, mounts = tag_of(stack), mounts_of(stack, newer)
    versions = expected(pins, stack, engine.labels(image).get("reproduction.nccl", ""))
    started = time.monotonic()
    probed = probe(engine, stack, mounts, gpus)
    given = [f"{name} called" for name in MOUNTED if mounts and newer[name].name != pins.artefact(name).version]
    findings = compare(probed, stack, versions, given)
    return ImageReport(stack, tuple(findings), time.monotonic() - started, probed["import_s"])


def probe(
    engine: Engine,
    stack: str,
    mounts: Sequence[str] = (),
    gpus: bool = False,
    environment: dict[str, str] | None = None,
) -> dict:
    """What a stack's image reports of itself in a container; ImageError if it does not start."""
    image = tag_of(stack)
    output = engine.run(image, RECIPES[stack].probe, mounts, gpus=gpus, environment=environment, timeout_s=PROBE_S)
    if output.status:
        raise ImageError(f"{image} does not start:\n{output.stderr.strip()}")
    return json.loads(output.stdout)


def expected(pins: Pins, stack: str, nccl: str) -> dict[str, str]:
    """Library, or package of baselines -> version that a stack must report.

    `nccl` is the one that the image was built with, by its label.
    """
    if stack == BASELINE:
        locked = read_lock(ROOT / RECIPES[stack].lock, RECIPES[stack].python)
        return {name: version for name, (version, _) in locked.items()}
    versions = pins.expected(stack)
    if f"NCCL {nccl}" in {pin.name for pin in pins.artefacts}:
        versions["NCCL called"] = nccl
    return versions


def compare(probed: dict, stack: str, versions: dict[str, str], given: Collection[str] = ()) -> list[LibraryComparison]:
    """Compare a probe's output with the expected versions; for the names in `given`, any version will do."""
    findings = []
    for name, version in versions.items():
        reported = probed["libraries"].get(name, {"version": None, "source": ""})
        if name in given:
            holds = reported["version"] is not None
            findings.append(
                LibraryComparison(name, "the one given", str(reported["version"]), holds, reported["source"])
            )
            continue
        findings.append(
            LibraryComparison(
                name, version, str(reported["version"]), reported["version"] == version, reported["source"]
            )
        )
    findings += [_reached(probed, prefix, library) for prefix, library in PRELOADED.get(stack, {}).items()]
    findings += _container(probed)
    for name in probed["unknown"]:
        findings.append(LibraryComparison(name, "", "cannot be read without a GPU", None))
    findings += [
        LibraryComparison(name, "any", entry["version"], True, entry["source"])
        for name, entry in probed["libraries"].items()
        if name not in versions
    ]
    return findings


def _reached(probed: dict, prefix: str, library: str) -> LibraryComparison:
    """Every function of NCCL, cuBLAS or cuDNN that OneFlow calls must be in the preloaded library, not some of them."""
    elsewhere = [
        name
        for file, names in probed["called"].items()
        if Path(file).name.split("-")[0] != library
        for name in names
        if name.startswith(prefix) and not _internal(name) and not Path(file).name.startswith(library)
    ]
    count = sum(name.startswith(prefix) for names in probed["called"].values() for name in names) - len(elsewhere)
    reached = f"{count} reach it" + (f", {', '.join(elsewhere)} do not" if elsewhere else "")
    return LibraryComparison(f"{prefix} calls", f"all to {library}", reached, not elsewhere)


def _internal(name: str) -> bool:
    """cuBLAS functions that the wheel's own cuBLAS calls, which is never entered once its users go elsewhere."""
    return name.startswith(OWN_IN_THE_WHEEL) or name.endswith("_largek")


def _container(probed: dict) -> list[LibraryComparison]:
    privileged = probed["privileged_files"]
    return [
        LibraryComparison(
            "libibverbs", "loads", "loads" if probed["libibverbs"] else "is missing", probed["libibverbs"]
        ),
        LibraryComparison(
            "root file system",
            "read-only",
            "writable" if probed["root_writable"] else "read-only",
            not probed["root_writable"],
        ),
        LibraryComparison("setuid and setgid files", "none", ", ".join(privileged) or "none", not privileged),
    ]


def findings_table(report: ImageReport) -> tuple[list[TerminalColumn], list[list[str]]]:
    """Columns and rows in which `make image-check` prints a report."""
    marks = {True: "ok", False: "DIFFERS", None: "unknown"}
    rows = [[marks[f.holds], f.what, f.expected, f.actual, f.source] for f in report.findings]
    columns = [
        TerminalColumn(""),
        TerminalColumn(report.stack),
        *(TerminalColumn(title, wraps=True) for title in ("pinned", "read")),
        TerminalColumn("from", wraps=True, spare=1),
    ]
    return columns, rows

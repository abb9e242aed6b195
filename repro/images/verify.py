"""Starts an image and holds what its libraries say of themselves to the pins."""

import json
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from repro.images.build import ImageError, run_command, tag_of
from repro.images.pins import Pins

PROBE = ["python", "/opt/repro/probe.py", "--image"]
PRELOADED = {
    "cu102": {"nccl": "libnccl.so.2"},
    "cu102-modern": {"cublas": "libcublas_forward.so", "cudnn": "libcudnn_forward.so"},
}
MOUNTED = {"cuBLAS": "/opt/cublas", "cuDNN": "/opt/cudnn"}
OWN_IN_THE_WHEEL = ("cublasLt", "cublasXerbla", "cublasCgemmEx")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `holds` is None where it can only be seen on a machine with a GPU."""

    what: str
    wanted: str
    found: str
    holds: bool | None
    source: str = ""


@dataclass(frozen=True)
class Report:
    """What an image said. `start_s` is the time from `docker run` to its end, `import_s` that of `import oneflow`."""

    stack: str
    findings: tuple[Finding, ...]
    start_s: float
    import_s: float

    @property
    def holds(self) -> bool:
        """Whether nothing that could be looked at differs from the pins."""
        return all(finding.holds is not False for finding in self.findings)


def mounts_of(stack: str, newer: Mapping[str, Path]) -> tuple[str, ...]:
    """What a stack's containers are given: for `cu102-modern` the folders with a newer cuBLAS and a newer cuDNN."""
    return tuple(f"{newer[name]}:{MOUNTED[name]}:ro" for name in MOUNTED) if stack == "cu102-modern" else ()


def check_image(stack: str, pins: Pins, docker: str, newer: Mapping[str, Path], gpus: bool = False) -> Report:
    """Start a stack's image and compare it with the pins.

    `newer` are the folders that `cu102-modern` mounts: the pinned ones, or others, whose versions are then reported
    and not held to the pins.
    """
    mounts = mounts_of(stack, newer)
    started = time.monotonic()
    told = probe(run_command(tag_of(stack), PROBE, docker, mounts, gpus))
    wanted = expected(pins, stack, label(docker, stack, "reproduction.nccl"))
    given = [f"{name} called" for name in MOUNTED if mounts and newer[name].name != pins.artefact(name).version]
    findings = compare(told, stack, wanted, given)
    return Report(stack, tuple(findings), time.monotonic() - started, told["import_s"])


def probe(command: list[str]) -> dict:
    """What the probe prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise ImageError(f"the image does not start:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def label(docker: str, stack: str, name: str) -> str:
    """What the image of a stack says of itself."""
    command = [docker, "image", "inspect", "--format", f'{{{{index .Config.Labels "{name}"}}}}', tag_of(stack)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ImageError(f"the engine has no image {tag_of(stack)}; `make image` builds it")
    return done.stdout.strip()


def expected(pins: Pins, stack: str, nccl: str) -> dict[str, str]:
    """Library -> version that a stack must show; `nccl` is the version that the image was built with, by its label."""
    wanted = pins.expected(stack)
    if f"NCCL {nccl}" in {pin.name for pin in pins.artefacts}:
        wanted["NCCL called"] = nccl
    return wanted


def compare(told: dict, stack: str, wanted: dict[str, str], given: Collection[str] = ()) -> list[Finding]:
    """Hold a probe's report to the versions that are wanted; of what the user has `given`, any version will do."""
    findings = []
    for name, version in wanted.items():
        found = told["libraries"].get(name, {"version": None, "source": ""})
        if name in given:
            holds = found["version"] is not None
            findings.append(Finding(name, "the one given", str(found["version"]), holds, found["source"]))
            continue
        findings.append(Finding(name, version, str(found["version"]), found["version"] == version, found["source"]))
    findings += [_reached(told, prefix, library) for prefix, library in PRELOADED[stack].items()]
    findings += _container(told)
    for name in told["unknown"]:
        findings.append(Finding(name, "", "cannot be read without a GPU", None))
    findings += [
        Finding(name, "any", entry["version"], True, entry["source"])
        for name, entry in told["libraries"].items()
        if name not in wanted
    ]
    return findings


def _reached(told: dict, prefix: str, library: str) -> Finding:
    """Every function of NCCL, cuBLAS or cuDNN that OneFlow calls must be in the preloaded library, not some of them."""
    elsewhere = [
        name
        for file, names in told["called"].items()
        if Path(file).name.split("-")[0] != library
        for name in names
        if name.startswith(prefix) and not _internal(name) and not Path(file).name.startswith(library)
    ]
    count = sum(name.startswith(prefix) for names in told["called"].values() for name in names) - len(elsewhere)
    found = f"{count} reach it" + (f", {', '.join(elsewhere)} do not" if elsewhere else "")
    return Finding(f"{prefix} calls", f"all to {library}", found, not elsewhere)


def _internal(name: str) -> bool:
    """cuBLAS functions that the wheel's own cuBLAS calls, which is never entered once its users go elsewhere."""
    return name.startswith(OWN_IN_THE_WHEEL) or name.endswith("_largek")


def _container(told: dict) -> list[Finding]:
    privileged = told["privileged_files"]
    return [
        Finding("libibverbs", "loads", "loads" if told["libibverbs"] else "is missing", told["libibverbs"]),
        Finding(
            "root file system",
            "read-only",
            "writable" if told["root_writable"] else "read-only",
            not told["root_writable"],
        ),
        Finding("setuid and setgid files", "none", ", ".join(privileged) or "none", not privileged),
    ]


def findings_table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Columns and rows in which `make image-check` prints a report."""
    marks = {True: "ok", False: "DIFFERS", None: "unknown"}
    rows = [[marks[f.holds], f.what, f.wanted, f.found, f.source] for f in report.findings]
    return ["", report.stack, "pinned", "read", "from"], rows

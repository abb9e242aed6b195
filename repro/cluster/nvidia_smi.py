"""Parses nvidia-smi: `-q` and `topo -m`, of drivers from 384 to 580."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from repro.utils.errors import FormatError

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
NOT_SHOWN = "not shown"
# The names of each field, those of newer drivers first.
GPU_FIELDS = {
    "model": ("Product Name",),
    "vbios": ("VBIOS Version",),
    "memory": ("FB Memory Usage/Total",),
    "clock_sm_max": ("Max Clocks/SM",),
    "clock_memory_max": ("Max Clocks/Memory",),
    "clock_graphics_application": ("Applications Clocks/Graphics",),
    "clock_memory_application": ("Applications Clocks/Memory",),
    "power_limit": (
        "GPU Power Readings/Current Power Limit",
        "GPU Power Readings/Power Limit",
        "Power Readings/Power Limit",
    ),
    "ecc": ("ECC Mode/Current", "Ecc Mode/Current"),
    "mig": ("MIG Mode/Current",),
    "persistence": ("Persistence Mode",),
    "compute_mode": ("Compute Mode",),
    "pcie_generation_max": ("PCI/GPU Link Info/PCIe Generation/Max",),
    "pcie_width": ("PCI/GPU Link Info/Link Width/Current",),
}


@dataclass(frozen=True)
class SmiGpu:
    """One GPU of `nvidia-smi -q`: its values as printed, by their path, such as "ECC Mode/Current"."""

    bus_id: str
    values: dict[str, str]

    def field(self, name: str) -> str:
        """A field of GPU_FIELDS under whatever name this driver prints it, NOT_SHOWN where it does not."""
        return next((self.values[path] for path in GPU_FIELDS[name] if path in self.values), NOT_SHOWN)


@dataclass(frozen=True)
class SmiReport:
    """The content of `nvidia-smi -q`: driver, the CUDA version it allows ("" before driver 410), the GPUs in order."""

    driver: str
    cuda: str
    gpus: tuple[SmiGpu, ...]


@dataclass(frozen=True)
class Topology:
    """`nvidia-smi topo -m`: how each two devices are joined, a row for each device; network devices by their names."""

    devices: tuple[str, ...]
    links: tuple[tuple[str, ...], ...]
    affinity: dict[str, str]


def parse_report(text: str) -> SmiReport:
    """The text of `nvidia-smi -q`; FormatError if it is none, or if it shows no GPU."""
    head, *blocks = re.split(r"(?m)^GPU (?=[0-9A-Fa-f]+:)", text)
    top = _tree(head)
    if "NVSMI LOG" not in head or "Driver Version" not in top or not blocks:
        raise FormatError("nvidia-smi -q", text)
    gpus = []
    for block in blocks:
        bus_id, _, rest = block.partition("\n")
        gpus.append(SmiGpu(bus_id.strip(), _tree(rest)))
    return SmiReport(top["Driver Version"], top.get("CUDA Version", ""), tuple(gpus))


def _tree(text: str) -> dict[str, str]:
    """Indented `Name : value` lines as {path: value}; a name without a value opens a level."""
    values: dict[str, str] = {}
    levels: list[tuple[int, str]] = []
    for line in filter(str.strip, text.splitlines()):
        depth = len(line) - len(line.lstrip())
        levels = [(deep, name) for deep, name in levels if deep < depth]
        name, colon, value = (part.strip() for part in re.findall(r"^(.*?)(\s:\s|\s:$|$)(.*)", line)[0])
        if colon:
            values["/".join([*(level for _, level in levels), name])] = value
        else:
            levels.append((depth, name))
    return values


def parse_topology(text: str) -> Topology:
    """The text of `nvidia-smi topo -m`; FormatError if it is none."""
    lines = [line for line in ESCAPES.sub("", text).splitlines() if line.strip()]
    header = next((line.split() for line in lines if re.match(r"\s+GPU0\b", line)), None)
    if header is None:
        raise FormatError("nvidia-smi topo -m", text)
    devices = list(itertools.takewhile(lambda name: name not in ("CPU", "NUMA", "GPU"), header))
    rows = {cells[0]: cells[1:] for cells in map(str.split, lines) if cells[0] in devices}
    if any(len(rows.get(device, [])) < len(devices) for device in devices):
        raise FormatError("nvidia-smi topo -m", text)
    named = dict(re.findall(r"(?m)^\s+(NIC\d+): (\S+)$", text))
    affinity = {device: next(iter(rows[device][len(devices) :]), "") for device in devices if device.startswith("GPU")}
    links = tuple(tuple(rows[device][: len(devices)]) for device in devices)
    return Topology(tuple(named.get(device, device) for device in devices), links, affinity)

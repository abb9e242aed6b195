"""Parses `ibstat`, `iblinkinfo` and /sys/class/infiniband: InfiniBand and RoCE ports and links."""

from __future__ import annotations

import re
from dataclasses import dataclass

from repro.utils.errors import FormatError

CLASS = "/sys/class/infiniband"
LINK = re.compile(
    r"(?P<lid>\d+)\s+(?P<port>\d+)\[[^]]*\] ==\((?:\s*(?P<width>\d+)X\s+(?P<lane>[\d.]+) Gbps(?: \(\w+\))?)?"
    r"\s*(?P<state>\w+)/\s*(?P<physical>\w+)\)==>.*?\"(?P<peer>[^\"]*)\" \((?P<remark>[^)]*)\)"
)


@dataclass(frozen=True)
class Port:
    """One port of an adapter; `rate_gbits` is what it runs at now, `layer` InfiniBand or Ethernet (RoCE)."""

    device: str
    number: int
    model: str
    firmware: str
    state: str
    physical: str
    rate_gbits: float
    layer: str


@dataclass(frozen=True)
class Link:
    """One end of a link in `iblinkinfo`; width 0 where it is down; `remark` says if it could be wider or faster."""

    owner: str
    lid: int
    port: int
    width: int
    lane_gbits: float
    state: str
    physical: str
    peer: str
    remark: str


def parse_ibstat(text: str) -> list[Port]:
    """The ports in the text of `ibstat`; FormatError if it names no adapter."""
    ports = []
    for device, block in re.findall(r"(?ms)^CA '([^']+)'$(.*?)(?=^CA '|\Z)", text):
        about, *parts = re.split(r"(?m)^\s+Port (?=\d+:$)", block)
        adapter = pairs(about)
        for part in parts:
            number, _, rest = part.partition(":")
            port = pairs(rest)
            layer = port.get("Link layer", "")
            ports.append(
                Port(
                    device,
                    int(number),
                    model=adapter.get("CA type", ""),
                    firmware=adapter.get("Firmware version", ""),
                    state=port.get("State", ""),
                    physical=port.get("Physical state", ""),
                    rate_gbits=_number(port.get("Rate", "")),
                    layer="InfiniBand" if layer == "IB" else layer,
                )
            )
    if not ports:
        raise FormatError("ibstat", text)
    return ports


def ports_from_files(files: dict[str, str]) -> list[Port]:
    """The ports in the files of /sys/class/infiniband, {path: text}; none where there are no such files."""
    matches = [re.fullmatch(rf"{CLASS}/([^/]+)/ports/(\d+)/state", path) for path in sorted(files)]
    ports = []
    for device, number in (match.groups() for match in matches if match):
        adapter, port = f"{CLASS}/{device}", f"{CLASS}/{device}/ports/{number}"
        state, physical = (files.get(f"{port}/{name}", "").partition(": ")[2] for name in ("state", "phys_state"))
        ports.append(
            Port(
                device,
                int(number),
                model=files.get(f"{adapter}/hca_type", ""),
                firmware=files.get(f"{adapter}/fw_ver", ""),
                state=state.capitalize(),
                physical=physical,
                rate_gbits=_number(files.get(f"{port}/rate", "")),
                layer=files.get(f"{port}/link_layer", ""),
            )
        )
    return ports


def parse_iblinkinfo(text: str) -> list[Link]:
    """The link ends in the text of `iblinkinfo`, with or without `--line`; FormatError if there are none."""
    links, owner = [], ""
    for line in text.splitlines():
        header = re.match(r"(?:CA|Switch|Router): (?:0x[0-9a-f]+ )?(.+):$", line)
        one_line = re.match(r"0x[0-9a-f]+ \"\s*([^\"]*)\"", line)
        owner = header[1] if header else one_line[1] if one_line else owner
        if match := LINK.search(line):
            links.append(
                Link(
                    owner,
                    int(match["lid"]),
                    port=int(match["port"]),
                    width=int(match["width"] or 0),
                    lane_gbits=float(match["lane"] or 0),
                    state=match["state"],
                    physical=match["physical"],
                    peer=match["peer"],
                    remark=match["remark"].strip(),
                )
            )
    if not links:
        raise FormatError("iblinkinfo", text)
    return links


def pairs(text: str) -> dict[str, str]:
    """Lines of the form `Name: value` as a dictionary; other lines are names without a value."""
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _number(text: str) -> float:
    """The number that a text begins with, 0 if it begins with none."""
    match = re.match(r"[\d.]+", text)
    return float(match[0]) if match else 0.0

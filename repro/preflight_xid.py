"""The check of the driver's errors, which it writes to the kernel's log as numbers called Xid."""

from __future__ import annotations

import re

from repro.preflight import Finding, Machine, failed, ok, unavailable, warning

# NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors): those that a program causes; the rest are the machine's.
XIDS_OF_PROGRAMS = {8, 11, 13, 31, 43, 45, 68, 69, 109, 137}
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+),")
XID_NAMES = {
    13: "exception in a kernel",
    31: "illegal memory access",
    43: "a program's error",
    45: "program ended",
    48: "uncorrectable memory error",
    61: "microcontroller",
    62: "microcontroller",
    63: "memory row retired",
    64: "memory row not retired",
    74: "NVLink error",
    79: "GPU fell off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GPU firmware does not answer",
    120: "GPU firmware error",
}


def look_xid(machine: Machine) -> Finding:
    if machine.wanted.gpu == "":
        return unavailable("a cluster without GPUs")
    done = machine.run(["dmesg"])
    if done.status:
        done = machine.run(["dmesg"], sudo=True)
    if done.status:
        return unavailable("the kernel's log may not be read here", "run as root, or allow sudo without a password")
    found = [(match[1], int(match[2])) for match in XID.finditer(done.stdout)]
    if not found:
        return ok("no Xid since the machine started")
    serious = [entry for entry in found if entry[1] not in XIDS_OF_PROGRAMS]
    counted = {}
    for entry in serious or found:
        counted[entry] = counted.get(entry, 0) + 1
    text = ", ".join(f"{bus}: Xid {number}{_named(number)} x {count}" for (bus, number), count in counted.items())
    if serious:
        return failed(
            text,
            "The driver met an error that is no program's fault.",
            "look it up in NVIDIA's Xid catalogue; reset or reboot, replace if it returns",
        )
    return warning(
        text,
        "Programs failed on this GPU before; that is usually their own fault.",
        "nothing, if you know the program; else look up the number in NVIDIA's Xid catalogue",
    )


def _named(number: int) -> str:
    return f" ({XID_NAMES[number]})" if number in XID_NAMES else ""

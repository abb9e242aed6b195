"""Checks of GPUs: are they all there, free, healthy, at their clocks, and can they reach each other."""

from __future__ import annotations

import re

from repro.cluster.nvidia_smi import parse_topology
from repro.preflight.framework import (
    UNAVAILABLE,
    Check,
    CheckAborted,
    Finding,
    Machine,
    failed,
    ok,
    unavailable,
    warning,
)
from repro.utils.errors import FormatError

QUERY = ("nvidia-smi", "--format=csv,noheader,nounits")
MEMORY_IN_USE_MIB = 1024
THROTTLED = {
    0x8: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}
POWER_CAP = 0x4
NO_VALUE = ("[N/A]", "N/A", "[Not Supported]", "[GPU requires reset]", "[Unknown Error]")


def query(machine: Machine, *fields: str) -> list[dict[str, str]]:
    """A row of these fields for each GPU; CheckAborted without a GPU, or if nvidia-smi fails."""
    if machine.expected.gpu == "":
        raise CheckAborted(unavailable("a cluster without GPUs"))
    try:
        done = machine.run([QUERY[0], f"--query-gpu={','.join(fields)}", *QUERY[1:]])
    except CheckAborted as aborted:
        raise (
            aborted if machine.expected.gpu else CheckAborted(unavailable("no NVIDIA driver here, so no GPU"))
        ) from None
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    if done.status:
        unknown = re.search(r'Field "(\S+)" is not a valid field', done.stdout + done.stderr)
        if unknown:
            raise CheckAborted(unavailable(f"this driver does not report {unknown[1]}"))
        found = lines[0] if lines else f"nvidia-smi: status {done.status}"
        fix = "load or reinstall the driver; `make provision` does it"
        raise CheckAborted(failed(found, "No program can use the GPUs.", fix))
    cells = [[cell.strip() for cell in line.split(",")] for line in lines]
    rows = [dict(zip(fields, row, strict=True)) for row in cells if len(row) == len(fields)]
    if not rows:
        raise CheckAborted(unavailable("nvidia-smi shows no GPU"))
    return rows


def each(rows: list[dict], field: str) -> str:
    """ "index: value" of a field, one after the other."""
    return ", ".join(f"GPU {row['index']}: {row[field]}" for row in rows)


def check_present(machine: Machine) -> Finding:
    expected = machine.expected
    impact = "Ranks would have no GPU, or another one than the run claims."
    try:
        names = [row["name"] for row in query(machine, "index", "name")]
    except CheckAborted as aborted:
        if expected.gpu and aborted.finding.result == UNAVAILABLE:
            return failed(aborted.finding.found, impact, aborted.finding.fix or "see `dmesg`, reseat or replace")
        raise
    found = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    if expected.gpu and names != [expected.gpu] * expected.gpus:
        described = f"{expected.gpus} x {expected.gpu}"
        return failed(
            f"{found}; the inventory says {described}",
            impact,
            "a GPU may have fallen off the bus (see `dmesg`); else correct the inventory",
        )
    if len(set(names)) > 1:
        return warning(found, "The slowest kind decides a run's speed.", "hide the others: CUDA_VISIBLE_DEVICES=")
    return ok(found)


def check_busy(machine: Machine) -> Finding:
    rows = query(machine, "index", "memory.used", "utilization.gpu")
    table = machine.text([QUERY[0], "--query-compute-apps=gpu_bus_id,pid,process_name,used_memory", *QUERY[1:]])
    programs = [[cell.strip() for cell in line.split(",")] for line in table.splitlines() if line.count(",") >= 3]
    used = [row for row in rows if row["memory.used"].isdigit() and int(row["memory.used"]) > MEMORY_IN_USE_MIB]
    if programs or used:
        names = ", ".join(f"{','.join(name)} (pid {pid}, {memory} MiB)" for _, pid, *name, memory in programs)
        return failed(
            f"in use by {names}" if names else f"memory in use, MiB: {each(used, 'memory.used')}",
            "Another program shares the GPU: speed and memory are not the run's own.",
            "wait for it or end it; memory without a program is often one in another container",
        )
    return ok(f"{len(rows)} idle")


def check_throttled(machine: Machine) -> Finding:
    field = "clocks_throttle_reasons.active"
    try:
        rows = query(machine, "index", field, "temperature.gpu")
    except CheckAborted as aborted:
        if aborted.finding.found != f"this driver does not report {field}":
            raise
        field = "clocks_event_reasons.active"  # its name since driver 535
        rows = query(machine, "index", field, "temperature.gpu")
    masks = {row["index"]: int(row[field], 16) for row in rows if row[field].startswith("0x")}
    if not masks:
        return unavailable("these GPUs do not report why they slow down")
    slowed = {index: [name for bit, name in THROTTLED.items() if mask & bit] for index, mask in masks.items()}
    slowed = {index: names for index, names in slowed.items() if names}
    if slowed:
        found = ", ".join(f"GPU {index}: {' and '.join(names)}" for index, names in slowed.items())
        return failed(
            f"{found} (temperature {each(rows, 'temperature.gpu')} C)",
            "The GPU runs slower than it can, and not evenly.",
            "check fans, air flow and power supply; `nvidia-smi -q -d PERFORMANCE` says more",
        )
    capped = [index for index, mask in masks.items() if mask & POWER_CAP]
    if capped:
        return warning(
            f"GPU {', '.join(capped)} at the power cap while idle",
            "The power limit is set low.",
            "compare `nvidia-smi -q -d POWER` with the default limit; `nvidia-smi -pl` sets it",
        )
    return ok(f"no GPU is held back; {each(rows, 'temperature.gpu')} C")


def check_clocks(machine: Machine) -> Finding:
    fields = [
        f"clocks.{kind}.{which}"
        for which in ("graphics", "memory")
        for kind in ("applications", "default_applications")
    ]
    rows = query(machine, "index", *fields)
    known = [row for row in rows if not any(row[field].startswith("[") for field in fields)]
    if not known:
        return ok("these GPUs have no application clocks: they run as fast as they can")
    apart = [row for row in known if row[fields[0]] != row[fields[1]] or row[fields[2]] != row[fields[3]]]
    if apart:
        found = ", ".join(f"GPU {row['index']}: {row[fields[0]]} MHz, by default {row[fields[1]]}" for row in apart)
        return warning(
            found,
            "Application clocks were set: figures differ from those of other machines.",
            "sudo nvidia-smi -rac puts them back (FIX=1)",
        )
    return ok(f"application clocks as by default: {each(known, fields[0])} MHz")


def reset_clocks(machine: Machine) -> None:
    machine.text([QUERY[0], "-rac"], sudo=True)


def check_ecc(machine: Machine) -> Finding:
    kinds = (
        "ecc.mode.current",
        "ecc.errors.uncorrected.volatile.total",
        "ecc.errors.uncorrected.aggregate.total",
        "ecc.errors.corrected.volatile.total",
        "retired_pages.pending",
    )
    mode, now, ever, mild, pending = kinds
    rows = query(machine, "index", *kinds)
    if all(row[mode] in NO_VALUE for row in rows):
        return unavailable("these GPUs have no ECC")
    if any(row[now].isdigit() and int(row[now]) for row in rows):
        return failed(
            f"uncorrectable errors since the driver was loaded: {each(rows, now)}",
            "A program that met one was ended, or computed with wrong numbers.",
            "reset the GPU or reboot; replace it if it comes back",
        )
    if any(row[pending] == "Yes" for row in rows):
        return failed(
            f"memory waits to be retired: {each(rows, pending)}",
            "The next error may end a run.",
            "reboot the machine: pages are retired then",
        )
    if remapped := _remapped(machine):
        return failed(remapped, "The next error may end a run.", "reset the GPU; replace it if rows cannot be remapped")
    if any(row[mode] == "Disabled" for row in rows):
        return warning(
            f"ECC: {each(rows, mode)}",
            "Errors stay unnoticed, and memory is a little faster and larger.",
            "sudo nvidia-smi -e 1, then reboot",
        )
    before = [row for row in rows if row[ever].isdigit() and int(row[ever])]
    many = [row for row in rows if row[mild].isdigit() and int(row[mild])]
    if before or many:
        history = f"uncorrectable in the past: {each(before, ever)}" if before else f"corrected: {each(many, mild)}"
        return warning(history, "The memory has a history; results are right.", "watch it; compare with other GPUs")
    return ok("ECC is on, no errors")


def _remapped(machine: Machine) -> str:
    """Problems with the replacement of bad memory rows, which GPUs do since Ampere; older drivers know no such query."""
    fields = ("remapped_rows.pending", "remapped_rows.failure")
    done = machine.run([QUERY[0], f"--query-remapped-rows={','.join(('gpu_bus_id', *fields))}", *QUERY[1:]])
    rows = [
        line.split(", ") for line in done.stdout.splitlines() if done.status == 0 and line.count(",") == len(fields)
    ]
    problems = [
        f"{bus}: a bad row {what}"
        for bus, *values in rows
        for value, what in zip(values, ("waits to be remapped", "cannot be remapped"), strict=True)
        if value in ("Yes", "1")
    ]
    return ", ".join(problems)


def check_persistence(machine: Machine) -> Finding:
    rows = query(machine, "index", "persistence_mode")
    off = [row["index"] for row in rows if row["persistence_mode"] == "Disabled"]
    if off:
        return warning(
            f"off on GPU {', '.join(off)}",
            "The driver unloads between programs: each start takes longer.",
            "sudo nvidia-smi -pm 1 (FIX=1), or nvidia-persistenced",
        )
    return ok("on")


def set_persistence(machine: Machine) -> None:
    machine.text([QUERY[0], "-pm", "1"], sudo=True)


def check_peers(machine: Machine) -> Finding:
    count = len(query(machine, "index", "name"))
    if count < 2:
        return unavailable("one GPU has no peer")
    cells = matrix(machine.text([QUERY[0], "topo", "-p2p", "r"]))
    if len(cells) != count * (count - 1):
        return unavailable("`nvidia-smi topo -p2p r` does not list all of them")
    closed = [f"GPU {one}-{other}: {cell}" for (one, other), cell in cells.items() if one < other and cell != "OK"]
    if closed:
        return failed(
            ", ".join(closed),
            "These GPUs exchange data through host memory, many times slower.",
            "switch off PCIe ACS and the IOMMU; with NVSwitch, start nvidia-fabricmanager",
        )
    return ok(f"all {count} reach each other")


def matrix(text: str) -> dict[tuple[int, int], str]:
    """The cells between two GPUs of what `nvidia-smi topo` prints, by their indices; CheckAborted if it is no matrix."""
    try:
        table = parse_topology(text)
    except FormatError as error:
        raise CheckAborted(unavailable(str(error))) from error
    gpus = range(sum(device.startswith("GPU") for device in table.devices))
    return {(one, other): table.links[one][other] for one in gpus for other in gpus if one != other}


def links(machine: Machine) -> tuple[tuple[int, ...], ...] | None:
    """NVLinks between each two GPUs by `nvidia-smi topo -m`; None where it shows none."""
    cells = matrix(machine.text([QUERY[0], "topo", "-m"]))
    count = max((one for one, _ in cells), default=-1) + 1
    table = tuple(
        tuple(int(cells[i, j][2:]) if i != j and cells[i, j].startswith("NV") else 0 for j in range(count))
        for i in range(count)
    )
    return table if any(map(any, table)) else None


def check_container(machine: Machine) -> Finding:
    expected = machine.expected
    if not expected.containers:
        return unavailable("runs here need no container")
    ask = ["--gpus", "all", expected.image, "nvidia-smi", "-L"] if expected.gpu else [expected.image, "true"]
    start = ["docker", "run", "--rm", "--network", "none", "--read-only", "--pull", "never"]
    impact, fix = "Trainers cannot start here.", "`make provision` sets up engine, NVIDIA container toolkit and image"
    try:
        done = machine.run([*start, *ask], timeout=120)
    except CheckAborted as aborted:
        return failed(aborted.finding.found, impact, fix)
    if done.status:
        lines = [line for line in (done.stderr.strip() or done.stdout.strip()).splitlines() if "--help" not in line]
        return failed(lines[-1] if lines else f"status {done.status}", impact, fix)
    if not expected.gpu:
        return ok(f"a container of {expected.image[:19]} starts")
    count = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    if count != expected.gpus:
        return failed(
            f"{count} GPUs in a container, {expected.gpus} on the machine",
            "Some ranks would have no GPU.",
            "check NVIDIA_VISIBLE_DEVICES and /etc/nvidia-container-runtime/config.toml",
        )
    return ok(f"{count} GPUs in a container of {expected.image[:19]}")


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


def check_xid(machine: Machine) -> Finding:
    if machine.expected.gpu == "":
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
    counted: dict[tuple[str, int], int] = {}
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


CHECKS = (
    Check("gpus", "the GPUs are there", check_present),
    Check("gpu-busy", "nothing else uses the GPUs", check_busy),
    Check("gpu-throttled", "no GPU is slowed down", check_throttled),
    Check("gpu-clocks", "application clocks", check_clocks, reset_clocks),
    Check("gpu-ecc", "memory errors", check_ecc),
    Check("gpu-xid", "the driver's errors in the kernel log", check_xid),
    Check("gpu-persistence", "the driver stays loaded", check_persistence, set_persistence),
    Check("gpu-peers", "GPUs reach each other's memory", check_peers),
    Check("container", "a container starts and sees all GPUs", check_container),
)

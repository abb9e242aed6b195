"""Checks of GPUs: presence, other users, health, clocks, and peer access."""

from __future__ import annotations

import re

from repro.cluster.nvidia_smi import parse_topology
from repro.preflight.framework import (
    UNAVAILABLE,
    CheckAborted,
    CheckResult,
    Machine,
    PreflightCheck,
    failed,
    ok,
    unavailable,
    warning,
)
from repro.utils.errors import FormatError
from repro.utils.i18n import N_, Message

QUERY = ("nvidia-smi", "--format=csv,noheader,nounits")
MEMORY_IN_USE_MIB = 1024
THROTTLED = {
    0x8: N_("hardware slowdown"),
    0x20: N_("software thermal limit"),
    0x40: N_("hardware thermal limit"),
    0x80: N_("power brake"),
}
POWER_CAP = 0x4
PENDING, UNMAPPABLE = N_("{bus}: a bad row is waiting to be remapped"), N_("{bus}: a bad row cannot be remapped")
NO_VALUE = ("[N/A]", "N/A", "[Not Supported]", "[GPU requires reset]", "[Unknown Error]")


def query(machine: Machine, *fields: str) -> list[dict[str, str]]:
    """One row of these fields per GPU; CheckAborted without a GPU, or if nvidia-smi fails."""
    if machine.expected.gpu == "":
        raise CheckAborted(unavailable(Message("a cluster without GPUs")))
    try:
        done = machine.run([QUERY[0], f"--query-gpu={','.join(fields)}", *QUERY[1:]])
    except CheckAborted as aborted:
        raise (
            aborted
            if machine.expected.gpu
            else CheckAborted(unavailable(Message("no NVIDIA driver on this machine, so no GPU")))
        ) from None
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    if done.status:
        unknown = re.search(r'Field "(\S+)" is not a valid field', done.stdout + done.stderr)
        if unknown:
            raise CheckAborted(unavailable(Message("this driver does not report {field}", field=unknown[1])))
        message = lines[0] if lines else Message("nvidia-smi: status {status}", status=done.status)
        fix = "load or reinstall the driver; `make provision` does it"
        raise CheckAborted(failed(message, "No program can use the GPUs.", fix))
    cells = [[cell.strip() for cell in line.split(",")] for line in lines]
    rows = [dict(zip(fields, row, strict=True)) for row in cells if len(row) == len(fields)]
    if not rows:
        raise CheckAborted(unavailable(Message("nvidia-smi shows no GPU")))
    return rows


def of_gpus(rows: list[dict], field: str) -> str:
    """ "GPU index: value" for every GPU, separated by commas."""
    return ", ".join(f"GPU {row['index']}: {row[field]}" for row in rows)


def check_present(machine: Machine) -> CheckResult:
    """The GPUs of the inventory, or of one model where no inventory says which."""
    expected = machine.expected
    impact = "Ranks would have no GPU, or a different one than the run records."
    try:
        names = [row["name"] for row in query(machine, "index", "name")]
    except CheckAborted as aborted:
        if expected.gpu and aborted.finding.result == UNAVAILABLE:
            return failed(aborted.finding.facts, impact, aborted.finding.fix or "see `dmesg`, reseat or replace")
        raise
    models = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    if expected.gpu and names != [expected.gpu] * expected.gpus:
        described = f"{expected.gpus} x {expected.gpu}"
        return failed(
            Message("{found}; the inventory says {expected}", found=models, expected=described),
            impact,
            "a GPU may have fallen off the bus (see `dmesg`); otherwise correct the inventory",
        )
    if len(set(names)) > 1:
        return warning(
            models, "The slowest model determines the speed of a run.", "hide the others: CUDA_VISIBLE_DEVICES="
        )
    return ok(models)


def check_busy(machine: Machine) -> CheckResult:
    """Failed where another program has a GPU, or more than MEMORY_IN_USE_MIB of its memory is in use."""
    rows = query(machine, "index", "memory.used", "utilization.gpu")
    table = machine.text([QUERY[0], "--query-compute-apps=gpu_bus_id,pid,process_name,used_memory", *QUERY[1:]])
    programs = [[cell.strip() for cell in line.split(",")] for line in table.splitlines() if line.count(",") >= 3]
    used = [row for row in rows if row["memory.used"].isdigit() and int(row["memory.used"]) > MEMORY_IN_USE_MIB]
    if programs or used:
        names = ", ".join(f"{','.join(name)} (pid {pid}, {memory} MiB)" for _, pid, *name, memory in programs)
        return failed(
            Message("in use by {programs}", programs=names)
            if names
            else Message("memory in use, MiB: {gpus}", gpus=of_gpus(used, "memory.used")),
            "Another program shares the GPU and distorts speed and memory.",
            "wait for it or end it; memory without a program is often held by another container",
        )
    return ok(Message("{n} idle", n=len(rows)))


def check_throttled(machine: Machine) -> CheckResult:
    """Failed where a GPU slows itself down for a reason of THROTTLED; a power cap is a warning."""
    field = "clocks_throttle_reasons.active"
    try:
        rows = query(machine, "index", field, "temperature.gpu")
    except CheckAborted as aborted:
        if aborted.finding.facts != Message("this driver does not report {field}", field=field):
            raise
        field = "clocks_event_reasons.active"  # its name since driver 535
        rows = query(machine, "index", field, "temperature.gpu")
    masks = {row["index"]: int(row[field], 16) for row in rows if row[field].startswith("0x")}
    if not masks:
        return unavailable(Message("these GPUs do not report why they slow down"))
    slowed = {index: [name for bit, name in THROTTLED.items() if mask & bit] for index, mask in masks.items()}
    slowed = {index: names for index, names in slowed.items() if names}
    if slowed:
        messages = [
            Message("GPU {index}: {reasons}", index=index, reasons=[Message(name) for name in names])
            for index, names in slowed.items()
        ]
        return failed(
            Message("{found} (temperature in °C: {heat})", found=messages, heat=of_gpus(rows, "temperature.gpu")),
            "The GPU runs below its speed, and not at a constant one.",
            "check fans, air flow and power supply; see `nvidia-smi -q -d PERFORMANCE`",
        )
    capped = [index for index, mask in masks.items() if mask & POWER_CAP]
    if capped:
        return warning(
            Message("GPU {gpus} at the power cap while idle", gpus=", ".join(capped)),
            "The power limit is set low.",
            "compare `nvidia-smi -q -d POWER` with the default limit; `nvidia-smi -pl` sets it",
        )
    return ok(Message("no GPU is throttled; temperature in °C: {heat}", heat=of_gpus(rows, "temperature.gpu")))


def check_clocks(machine: Machine) -> CheckResult:
    """A warning where application clocks (MHz) differ from the GPU's defaults."""
    fields = [
        f"clocks.{kind}.{which}"
        for which in ("graphics", "memory")
        for kind in ("applications", "default_applications")
    ]
    rows = query(machine, "index", *fields)
    with_clocks = [row for row in rows if not any(row[field].startswith("[") for field in fields)]
    if not with_clocks:
        return ok(Message("these GPUs have no application clocks, so they run at full speed"))
    set_to, normal = fields[:2]
    apart = [row for row in with_clocks if row[set_to] != row[normal] or row[fields[2]] != row[fields[3]]]
    if apart:
        messages = [
            Message("GPU {index}: {set} MHz, default {normal}", index=row["index"], set=row[set_to], normal=row[normal])
            for row in apart
        ]
        return warning(
            Message("{items}", items=messages),
            "Application clocks were changed, so figures differ from those of other machines.",
            "sudo nvidia-smi -rac resets them (FIX=1)",
        )
    return ok(Message("application clocks at their default: {clocks} MHz", clocks=of_gpus(with_clocks, set_to)))


def reset_clocks(machine: Machine) -> None:
    """Set application clocks to their defaults; needs root."""
    machine.text([QUERY[0], "-rac"], sudo=True)


def check_ecc(machine: Machine) -> CheckResult:
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
        return unavailable(Message("these GPUs have no ECC"))
    if any(row[now].isdigit() and int(row[now]) for row in rows):
        return failed(
            Message("uncorrectable errors since the driver was loaded: {gpus}", gpus=of_gpus(rows, now)),
            "Programs that hit one were ended, or computed wrong results.",
            "reset the GPU or reboot; replace it if the errors return",
        )
    if any(row[pending] == "Yes" for row in rows):
        return failed(
            Message("memory pages pending retirement: {gpus}", gpus=of_gpus(rows, pending)),
            "The next error may end a run.",
            "reboot the machine, which retires the pages",
        )
    if remapped := _remapped(machine):
        return failed(remapped, "The next error may end a run.", "reset the GPU; replace it if rows cannot be remapped")
    if any(row[mode] == "Disabled" for row in rows):
        return warning(
            Message("ECC: {gpus}", gpus=of_gpus(rows, mode)),
            "Memory errors go unnoticed; memory is slightly faster and larger.",
            "sudo nvidia-smi -e 1, then reboot",
        )
    before = [row for row in rows if row[ever].isdigit() and int(row[ever])]
    many = [row for row in rows if row[mild].isdigit() and int(row[mild])]
    if before or many:
        history = (
            Message("uncorrectable in the past: {gpus}", gpus=of_gpus(before, ever))
            if before
            else Message("corrected: {gpus}", gpus=of_gpus(many, mild))
        )
        return warning(
            history, "The memory had errors before; results are correct.", "watch it; compare with other GPUs"
        )
    return ok(Message("ECC is on, no errors"))


def _remapped(machine: Machine) -> Message | None:
    """Problems with the remapping of bad memory rows (Ampere and later); None for old drivers without this query."""
    fields = ("remapped_rows.pending", "remapped_rows.failure")
    done = machine.run([QUERY[0], f"--query-remapped-rows={','.join(('gpu_bus_id', *fields))}", *QUERY[1:]])
    rows = [
        line.split(", ") for line in done.stdout.splitlines() if done.status == 0 and line.count(",") == len(fields)
    ]
    problems = [
        Message(problem, bus=bus)
        for bus, *values in rows
        for value, problem in zip(values, (PENDING, UNMAPPABLE), strict=True)
        if value in ("Yes", "1")
    ]
    return Message("{items}", items=problems) if problems else None


def check_persistence(machine: Machine) -> CheckResult:
    """A warning where the driver unloads as soon as no program uses the GPU."""
    rows = query(machine, "index", "persistence_mode")
    off = [row["index"] for row in rows if row["persistence_mode"] == "Disabled"]
    if off:
        return warning(
            Message("off on GPU {gpus}", gpus=", ".join(off)),
            "The driver unloads between programs, so each start takes longer.",
            "sudo nvidia-smi -pm 1 (FIX=1), or nvidia-persistenced",
        )
    return ok(Message("on"))


def set_persistence(machine: Machine) -> None:
    """Keep the driver loaded; needs root."""
    machine.text([QUERY[0], "-pm", "1"], sudo=True)


def check_peers(machine: Machine) -> CheckResult:
    """Failed where two GPUs of the machine cannot read each other's memory (`nvidia-smi topo -p2p r`)."""
    count = len(query(machine, "index", "name"))
    if count < 2:
        return unavailable(Message("only one GPU"))
    cells = matrix(machine.text([QUERY[0], "topo", "-p2p", "r"]))
    if len(cells) != count * (count - 1):
        return unavailable(Message("`nvidia-smi topo -p2p r` does not list all GPUs"))
    closed = [f"GPU {one}-{other}: {cell}" for (one, other), cell in cells.items() if one < other and cell != "OK"]
    if closed:
        return failed(
            ", ".join(closed),
            "These GPUs exchange data through host memory, which is many times slower.",
            "switch off PCIe ACS and the IOMMU; with NVSwitch, start nvidia-fabricmanager",
        )
    return ok(Message("all {n} GPUs reach each other", n=count))


def matrix(text: str) -> dict[tuple[int, int], str]:
    """The cells of an `nvidia-smi topo` matrix by pairs of GPU indices; CheckAborted if the text is not a matrix."""
    try:
        table = parse_topology(text)
    except FormatError as error:
        raise CheckAborted(unavailable(str(error))) from error
    gpus = range(sum(device.startswith("GPU") for device in table.devices))
    return {(one, other): table.links[one][other] for one in gpus for other in gpus if one != other}


def links(machine: Machine) -> tuple[tuple[int, ...], ...] | None:
    """Number of NVLinks between every two GPUs, from `nvidia-smi topo -m`; None if there are none."""
    cells = matrix(machine.text([QUERY[0], "topo", "-m"]))
    count = max((one for one, _ in cells), default=-1) + 1
    table = tuple(
        tuple(int(cells[i, j][2:]) if i != j and cells[i, j].startswith("NV") else 0 for j in range(count))
        for i in range(count)
    )
    return table if any(map(any, table)) else None


def check_container(machine: Machine) -> CheckResult:
    """Failed where a container of the trainer image does not start, or does not see the GPUs."""
    expected = machine.expected
    if not expected.containers:
        return unavailable(Message("runs on this machine need no container"))
    image = expected.image
    if expected.manifest and not machine.run(["docker", "image", "inspect", expected.manifest]).status:
        image = expected.manifest
    ask = ["--gpus", "all", image, "nvidia-smi", "-L"] if expected.gpu else [image, "true"]
    start = ["docker", "run", "--rm", "--network", "none", "--read-only", "--pull", "never"]
    impact, fix = (
        "Trainers cannot start on this machine.",
        "`make provision` sets up engine, NVIDIA container toolkit and image",
    )
    try:
        done = machine.run([*start, *ask], timeout=120)
    except CheckAborted as aborted:
        return failed(aborted.finding.facts, impact, fix)
    if done.status:
        lines = [line for line in (done.stderr.strip() or done.stdout.strip()).splitlines() if "--help" not in line]
        return failed(lines[-1] if lines else Message("status {status}", status=done.status), impact, fix)
    if not expected.gpu:
        return ok(Message("a container of {image} starts", image=image[:19]))
    count = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    if count != expected.gpus:
        return failed(
            Message("{inside} GPUs in a container, {outside} on the machine", inside=count, outside=expected.gpus),
            "Some ranks would have no GPU.",
            "check NVIDIA_VISIBLE_DEVICES and /etc/nvidia-container-runtime/config.toml",
        )
    return ok(Message("{n} GPUs in a container of {image}", n=count, image=image[:19]))


# NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors): caused by programs; all others by the machine.
XIDS_OF_PROGRAMS = {8, 11, 13, 31, 43, 45, 68, 69, 109, 137}
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+),")
XID_NAMES = {
    13: N_("exception in a kernel"),
    31: N_("illegal memory access"),
    43: N_("a program's error"),
    45: N_("program ended"),
    48: N_("uncorrectable memory error"),
    61: N_("microcontroller"),
    62: N_("microcontroller"),
    63: N_("memory row retired"),
    64: N_("memory row not retired"),
    74: N_("NVLink error"),
    79: N_("GPU fell off the bus"),
    92: N_("many corrected memory errors"),
    94: N_("contained memory error"),
    95: N_("uncontained memory error"),
    119: N_("GPU firmware does not answer"),
    120: N_("GPU firmware error"),
}


def check_xid(machine: Machine) -> CheckResult:
    """Errors of the driver (Xid) in the kernel log since the machine started; those of programs are a warning."""
    if machine.expected.gpu == "":
        return unavailable(Message("a cluster without GPUs"))
    done = machine.run(["dmesg"])
    if done.status:
        done = machine.run(["dmesg"], sudo=True)
    if done.status:
        return unavailable(
            Message("no permission to read the kernel log"), "run as root, or allow sudo without a password"
        )
    entries = [(match[1], int(match[2])) for match in XID.finditer(done.stdout)]
    if not entries:
        return ok(Message("no Xid since the machine started"))
    serious = [entry for entry in entries if entry[1] not in XIDS_OF_PROGRAMS]
    counted: dict[tuple[str, int], int] = {}
    for entry in serious or entries:
        counted[entry] = counted.get(entry, 0) + 1
    text = Message("{items}", items=[_xid(bus, number, count) for (bus, number), count in counted.items()])
    if serious:
        return failed(
            text,
            "The driver reported an error that no program causes.",
            "look it up in NVIDIA's Xid catalogue; reset or reboot; replace the GPU if it returns",
        )
    return warning(
        text,
        "Programs failed on this GPU before, usually through their own fault.",
        "nothing if you know the program; otherwise look up the number in NVIDIA's Xid catalogue",
    )


def _xid(bus: str, number: int, count: int) -> Message:
    facts = {"bus": bus, "number": number, "count": count}
    if number not in XID_NAMES:
        return Message("{bus}: Xid {number} x {count}", **facts)
    return Message("{bus}: Xid {number} ({name}) x {count}", name=Message(XID_NAMES[number]), **facts)


CHECKS = (
    PreflightCheck("gpus", "the GPUs are present", check_present),
    PreflightCheck("gpu-busy", "no other program uses the GPUs", check_busy),
    PreflightCheck("gpu-throttled", "no GPU is throttled", check_throttled),
    PreflightCheck("gpu-clocks", "application clocks", check_clocks, reset_clocks),
    PreflightCheck("gpu-ecc", "memory errors", check_ecc),
    PreflightCheck("gpu-xid", "the driver's errors in the kernel log", check_xid),
    PreflightCheck("gpu-persistence", "persistence mode", check_persistence, set_persistence),
    PreflightCheck("gpu-peers", "GPUs reach each other's memory", check_peers),
    PreflightCheck("container", "a container starts and sees all GPUs", check_container),
)

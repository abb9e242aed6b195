"""One virtual machine: QEMU's command line, whether KVM boots a guest here, its start and its end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from repro.simulation import mirror
from repro.simulation.engine import SimulationEngineError
from repro.simulation.machine_disk import Disk
from repro.simulation.owners import has_ended
from repro.simulation.places import HOME

QEMU = "qemu-system-x86_64"
NEEDED = {QEMU: "qemu-system-x86", "qemu-img": "qemu-utils"}
"""The programs that machines take, with the Debian packages that have them."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KVM = Path("/dev/kvm")
ACCELERATOR = HOME / "accelerator"
"""The file with the answer of `accelerator`, and the boot of this machine that it holds for."""
KERNEL_OPTIONS = "console=ttyS0 root=/dev/vda rw quiet net.ifnames=0 mitigations=off"
"""The same for all machines, as nodes have to be equal in this: what distinguishes them is among the `given` files.

An emulated processor speculates on nothing that would have to be mitigated, and nobody else's work is on these machines.
"""
PROCESSORS = {"kvm": "host", "tcg": "max,la57=off"}
"""QEMU's name of the processor; a fifth level of page tables would only cost the emulation time."""
PLACE_FOR_A_PROCESSOR = 1
"""One that no machine has. Where there can be one processor alone, QEMU before 8.1 translates memory barriers to nothing
(mended there by its commit c914d46d0a64). Its devices run in parallel, and one that misses what a driver has put into a queue
waits forever: an adapter stopped sending."""
PROBE_S = 20
END_S = 60.0
POLL_S = 0.05
ARCHIVE_ADDRESS = "10.0.2.100:80"
"""Where a guest finds Debian's archive, in the network that QEMU makes for it alone."""


@dataclass(frozen=True)
class Hardware:
    """What a virtual machine has.

    `number` distinguishes it within its cluster; `ssh_port` is the port of this machine at which it is reached,
    `group` the multicast address and port that its cluster's network is made of; `shares` are folders of this machine that
    it can mount as 9p and not write, by the tag that it mounts.
    """

    number: int
    memory_mib: int
    processors: int
    ssh_port: int
    group: str
    shares: tuple[tuple[str, str], ...] = ()


def accelerator(system: Disk) -> str:
    """kvm if this disk's kernel boots with it, else tcg, which emulates each instruction; tried once a boot of this machine.

    That /dev/kvm opens, or that QEMU's firmware runs, is not enough: inside some virtual machines a kernel then hangs.
    """
    if not os.access(KVM, os.R_OK | os.W_OK):
        return "tcg"
    now = BOOT_ID.read_text().strip()
    with contextlib.suppress(OSError, ValueError):
        recorded, since = ACCELERATOR.read_text().split()
        if since == now:
            return recorded
    usable = "kvm" if _boots(system.kernel) else "tcg"
    ACCELERATOR.write_text(f"{usable} {now}\n")
    return usable


def _boots(kernel: Path) -> bool:
    """Whether a guest of KVM gets so far as to find no disk, at which it is told to restart, and QEMU to end."""
    command = [QEMU, "-accel", "kvm", "-cpu", "host", "-nodefaults", "-display", "none", "-m", "512", "-no-reboot"]
    command += ["-kernel", str(kernel), "-append", "panic=-1"]
    try:
        return subprocess.run(command, capture_output=True, timeout=PROBE_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def make_overlay(base: Path, overlay: Path) -> None:
    """A disk that reads as another and keeps its own changes."""
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "raw", str(overlay)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SimulationEngineError(f"qemu-img: {done.stderr.strip()}")


def command_line(name: str, hardware: Hardware, system: Disk, given: dict[str, Path], accelerator: str) -> list[str]:
    """QEMU's command line for the machine of this name, to be run in the folder that has its disks.

    `given` are files that the guest reads through its firmware, by name.
    """
    number = hardware.number
    archive = shlex.join([sys.executable, str(Path(mirror.__file__)), str(HOME)]).replace(",", ",,")
    mac = f"{number >> 8:02x}:{number & 255:02x}"
    most = hardware.processors + PLACE_FOR_A_PROCESSOR
    return [
        QEMU,
        *("-name", name, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc"),
        *("-accel", "tcg,thread=multi" if accelerator == "tcg" else accelerator),
        *("-cpu", PROCESSORS[accelerator]),
        *("-m", str(hardware.memory_mib), "-smp", f"{hardware.processors},maxcpus={most}"),
        *("-rtc", "base=utc", "-device", "virtio-rng-pci", "-serial", f"file:{name}.console"),
        *("-kernel", str(system.kernel), "-initrd", str(system.initrd), "-append", KERNEL_OPTIONS),
        *(word for key, path in given.items() for word in ("-fw_cfg", f"name=opt/machine/{key},file={path}")),
        *("-drive", f"file={name}.system.qcow2,if=virtio,cache=unsafe"),
        *("-drive", f"file={name}.docker.qcow2,if=virtio,cache=unsafe"),
        "-netdev",
        f"user,id=control,restrict=on,hostfwd=tcp:127.0.0.1:{hardware.ssh_port}-:22,"
        f"ipv6=off,guestfwd=tcp:{ARCHIVE_ADDRESS}-cmd:{archive}",
        *("-device", f"virtio-net-pci,netdev=control,mac=52:54:00:00:{mac},romfile="),
        *("-netdev", f"socket,id=cluster,mcast={hardware.group},localaddr=127.0.0.1"),
        *("-device", f"virtio-net-pci,netdev=cluster,mac=52:54:00:01:{mac},romfile="),
        *(
            word
            for tag, folder in hardware.shares
            for word in (
                "-virtfs",
                f"local,mount_tag={tag},path={folder},security_model=none,multidevs=remap,readonly=on",
            )
        ),
    ]


def start(command: list[str], folder: Path, name: str) -> None:
    """Start a machine in its folder, and leave the ID of its process there."""
    with open(folder / f"{name}.log", "ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    (folder / f"{name}.pid").write_text(str(process.pid))


def process_of(folder: Path, name: str) -> int | None:
    """The process of a machine; None if it does not run.

    It is recognised by its executable: the command line of a process stays empty for a while after it starts.
    """
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / f"{name}.pid").read_text())
        program = Path(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
        if program.name == QEMU and Path(os.readlink(f"/proc/{pid}/cwd")) == folder:
            return pid
    return None


def held_up_s(folder: Path, name: str) -> float:
    """For how many seconds a machine's processor has been ready to run and had none of this machine's; 0 if none runs.

    Linux counts them for each thread (Documentation/scheduler/sched-stats.rst).
    """
    threads = Path(f"/proc/{process_of(folder, name)}/task").glob("*/schedstat")
    waited_ns = [0]
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            waited_ns.append(int(thread.read_text().split()[1]))
    return max(waited_ns) / 1e9


def end(folder: Path, name: str) -> None:
    """Take a machine's power away, and wait until its process has ended: until then it may hold the locks of its disks."""
    pid = process_of(folder, name)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while not has_ended(pid):
        if time.monotonic() > deadline:
            raise SimulationEngineError(f"{name}: its process {pid} does not end")
        time.sleep(POLL_S)

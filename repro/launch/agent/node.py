"""What the agent asks of its node: the Docker engine, and facts; needs Python 3.8 and nothing else."""

from __future__ import annotations

import array
import errno
import fcntl
import glob
import hashlib
import os
import re
import shutil
import socket
import struct
import subprocess
import time

from repro.launch.agent.gpus import files, gpus
from repro.launch.agent.patience import captured, limit
from repro.launch.agent.processes import limit_reached

DOCKER_S, ASK_S = 30, 30
SIOCGIFCONF, MOST_ADDRESSES = 0x8912, 4096
"""The request for the IPv4 addresses of all interfaces, and how many are looked at."""
ENTRY, NAME, ADDRESS = 40, 16, slice(20, 24)
"""The bytes of an entry in the answer, those of its name, and where its address is: behind the family and a port."""
ROUNDS = 5
PATIENCE_S = 10.0
"""How long an engine that is restarted takes, and more."""
ENGINE_PIDS = ("/run/docker.pid", f"/run/user/{os.getuid()}/docker.pid")
NO_THREAD = ("failed to create new OS thread", "pthread_create failed")
"""What a program in Go prints, before its registers, where it can start no thread."""
NOT_HERE = ("no such image", "image not known")
"""What Docker says of an image that it does not have, and Podman."""


def docker(*arguments: str) -> subprocess.CompletedProcess:
    """Run the Docker client; OSError without one, or if it can start no thread; TimeoutExpired if the engine hangs."""
    done = captured(("docker", *arguments), DOCKER_S)
    if done.returncode and any(words in done.stderr for words in NO_THREAD):
        raise OSError(errno.EAGAIN, "Docker's client can start no thread")
    return done


def remove_containers(*match: str) -> None:
    """Remove the containers that all of these filters of `docker ps` match, until none is left.

    An engine that does not answer may have some all the same, and one that has just started may fail to remove them: it is
    asked again for `PATIENCE_S`, and to remove them `ROUNDS` times however long that takes.
    """
    filters = [word for condition in match for word in ("--filter", condition)]
    rounds, deadline = 0, time.monotonic() + limit(PATIENCE_S)
    while rounds < ROUNDS or time.monotonic() < deadline:
        done = docker("ps", "--all", "--quiet", *filters)
        ids = done.stdout.split()
        if ids:
            docker("rm", "--force", "--volumes", *ids)
            rounds += 1
        elif not done.returncode or time.monotonic() > deadline:
            break
        time.sleep(0.2)


def first_process(container: str) -> int:
    """The process number, as the node sees it, of what runs in a container; 0 if it has not started, or cannot be asked."""
    try:
        pid = docker("inspect", "--format", "{{.State.Pid}}", container).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return int(pid) if pid.isdigit() else 0


def engines() -> set[tuple[int, str]]:
    """The Docker engines that run on this node: process number and start of each; empty where none can be seen.

    Where /proc hides other accounts' processes (hidepid), the engine's own record of its number is asked.
    """
    running = set()
    for entry in glob.glob("/proc/[0-9]*"):
        if _first_line(entry + "/comm") == "dockerd":
            fields = _first_line(entry + "/stat").rpartition(")")[2].split()
            running |= {(int(entry[6:]), fields[19])} if fields else set()
    return running or {process for path in ENGINE_PIDS if (process := _recorded_engine(path))}


def _recorded_engine(path: str) -> tuple[int, str] | None:
    """The engine that wrote its number into a file, and when; None if it has ended, or wrote none."""
    try:
        with open(path) as file:
            pid, since = int(file.read()), str(os.fstat(file.fileno()).st_mtime_ns)
    except (OSError, ValueError):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return pid, since


def image_ids(names: list[str]) -> dict:
    """`found`: the ID of each image by name or ID, None if it is not here; or `error`: why the engine does not answer.

    An ID is the digest of an image's configuration, or in an engine that keeps images in containerd of its manifest.
    """
    ids = {}
    for name in names:
        try:
            done = docker("image", "inspect", "--format", "{{.Id}}", name)
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": str(error) + limit_reached(error)}
        if done.returncode and not any(words in done.stderr.lower() for words in NOT_HERE):
            return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
        given = done.stdout.strip()
        ids[name] = "sha256:" + given if re.match(r"[0-9a-f]{64}$", given) else given or None
    return {"found": ids}


def image_file(path: str, tool: str) -> dict:
    """`sha256` of an image that is a file, "" where there is none; or `error`: why it cannot be used."""
    if not path:
        return {"sha256": ""}
    if tool and not shutil.which(tool):
        return {"error": tool + " is not installed here, or not on the PATH of a program that SSH or Slurm starts"}
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(1 << 22), b""):
                digest.update(piece)
    except OSError as error:
        return {"error": str(error.strerror)}
    return {"sha256": digest.hexdigest()}


def facts(order: dict) -> dict:
    """Clock, disk, user, network, port, image, launcher, GPUs, their libraries, and what is next to each GPU."""
    return {
        "time": time.time(),
        "host": socket.gethostname(),
        "user": f"{os.getuid()}:{os.getgid()}",
        "free_mib": shutil.disk_usage(order["work"]).free >> 20,
        "writable": os.access(order["work"], os.W_OK | os.X_OK),
        "read_only": bool(os.statvfs(order["work"]).f_flag & os.ST_RDONLY),
        "address": address(order["interface"]),
        "port_free": port_is_free(order["port"]),
        "images": image_ids(order["images"]),
        "image_file": image_file(*order["image_file"]),
        "launcher": launcher(order["work"]),
        "libraries": [
            name for name in ("cublas", "cudnn") if glob.glob(os.path.join(order["work"], f"{name}/lib{name}.so*"))
        ],
        "infiniband": sorted(glob.glob("/dev/infiniband/*")),
        "gpus": gpus(),
        "files": files(order["files"]),
        "compiler": bool(shutil.which("gcc")),
        **affinity(),
    }


def address(interface: str) -> str:
    """The first IPv4 address of a network interface, empty if it has none or is not there; `ip` need not be installed.

    Source: Linux's manual page netdevice(7). The kernel lists each address under the interface's name, behind which a
    label may follow (`eth0:1`).
    """
    listed = array.array("B", bytes(ENTRY * MOST_ADDRESSES))
    place, size = listed.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, SIOCGIFCONF, struct.pack("iP", size, place))
    for start in range(0, struct.unpack("iP", answer)[0], ENTRY):
        entry = listed[start : start + ENTRY].tobytes()
        if os.fsdecode(entry[:NAME].partition(b"\0")[0]).partition(":")[0] == interface:
            return socket.inet_ntoa(entry[ADDRESS])
    return ""


def port_is_free(port: int) -> bool:
    """Whether the rendezvous can listen on this port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def launcher(work: str) -> str:
    """OneFlow's launcher in the node's venv, empty if there is none."""
    paths = glob.glob(os.path.join(work, "venv/lib/python3*/site-packages/oneflow/distributed/launch.py"))
    return paths[0] if paths else ""


def affinity() -> dict:
    """Processors and memory next to each GPU in the driver's order, empty where the kernel does not know."""
    buses = _printed(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"])
    folders = ["/sys/bus/pci/devices/" + bus.strip().lower()[-12:] for bus in buses]
    nodes = [_first_line(folder + "/numa_node") for folder in folders]
    return {
        "cpus": [_first_line(folder + "/local_cpulist") for folder in folders],
        "numa": [node if node.isdigit() else "" for node in nodes],
    }


def _printed(command: list[str]) -> list[str]:
    try:
        return captured(command, ASK_S).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def _first_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""

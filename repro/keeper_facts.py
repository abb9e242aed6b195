"""What a run must know of the node that this runs on before it starts; needs Python 3.8 and nothing else."""

from __future__ import annotations

import glob
import os
import shutil
import socket
import subprocess
import time

from repro.keeper_engine import image_ids


def facts(order: dict) -> dict:
    """Clock, disk, user, network, port, image, launcher, and what is next to each GPU."""
    return {
        "time": time.time(),
        "host": socket.gethostname(),
        "user": f"{os.getuid()}:{os.getgid()}",
        "free_mib": shutil.disk_usage(order["work"]).free >> 20,
        "writable": os.access(order["work"], os.W_OK | os.X_OK),
        "addresses": addresses(order["interface"]),
        "port_free": port_is_free(order["port"]),
        "images": image_ids(order["images"]),
        "launcher": launcher(order["work"]),
        "libraries": [
            name for name in ("cublas", "cudnn") if glob.glob(os.path.join(order["work"], f"{name}/lib{name}.so*"))
        ],
        "infiniband": sorted(glob.glob("/dev/infiniband/*")),
        **affinity(),
    }


def addresses(interface: str) -> list[str]:
    """The IPv4 addresses of a network interface; none if there is no such interface."""
    told = _printed(["ip", "-4", "-oneline", "address", "show", "dev", interface])
    return [line.split()[3].partition("/")[0] for line in told]


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
    found = glob.glob(os.path.join(work, "venv/lib/python3*/site-packages/oneflow/distributed/launch.py"))
    return found[0] if found else ""


def affinity() -> dict:
    """Processors and memory next to each GPU in the driver's order, empty where the kernel does not say."""
    buses = _printed(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"])
    folders = ["/sys/bus/pci/devices/" + bus.strip().lower()[-12:] for bus in buses]
    nodes = [_first_line(folder + "/numa_node") for folder in folders]
    return {
        "cpus": [_first_line(folder + "/local_cpulist") for folder in folders],
        "numa": [node if node.isdigit() else "" for node in nodes],
    }


def _printed(command: list[str]) -> list[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def _first_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""

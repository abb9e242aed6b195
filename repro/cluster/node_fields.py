"""Turns the output of node_probe.py into named fields; notes say what could not be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import TypeVar

from repro.cluster.infiniband import pairs, parse_iblinkinfo, parse_ibstat, ports_from_files
from repro.cluster.nvidia_smi import GPU_FIELDS, parse_report, parse_topology
from repro.utils.errors import FormatError

T = TypeVar("T")
NET = "/sys/class/net"
PODMANS = r"^(docker\.io/library|localhost)/"
"""What Podman puts before the name of an image without a registry."""
PACKAGES = (
    "*nvidia*",
    "*cuda*",
    "libnccl*",
    "datacenter-gpu-manager*",
    "docker*",
    "containerd*",
    "podman",
    "apptainer",
    "runc",
    "rdma-core",
    "*ibverbs*",
    "librdmacm*",
    "infiniband-diags",
    "perftest",
    "mlnx*",
    "*ofed*",
    "ucx*",
    "openmpi*",
    "slurm*",
    "libc6",
    "glibc",
    "systemd",
    "openssh-server",
    "chrony",
    "ntp",
    "iperf3",
    "ethtool",
)
MODULES = (
    "nvidia",
    "nvidia_uvm",
    "nvidia_peermem",
    "nv_peer_mem",
    "gdrdrv",
    "ib_core",
    "ib_ipoib",
    "ib_uverbs",
    "mlx4_core",
    "mlx5_core",
    "mlx5_ib",
    "rdma_ucm",
)
LSCPU = {
    "model": "Model name",
    "sockets": "Socket(s)",
    "cores_per_socket": "Core(s) per socket",
    "threads_per_core": "Thread(s) per core",
    "numa_nodes": "NUMA node(s)",
}
OF_ONE_MACHINE = re.compile(r"(root|resume|BOOT_IMAGE|initrd|ip|crashkernel|rd\.\S+?)=")


class NodeFields:
    """One node's fields, {name: text}, which nodes of a cluster must share; readings that change; and notes."""

    def __init__(self, facts: dict, interface: str, image: str) -> None:
        self._facts, self._commands, self._files = facts, facts["commands"], facts["files"]
        self._image, self.times = image, facts["times"]
        self._found: dict[str, object] = {}
        self.readings: dict[str, float] = {}
        self.notes: list[str] = []
        self.topology: dict | None = None
        for part in (
            self._system,
            self._cpu,
            self._memory,
            self._limits,
            self._gpus,
            self._topology,
            self._ports,
            self._clock,
            self._docker,
            self._packages,
            self._modules,
        ):
            part()
        self._interface(interface)
        self.fields = {name: str(value) for name, value in sorted(self._found.items()) if value not in (None, "")}

    def _system(self) -> None:
        release = dict(re.findall(r'(?m)^(\w+)="?(.*?)"?$', self._files.get("/etc/os-release", "")))
        arguments = self._files.get("/proc/cmdline", "").split()
        pages = re.search(r"\[(\w+)\]", self._files.get("/sys/kernel/mm/transparent_hugepage/enabled", ""))
        self._found |= {
            "system.kernel": self._facts["uname"][2],
            "system.machine": self._facts["uname"][4],
            "system.distribution": release.get("PRETTY_NAME"),
            "system.python": self._facts["python"],
            "system.boot": " ".join(argument for argument in arguments if not OF_ONE_MACHINE.match(argument)),
            "system.huge_pages": pages and pages[1],
        }
        for path, value in self._files.items():
            if path.startswith("/proc/sys/"):
                self._found["sysctl." + path.removeprefix("/proc/sys/").replace("/", ".")] = " ".join(value.split())

    def _cpu(self) -> None:
        lscpu = pairs(self._output("lscpu"))
        self._found |= {f"cpu.{name}": lscpu.get(label) for name, label in LSCPU.items()}
        for label, cpus in lscpu.items():
            if match := re.fullmatch(r"NUMA node(\d+) CPU\(s\)", label):
                self._found[f"cpu.numa.{match[1]}"] = cpus
        microcode = re.search(r"(?m)^microcode\s*: (.+)$", self._files.get("/proc/cpuinfo", ""))
        governors = {value for path, value in self._files.items() if path.endswith("/scaling_governor")}
        turbo = self._files.get("/sys/devices/system/cpu/intel_pstate/no_turbo", "")
        self._found |= {
            "cpu.microcode": microcode and microcode[1],
            "cpu.governor": ", ".join(sorted(governors)),
            "cpu.turbo": {"0": "on", "1": "off"}.get(turbo, self._files.get("/sys/devices/system/cpu/cpufreq/boost")),
        }

    def _memory(self) -> None:
        meminfo = pairs(self._files.get("/proc/meminfo", ""))
        kib = {name: int(value.split()[0]) for name, value in meminfo.items() if re.match(r"\d+", value)}
        self._found |= {
            "memory.total": _size(kib.get("MemTotal", 0) * 1024),
            "memory.swap": _size(kib.get("SwapTotal", 0) * 1024),
            "memory.shared": _size(self._facts["shared_memory_bytes"]),
        }
        uptime, load = self._files.get("/proc/uptime", ""), self._files.get("/proc/loadavg", "")
        self.readings |= {
            "memory.available_gib": round(kib.get("MemAvailable", 0) / 2**20, 2),
            "uptime_s": _first_number(uptime),
            "load": _first_number(load),
        }

    def _limits(self) -> None:
        for name, (soft, hard) in self._facts["limits"].items():
            self._found[f"limits.{name}"] = " / ".join("unlimited" if n == -1 else str(n) for n in (soft, hard))

    def _gpus(self) -> None:
        report = self._parsed("nvidia-smi -q", parse_report)
        if report is None:
            return
        self._found |= {"gpu.count": len(report.gpus), "gpu.driver": report.driver, "gpu.cuda": report.cuda}
        for name in GPU_FIELDS:
            values = [gpu.field(name) for gpu in report.gpus]
            self._found[f"gpu.{name}"] = values[0] if len(set(values)) == 1 else ", ".join(values)

    def _topology(self) -> None:
        topology = self._parsed("nvidia-smi topo -m", parse_topology)
        if topology is None:
            return
        self.topology = asdict(topology)
        for device, row in zip(topology.devices, topology.links, strict=True):
            self._found[f"gpu.topology.{device}"] = " ".join(row)
        self._found |= {f"gpu.affinity.{device}": cpus for device, cpus in topology.affinity.items()}

    def _ports(self) -> None:
        adapters = {path.split("/")[4] for path in self._files if path.startswith("/sys/class/infiniband/")}
        ports = ports_from_files(self._files) or self._parsed("ibstat", parse_ibstat) or []
        for port in ports:
            name = f"hca.{port.device}" if port.number == 1 else f"hca.{port.device}:{port.number}"
            self._found |= {
                f"{name}.model": port.model,
                f"{name}.firmware": port.firmware,
                f"{name}.layer": port.layer,
                f"{name}.state": f"{port.state}, {port.physical}",
                f"{name}.rate": f"{port.rate_gbits:g} Gb/s",
            }
        for adapter in adapters:
            base = f"/sys/class/infiniband/{adapter}"
            self._found |= {
                f"hca.{adapter}.board": self._files.get(f"{base}/board_id"),
                f"hca.{adapter}.numa": self._files.get(f"{base}/device/numa_node"),
                f"hca.{adapter}.pcie_speed": self._files.get(f"{base}/device/current_link_speed"),
                f"hca.{adapter}.pcie_width": self._files.get(f"{base}/device/current_link_width"),
            }
        for adapter, block in re.findall(r"(?ms)^hca_id:\s*(\S+)$(.*?)(?=^hca_id:|\Z)", self._output("ibv_devinfo")):
            mtu = re.search(r"active_mtu:\s*(\d+)", block)
            self._found[f"hca.{adapter}.mtu"] = mtu and mtu[1]
        for name, answer in self._commands.items():
            if name.startswith("iblinkinfo ") and answer["status"] == 0:
                for link in self._parsed(name, parse_iblinkinfo) or []:
                    self._found[f"hca.{name.split()[1]}.link"] = (
                        f"{link.width}X at {link.lane_gbits:g} Gb/s, {link.remark or 'the best both ends can do'}"
                    )
        self._found["hca.ofed"] = self._output("ofed_info").strip()

    def _interface(self, interface: str) -> None:
        base, ethtool = f"{NET}/{interface}", pairs(self._output("ethtool -i"))
        about = {name: self._files.get(f"{base}/{name}", "") for name in ("speed", "mtu", "operstate", "mode")}
        model = [self._files.get(f"{base}/device/{name}", "") for name in ("vendor", "device")]
        self._found |= {
            "interface.state": about["operstate"] or "no such interface",
            "interface.rate": f"{about['speed']} Mb/s" if about["speed"] not in ("", "-1") else None,
            "interface.mtu": about["mtu"],
            "interface.mode": about["mode"],
            "interface.model": ":".join(filter(None, model)),
            "interface.driver": self._facts["links"]["interface_driver"] or ethtool.get("driver"),
            "interface.firmware": ethtool.get("firmware-version"),
        }

    def _clock(self) -> None:
        tracking = pairs(self._output("chronyc tracking"))
        self._found |= {
            "time.zone": self._facts["links"]["zone"].partition("zoneinfo/")[2],
            "time.chrony": tracking.get("Leap status"),
        }
        if match := re.match(r"([\d.]+) seconds (fast|slow)", tracking.get("System time", "")):
            self.readings["time.chrony_offset_s"] = float(match[1]) * (1 if match[2] == "fast" else -1)

    def _docker(self) -> None:
        answer = self._commands["docker info"]
        try:
            info = json.loads(answer["output"]) if answer["output"] else {}
        except ValueError:
            info = {}
        if podman := (info.get("version") or {}).get("Version"):  # under Docker's name
            info = _as_of_docker(info, podman)
        if not info.get("ServerVersion"):
            if answer["status"] is not None:
                self._note("docker info", answer)
            return
        self._found |= {
            "docker.version": info["ServerVersion"],
            "docker.storage": info.get("Driver"),
            "docker.cgroup": f"{info.get('CgroupDriver')} v{info.get('CgroupVersion', 1)}",
            "docker.runtime": info.get("DefaultRuntime"),
            "docker.runtimes": ", ".join(sorted(info.get("Runtimes") or {})),
            "docker.containerd": (info.get("ContainerdCommit") or {}).get("ID"),
            "docker.runc": (info.get("RuncCommit") or {}).get("ID"),
            "image.id": images_of(self._facts).get(self._image, "not there"),
        }
        version = re.search(r"version ([\d.]+\S*)", self._output("nvidia-ctk"))
        self._found["docker.nvidia_toolkit"] = version and version[1]

    def _packages(self) -> None:
        listed = "".join(self._commands.get(tool, {"output": ""})["output"] for tool in ("dpkg", "rpm"))
        installed = re.findall(r"(?m)^installed (\S+) (\S+)$", listed)
        self._found |= {f"package.{name}": version for name, version in installed}

    def _modules(self) -> None:
        for name in set(MODULES) & set(self._facts["modules"]):
            self._found[f"module.{name}"] = self._files.get(f"/sys/module/{name}/version", "loaded")

    def _output(self, name: str) -> str:
        answer = self._commands.get(name, {"status": None})
        return answer["output"] if answer["status"] == 0 else ""

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """The parsed output of a command; None without the tool, or with a note if it cannot be read."""
        answer = self._commands[name]
        if answer["status"] is None:
            return None
        if answer["status"]:
            self._note(name, answer)
            return None
        try:
            return parse(answer["output"])
        except FormatError as error:
            self.notes.append(str(error))
            return None

    def _note(self, name: str, answer: dict) -> None:
        message = (answer["errors"].strip() or answer["output"].strip() or "nothing").splitlines()[0]
        self.notes.append(f"{name}: status {answer['status']}: {message[:160]}")


def images_of(facts: dict) -> dict[str, str]:
    """The images of a node's engine: {name with tag: ID}."""
    listed = re.findall(r"(?m)^(\S+:\S+) (sha256:\w+)$", facts["commands"]["docker images"]["output"])
    return {re.sub(PODMANS, "", name): image_id for name, image_id in listed}


def _as_of_docker(info: dict, version: str) -> dict:
    """What `podman info` says in the words of `docker info`."""
    host, store = info.get("host") or {}, info.get("store") or {}
    runtime = (host.get("ociRuntime") or {}).get("name")
    return {
        "ServerVersion": f"podman {version}",
        "Driver": store.get("graphDriverName"),
        "CgroupDriver": host.get("cgroupManager"),
        "CgroupVersion": (host.get("cgroupVersion") or "v1").removeprefix("v"),
        "DefaultRuntime": runtime,
        "Runtimes": {runtime: {}} if runtime else {},
    }


def _size(count: int) -> str:
    """Bytes in few digits, so that the few KiB by which equal machines differ do not show."""
    if count >= 2**33:
        return f"{count / 2**30:.0f} GiB"
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _first_number(text: str) -> float:
    return float(text.split()[0]) if text else 0.0

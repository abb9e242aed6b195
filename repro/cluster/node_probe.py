"""Runs on a node, with nothing but Python 3.6: prints the output of tools and the content of files as JSON.

`python3 - SECONDS INTERFACE HCAS PACKAGE…` with this file as its input; SECONDS limits each
tool, HCAS are joined by commas, each PACKAGE is a pattern.
"""

import glob
import json
import os
import resource
import subprocess
import sys
import threading
import time

KILLED = 9
FILE_BYTES = 8192
NET, INFINIBAND = "/sys/class/net", "/sys/class/infiniband"
FILES = [
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/route",
    "/proc/uptime",
    "/etc/timezone",
    "/proc/driver/nvidia/version",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/module/*/version",
]
INTERFACE_FILES = ["speed", "mtu", "operstate", "mode", "device/vendor", "device/device", "device/numa_node"]
HCA_FILES = [
    "fw_ver",
    "hca_type",
    "board_id",
    "ports/*/rate",
    "ports/*/state",
    "ports/*/phys_state",
    "ports/*/link_layer",
    "device/current_link_speed",
    "device/current_link_width",
    "device/numa_node",
]
SYSCTLS = [
    "fs/nr_open",
    "kernel/nmi_watchdog",
    "kernel/numa_balancing",
    "kernel/perf_event_paranoid",
    "kernel/pid_max",
    "kernel/randomize_va_space",
    "kernel/sched_autogroup_enabled",
    "kernel/shmall",
    "kernel/shmmax",
    "net/core/busy_poll",
    "net/core/busy_read",
    "net/core/default_qdisc",
    "net/core/netdev_max_backlog",
    "net/core/rmem_default",
    "net/core/rmem_max",
    "net/core/somaxconn",
    "net/core/wmem_default",
    "net/core/wmem_max",
    "net/ipv4/conf/all/arp_announce",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_keepalive_time",
    "net/ipv4/tcp_mtu_probing",
    "net/ipv4/tcp_retries2",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/tcp_wmem",
    "vm/dirty_background_ratio",
    "vm/dirty_ratio",
    "vm/max_map_count",
    "vm/nr_hugepages",
    "vm/overcommit_memory",
    "vm/overcommit_ratio",
    "vm/swappiness",
    "vm/zone_reclaim_mode",
]


def main(limit_s: float, interface: str, hcas: list, packages: list) -> dict:
    """Everything, with the times before and after, from which the clock's offset follows."""
    began = time.time()
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
    os.environ["LC_ALL"] = "C"
    facts = {
        "commands": run_all(commands(interface, hcas, packages), limit_s),
        "files": read_all(paths(interface, hcas)),
        "links": {
            "interface_driver": link(os.path.join(NET, interface, "device/driver")),
            "zone": os.path.realpath("/etc/localtime"),
        },
        "modules": sorted(os.listdir("/sys/module")) if os.path.isdir("/sys/module") else [],
        "limits": {
            name: resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper()))
            for name in ("memlock", "nofile", "stack", "core")
        },
        "shared_memory_bytes": size("/dev/shm"),
        "uname": list(os.uname()),
        "python": sys.version.split()[0],
    }
    facts["times"] = [began, time.time()]
    return facts


def commands(interface: str, hcas: list, packages: list) -> dict:
    """{name: argv} of each command; a missing tool is no error."""
    own_link = {"iblinkinfo " + hca: ["iblinkinfo", "--line", "-C", hca.split(":")[0], "-D", "0"] for hca in hcas}
    return {
        **own_link,
        "lscpu": ["lscpu"],
        "nvidia-smi -q": ["nvidia-smi", "-q"],
        "nvidia-smi topo -m": ["nvidia-smi", "topo", "-m"],
        "ibstat": ["ibstat"],
        "ibv_devinfo": ["ibv_devinfo"],
        "ofed_info": ["ofed_info", "-s"],
        "ethtool -i": ["ethtool", "-i", interface],
        "chronyc tracking": ["chronyc", "-n", "tracking"],
        "docker info": ["docker", "info", "--format", "{{json .}}"],
        "docker images": ["docker", "images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"],
        "nvidia-ctk": ["nvidia-ctk", "--version"],
        "rpm": ["rpm", "-qa", "--queryformat", "installed %{NAME} %{VERSION}-%{RELEASE}\\n", *packages],
        "dpkg": ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n", *packages],
    }


def run_all(commands: dict, limit_s: float) -> dict:
    """Run commands in parallel: {name: {"status", "output", "errors"}}, status None where the tool is missing."""
    results: dict = {}
    threads = [threading.Thread(target=run, args=(name, argv, results, limit_s)) for name, argv in commands.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def run(name: str, argv: list, results: dict, limit_s: float) -> None:
    """Run one command, with nothing as its input, for `limit_s` seconds at most."""
    try:
        with open(os.devnull) as nothing:
            process = subprocess.Popen(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        results[name] = {"status": None, "output": "", "errors": str(error)}
        return
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    output, errors = process.communicate()
    timer.cancel()
    late = f"took longer than {limit_s:g} s\n" if process.returncode == -KILLED else ""
    results[name] = {"status": process.returncode, "output": text(output), "errors": late + text(errors)}


def paths(interface: str, hcas: list) -> list:
    """All files to read; patterns are filled in."""
    patterns = FILES + [os.path.join(NET, interface, name) for name in INTERFACE_FILES]
    patterns += [os.path.join(INFINIBAND, hca.split(":")[0], name) for hca in hcas for name in HCA_FILES]
    patterns += ["/proc/sys/" + name for name in SYSCTLS]
    return sorted({path for pattern in patterns for path in glob.glob(pattern)})


def read_all(names: list) -> dict:
    """{path: its first kilobytes}, less the files that cannot be read."""
    contents = {}
    for name in names:
        try:
            with open(name, "rb") as file:
                contents[name] = text(file.read(FILE_BYTES)).strip()
        except OSError:
            pass
    return contents


def link(path: str) -> str:
    """The name of a link's target, without folders."""
    return os.path.basename(os.path.realpath(path)) if os.path.exists(path) else ""


def size(path: str) -> int:
    """Bytes of a file system, 0 if it is not there."""
    try:
        file_system = os.statvfs(path)
    except OSError:
        return 0
    return file_system.f_blocks * file_system.f_frsize


def text(content: bytes) -> str:
    """Bytes as text, whatever they are."""
    return content.decode("utf-8", "replace")


if __name__ == "__main__":
    LIMIT, INTERFACE, HCAS, *PACKAGES = sys.argv[1:]
    json.dump(main(float(LIMIT), INTERFACE, HCAS.split(",") if HCAS else [], PACKAGES), sys.stdout)

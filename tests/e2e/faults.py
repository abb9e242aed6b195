"""What goes wrong with nodes, done to simulated ones; each fault has its remedy, for tests that share nodes."""

import json
import subprocess
import time

from repro.simulation.engine import NAME, SimulationEngineError
from repro.simulation.nodes import Nodes

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
CLOCK = "/etc/ssh/sshd_config.d/clock.conf"
SLEEP = "/usr/lib/python3/dist-packages/usercustomize.py"
FREEZING_S = 120
FIREWALL = "! -i lo -p tcp --syn ! --dport 22"
SLEEP_WITHOUT_CLOCK = "import select, time; time.sleep = lambda seconds: select.select([], [], [], seconds) and None"


def kill(nodes: Nodes, node: str) -> None:
    """The node loses its power: every process ends at once."""
    nodes.engine.docker("kill", nodes.container(node))


def start(nodes: Nodes, node: str) -> None:
    """A killed node starts again, its disk and host key as they were; returns once it answers."""
    nodes.engine.docker("start", nodes.container(node))
    nodes.wait(node)


def pause(nodes: Nodes, node: str) -> None:
    """The node hangs: nothing on it runs, its connections stay open.

    The kernel freezes processes one by one and gives up if that takes long, as it does where processors are busy: then
    again.
    """
    give_up = time.monotonic() + FREEZING_S
    while True:
        try:
            nodes.engine.docker("pause", nodes.container(node))
            return
        except SimulationEngineError:
            if time.monotonic() > give_up:
                raise


def unpause(nodes: Nodes, node: str) -> None:
    nodes.engine.docker("unpause", nodes.container(node))


def link_down(nodes: Nodes, node: str) -> None:
    """The node's cable is pulled: packets vanish, nobody is told."""
    _set_link(nodes, node, "down")


def link_up(nodes: Nodes, node: str) -> None:
    _set_link(nodes, node, "up")


def _set_link(nodes, node, state):
    other_end = int(nodes.root(node, "cat", "/sys/class/net/eth0/iflink"))
    listed = subprocess.run(["ip", "-n", NAME, "-json", "link"], capture_output=True, text=True, check=True).stdout
    cable = next(link["ifname"] for link in json.loads(listed) if link["ifindex"] == other_end)
    subprocess.run(["ip", "-n", NAME, "link", "set", cable, state], check=True)


def firewall(nodes: Nodes, node: str, verdict: str) -> None:
    """The node takes new connections for SSH alone; others are given this verdict: DROP is silent, REJECT is not."""
    nodes.root(node, "sh", "-ec", f"iptables -I INPUT {FIREWALL} -j {verdict}")


def no_firewall(nodes: Nodes, node: str, verdict: str) -> None:
    nodes.root(node, "sh", "-ec", f"iptables -D INPUT {FIREWALL} -j {verdict}")


def small_disk(nodes: Nodes, node: str, folder: str, mib: int) -> None:
    """A disk of so many MiB, empty, is mounted at a folder, which keeps its owner and mode."""
    script = (
        'mkdir -p "$1"; set -- "$1" "$2" $(stat -c "%u %g %a" "$1"); '
        'mount -t tmpfs -o "size=$2m,uid=$3,gid=$4,mode=$5" tmpfs "$1"'
    )
    nodes.root(node, "sh", "-ec", script, "sh", folder, mib)


def big_disk(nodes: Nodes, node: str, folder: str) -> None:
    """The small disk is unmounted, with what was written to it."""
    nodes.root(node, "umount", "--lazy", folder)


def replace(nodes: Nodes, node: str) -> None:
    """Another machine takes the node's place: same name and address, new host key and disk, as it was brought up.

    known_hosts stays as it was; `nodes.write_ssh_config()` makes the new key known.
    """
    nodes.remove(node)
    nodes.start_node(node)
    nodes.wait(node)


def skew_clock(nodes: Nodes, node: str, seconds: float) -> None:
    """The node's clock goes wrong by so much, for what is started through SSH from now on and does without sudo.

    All nodes share one kernel and its clock: a preloaded library (which sshd itself does not bear) tells another time.
    With it Python's sleep fails (EINVAL), and with that the wait for a process that ends later than its output.
    """
    nodes.root(node, "sh", "-ec", f"echo '{SLEEP_WITHOUT_CLOCK}' > {SLEEP}")
    environment = f"LD_PRELOAD={FAKETIME} FAKETIME={seconds:+} FAKETIME_DONT_FAKE_MONOTONIC=1"
    _set_environment(nodes, node, f"echo SetEnv {environment} > {CLOCK}")


def mend_clock(nodes: Nodes, node: str) -> None:
    _set_environment(nodes, node, f"rm -f {CLOCK} {SLEEP}")


def _set_environment(nodes, node, script):
    nodes.root(node, "sh", "-ec", f"{script}; systemctl restart ssh")


def stop_engine(nodes: Nodes, node: str) -> None:
    """The node's Docker engine stops, and is not started by the next who asks for it."""
    nodes.root(node, "systemctl", "stop", "docker.socket", "docker.service")


def start_engine(nodes: Nodes, node: str) -> None:
    nodes.root(node, "systemctl", "start", "docker.socket", "docker.service")


def kill_engine(nodes: Nodes, node: str) -> None:
    """The node's Docker engine dies at once; systemd starts it again after a while."""
    nodes.root(node, "pkill", "-KILL", "-x", "dockerd")


def restart_engine(nodes: Nodes, node: str) -> None:
    """The node's Docker engine is restarted, as an upgrade of its package does: it ends its containers first."""
    nodes.root(node, "systemctl", "restart", "docker.service")


def signal_agent(nodes: Nodes, node: str, kind: str) -> None:
    """The agent that runs an attempt, which is the parent of `docker run`, gets a signal."""
    nodes.root(node, "sh", "-ec", 'kill -"$1" $(ps -o ppid= -p $(pgrep -x docker))', "sh", kind)

"""The Docker engine that simulated nodes run in: one per checkout, in a network namespace that has no way out.

What it holds stays in .cache/simulation between uses: built images and Debian packages. Nodes reach each other, this machine's
end of one cable at `Engine.host`, and nothing else: there is no route, no translation of addresses, no name server.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.images.build import find_docker
from repro.simulation.owners import has_ended
from repro.simulation.places import CLUSTERS, HOME, MACHINES
from repro.utils.errors import FAILED, ReproError
from repro.utils.paths import ROOT

NAME = f"sim-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}"
RUN = Path("/run") / NAME
PORT = 8000
LABEL = "reproduction.cluster"
NEEDED = ("dockerd", "debootstrap", "ip", "nsenter", "unshare", "ssh", "ssh-keygen")


class SimulationEngineError(ReproError):
    """The engine cannot be started, or refuses something; the message says why."""

    status = FAILED


def missing() -> str | None:
    """Why nodes cannot be simulated on this machine; None if they can."""
    if os.geteuid():
        return "needs root"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    return f"needs {', '.join(absent)}" if absent else None


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Only one process of this checkout at a time starts, stops, builds, or hands out a network."""
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def client() -> str:
    """The Docker client, one that can build."""
    return find_docker()


@dataclass(frozen=True)
class SimulationEngine:
    """The running engine. `second` is the second number of its addresses, 10.SECOND.0.0/16."""

    second: int

    @property
    def host(self) -> str:
        """This machine's address as the nodes see it."""
        return f"10.{self.second}.0.1"

    @property
    def web(self) -> str:
        """Where nodes find Debian's archives and what tests put into .cache/simulation/web."""
        return f"http://{self.host}:{PORT}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a Docker client reaches it."""
        return {**os.environ, "DOCKER_HOST": f"unix://{RUN}/docker.sock", "DOCKER_BUILDKIT": "1"}

    def docker(self, *argv: object, check: bool = True, **options: Any) -> str:
        """Run the Docker client; what it printed."""
        done = subprocess.run(
            [client(), *map(str, argv)], env=self.environment, capture_output=True, text=True, **options
        )
        if check and done.returncode:
            raise SimulationEngineError(f"docker {' '.join(map(str, argv[:6]))} …: {done.stderr.strip()}")
        return done.stdout.strip()

    def inspect(self, *argv: object) -> dict:
        """What `docker inspect` tells of one thing."""
        (described,) = json.loads(self.docker(*argv))
        return described

    def clusters(self) -> dict[str, str]:
        """The names of all clusters, with who brought each up."""
        template = f'{{{{.Label "{LABEL}"}}}}\t{{{{.Label "{LABEL}.owner"}}}}'
        listed = self.docker("network", "ls", "--filter", f"label={LABEL}", "--format", template)
        return dict(line.split("\t") for line in listed.splitlines())


def running() -> SimulationEngine | None:
    """The engine of this checkout if it is up."""
    if not (RUN / "second").exists():
        return None
    engine = SimulationEngine(int((RUN / "second").read_text()))
    return engine if _answers(engine) else None


def start() -> SimulationEngine:
    """The engine of this checkout, started if it was not; call it within `exclusive`."""
    reason = missing()
    if reason:
        raise SimulationEngineError(f"simulated nodes: {reason}")
    engine = running()
    if engine is None:
        stop()
        engine = SimulationEngine(_free_network())
        RUN.mkdir(parents=True, exist_ok=True)
        (RUN / "second").write_text(str(engine.second))
        _lay_cable(engine)
        _start_processes(engine)
        _sweep(engine)
    return engine


def stop() -> None:
    """End the engine with all its nodes and take its network away; its data stays. Call it within `exclusive`."""
    engine = running()
    if engine:
        _sweep(engine)
    for name in ("docker.pid", "mirror.pid"):
        _end(RUN / name)
    subprocess.run(["ip", "netns", "delete", NAME], capture_output=True)  # the cable and its route go with it
    if (RUN / "second").exists():
        hole = f"10.{(RUN / 'second').read_text()}.0.0/16"
        subprocess.run(["ip", "route", "delete", "blackhole", hole], capture_output=True)
    shutil.rmtree(RUN, ignore_errors=True)


def _sweep(engine: SimulationEngine) -> None:
    """Remove all nodes, disks and networks, such as a machine that lost its power leaves in the engine's data."""
    for listed, remove in (
        (("ps", "--all"), ("rm", "--force", "--volumes")),
        (("volume", "ls"), ("volume", "rm")),
        (("network", "ls", "--filter", f"label={LABEL}"), ("network", "rm")),
    ):
        ids = engine.docker(*listed, "--quiet").split()
        if ids:
            engine.docker(*remove, *ids)
    for inventory in CLUSTERS.glob("*"):
        if not (MACHINES / inventory.name).exists():
            shutil.rmtree(inventory, ignore_errors=True)


def _answers(engine: SimulationEngine) -> bool:
    return subprocess.run([client(), "info"], env=engine.environment, capture_output=True).returncode == 0


def _free_network() -> int:
    """The second number of a 10.x.0.0/16 that this machine has no use for; the same one each time if it can be."""
    routes = subprocess.run(["ip", "-4", "route", "show", "table", "all"], capture_output=True, text=True).stdout
    taken = {int(number) for number in re.findall(r"\b10\.(\d+)\.\d+\.\d+", routes)}
    first = int(NAME[-8:], 16) % 100
    for second in (100 + (first + step) % 100 for step in range(100)):
        if second not in taken:
            return second
    raise SimulationEngineError("every network from 10.100.0.0/16 to 10.199.0.0/16 is in use on this machine")


def _lay_cable(engine: SimulationEngine) -> None:
    """A network namespace for the nodes, and one cable into it. What is for a node and finds none ends in a hole."""
    cable, inside = f"sim-{engine.second}", ["-n", NAME]
    subprocess.run(["ip", "netns", "delete", NAME], capture_output=True)
    for argv in (
        ["netns", "add", NAME],
        ["link", "add", cable, "type", "veth", "peer", "name", "host", "netns", NAME],
        ["address", "add", f"{engine.host}/30", "dev", cable],
        ["link", "set", cable, "up"],
        [*inside, "address", "add", f"10.{engine.second}.0.2/30", "dev", "host"],
        [*inside, "link", "set", "host", "up"],
        [*inside, "link", "set", "lo", "up"],
        ["route", "add", f"10.{engine.second}.0.0/16", "via", f"10.{engine.second}.0.2"],
        ["route", "add", "blackhole", f"10.{engine.second}.0.0/16", "metric", "9999"],
    ):
        done = subprocess.run(["ip", *argv], capture_output=True, text=True)
        if done.returncode:
            raise SimulationEngineError(f"ip {' '.join(argv)}: {done.stderr.strip()}")


def _start_processes(engine: SimulationEngine) -> None:
    daemon = [
        *("nsenter", f"--net=/run/netns/{NAME}", "unshare", "--mount", "--propagation", "slave", "dockerd"),
        *("--data-root", str(HOME / "data"), "--exec-root", str(RUN / "exec"), "--pidfile", str(RUN / "docker.pid")),
        *("--host", f"unix://{RUN}/docker.sock", "--bridge", "none", "--storage-driver", "overlay2"),
        *("--iptables=false", "--ip6tables=false", "--ip-masq=false"),
    ]
    process = _detached(daemon, HOME / "engine.log")
    mirror = [sys.executable, "-m", "repro.simulation.mirror", engine.host, str(PORT), str(HOME)]
    (RUN / "mirror.pid").write_text(str(_detached(mirror, HOME / "mirror.log").pid))
    for _ in range(300):
        if process.poll() is not None:
            break
        if _answers(engine):
            return
        time.sleep(0.1)
    raise SimulationEngineError(f"the engine does not start:\n{(HOME / 'engine.log').read_text()[-3000:]}")


def _detached(command: list[str], log: Path) -> subprocess.Popen:
    with open(log, "wb") as file:
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )


def _end(pidfile: Path) -> None:
    """End the process that a file names, if it is still ours."""
    if not pidfile.exists():
        return
    pid = int(pidfile.read_text())
    ours = (str(RUN), "repro.simulation.mirror")
    with contextlib.suppress(OSError):
        if any(word in Path(f"/proc/{pid}/cmdline").read_text() for word in ours):
            os.kill(pid, signal.SIGTERM)
            for _ in range(300):
                if has_ended(pid):
                    break
                time.sleep(0.1)

"""What many nodes cost the controller: seconds until all are connected, checked and started, memory, file descriptors.

One sshd on this machine listens on as many loopback addresses as there are nodes, and a short shell script answers in
the place of each node's agent, at once and with what the real ones recorded of this machine: what is measured is the
controller with its SSH, and sshd's half of it. On a cluster each node has processors of its own; here all have those of
this machine.

    python tests/benchmarks/cluster_scale.py [NODES …]          (default: 128 256 512)
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from repro.cluster.cluster import Cluster, Image, Node  # noqa: E402
from repro.cluster.fingerprint import SCRIPT, gather, probe_arguments  # noqa: E402
from repro.launch.agent import START  # noqa: E402
from repro.launch.check_programs import CheckConfig  # noqa: E402
from repro.launch.nodes.code_upload import UploadedCode  # noqa: E402
from repro.launch.nodes.node_check import check_order  # noqa: E402
from repro.launch.nodes.work import check_work  # noqa: E402
from repro.launch.ssh.attempt import SshTransport  # noqa: E402
from repro.launch.ssh.nodes import NodePool  # noqa: E402
from repro.utils.paths import TRAINER  # noqa: E402
from repro.utils.ports import free_port  # noqa: E402

ANSWERS = """#!/bin/sh
# A node as the controller sees it. What is asked stands in SSH_ORIGINAL_COMMAND and in the first line of the input.
cd {folder}
case "$SSH_ORIGINAL_COMMAND" in
*"import hashlib"*) cat > /dev/null; echo received; exit;;
*" - lo "*) cat > /dev/null; sed "s/TIMES/$(date +%s.%N), $(date +%s.%N)/" fingerprint; exit;;
esac
read -r order
case "$order" in
*'"do": "check"'*) sed "s/TIME/$(date +%s.%N)/" facts; exit;;
*'"do": "hold"'*) echo '{{"locked": true, "removed": []}}';;
*'"do": "run"'*) echo '{{"agent": "1-1"}}';;
esac
while read -r line; do
    case "$line" in
    stop) echo '{{"end": 0, "removed": []}}'; exit;;
    *) echo '{{"free_mib": 9999}}';;
    esac
done
"""


def cluster_of(count: int, folder: Path, port: int) -> Cluster:
    """So many nodes, each a loopback address of its own."""
    address = "127.1.{}.{}".format
    nodes = tuple(Node(f"n{i}", address(i // 250, 1 + i % 250), port, "root", 1) for i in range(count))
    return Cluster(
        name="many",
        folder=folder,
        nodes=nodes,
        gpu="",
        gpus_per_node=1,
        interface="lo",
        hca="",
        gid_index=None,
        network_gbits=10,
        stack="cu102",
        image=Image("none"),
        data="",
        shared_results="",
        work=str(folder / "work"),
        port=29500,
        runtime_name="venv",
        launcher="ssh",
        accepted=frozenset(),
        known_hosts=folder / "known_hosts",
        private_key=folder / "key",
        python="/usr/bin/python3",
    )


@contextmanager
def far_end(folder: Path, count: int):
    """The cluster, its sshd up."""
    for name in ("key", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port = free_port()
    cluster = cluster_of(count, folder, port)
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text("".join(f"[{node.address}]:{port} {key}\n" for node in cluster.nodes))
    (folder / "node").write_text(ANSWERS.format(folder=folder))
    (folder / "work/venv/lib/python3/site-packages/oneflow/distributed").mkdir(parents=True)
    (folder / "work/venv/lib/python3/site-packages/oneflow/distributed/launch.py").touch()
    _record(cluster, folder)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 0.0.0.0\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/key.pub\n"
        "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nMaxStartups 2000\n"
        f"ForceCommand exec /bin/sh {folder}/node\nSetEnv HOME={folder}\n"  # what bash reads of a home takes long
    )
    os.makedirs("/run/sshd", exist_ok=True)
    server = subprocess.Popen([shutil.which("sshd"), "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.PIPE)
    try:
        server.stderr.readline()
        threading.Thread(target=server.stderr.read, daemon=True).start()
        yield cluster
    finally:
        server.terminate()
        server.wait()


def _record(cluster: Cluster, folder: Path) -> None:
    """What this machine answers as a node, with words in the place of times."""
    agent = [*cluster.interpreter, "-c", START, str(ROOT)]
    order = json.dumps(check_order(cluster, cluster.port)) + "\n"
    facts = json.loads(subprocess.run(agent, input=order, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    (folder / "facts").write_text(json.dumps(facts | {"time": "TIME"}).replace('"TIME"', "TIME") + "\n")
    probe = [*cluster.interpreter, SCRIPT, *probe_arguments(cluster)]
    found = json.loads(subprocess.run(probe, capture_output=True, text=True, check=True).stdout)
    (folder / "fingerprint").write_text(json.dumps(found | {"times": ["TIMES"]}).replace('"TIMES"', "TIMES") + "\n")


class Descriptors(threading.Thread):
    """The most file descriptors that this process has had open."""

    most = 0

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start()

    def run(self) -> None:
        while True:
            self.most = max(self.most, len(os.listdir("/proc/self/fd")))
            time.sleep(0.2)


class Followed:
    """What a transport asks of a follower: a folder, and a place for messages."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started, self.gone = folder, set(), []

    def put(self, index: int, message: dict) -> None:
        if "agent" in message:
            self.started.add(index)
        if message.get("gone"):
            self.gone.append(message["gone"])

    def is_lost(self, index: int) -> bool:
        return False


def measure(count: int) -> None:
    """Connect, check and start so many nodes; prints one line."""
    descriptors = Descriptors()
    with tempfile.TemporaryDirectory() as name, far_end(Path(name), count) as cluster:
        (Path(name) / "attempt").mkdir()
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        code = UploadedCode()
        with NodePool(cluster, code, "benchmark") as pool:
            checked = time.monotonic()
            assert len(gather(cluster, pool.over)) == count
            probed = time.monotonic()
            followed = Followed(Path(name) / "attempt")
            transport = SshTransport(
                check_work(
                    cluster, code, TRAINER, "many", CheckConfig("cpu", count, {}), 29500, Path("r/repeat-1.attempt-1")
                ),
                pool,
            )
            transport.start(followed)
            while len(followed.started) < count and not followed.gone:
                time.sleep(0.05)
            started = time.monotonic()
            after = resource.getrusage(resource.RUSAGE_SELF)
            if followed.gone:
                sys.exit(f"{len(followed.gone)} agents gone: {followed.gone[0]}")
            time.sleep(6)
            idle = resource.getrusage(resource.RUSAGE_SELF)
            held = time.monotonic() - started
            transport.stop(followed)
        ended = time.monotonic()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    resting = idle.ru_utime + idle.ru_stime - after.ru_utime - after.ru_stime
    print(
        f"{count} nodes: connected and checked after {checked - began:.1f} s, fingerprints after {probed - began:.1f} s, "
        f"started after {started - began:.1f} s (controller: {used:.1f} s of processor time); while they run "
        f"{resting / held:.0%} of a processor; stopped in {ended - started - held:.1f} s; peak {after.ru_maxrss >> 10} MiB, "
        f"{descriptors.most} file descriptors",
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]))
    else:
        print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}", flush=True)
        for given in sys.argv[1:] or ["128", "256", "512"]:
            subprocess.run([sys.executable, __file__, "measure", given])

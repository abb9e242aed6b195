"""The agent of a node: starts the node's ranks, sends what they write, ends them when asked to or cut off.

It is started over SSH, with Python 3.8 and nothing else. The first line of its input is an order in JSON; every byte
after it renews the lease, a line "stop" ends the work, and the end of the input, or `lease_s` seconds without a byte,
mean that the controller is gone: then everything that was started is removed. Its messages are JSON objects, one per
line.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from repro.launch.agent.adapters import counters
from repro.launch.agent.gpus import make_libraries
from repro.launch.agent.leftovers import AGENT, clear, labels, mark, sweep, sweep_processes
from repro.launch.agent.lock import Held, acquire
from repro.launch.agent.meeting import meet
from repro.launch.agent.node import engines, facts, port_is_free, remove_containers
from repro.launch.agent.patience import captured, limit, set_patience
from repro.launch.agent.processes import end as end_processes
from repro.launch.agent.processes import end_group, identity, limit_reached, lock_all_memory, of_session
from repro.launch.agent.ranks import LAUNCHER_LOG, Files, Ranks, end_of, launcher_of
from repro.launch.agent.tracing import link_cupti
from repro.launch.agent.unlock import free, survey

POLL_S = 0.1
BEAT_S = 2.0
GRACE_S = 3.0
LATE_S = 2.0
REST_S = 5.0
ENGINE_S = 3.0
STOPPED = (125, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
CUT_OFF = 3
PYTHONS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONINSPECT")
"""Variables of the node that are for other Pythons, as its modules set them, and never reach ranks."""
PROBE_S = 90
PR_SET_PDEATHSIG = 1
sending = threading.Lock()
cut_off = threading.Event()


def send(**message: object) -> None:
    """Send one message to the controller, whole. When nobody listens any more, wait for the lease to end this process.

    Where messages go to a file, nothing may be read there of ranks that end because the lease has.
    """
    line = json.dumps(message) + "\n"
    with sending, contextlib.suppress(BrokenPipeError):
        if not cut_off.is_set():
            sys.stdout.write(line)
            sys.stdout.flush()
            return
    threading.Event().wait()


class Lease:
    """Watches the input in a thread of its own; runs `on_lost` and ends the process once the controller is gone.

    `on_line` gets each line that says more than that the controller is there.
    """

    def __init__(self, seconds: float, on_lost: Callable[[], object], on_line: Callable[[bytes], object] = bytes):
        self.stopped = threading.Event()
        self._seconds, self._on_lost, self._on_line = seconds, on_lost, on_line
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        try:
            self._read()
        finally:  # whatever happened: nobody watches any more
            cut_off.set()
            try:
                self._on_lost()
            finally:
                os._exit(CUT_OFF)

    def _read(self) -> None:
        """Return once the controller is gone."""
        rest = b""
        while select.select([0], [], [], self._seconds)[0]:
            data = os.read(0, 4096)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                if line == b"stop":
                    self.stopped.set()
                else:
                    self._on_line(line)


def beat(lease: Lease, folder: str) -> None:
    """Send a heartbeat every two seconds, with the free space of the disk, until the work ends."""

    def go_on() -> None:
        while not lease.stopped.wait(BEAT_S):
            send(free_mib=free_mib(folder))

    threading.Thread(target=go_on, daemon=True).start()


def free_mib(folder: str) -> int:
    """The free space of a folder's disk, in MiB."""
    return shutil.disk_usage(folder).free >> 20


def check(order: dict) -> None:
    """Send what a run must know of this node before it starts."""
    send(**facts(order))


def probe(order: dict) -> None:
    """Send the same, and what the script of the order prints of this node, with the times before and after."""
    done = subprocess.run(
        [sys.executable, "-", *order["arguments"]],
        input=order["script"],
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=limit(PROBE_S),
        check=True,
    )
    send(facts=facts(order), probe=json.loads(done.stdout))
    send(end=0)


def ask(order: dict) -> None:
    """Send what a program prints on this node, and its exit status."""
    done = captured(order["argv"], order["patience_s"])
    send(status=done.returncode, stdout=done.stdout, stderr=done.stderr)
    send(end=0)


def hold(order: dict) -> None:
    """Hold this node for one run: nobody else gets the lock, and what dead runs of this account left is removed."""
    try:
        lock = acquire(order["owner"], order["lease_s"])
    except Held as held:
        send(held=held.holder)
        return

    def sweep_twice() -> None:
        """A second time for a container that the engine was just creating."""
        if order["containers"]:
            clear(order["work"])
            time.sleep(LATE_S)
            sweep(order["work"])

    lease = Lease(order["lease_s"], sweep_twice, lambda line: lock.add(**json.loads(line)))
    lock.keep(lease.stopped, lambda why: send(lost=why))
    removed, others = clear(order["work"]) if order["containers"] else ([], [])
    removed += sweep_processes(order["work"])
    if others:
        send(others=others)
    else:
        send(locked=True, removed=removed)
        beat(lease, order["work"])
        lease.stopped.wait()
        send(end=0, removed=sweep(order["work"]) if order["containers"] else [])
    lock.release()


def run(order: dict) -> None:
    """Start a node's ranks in a folder of their own and follow them until they end or the controller sends stop.

    With other nodes, once all of these have reached the node of rank 0.
    """
    if order["port"] and not port_is_free(order["port"]):
        send(error=f"port {order['port']} is taken by another program")
        return
    started: list[subprocess.Popen] = []
    send(agent=identity(os.getpid()))

    def end_started() -> None:
        for process in started:
            end(process, order["container"])

    lease = Lease(order["lease_s"], end_started)
    beat(lease, order["work"])
    if order["meeting"] and (why := meet(order["meeting"], lease.stopped)):
        send(error=why)
        return
    if lease.stopped.is_set():
        send(end=None)
        return
    for path in order["caches"]:
        os.makedirs(path, exist_ok=True)
    make_libraries(order["libraries"])
    folder = order["folder"]
    os.makedirs(folder)
    try:
        for name in order["logs"]:
            os.makedirs(os.path.join(folder, "logs", name))
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(order["config"], file)
        link_cupti(order["cupti"])
        before = counters()
        started.append(start(order))
    except BaseException:  # nothing has run that could have left anything to look at
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if order["sample"]:
        threading.Thread(target=sample, args=(lease, order["sample"]), daemon=True).start()
    try:
        follow(started[0], lease, order, before)
    except BaseException:
        end(started[0], order["container"])
        raise


def start(order: dict) -> subprocess.Popen:
    """The ranks' process, in a session of its own, because the launcher ends its whole group."""
    out, err = (os.path.join(order["folder"], name) for name in order["output"])
    argv = order["argv"]
    if order["container"]:
        argv = [*argv[:2], *labels(order["work"]), *argv[2:]]  # behind `docker run`
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        lock_all_memory()

    with open(out, "ab") as stdout, open(err, "ab") as stderr:
        return subprocess.Popen(
            argv,
            cwd=order["folder"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env={**{name: value for name, value in os.environ.items() if name not in PYTHONS}, **mark(order["work"])},
            preexec_fn=prepare,
        )


def follow(process: subprocess.Popen, lease: Lease, order: dict, before: dict) -> None:
    """Send what is written and who has ended; at the end, by itself or on request, the rest and the status.

    `before` are the counters of adapters before the start: both they and those of the end are sent.
    """
    files = Files(order["folder"], order["log_cap"], bool(order["cupti"]))
    ranks = Ranks(launcher_of(process.pid, order["container"], order["inside"]), order["first"], order["ranks"])
    killed, running = out_of_memory_kills(), engines() if order["container"] else set()
    while not lease.stopped.is_set() and process.poll() is None:
        ended = ranks.ended()
        if not os.path.isdir(order["folder"]):
            send(deleted=order["folder"])
        send_added(files)
        for rank, status in ended:
            send(rank=rank, status=status)
        if not files.more():
            ranks.wait(POLL_S)
    code = process.poll()
    send_added(files)
    if code and (failed := ranks.failed_first(end_of(os.path.join(order["folder"], LAUNCHER_LOG)))):
        send(rank=failed[0], status=failed[1])
    if code is not None:
        send(launcher=code)
        if running and code in STOPPED:
            tell_of_engine(running, lease)
    try:
        end(process, order["container"])
    finally:
        send_rest(files, lease)
    if before:
        send(adapters={"before": before, "after": counters()})
    free = free_mib(order["work"])
    sizes = files.sizes()
    shutil.rmtree(order["folder"], ignore_errors=True)  # what was to be sent of it is with the controller
    send(end=code, memory_kills=out_of_memory_kills() - killed, free_mib=free, sizes=sizes)


def tell_of_engine(before: set[tuple[int, str]], lease: Lease) -> None:
    """Say that the Docker engine was stopped or restarted, if it was: as it ends, it first ends its containers."""
    deadline = time.monotonic() + limit(ENGINE_S)
    while time.monotonic() < deadline and not lease.stopped.is_set():
        if not before <= engines():
            send(engine="restarted")
            return
        time.sleep(POLL_S)


def send_added(files: Files) -> None:
    """Send what was added to files, of each log a few MiB."""
    for path, offset, data in files.added():
        send(file=path, at=offset, data=data.decode("latin-1"))


def send_rest(files: Files, lease: Lease) -> None:
    """Send all that is left; once the controller asks for the end, for `REST_S` at most, and then only each file's end."""
    deadline = None
    while True:
        send_added(files)
        if lease.stopped.is_set():
            deadline = deadline or time.monotonic() + limit(REST_S)
        if not files.more() or (deadline and time.monotonic() > deadline):
            break
    for path, offset, data in files.rest():
        send(file=path, at=offset, data=data.decode("latin-1"))


def end(process: subprocess.Popen, container: str) -> None:
    """End every process that was started, at last the container: first its client, so that it starts none any more."""
    end_group(process, 0.0 if container else GRACE_S)
    end_processes(of_session(process.pid))  # what mounts an image for Apptainer is in a group of its own
    if container:
        remove_containers(f"name=^/?{container}$", f"label={AGENT}={identity(os.getpid())}")


def sample(lease: Lease, argv: list[str]) -> None:
    """Send each line that a program prints, such as nvidia-smi with an interval, while the ranks run."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
    except OSError:
        return
    assert process.stdout is not None
    for line in process.stdout:
        if lease.stopped.is_set():
            break
        send(sample=line.rstrip("\n"))
    process.kill()


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for lack of memory since it started."""
    with contextlib.suppress(OSError), open("/proc/vmstat") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    return 0


def show_holder(order: dict) -> None:
    """Send who holds this node, and what its end would take along."""
    send(**survey())


def unlock(order: dict) -> None:
    """End the processes that hold this node, if they are still the ones that the user was shown."""
    send(**free(order["process"]))


def end_agent(order: dict) -> None:
    """End another agent that does not answer its controller any more; its ranks end with it."""
    end_processes([order["process"]])
    send(end=0)


def main() -> None:
    with open(0, "rb", buffering=0, closefd=False) as unbuffered:  # which takes not a byte of what follows the line
        line = unbuffered.readline()
    if not line.endswith(b"\n"):
        sys.exit("node agent: no order came")
    order = json.loads(line)
    set_patience(order.get("patience", 1.0))
    try:
        verbs = {"check": check, "hold": hold, "probe": probe, "run": run, "holder": show_holder, "unlock": unlock}
        verbs |= {"ask": ask, "end": end_agent}
        verbs[order["do"]](order)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        send(error=str(error) + limit_reached(error))
        sys.exit(1)


if __name__ == "__main__":
    main()

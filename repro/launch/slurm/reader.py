"""Reads what the nodes of a Slurm job send, and how its steps end, in the folder where the job's script keeps both."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from repro.cluster.local_shell import LocalShell
from repro.cluster.ssh import Remote, RemoteError
from repro.launch.nodes.agent_answer import message_of
from repro.launch.slurm.client import SlurmError

AGAIN_S = 1.0
BEAT_S = 5.0
LOOK_S = 0.2
FOLLOW = """
import glob, os, select, sys, time
folder, beat_s, renewed, ended = sys.argv[1], float(sys.argv[2]), 0.0, set()
offsets = {int(index): int(offset) for index, _, offset in (word.partition(":") for word in sys.argv[3:])}
while True:
    new = False
    for index, offset in offsets.items():
        try:
            with open("%s/messages-%d.jsonl" % (folder, index), "rb") as file:
                file.seek(offset)
                data = file.read(1 << 22)
        except FileNotFoundError:
            continue
        for line in data.split(b"\\n")[:-1]:
            sys.stdout.buffer.write(b"%d %s\\n" % (index, line))
            offsets[index] += len(line) + 1
            new = True
    for path in sorted(set(glob.glob(glob.escape(folder) + "/status-*")) - ended):
        ended.add(path)
        with open(path) as file:
            sys.stdout.write("status %s %s\\n" % (path.rpartition("-")[2], file.read().strip()))
    sys.stdout.write("" if new else "idle\\n")
    if time.monotonic() - renewed > beat_s:
        renewed = time.monotonic()
        if os.path.exists(folder + "/lease"):
            os.utime(folder + "/lease")
        sys.stdout.write("beat\\n")
    sys.stdout.flush()
    if select.select([0], [], [], 0 if new else 0.1)[0] and not os.read(0, 4096):
        break
"""


class Reader:
    """Hands over the messages of a job's nodes, in a thread of its own, and renews the job's lease until it is closed.

    A connection that fails is made again; no message is lost or comes twice. `alive` is when the last line came, by the
    monotonic clock: one comes at least every BEAT_S seconds.

    Parameters
    ----------
    place_of : connects to where the messages can be read.
    folder : where they are, in a file for each of the nodes at the positions `indices`.
    on_message : called with a node's position and each of its messages.
    on_status : called with the number of each step that has ended, and its status; again after each new connection.
    """

    def __init__(
        self,
        place_of: Callable[[], LocalShell | Remote],
        interpreter: Sequence[str],
        folder: str,
        indices: Iterable[int],
        on_message: Callable[[int, dict], None],
        on_status: Callable[[int, int], None],
    ):
        self._place_of, self._interpreter, self._folder = place_of, interpreter, folder
        self._on_message, self._on_status = on_message, on_status
        self.alive = time.monotonic()
        self._offsets = dict.fromkeys(indices, 0)
        self._closed = threading.Event()
        self._heard = self._idle = 0.0
        self._place: LocalShell | Remote | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True, name="reader of a job")
        self._thread.start()

    def wait_for_all(self, patience: float) -> None:
        """Until a look that begins from now on finds nothing new, or `patience` seconds pass without a message."""
        since = time.monotonic() + LOOK_S
        while self._idle < since and time.monotonic() - max(since, self._heard) < patience:
            if self._closed.wait(LOOK_S):
                break

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        if self._place is not None:
            self._place.close()
        self._thread.join(AGAIN_S)

    def _follow(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(RemoteError, SlurmError):
                self._place = self._place_of()
                if not self._closed.is_set():
                    starts = [f"{index}:{offset}" for index, offset in self._offsets.items()]
                    self._place.stream(
                        [*self._interpreter, "-c", FOLLOW, self._folder, str(BEAT_S), *starts], self._take
                    )
            self._closed.wait(AGAIN_S)

    def _take(self, line: str) -> None:
        self.alive = time.monotonic()
        if line == "idle":
            self._idle = self.alive
            return
        position, _, text = line.partition(" ")
        if position == "status":
            number, _, status = text.partition(" ")
            with contextlib.suppress(ValueError):
                self._on_status(int(number), int(status))
        if not position.isdigit() or int(position) not in self._offsets:
            return
        index, self._heard = int(position), time.monotonic()
        self._offsets[index] += len(text.encode()) + 1
        if not text:
            return
        self._on_message(index, message_of(text))

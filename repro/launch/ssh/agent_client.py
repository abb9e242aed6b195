"""The controller's end of the agent on a node: gives it its order, renews its lease, and takes its messages."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence

from repro.cluster.login_shell import Answer, why_not_begun
from repro.cluster.ssh import NO_STATUS, Remote, connection_goes_on
from repro.launch.agent.__main__ import CUT_OFF
from repro.launch.nodes.agent_answer import message_of
from repro.launch.nodes.work import LEASE_S

BEAT_S = 2.0
CHUNK = 1 << 18
CONNECTION_LOST = "the connection was lost"


class AgentClient:
    """One agent, from its order until it ends; a thread of its own reads its messages.

    `on_message` is called in that thread with each of its messages, at the very end with {"gone": why}: an empty
    reason where the agent ended its work as it should. `heard` is when the last byte came, by the monotonic clock;
    `identity` tells the agent of an attempt from every other process of its node, "" until it has begun.
    """

    def __init__(self, remote: Remote, argv: Sequence[str], order: dict, on_message: Callable[[dict], None]):
        self.node, self.identity = remote.node.name, ""
        self._lease_s = LEASE_S * remote.cluster.patience
        self.heard = time.monotonic()
        self.gone = threading.Event()
        self._on_message, self._ended = on_message, False
        self._channel = remote.open(argv)
        self._channel.settimeout(BEAT_S)
        given = {**order, "lease_s": self._lease_s, "patience": remote.cluster.patience}
        self._channel.sendall((json.dumps(given) + "\n").encode())
        threading.Thread(target=self._follow, daemon=True, name=f"agent of {self.node}").start()

    def silent(self) -> float:
        """Seconds since the last byte from the node."""
        return time.monotonic() - self.heard

    def tell(self, **more: str) -> None:
        """Tell the agent more than it knew when it got its order."""
        self._send(json.dumps(more).encode() + b"\n")

    def stop(self) -> None:
        """Ask the agent to end what it started."""
        self._send(b"stop\n")

    def close(self) -> None:
        """Close the connection: the agent, if it lives, sees the end of its input and removes what it started."""
        self._channel.close()

    def _follow(self) -> None:
        rest, beaten, answer = b"", time.monotonic(), Answer()
        while True:
            try:
                data = self._channel.recv(CHUNK)
            except TimeoutError:
                data = None
            if data == b"":
                break
            if time.monotonic() - beaten >= BEAT_S:
                beaten = time.monotonic()
                self._send(b"\n")
            if data:
                self.heard = time.monotonic()
                *lines, rest = (rest + answer(data)).split(b"\n")
                for line in lines:
                    self._take(line)
        self._on_message({"gone": ""} if self._ended else self._why(answer))
        self.gone.set()

    def _take(self, line: bytes) -> None:
        message = message_of(line.decode("utf-8", "replace"))
        self.identity = message.get("agent", self.identity)
        self._ended |= bool(message.keys() & {"end", "error", "held", "others"})
        self._on_message(message)

    def _why(self, answer: Answer) -> dict:
        """Why an agent ended before its work: what it printed last, its status, or that the connection ended.

        `connected` says that the connection outlives it.
        """
        output = b""
        while self._channel.recv_stderr_ready():
            output += self._channel.recv_stderr(CHUNK)
        lines = output.decode("utf-8", "replace").strip().splitlines()
        if not connection_goes_on(self._channel):
            return {"gone": lines[-1] if lines else CONNECTION_LOST}
        if not answer.begun:
            printed = (answer.before + b"\n" + output).decode("utf-8", "replace")
            return {"gone": why_not_begun(self._channel.recv_exit_status(), printed)}
        status = self._channel.exit_status if self._channel.exit_status_ready() else NO_STATUS
        if status == NO_STATUS or status > 128:
            return {"gone": "it was killed", "connected": True}
        if status == CUT_OFF:
            return {"gone": f"it had heard nothing from this controller for {self._lease_s:.0f} s", "connected": True}
        return {"gone": lines[-1] if lines else f"status {status}", "connected": True}

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # whoever reads finds out
            self._channel.sendall(data)

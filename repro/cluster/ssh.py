"""One SSH connection to a node, host key checked, and the same work on all nodes in parallel."""

from __future__ import annotations

import shlex
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from repro.cluster.cluster import Cluster, Node
from repro.cluster.jump_hosts import CONNECT_S, Refused, close, open_checked
from repro.utils.errors import FAILED, ReproError

if TYPE_CHECKING:
    from paramiko import Channel

T = TypeVar("T")
KEEPALIVE_S, DEAD_PEER_MS = 3, 8000
LINES_OF_ERROR = 6


class RemoteError(ReproError):
    """A failure on a node, or of the connection to it; `node` is that node's name."""

    status = FAILED

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node


@dataclass(frozen=True)
class Result:
    """The output of a command, and its exit status."""

    stdout: str
    stderr: str
    status: int


class Shell(Protocol):
    """A machine that runs commands: a node (`Remote`), or this one (`local_shell.LocalShell`)."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        check: bool = True,
        stdin: str | None = None,
        sudo: bool = False,
    ) -> Result: ...

    def stream(self, argv: Sequence[str], on_line: Callable[[str], None], *, sudo: bool = False) -> int: ...

    def close(self) -> None: ...


class Remote:
    """A connection to a node of a cluster, open from construction until `close`; RemoteError if it cannot be opened.

    A peer that falls silent is given up after about 10 s. Commands are lists of arguments, which are quoted here.
    """

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.cluster, self.node = cluster, node
        self._way = self._open()
        self._connection = self._way[-1]

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        check: bool = True,
        stdin: str | None = None,
        sudo: bool = False,
    ) -> Result:
        """Run a command with `stdin`, or nothing, as its input; RemoteError if it fails and `check` is set.

        After `timeout` seconds the connection's channel is closed and RemoteError raised; the command may live on.
        """
        done = self._run(argv, sudo, timeout=timeout, in_stream=_Input(stdin or ""), hide=True)
        return checked(self.node.name, argv, Result(done.stdout, done.stderr, done.exited), check)

    def stream(self, argv: Sequence[str], on_line: Callable[[str], None], *, sudo: bool = False) -> int:
        """Run a command, hand each line of its output and errors over as it comes, and return its exit status.

        The command's input stays open and empty for as long as the connection lives.
        """
        lock = threading.Lock()
        out, err = _Lines(on_line, lock), _Lines(on_line, lock)
        done = self._run(argv, sudo, in_stream=False, out_stream=out, err_stream=err)
        out.end()
        err.end()
        return done.exited

    def open(self, argv: Sequence[str]) -> Channel:
        """Start a command and return its paramiko channel, through which the caller writes its input; not waited for."""
        try:
            channel = self._connection.transport.open_session(timeout=CONNECT_S)
            channel.exec_command(shlex.join(argv))
        except Exception as error:
            raise RemoteError(self.node.name, f"`{shown(argv)}` cannot be started: {error}") from error
        return channel

    def put(self, local: Path, remote: str) -> None:
        """Copy a file to the node."""
        self._transfer(lambda: self._connection.put(str(local), remote), f"cannot copy {local} to {remote}")

    def get(self, remote: str, local: Path) -> None:
        """Copy a file from the node."""
        self._transfer(lambda: self._connection.get(remote, str(local)), f"cannot copy {remote} to {local}")

    def close(self) -> None:
        """End the connection, and with it what runs in the foreground of it."""
        close(self._way)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def _open(self) -> list[Any]:
        try:
            way = open_checked(self.cluster, self.node)
        except Refused as refused:
            raise RemoteError(self.node.name, self._why(refused)) from refused.error
        for connection in way:
            connection.transport.set_keepalive(KEEPALIVE_S)
            if isinstance(connection.transport.sock, socket.socket):
                connection.transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)
        return way

    def _why(self, refused: Refused) -> str:
        from paramiko import BadHostKeyException

        host, error, reached, keys = refused.host, refused.error, refused.reached, self.cluster.known_hosts
        at = f"{host.user}@{host.address} port {host.port}"
        if host != self.node:
            at = f"the jump host {at}"
        if isinstance(error, BadHostKeyException):
            return (
                f"{at} shows another host key than {keys} records; if the machine was reinstalled, check the key "
                "at its console and replace that line, else do not connect"
            )
        if "not found in known_hosts" in str(error) or isinstance(error, FileNotFoundError):
            return (
                f"no host key of {at} in {keys}; add it with ssh-keyscan, after comparing its fingerprint with the "
                "one at the machine's console"
            )
        if reached:
            return f"{at} refuses the login; put the public key of your SSH key into its authorized_keys"
        return f"cannot connect to {at}: {str(error) or type(error).__name__}"

    def _run(self, argv: Sequence[str], sudo: bool, **options: Any) -> Any:
        from invoke import CommandTimedOut

        command = shlex.join([*(("sudo", "-n", "--") if sudo else ()), *argv])
        try:
            done = self._connection.run(command, warn=True, pty=False, encoding="utf-8", **options)
        except CommandTimedOut as error:
            raise RemoteError(self.node.name, f"`{shown(argv)}` took longer than {error.timeout} s") from error
        except Exception as error:
            raise RemoteError(self.node.name, f"`{shown(argv)}` was not carried out: {error}") from error
        if done.exited == -1:
            raise RemoteError(self.node.name, f"the connection was lost while `{shown(argv)}` ran")
        return done

    def _transfer(self, copy: Callable[[], object], failed: str) -> None:
        try:
            copy()
        except Exception as error:
            raise RemoteError(self.node.name, f"{failed}: {error}") from error


def on_all(
    cluster: Cluster, work: Callable[[Remote], T], nodes: Iterable[Node] | None = None
) -> dict[str, T | Exception]:
    """The result of `work`, or the exception that it or the connection raised, per node by name, in the nodes' order.

    Every node has a thread and a connection of its own, which is closed when the work ends.
    """

    def one(node: Node) -> T | Exception:
        try:
            with Remote(cluster, node) as remote:
                return work(remote)
        except Exception as error:
            return error

    chosen = list(cluster.nodes if nodes is None else nodes)
    if not chosen:
        return {}
    with ThreadPoolExecutor(len(chosen)) as pool:
        return dict(zip((node.name for node in chosen), pool.map(one, chosen), strict=True))


class _Input:
    """A command's whole input in one read: Invoke reads a character at a time from anything that honours its count."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, _: int) -> str:
        text, self._text = self._text, ""
        return text


class _Lines:
    """A text stream that hands whole lines over, one at a time."""

    def __init__(self, on_line: Callable[[str], None], lock: threading.Lock) -> None:
        self._on_line, self._lock, self._rest = on_line, lock, ""

    def write(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._hand_over(line)

    def flush(self) -> None:
        pass

    def end(self) -> None:
        """Hand over a last line that no newline ended."""
        if self._rest:
            self._hand_over(self._rest)

    def _hand_over(self, line: str) -> None:
        with self._lock:
            self._on_line(line.rstrip("\r"))


def checked(name: str, argv: Sequence[str], result: Result, check: bool = True) -> Result:
    """A command's result; RemoteError with the end of its output if it failed on the machine `name` and `check`."""
    if check and result.status:
        output = "\n".join((result.stderr.strip() or result.stdout.strip()).splitlines()[-LINES_OF_ERROR:])
        raise RemoteError(name, f"`{shown(argv)}` ended with status {result.status}: {output}")
    return result


def shown(argv: Sequence[str]) -> str:
    """A command for a message, cut if it is long."""
    text = shlex.join(argv)
    return text if len(text) <= 120 else f"{text[:117]}…"

"""One SSH connection to a node, host key checked, and the same work on all nodes in parallel."""

from __future__ import annotations

import contextlib
import logging
import re
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from repro.cluster.cluster import Cluster, Node
from repro.cluster.jump_hosts import CONNECT_S, Refused, close, open_checked
from repro.cluster.login_shell import MOST, START, Answer, first_line, why_not_begun
from repro.utils.errors import FAILED, ReproError

if TYPE_CHECKING:
    from paramiko import Channel

Item = TypeVar("Item")
T = TypeVar("T")
KEEPALIVE_S, DEAD_PEER_MS = 3, 8000
LINES_OF_ERROR, LONGEST_WORD = 6, 80
NO_ROOM, LIMITS_FOLDER = "the limits nproc or nofile of the account may leave no room for it", "/etc/security/limits.d"
NO_FORK = re.compile(r"[Cc]annot fork|\bfork(?: failed)?: |No more processes")
"""What dash, bash, zsh and tcsh say where they could start no process."""
CHUNK = 1 << 16
AT_ONCE = 48
"""On how many nodes something is done at a time."""
NO_STATUS, CUT_S = -1, 0.5
"""paramiko's exit status of a command that a signal ended, as SSH sends none then, or whose connection was cut."""
NOT_FOUND = 127
"""The exit status of a command that is not installed, as a shell gives it."""
IDLE_S = 1.0
"""How long a connection's thread waits for the node before it looks after its own affairs; paramiko's is 0.1 s."""


logging.getLogger("paramiko").addHandler(logging.NullHandler())  # or what it logs of a lost connection is printed


class RemoteError(ReproError):
    """A failure on a node, or of the connection to it; `node` is that node's name."""

    status = FAILED

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node


@dataclass(frozen=True)
class CommandResult:
    """The output of a command, and its exit status."""

    stdout: str
    stderr: str
    status: int


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
    ) -> CommandResult:
        """Run a command with `stdin`, or nothing, as its input; RemoteError if it fails and `check` is set.

        After `timeout` seconds, times the cluster's patience, the connection's channel is closed and RemoteError raised;
        the command may live on.
        """
        out, err = bytearray(), bytearray()
        status = self._carry_out(
            argv, sudo, out=out.extend, err=err.extend, stdin=[(stdin or "").encode()], timeout=timeout
        )
        result = CommandResult(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), status)
        return checked(self.node.name, argv, result, check)

    def stream(self, argv: Sequence[str], on_line: Callable[[str], None]) -> int:
        """Run a command, hand each line of its output and errors over as it comes, and return its exit status.

        The command's input stays open and empty for as long as the connection lives.
        """
        lock = threading.Lock()
        out, err = _Lines(on_line, lock), _Lines(on_line, lock)
        status = self._carry_out(argv, False, out=out.write, err=err.write, stdin=None, timeout=None)
        out.end()
        err.end()
        return status

    def open(self, argv: Sequence[str]) -> Channel:
        """Start a command and return its paramiko channel, through which the caller writes its input; not waited for.

        What comes through the channel is to be read with `login_shell.Answer`.
        """
        begun = time.monotonic()
        try:
            channel = self._connection.transport.open_session(timeout=CONNECT_S * self.cluster.patience)
            channel.exec_command(START)
        except Exception as error:
            reason = _refusal(error, time.monotonic() - begun, self.cluster)
            raise RemoteError(self.node.name, f"`{shown(argv)}` cannot be started: {reason}") from error
        with contextlib.suppress(OSError):  # of a login shell that has ended: it is seen as its output ends
            channel.sendall(first_line(argv))
        return channel

    def put(self, local: Path, remote: str) -> None:
        """Copy a file to the node; RemoteError if that fails."""
        argv, err = ["sh", "-c", 'cat > "$1"', "-", remote], bytearray()
        with open(local, "rb") as file:
            status = self._carry_out(
                argv, False, out=bytes, err=err.extend, stdin=iter(partial(file.read, CHUNK), b""), timeout=None
            )
        if status:
            raise RemoteError(self.node.name, f"cannot copy {local} to {remote}: {err.decode('utf-8', 'replace')}")

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
                connection.transport.sock.settimeout(IDLE_S)
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
        if isinstance(error, OSError) and error.filename and error.filename == str(self.cluster.private_key):
            return (
                f"the SSH key {error.filename} cannot be read: {error.strerror}; ansible_ssh_private_key_file in "
                f"{self.cluster.folder / 'hosts.yml'} names it"
            )
        if "not found in known_hosts" in str(error) or isinstance(error, FileNotFoundError):
            return (
                f"no host key of {at} in {keys}; add it with ssh-keyscan, after comparing its fingerprint with the "
                "one at the machine's console"
            )
        if reached:
            return f"{at} refuses the login; put the public key of your SSH key into its authorized_keys"
        if refused.left:
            return (
                f"{at} closed the connection in the middle of the login; the account may have expired there, or be locked: "
                "`chage -l ACCOUNT` shows it, and `chage -E -1 ACCOUNT` as root renews it"
            )
        return f"cannot connect to {at}: {str(error) or type(error).__name__}"

    def _carry_out(
        self,
        argv: Sequence[str],
        sudo: bool,
        out: Callable[[bytes], object],
        err: Callable[[bytes], object],
        stdin: Iterable[bytes] | None,
        timeout: float | None,
    ) -> int:
        """Run a command and hand its output over as it comes; `stdin` is its whole input, None for one that stays open.

        RemoteError, with the cause, where the account's login shell does not get as far as the command.

        Invoke, which Fabric's own `run` uses, looks a hundred times a second whether a command has ended and whether
        there is input; with many nodes that alone takes all processors. Here threads wait until there is something.
        """
        channel = self.open([*(("sudo", "-n", "--") if sudo else ()), *argv])
        limit = None if timeout is None else timeout * self.cluster.patience
        deadline = None if limit is None else time.monotonic() + limit
        answer, errors = Answer(), bytearray()

        def take_errors(data: bytes) -> None:
            errors.extend(data[: MOST - len(errors)])
            err(data)

        others = [threading.Thread(target=_copy, args=(channel.recv_stderr, take_errors), daemon=True)]
        if stdin is not None:
            others.append(threading.Thread(target=_feed, args=(channel, stdin), daemon=True))
        try:
            for thread in others:
                thread.start()
            _copy(channel.recv, lambda data: out(answer(data)), lambda: channel.settimeout(_left(deadline)))
            for thread in others:
                thread.join(_left(deadline))
            if not channel.status_event.wait(_left(deadline)):
                raise TimeoutError
        except TimeoutError as error:
            late = "" if answer.begun else ": its account's login shell there has not started it yet"
            raise RemoteError(self.node.name, f"`{shown(argv)}` took longer than {limit:g} s{late}") from error
        finally:
            channel.close()
        if not answer.begun and connection_goes_on(channel):
            printed = (answer.before + b"\n" + errors).decode("utf-8", "replace")
            raise RemoteError(self.node.name, why_not_begun(channel.exit_status, printed))
        if channel.exit_status == NO_STATUS:
            went_on = connection_goes_on(channel)
            said = (
                f"`{shown(argv)}` was killed by a signal"
                if went_on
                else f"the connection was lost while `{shown(argv)}` ran"
            )
            raise RemoteError(self.node.name, said)
        return channel.exit_status


def connection_goes_on(channel: Channel) -> bool:
    """Whether the connection outlives a channel that has ended. One that was cut ends within moments of its channels."""
    transport = channel.get_transport()
    transport.join(CUT_S)
    return transport.is_active()


def on_all(
    cluster: Cluster, work: Callable[[Remote], T], nodes: Iterable[Node] | None = None
) -> dict[str, T | Exception]:
    """The result of `work`, or the exception that it or the connection raised, per node by name, in the nodes' order.

    Every node has a connection of its own, which is closed when the work ends.
    """

    def one(node: Node) -> T:
        with Remote(cluster, node) as remote:
            return work(remote)

    chosen = list(cluster.nodes if nodes is None else nodes)
    return dict(zip((node.name for node in chosen), each_of(one, chosen), strict=True))


def each_of(work: Callable[[Item], T], given: Iterable[Item]) -> list[T | Exception]:
    """What `work` returned or raised for each, in their order; it is done for `AT_ONCE` at a time."""

    def one(item: Item) -> T | Exception:
        try:
            return work(item)
        except Exception as error:
            return error

    items = list(given)
    if not items:
        return []
    with ThreadPoolExecutor(min(len(items), AT_ONCE)) as pool:
        return list(pool.map(one, items))


def _left(deadline: float | None) -> float | None:
    """The seconds until a deadline; TimeoutError behind it."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _copy(read: Callable[[int], bytes], write: Callable[[bytes], object], before: Callable[[], object] = bool) -> None:
    """Hand over what comes until its end; `before` is called before each look."""
    before()
    while data := read(CHUNK):
        write(data)
        before()


def _feed(channel: Channel, pieces: Iterable[bytes]) -> None:
    """Give a command its whole input, as far as it takes it."""
    with contextlib.suppress(OSError):
        for data in pieces:
            channel.sendall(data)
        channel.shutdown_write()


def _refusal(error: Exception, seconds: float, cluster: Cluster) -> str:
    """Why a node does not start one command more over a connection, `seconds` after it was asked to."""
    from paramiko import ChannelException

    if isinstance(error, ChannelException):
        return (
            f"its sshd refuses a further session over one connection ({error}); set MaxSessions to 10, its default, or more "
            "in /etc/ssh/sshd_config there"
        )
    if seconds >= CONNECT_S * cluster.patience:
        return (
            f"its sshd has not answered for {seconds:.0f} s: the node hangs, or has too little of a processor for it; if it is "
            f"always that slow, raise cluster_patience in {cluster.variables}"
        )
    return (
        f"its sshd ended the session before the command began ({error}): {NO_ROOM}; raise them in {LIMITS_FOLDER} there, or "
        "see `journalctl -u ssh`"
    )


def no_process(said: str) -> str:
    """What to do where a shell says that it could start no process; "" for anything else that is said."""
    return f"; {NO_ROOM}: raise them in {LIMITS_FOLDER} there" if NO_FORK.search(said) else ""


class _Lines:
    """Takes bytes as they come, and hands whole lines over, one at a time."""

    def __init__(self, on_line: Callable[[str], None], lock: threading.Lock) -> None:
        self._on_line, self._lock, self._rest = on_line, lock, b""

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hand_over(line)

    def end(self) -> None:
        """Hand over a last line that no newline ended."""
        if self._rest:
            self._hand_over(self._rest)

    def _hand_over(self, line: bytes) -> None:
        with self._lock:
            self._on_line(line.decode("utf-8", "replace").rstrip("\r"))


def checked(name: str, argv: Sequence[str], result: CommandResult, check: bool = True) -> CommandResult:
    """A command's result; RemoteError with the end of its output if it failed on the machine `name` and `check`."""
    if check and result.status:
        output = "\n".join((result.stderr.strip() or result.stdout.strip()).splitlines()[-LINES_OF_ERROR:])
        raise RemoteError(name, f"`{shown(argv)}` ended with status {result.status}: {output}{no_process(output)}")
    return result


def shown(argv: Sequence[str]) -> str:
    """A command for a message on one line, without the text of programs in its words, and cut if it is long."""
    text = " ".join("…" if len(word) > LONGEST_WORD or "\n" in word else shlex.quote(word) for word in argv)
    return text if len(text) <= 120 else f"{text[:117]}…"

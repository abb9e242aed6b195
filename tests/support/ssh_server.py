"""A node in this process: an SSH server on the loopback interface that runs what it is sent, as this user."""

import os
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST

from repro.cluster.cluster import Cluster, Image, Node
from repro.launch.agent.lock import SEAM as LOCK_FOLDER


class _Session(paramiko.ServerInterface):
    def __init__(self, node: "SshServer", allowed: paramiko.PKey):
        self._node, self._allowed = node, allowed

    def get_allowed_auths(self, username):
        return "publickey"

    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL if key == self._allowed else paramiko.AUTH_FAILED

    def check_channel_request(self, kind, chanid):
        time.sleep(self._node.session_s)
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        channel.accepted = command.decode()
        return True

    def check_channel_forward_agent_request(self, channel):
        raise AssertionError("the client asked for agent forwarding")


GONE = (OSError, EOFError, paramiko.SSHException)


def _serve_command(channel, command: str, environment: dict[str, str], start_up: str) -> None:
    process = subprocess.Popen(
        ["sh", "-c", start_up + command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    threads = [
        threading.Thread(target=_copy, args=pair, daemon=True)
        for pair in ((process.stdout.fileno(), channel.sendall), (process.stderr.fileno(), channel.sendall_stderr))
    ]
    threading.Thread(target=_feed, args=(channel, process), daemon=True).start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with suppress(*GONE):
        status = process.wait()
        if status >= 0:  # as sshd, which has no status for a process that a signal ended
            channel.send_exit_status(status)
        channel.close()


def _copy(source: int, write) -> None:
    with suppress(*GONE):
        while data := os.read(source, 65536):
            write(data)


def _feed(channel, process) -> None:
    with suppress(*GONE):
        while data := channel.recv(65536):
            process.stdin.write(data)
            process.stdin.flush()
        process.stdin.close()


def _answer(channel, message) -> None:
    """Answer a request, and only then start the command that it may have been: it could end before the answer."""
    paramiko.Channel._handle_request(channel, message)
    if command := channel.__dict__.pop("accepted", None):
        server = channel.get_transport().server
        args = (channel, command, server.environment, server.start_up)
        threading.Thread(target=_serve_command, args=args, daemon=True).start()


class _Transport(paramiko.Transport):
    _channel_handler_table = paramiko.Transport._channel_handler_table | {MSG_CHANNEL_REQUEST: _answer}


class SshServer:
    """One node, with a lock of its own; `stop` cuts all its connections as a crash would.

    `start_up` is what its login shell runs before each command, as a `.bashrc` does; `session_s` is how long it takes to
    open a session.
    """

    def __init__(self, folder: Path):
        self.folder, self.host_key = folder, paramiko.ECDSAKey.generate()
        self._client_key = paramiko.ECDSAKey.generate()
        self._client_key.write_private_key_file(str(folder / "id"))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.transports: list[paramiko.Transport] = []
        self.environment = {LOCK_FOLDER: str(folder)}
        self.start_up, self.session_s = "", 0.0
        self.known_hosts(self.host_key)
        threading.Thread(target=self._accept, daemon=True).start()

    def known_hosts(self, key: paramiko.PKey | None) -> None:
        """Write the known_hosts file with a key for this server, or with none."""
        line = f"[127.0.0.1]:{self.port} {key.get_name()} {key.get_base64()}\n" if key else ""
        (self.folder / "known_hosts").write_text(line)

    def cluster(self, nodes: int = 1, **changes) -> Cluster:
        """A cluster whose nodes are all this server."""
        each = tuple(Node(f"node{i}", "127.0.0.1", self.port, "tester", 1) for i in range(nodes))
        values = {
            "name": "loopback",
            "folder": self.folder,
            "nodes": each,
            "gpu": "",
            "gpus_per_node": 1,
            "interface": "lo",
            "hca": "",
            "gid_index": None,
            "network_gbits": 10,
            "stack": "cu102",
            "image": Image("oneflow-reproduction:cu102"),
            "data": "",
            "shared_results": "",
            "work": "/var/lib/oneflow-reproduction",
            "port": 29500,
            "runtime_name": "docker",
            "launcher": "ssh",
            "accepted": frozenset(),
            "known_hosts": self.folder / "known_hosts",
            "private_key": self.folder / "id",
            "python": "/usr/bin/python3",
        }
        return Cluster(**values | changes)

    def stop(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for transport in self.transports:
            with suppress(OSError):
                transport.sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                transport = _Transport(client)
                transport.server = self
                transport.add_server_key(self.host_key)
                self.transports.append(transport)
                threading.Thread(target=self._start, args=(transport,), daemon=True).start()

    def _start(self, transport: paramiko.Transport) -> None:
        with suppress(*GONE):
            transport.start_server(server=_Session(self, self._client_key))

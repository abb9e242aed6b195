"""Commands on this machine, with the interface of a connection to a node (`ssh.Remote`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from repro.cluster.ssh import NOT_FOUND, CommandResult, RemoteError, checked, shown

NAME = "this machine"


class LocalShell:
    """This machine, asked as a node is through `Remote`."""

    def __init__(self) -> None:
        self._followed: list[subprocess.Popen] = []

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

        RemoteError also if it takes longer than `timeout` seconds; it is then killed.
        """
        command = _command(argv, sudo)
        if shutil.which(command[0]) is None:
            return checked(NAME, argv, CommandResult("", f"{command[0]}: command not found", NOT_FOUND), check)
        try:
            done = subprocess.run(
                command, input=stdin or "", capture_output=True, text=True, errors="replace", timeout=timeout
            )
        except subprocess.TimeoutExpired as error:
            raise RemoteError(NAME, f"`{shown(argv)}` took longer than {timeout:.0f} s") from error
        except OSError as error:
            raise RemoteError(NAME, f"`{shown(argv)}` cannot be started: {error}") from error
        return checked(NAME, argv, CommandResult(done.stdout, done.stderr, done.returncode), check)

    def stream(self, argv: Sequence[str], on_line: Callable[[str], None]) -> int:
        """Run a command, hand each line of its output and errors over as it comes, and return its exit status.

        The command's input stays open and empty; `close` ends it.
        """
        pipe = subprocess.PIPE
        with subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            self._followed.append(process)
            for line in process.stdout or ():
                on_line(line.rstrip("\r\n"))
        return process.returncode

    def put(self, local: Path, remote: str) -> None:
        """Copy a file; RemoteError if that fails."""
        try:
            shutil.copyfile(local, remote)
        except OSError as error:
            raise RemoteError(NAME, f"cannot copy {local} to {remote}: {error}") from error

    def close(self) -> None:
        """End the commands that are followed."""
        for process in self._followed:
            with suppress(ProcessLookupError):
                process.terminate()

    def __enter__(self) -> LocalShell:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()


def _command(argv: Sequence[str], sudo: bool) -> list[str]:
    return [*(("sudo", "-n", "--") if sudo and os.geteuid() else ()), *argv]

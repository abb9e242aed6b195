"""Commands on this machine have the results and errors of commands on a node."""

import threading

import pytest

from repro.cluster.local_shell import NOT_FOUND, LocalShell
from repro.cluster.ssh import RemoteError
from tests.support.patience import patience


def test_arguments_stay_arguments():
    assert LocalShell().run(["echo", "a b", "$HOME"]).stdout == "a b $HOME\n"


def test_input_is_given_or_empty():
    assert LocalShell().run(["cat"], stdin="given").stdout == "given"
    assert LocalShell().run(["cat"]).stdout == ""


def test_a_failure_is_a_result_or_an_error():
    failing = ["sh", "-c", "echo no >&2; exit 3"]
    assert LocalShell().run(failing, check=False).status == 3
    with pytest.raises(RemoteError, match=r"this machine: `sh -c .*` ended with status 3: no") as caught:
        LocalShell().run(failing)
    assert caught.value.node == "this machine"


def test_a_command_that_is_not_installed_has_the_status_of_a_shell():
    done = LocalShell().run(["no-such-program"], check=False)
    assert (done.status, done.stderr) == (NOT_FOUND, "no-such-program: command not found")
    with pytest.raises(RemoteError, match="no-such-program: command not found"):
        LocalShell().run(["no-such-program"])


def test_a_command_that_takes_too_long_is_killed():
    with pytest.raises(RemoteError, match="`sleep 5` took longer than 0 s"):
        LocalShell().run(["sleep", "5"], timeout=0.1)


@pytest.mark.parametrize(("user", "first"), [(1000, "sudo -n -- id"), (0, "id")])
def test_sudo_is_for_others_than_root(tmp_path, monkeypatch, user, first):
    for name in ("sudo", "id"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} $*\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("repro.cluster.local_shell.os.geteuid", lambda: user)
    assert LocalShell().run(["id"], sudo=True).stdout.strip() == first


def test_lines_of_output_and_errors_come_one_by_one():
    lines = []
    assert LocalShell().stream(["sh", "-c", "echo one; echo two >&2; printf three; exit 4"], lines.append) == 4
    assert lines == ["one", "two", "three"]


def test_closing_ends_what_is_followed():
    shell, begun, ended = LocalShell(), threading.Event(), []
    follow = ["sh", "-c", "echo ready; exec sleep 3600"]
    thread = threading.Thread(target=lambda: ended.append(shell.stream(follow, lambda line: begun.set())))
    thread.start()
    assert begun.wait(patience())
    shell.close()
    thread.join(patience())
    assert ended == [-15]

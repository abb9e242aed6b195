"""The code on a node: whole and once, however many bring it at a time."""

import contextlib
import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from repro.cluster.ssh import CommandResult, RemoteError
from repro.launch.nodes.code_upload import RECEIVE, UploadedCode, deliver
from repro.runs.program_files import files_digest
from repro.utils.paths import sha256_of
from tests.support.clusters import V100

FILES = {f"repro/{number}.py": f"{number}\n" * 2000 for number in range(40)}
DIGEST = files_digest((name, sha256_of(text.encode())) for name, text in FILES.items())


def order(work, digest=DIGEST):
    return json.dumps({"work": str(work), "digest": digest, "files": FILES})


def receive(work, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(order(work)))
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(RECEIVE, "receive", "exec"), {})


def test_the_digest_there_is_that_of_the_code(tmp_path):
    sent = UploadedCode()
    given = json.dumps({"work": str(tmp_path), "digest": sent.digest, "files": sent.files})
    done = subprocess.run([sys.executable, "-c", RECEIVE], input=given, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, sent.folder(str(tmp_path))), done.stderr


def test_several_bring_it_at_once_and_nothing_else_is_left(tmp_path):
    argv = [sys.executable, "-c", RECEIVE]
    begun = [subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    for each in begun:
        each.stdin.write(order(tmp_path))
        each.stdin.flush()
    said = [each.communicate()[1] for each in begun]
    assert [each.returncode for each in begun] == [0] * 6, said
    assert os.listdir(tmp_path / "code") == [DIGEST]


def test_who_comes_second_leaves_what_is_there(tmp_path, monkeypatch):
    """Another has the same process number, as on another node, and is done between this one's look and its end."""
    rename = os.rename

    def after_another(source, target):
        monkeypatch.setattr(os, "rename", rename)
        receive(tmp_path, monkeypatch)
        rename(source, target)

    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr(os, "rename", after_another)
    receive(tmp_path, monkeypatch)
    assert os.listdir(tmp_path / "code") == [DIGEST]


def test_the_code_has_its_name_only_once_all_of_it_is_on_the_disk(tmp_path, monkeypatch):
    """A virtual machine whose power was cut had the folder, with empty files in it."""
    rename, on_disk, named = os.rename, [], []

    def remember(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        on_disk.append((path.partition("/code/repro/")[2], os.path.getsize(path)))

    def name(source, target):
        named.append(sorted(on_disk))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", remember)
    monkeypatch.setattr(os, "rename", name)
    receive(tmp_path, monkeypatch)
    assert named == [sorted((name.removeprefix("repro/"), len(text)) for name, text in FILES.items())]


def test_what_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        receive(tmp_path, monkeypatch)
    assert os.listdir(tmp_path / "code") == []


PERMISSION = "PermissionError: [Errno 13] Permission denied: '/var/lib/w/code'"


@pytest.mark.parametrize(
    ("status", "stderr", "said", "provisions"),
    [
        (127, "sh: 1: /usr/bin/python3: not found", "there is no /usr/bin/python3; install Python 3.8 or newer", False),
        (1, f"Traceback\n{PERMISSION}", PERMISSION, True),
        (1, "OSError: [Errno 30] Read-only file system", "Read-only file system", False),
        (1, "OSError: [Errno 28] No space left on device", "No space left on device", False),
        (1, "", "status 1", False),
    ],
)
def test_why_a_node_does_not_take_the_code(status, stderr, said, provisions):
    """Provisioning is named only where it helps: it makes the folder."""
    remote = SimpleNamespace(
        cluster=V100, node=V100.nodes[0], run=lambda argv, **given: CommandResult("", stderr, status)
    )
    with pytest.raises(RemoteError) as error:
        deliver(remote, UploadedCode())
    assert said in str(error.value)
    assert ("make provision" in str(error.value)) == provisions

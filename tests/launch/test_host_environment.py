"""The anonymous identity of a machine that a run records: equal for the same machine and start, and telling nothing else."""

import os
import platform
import subprocess

import pytest

from repro.launch import host_environment
from repro.launch.host_environment import capture, identity
from repro.runs.environment import FORM

SECRET, START = "0123456789abcdef0123456789abcdef", "79d32954-53f7-0135-2bd5-d2f66d049440"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Writes a machine's id and the id of its last start, either of which may be missing."""

    def write(secret=SECRET, start=START):
        for name, text in (("MACHINE_ID", secret), ("BOOT_ID", start)):
            path = tmp_path / name
            path.unlink(missing_ok=True)
            if text:
                path.write_text(f"{text}\n")
            monkeypatch.setattr(host_environment, name, path)

    write()
    return write


def test_the_same_machine_is_known_again_and_a_start_by_its_own_digest(machine):
    first = identity(["GPU-a", "GPU-b"])
    assert first == identity(["GPU-b", "GPU-a"]), "in whatever order its GPUs are named"
    machine(start="another")
    again = identity(["GPU-a", "GPU-b"])
    assert again["id"] == first["id"] and again["start"] != first["start"]


@pytest.mark.parametrize(("secret", "gpus"), [("f" * 32, ["GPU-a"]), (SECRET, ["GPU-b"]), (SECRET, [])])
def test_another_machine_has_another_identity(machine, secret, gpus):
    first = identity(["GPU-a"])
    machine(secret=secret)
    other = identity(gpus)
    assert not {first["id"], first["start"]} & {other["id"], other["start"]}


def test_nothing_of_the_machine_can_be_read_in_it(machine):
    found = str(identity(["GPU-a"]))
    assert all(each not in found for each in (SECRET[:8], START[:8], "GPU", platform.node()))


def test_a_machine_without_an_id_is_known_by_its_name(machine, monkeypatch):
    machine(secret="", start="")
    monkeypatch.setattr(platform, "node", lambda: "one")
    first = identity([])
    assert first == identity([])
    monkeypatch.setattr(platform, "node", lambda: "another")
    assert identity([])["id"] != first["id"]


def test_what_is_captured_has_an_identity_of_the_recorded_form():
    found = capture().as_json()
    assert set(found["machine"]) == {"id", "start"} and FORM(found) is None
    assert "machine" in FORM({**found, "machine": {"id": "lab-7", "start": "0" * 16}})


def test_looking_at_a_checkout_leaves_its_index_to_its_user(tmp_path, monkeypatch):
    """`git status` otherwise writes it, and locks out a commit of that moment; killed in between, for good."""

    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e", *words], check=True)

    (tmp_path / "file").write_text("x")
    git("init", "--quiet")
    git("add", "file")
    git("commit", "--quiet", "--message", "x")
    os.utime(tmp_path / "file", (0, 0))
    before = (tmp_path / ".git" / "index").read_bytes()
    monkeypatch.setattr(host_environment, "ROOT", tmp_path)
    assert host_environment._changed_files() == 0
    assert (tmp_path / ".git" / "index").read_bytes() == before

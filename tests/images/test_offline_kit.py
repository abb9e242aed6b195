"""The offline kit: pieces, what is refused when it is made, and what its set-up finds wrong before it unpacks."""

import hashlib
import shutil
import subprocess

import pytest

from repro.images import offline_kit
from tests.support import tasks

SETUP = offline_kit.TEMPLATES / "kit-setup.sh"


def check(folder) -> subprocess.CompletedProcess:
    """`setup.sh --check`, which unpacks nothing, with no tools but a plain system's."""
    argv = ["sh", folder / "setup.sh", "--check"]
    return subprocess.run(argv, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)


@pytest.fixture
def kit(tmp_path):
    """A folder like a kit, with small pieces: two of a part, and two of an optional one."""
    folder = tmp_path / "a kit"
    folder.mkdir()
    shutil.copy(SETUP, folder / "setup.sh")
    (folder / "kit.conf").write_text(f"optional='{' '.join(offline_kit.OPTIONAL)}'\n")
    for name in ("base.tar.gz.000", "base.tar.gz.001", "libraries.tar.xz.000", "libraries.tar.xz.001"):
        (folder / name).write_bytes(name.encode() * 100)
    files = sorted(folder.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


def test_a_whole_kit_is_accepted(kit):
    done = check(kit)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["base.tar.gz.001", "libraries.tar.xz.000", "setup.sh", "kit.conf"])
def test_one_changed_byte_is_refused_by_name(kit, name):
    path = kit / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 0x20 if name == "kit.conf" else 1
    path.write_bytes(content)
    done = check(kit)
    assert done.returncode != 0
    if name != "setup.sh":
        assert f"{name} is damaged" in done.stderr and "nothing was set up" in done.stderr


def test_every_missing_piece_is_named(kit):
    (kit / "base.tar.gz.000").unlink()
    (kit / "libraries.tar.xz.001").unlink()
    done = check(kit)
    assert done.returncode == 1
    assert "base.tar.gz.000 is missing" in done.stderr
    assert "libraries.tar.xz.001 is missing" in done.stderr, "a part comes as a whole or not at all"


def test_an_optional_part_may_stay_behind(kit):
    for path in kit.glob("libraries.*"):
        path.unlink()
    assert check(kit).returncode == 0


def test_without_checksums_nothing_is_accepted(kit):
    (kit / "SHA256SUMS").unlink()
    done = check(kit)
    assert done.returncode == 1
    assert "SHA256SUMS is missing" in done.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ARCH": "9.0"}, "ARCH=9.0: it is a whole number"),
        ({"ARCH": "9"}, "the compute capability without its point"),
        ({"ARCH": "90", "PART_MIB": "0"}, "PART_MIB=0: it is a whole number"),
    ],
)
def test_wrong_settings_are_refused(settings, message, tmp_path):
    done = tasks.run("kit", KIT=tmp_path / "kit", **settings)
    assert done.returncode == 2
    assert message in done.stderr

"""A base image made by debootstrap, with a stand-in for debootstrap and an engine with recorded answers."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from repro.images import debian
from repro.images.build import base_tag
from repro.images.engine import ImageError
from tests.support.docker_engine import fake_engine

MAKES = r"""#!/bin/sh
# --variant=minbase --arch=amd64 SUITE FOLDER MIRROR
suite=$3; root=$4; mirror=$5
[ "$mirror" != http://bad ] || { echo "E: Failed getting release file $mirror/dists/$suite/Release"; exit 1; }
for name in etc/apt var/lib/dpkg debootstrap var/cache/apt var/lib/apt/lists var/log usr/share/locale usr/share/man usr/share/info
do mkdir -p "$root/$name"; done
echo "$suite" > "$root/etc/debian_version"; echo text > "$root/usr/share/man/page"; echo x > "$root/var/lib/dpkg/status"
# What is of the machine and of the day.
echo "$DAY" > "$root/debootstrap/log"; echo "machine-$DAY" > "$root/etc/hostname"; echo "$DAY" > "$root/etc/passwd-"
echo "deb $mirror $suite main" > "$root/etc/apt/sources.list"
printf 'root:*:%s:0:99999:7:::\ndaemon:*:%s:0:99999:7:::\n' "$DAY" "$DAY" > "$root/etc/shadow"
"""


@pytest.fixture
def debootstrap(monkeypatch, tmp_path):
    """An engine, on a machine whose debootstrap makes a tiny root folder, without root."""
    program = tmp_path / "bin/debootstrap"
    program.parent.mkdir()
    program.write_text(MAKES)
    (tmp_path / "bin/unshare").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    for made in program.parent.iterdir():
        made.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(debian.os, "geteuid", lambda: 0)
    monkeypatch.setattr(debian, "CACHE", tmp_path / "cache")
    with fake_engine(tmp_path) as (engine, address):
        monkeypatch.setenv("DOCKER_HOST", address)
        yield engine


def test_the_base_is_made_and_given_to_the_engine(debootstrap, tmp_path):
    assert debian.make_base("cu102", "http://good/debian") == base_tag("cu102")
    ((source, content),) = debootstrap.imported
    assert source == base_tag("cu102")
    (tmp_path / "root.tar").write_bytes(content)
    with tarfile.open(tmp_path / "root.tar") as root:
        names = {name.removeprefix("./") for name in root.getnames()}
    assert {"etc/debian_version", "usr/share/man"} <= names and "usr/share/man/page" not in names
    assert not {"etc/hostname", "etc/passwd-", "debootstrap"} & names
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_base_is_the_same_on_another_machine_and_day_and_from_another_mirror(debootstrap, monkeypatch):
    for day, mirror in ((20000, "http://good/debian"), (20900, "http://other/debian")):
        monkeypatch.setenv("DAY", str(day))
        debian.make_base("cu102", mirror)
    (_, first), (_, second) = debootstrap.imported
    assert first == second
    assert b"root:*:20709:0" in first, "the day of the pinned time"


def test_a_mirror_that_does_not_serve_it_is_named(debootstrap):
    with pytest.raises(ImageError, match=r"(?s)from http://bad; DEBIAN=<mirror> names another:.*Failed getting"):
        debian.make_base("cu102", "http://bad")
    assert debootstrap.imported == []


CAN_MOUNT = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not CAN_MOUNT, reason="needs root that may mount")
def test_what_debootstrap_leaves_mounted_is_mounted_nowhere_else(debootstrap, tmp_path):
    (tmp_path / "bin/unshare").unlink()
    with open(tmp_path / "bin/debootstrap", "a") as program:
        program.write('mount -t tmpfs none "$root/etc" && touch "$root/etc/mounted"\n')
    debian.debootstrap("bullseye", "http://good/debian", tmp_path / "root")
    assert "debian_version" in [path.name for path in (tmp_path / "root/etc").iterdir()]
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_what_is_missing_is_named(debootstrap, monkeypatch):
    monkeypatch.setattr(debian.os, "geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="sudo make base"):
        debian.make_base("cu102")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ImageError, match="install debootstrap"):
        debian.make_base("cu102")

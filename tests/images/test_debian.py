"""A base image made by debootstrap, with a stand-in for debootstrap and an engine with recorded answers."""

import os
import tarfile

import pytest

from repro.images import debian
from repro.images.engine import ImageError
from tests.support.docker_engine import fake_engine

MAKES = """#!/bin/sh
# --variant=minbase SUITE FOLDER MIRROR
[ "$4" = http://good/debian ] || { echo "E: Failed getting release file $4/dists/$2/Release"; exit 1; }
mkdir -p "$3/etc" "$3/var/cache/apt" "$3/var/lib/apt/lists" "$3/var/log" "$3/usr/share/locale" "$3/usr/share/man" "$3/usr/share/info"
echo "$2" > "$3/etc/debian_version"; echo text > "$3/usr/share/man/page"
"""


@pytest.fixture
def debootstrap(monkeypatch, tmp_path):
    """An engine, on a machine whose debootstrap makes a tiny root folder."""
    program = tmp_path / "bin/debootstrap"
    program.parent.mkdir()
    program.write_text(MAKES)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(debian.os, "geteuid", lambda: 0)
    monkeypatch.setattr(debian, "CACHE", tmp_path / "cache")
    with fake_engine(tmp_path) as (engine, address):
        monkeypatch.setenv("DOCKER_HOST", address)
        yield engine


def test_the_base_is_made_and_given_to_the_engine(debootstrap, tmp_path):
    assert debian.make_base("http://good/debian") == debian.BASE
    ((source, content),) = debootstrap.imported
    assert source == debian.BASE
    (tmp_path / "root.tar").write_bytes(content)
    with tarfile.open(tmp_path / "root.tar") as root:
        names = {name.removeprefix("./") for name in root.getnames()}
    assert {"etc/debian_version", "usr/share/man"} <= names and "usr/share/man/page" not in names
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_mirror_that_does_not_serve_it_is_named(debootstrap):
    with pytest.raises(ImageError, match=r"(?s)from http://bad; DEBIAN=<mirror> names another:.*Failed getting"):
        debian.make_base("http://bad")
    assert debootstrap.imported == []


def test_what_is_missing_is_named(debootstrap, monkeypatch):
    monkeypatch.setattr(debian.os, "geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="sudo make base"):
        debian.make_base()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ImageError, match="install debootstrap"):
        debian.make_base()

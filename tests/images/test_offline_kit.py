"""The offline kit: pieces, what is refused when it is made, and what its set-up finds wrong before it unpacks."""

import hashlib
import os
import shutil
import subprocess

import pytest

from repro.images import offline_kit
from repro.images.fatbins import PTX, SASS, fatbins
from repro.images.kernel_overlay import Overlay
from repro.images.offline_kit import Entry, KitError, Made, relocated
from tests.support import tasks
from tests.support.fatbins import library

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


@pytest.mark.parametrize("name", ["part.tar.gz", "part.tar.xz"])
def test_an_archive_is_split_and_the_same_for_the_same_content(tmp_path, name):
    entries = [
        Entry("a/x", content=bytes(range(256)) * 4, executable=True),
        Entry("a/y", source=SETUP),
        Entry("a/z", link="x"),
    ]
    packed = []
    for folder in (tmp_path / "1", tmp_path / "2"):
        folder.mkdir()
        made = Made(folder, (90,))
        offline_kit._pack(made, name, entries, 500, 1)
        pieces = sorted(folder.iterdir())
        assert len(pieces) > 1 and {path.stat().st_size for path in pieces[:-1]} == {500}
        assert made.parts == {"part": sum(path.stat().st_size for path in pieces)}
        packed.append(b"".join(path.read_bytes() for path in pieces))
    assert packed[0] == packed[1]
    subprocess.run(
        ["tar", "-x", f"-{'z' if name.endswith('gz') else 'J'}", "-C", tmp_path], input=packed[0], check=True
    )
    assert (tmp_path / "a/y").read_bytes() == SETUP.read_bytes()
    assert (tmp_path / "a/z").resolve() == tmp_path / "a/x" and (tmp_path / "a/x").stat().st_mode & 0o100


def test_a_failing_compressor_fails_the_kit(tmp_path, monkeypatch):
    monkeypatch.setattr(offline_kit, "XZ", ("sh", "-c", "cat >/dev/null; exit 3"))
    with pytest.raises(KitError, match="status 3"):
        offline_kit._pack(Made(tmp_path, (90,)), "part.tar.xz", [Entry("x", content=b"x")], 500, 1)


def test_a_search_path_is_made_relative_in_place():
    before = b"\x7fELF\0/root/python/lib\0libffi.so.8\0"
    after = relocated(before, "/root/python/lib", "$ORIGIN/../lib")
    assert after == b"\x7fELF\0$ORIGIN/../lib\0\0\0libffi.so.8\0"
    assert relocated(before, "/usr/lib", "$ORIGIN/../lib") == before
    assert relocated(b"\0/lib\0", "/lib", "$ORIGIN/../lib") == b"\0/lib\0", "no room: it stays as it is"


def test_an_installed_file_that_is_not_its_wheels_is_refused(tmp_path):
    site = tmp_path / "site-packages"
    (site / "toy-1.dist-info").mkdir(parents=True)
    (site / "toy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (site / "toy.py").write_text("1\n")
    digest = offline_kit._record_hash(site / "toy.py")
    (site / "toy-1.dist-info" / "RECORD").write_text(f"toy.py,sha256={digest},2\ntoy/tests/x.py,,\n../../bin/toy,,\n")
    assert [entry.name for entry in offline_kit._installed(site, {"toy"})] == ["toy.py"]
    assert list(offline_kit._installed(site, {"other"})) == []
    (site / "toy.py").write_text("2\n")
    with pytest.raises(KitError, match=r"toy\.py is not as toy's wheel states"):
        list(offline_kit._installed(site, None))


def test_a_library_goes_into_the_kit_without_code_for_other_architectures(tmp_path):
    source = library(tmp_path / "lib.so.1", [[(SASS, 70), (PTX, 75)]])
    before = source.read_bytes()
    made = Made(tmp_path, (90,))
    packed = offline_kit._only_ours(Entry("lib.so.1", source), tmp_path, made)
    content = packed.source.read_bytes()
    (found,) = fatbins(content)
    assert [any(content[code.offset : code.offset + code.length]) for code in found.codes] == [False, True]
    assert made.zeroed == {"lib.so.1": 64}
    assert source.read_bytes() == before, "what is installed stays as it is"


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


def test_the_libraries_of_an_overlay_are_in_the_kit_in_place_of_the_wheels(tmp_path):
    own = tmp_path / "overlay" / "oneflow.libs"
    own.mkdir(parents=True)
    (own / "liboneflow-1.so").write_bytes(b"compiled")
    (own / "libprotobuf-3.so").symlink_to(tmp_path)
    made = Made(tmp_path, (90,), Overlay(own.parent, 90, "0" * 64, 1, 0))
    site = ".venv-trainer/lib/python3.10/site-packages"
    for name, taken in [
        ("oneflow.libs/liboneflow-1.so", True),
        ("oneflow.libs/libprotobuf-3.so", False),
        ("oneflow.libs/libcudnn-2.so.7", False),
        ("other/liboneflow-1.so", False),
    ]:
        entry = Entry(f"{site}/{name}", tmp_path / name)
        found = offline_kit._compiled(entry, made)
        assert found.name == entry.name
        assert found.source == (own / "liboneflow-1.so" if taken else entry.source), name
    assert offline_kit._compiled(Entry("oneflow.libs/liboneflow-1.so"), Made(tmp_path, (90,))).source is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["part.tar.gz", "part.tar.xz"])
def test_an_entry_that_cannot_be_packed_fails_the_kit_and_waits_for_nothing(tmp_path, name):
    def entries():
        yield Entry("x", content=bytes(4_000_000))
        raise KitError("y is not as its wheel states")

    with pytest.raises(KitError, match="y is not as its wheel states"):
        offline_kit._pack(Made(tmp_path, (90,)), name, entries(), 500, 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["part.tar.gz", "part.tar.xz"])
def test_a_full_disk_fails_the_kit_and_waits_for_nothing(tmp_path, monkeypatch, name):
    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(offline_kit.Pieces, "_next", full)
    with pytest.raises(OSError, match="No space left"):
        offline_kit._pack(Made(tmp_path, (90,)), name, [Entry("x", content=os.urandom(4_000_000))], 500, 1)


def test_there_are_no_more_pieces_than_sort_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(offline_kit, "MOST_PIECES", 3)
    with pytest.raises(KitError, match=r"part.tar.gz would have more than 3 pieces; PART_MIB=<more>"):
        offline_kit._pack(Made(tmp_path, (90,)), "part.tar.gz", [Entry("x", content=os.urandom(9000))], 500, 1)
    assert f"{offline_kit.MOST_PIECES - 1:03}" == "002"

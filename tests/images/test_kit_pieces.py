"""The archives of a kit: the same bytes for the same files, in pieces, and nothing half written is taken for one."""

import os
import re
import subprocess

import pytest

from repro.images import kit_pieces
from repro.images.kit_pieces import ArchiveEntry, pack
from repro.images.offline_folder import OfflineError
from repro.images.offline_kit import TEMPLATES
from repro.utils import progress
from tests.support.patience import wait_until

SETUP = TEMPLATES / "kit-setup.sh"


@pytest.mark.parametrize("name", ["part.tar.gz", "part.tar.xz"])
def test_an_archive_is_split_and_the_same_for_the_same_content(tmp_path, name):
    entries = [
        ArchiveEntry("a/x", content=bytes(range(256)) * 4, executable=True),
        ArchiveEntry("a/y", source=SETUP),
        ArchiveEntry("a/z", link="x"),
    ]
    packed = []
    for folder in (tmp_path / "1", tmp_path / "2"):
        folder.mkdir()
        total = pack(folder, name, entries, 500, 1)
        pieces = sorted(folder.iterdir())
        assert len(pieces) > 1 and {path.stat().st_size for path in pieces[:-1]} == {500}
        assert total == sum(path.stat().st_size for path in pieces)
        packed.append(b"".join(path.read_bytes() for path in pieces))
    assert packed[0] == packed[1]
    subprocess.run(
        ["tar", "-x", f"-{'z' if name.endswith('gz') else 'J'}", "-C", tmp_path], input=packed[0], check=True
    )
    assert (tmp_path / "a/y").read_bytes() == SETUP.read_bytes()
    assert (tmp_path / "a/z").resolve() == tmp_path / "a/x" and (tmp_path / "a/x").stat().st_mode & 0o100


def test_a_long_part_says_how_far_it_is_and_what_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SILENCE_S", 0.01)
    line = r"part\.tar\.gz: 2 of about 8 MB packed, \d+ MB written; now first, \d+ (s|min) left"

    def entries():
        yield ArchiveEntry("first", content=os.urandom(2_000_000))
        wait_until(lambda: re.search(line, capsys.readouterr().err))
        yield ArchiveEntry("second", content=b"x")

    pack(tmp_path, "part.tar.gz", entries(), 10**6, 1, expected_mb=8)


def test_a_failing_compressor_fails_the_kit(tmp_path, monkeypatch):
    monkeypatch.setattr(kit_pieces, "XZ", ("sh", "-c", "cat >/dev/null; exit 3"))
    with pytest.raises(OfflineError, match="status 3"):
        pack(tmp_path, "part.tar.xz", [ArchiveEntry("x", content=b"x")], 500, 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["part.tar.gz", "part.tar.xz"])
def test_an_entry_that_cannot_be_packed_fails_the_kit_and_waits_for_nothing(tmp_path, name):
    def entries():
        yield ArchiveEntry("x", content=bytes(4_000_000))
        raise OfflineError("y is not as its wheel states")

    with pytest.raises(OfflineError, match="y is not as its wheel states"):
        pack(tmp_path, name, entries(), 500, 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["part.tar.gz", "part.tar.xz"])
def test_a_full_disk_fails_the_kit_and_waits_for_nothing(tmp_path, monkeypatch, name):
    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kit_pieces.Pieces, "_next", full)
    with pytest.raises(OSError, match="No space left"):
        pack(tmp_path, name, [ArchiveEntry("x", content=os.urandom(4_000_000))], 500, 1)


def test_there_are_no_more_pieces_than_sort_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(kit_pieces, "MOST_PIECES", 3)
    with pytest.raises(OfflineError, match=r"part.tar.gz would have more than 3 pieces; PART_MIB=<more>"):
        pack(tmp_path, "part.tar.gz", [ArchiveEntry("x", content=os.urandom(9000))], 500, 1)
    assert f"{kit_pieces.MOST_PIECES - 1:03}" == "002"

"""What the parts of a kit hold: each file as its wheel states, and no GPU code that the host has no use for."""

import shutil
import subprocess
import sys

import pytest

from repro.images import kit_contents
from repro.images.fatbins import PTX, SASS, fatbins
from repro.images.kernel_overlay import Overlay
from repro.images.kit_contents import Contents, checkout, relocated
from repro.images.kit_pieces import ArchiveEntry
from repro.images.offline_folder import OfflineError
from tests.support.fatbins import library


def test_a_search_path_is_made_relative_in_place():
    before = b"\x7fELF\0/root/python/lib\0libffi.so.8\0"
    after = relocated(before, "/root/python/lib", "$ORIGIN/../lib")
    assert after == b"\x7fELF\0$ORIGIN/../lib\0\0\0libffi.so.8\0"
    assert relocated(before, "/usr/lib", "$ORIGIN/../lib") == before
    assert relocated(b"\0/lib\0", "/lib", "$ORIGIN/../lib") == b"\0/lib\0", "no room: it stays as it is"


@pytest.mark.parametrize("detached", [False, True])
def test_the_packed_checkout_knows_its_commit_whatever_it_was_made_from(tmp_path, detached):
    """Folders are not packed, and git takes none for a repository that lacks its folder of references."""
    root, kit = tmp_path / "root", tmp_path / "kit"

    def git(folder, *arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(folder), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    root.mkdir()
    git(root, "init", "--quiet")
    (root / "README.md").write_text("a\n")
    git(root, "add", "README.md")
    git(root, "commit", "--quiet", "-m", "a")
    if detached:
        git(root, "checkout", "--quiet", "--detach")
    (tmp_path / "scratch").mkdir()
    contents = Contents(())
    for entry in checkout(tmp_path / "scratch", contents, root):
        target = kit / entry.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(entry.source, target)
    assert contents.commit == git(root, "rev-parse", "HEAD") == git(kit, "rev-parse", "HEAD")
    assert git(kit, "status", "--porcelain") == ""


def test_an_installed_file_that_is_not_its_wheels_is_refused(tmp_path):
    site = tmp_path / "site-packages"
    (site / "toy-1.dist-info").mkdir(parents=True)
    (site / "toy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (site / "toy.py").write_text("1\n")
    digest = kit_contents._record_hash(site / "toy.py")
    (site / "toy-1.dist-info" / "RECORD").write_text(f"toy.py,sha256={digest},2\ntoy/tests/x.py,,\n../../bin/toy,,\n")
    assert [entry.name for entry in kit_contents._installed(site, {"toy"})] == ["toy.py"]
    assert list(kit_contents._installed(site, {"other"})) == []
    (site / "toy.py").write_text("2\n")
    with pytest.raises(OfflineError, match=r"toy\.py is not as toy's wheel states"):
        list(kit_contents._installed(site, None))


def test_programs_of_packages_run_by_the_interpreter_beside_them(tmp_path):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "toy-1.dist-info").mkdir(parents=True)
    (site / "toy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    programs = {
        "short": b"#!/some/where/.venv/bin/python3.11\nprint(1)\n",
        "long": b"#!/bin/sh\n'''exec' '/some where/python' \"$0\" \"$@\"\n' '''\nprint(1)\n",
        "shell": b"#!/bin/sh\necho 1\n",
        "binary": b"\x7fELF",
    }
    record = "".join(f"../../../bin/{name},,\n" for name in programs) + "../../../share/toy,,\ntoy.py,,\n"
    (site / "toy-1.dist-info" / "RECORD").write_text(record)
    (tmp_path / "bin").mkdir()
    for name, content in programs.items():
        (tmp_path / "bin" / name).write_bytes(content)
    found = {entry.name: entry for entry in kit_contents._programs(tmp_path, "3.11", {"toy"})}
    assert [*found] == [f"{tmp_path.name}/bin/{name}" for name in sorted(programs)]
    assert all(entry.executable for entry in found.values())
    assert {entry.content for name, entry in found.items() if name.endswith(("shell", "binary"))} == {
        programs["shell"],
        programs["binary"],
    }
    assert list(kit_contents._programs(tmp_path, "3.11", {"other"})) == []
    moved = tmp_path / "another place"
    moved.mkdir()
    (moved / "python").symlink_to(sys.executable)
    for name in ("short", "long", "shell"):
        (moved / name).write_bytes(found[f"{tmp_path.name}/bin/{name}"].content)
        (moved / name).chmod(0o755)
        assert subprocess.run([moved / name], capture_output=True, text=True).stdout == "1\n"


def test_a_library_goes_into_the_kit_without_code_for_other_architectures(tmp_path):
    source = library(tmp_path / "lib.so.1", [[(SASS, 70), (PTX, 75)]])
    before = source.read_bytes()
    contents = Contents((90,))
    packed = kit_contents._only_ours(ArchiveEntry("lib.so.1", source), tmp_path, contents)
    content = packed.source.read_bytes()
    (found,) = fatbins(content)
    assert [any(content[code.offset : code.offset + code.length]) for code in found.codes] == [False, True]
    assert contents.zeroed == {"lib.so.1": 64}
    assert source.read_bytes() == before, "what is installed stays as it is"


def test_the_libraries_of_an_overlay_are_in_the_kit_in_place_of_the_wheels(tmp_path):
    own = tmp_path / "overlay" / "oneflow.libs"
    own.mkdir(parents=True)
    (own / "liboneflow-1.so").write_bytes(b"compiled")
    (own / "libprotobuf-3.so").symlink_to(tmp_path)
    contents = Contents((90,), Overlay(own.parent, 90, "0" * 64, 1, 0))
    site = ".venv-trainer/lib/python3.10/site-packages"
    for name, taken in [
        ("oneflow.libs/liboneflow-1.so", True),
        ("oneflow.libs/libprotobuf-3.so", False),
        ("oneflow.libs/libcudnn-2.so.7", False),
        ("other/liboneflow-1.so", False),
    ]:
        entry = ArchiveEntry(f"{site}/{name}", tmp_path / name)
        found = kit_contents._compiled(entry, contents)
        assert found.name == entry.name
        assert found.source == (own / "liboneflow-1.so" if taken else entry.source), name
    assert kit_contents._compiled(ArchiveEntry("oneflow.libs/liboneflow-1.so"), Contents((90,))).source is None


@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_baselines_come_with_their_interpreter_and_its_headers(tmp_path, monkeypatch, version):
    """Kernels that PyTorch compiles include Python.h; the controller's interpreter serves if it is the same."""
    environment, base = tmp_path / ".venv-baseline", tmp_path / "python"
    site = environment / "lib" / f"python{version}" / "site-packages"
    (site / "toy-1.dist-info").mkdir(parents=True)
    (site / "toy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (site / "toy-1.dist-info" / "RECORD").write_text("toy/tests/x.py,,\n")
    (site / "toy" / "tests").mkdir(parents=True)
    (site / "toy" / "tests" / "x.py").touch()
    for name in (f"bin/python{version}", f"lib/python{version}/os.py", f"include/python{version}/Python.h"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("x")
    monkeypatch.setattr(kit_contents.bootstrap, "BASELINE", environment)
    monkeypatch.setattr(kit_contents, "_base_of", lambda environment: base)
    monkeypatch.setattr(kit_contents, "_marker", lambda environment, groups: ArchiveEntry(".venv-baseline/ready"))
    pythons = {kit_contents.bootstrap.CONTROLLER: "3.11", kit_contents.bootstrap.TRAINER: "3.10", environment: version}
    entries = {entry.name for entry in kit_contents.baselines(tmp_path, pythons, Contents((90,)))}
    inside = f".venv-baseline/lib/python{version}/site-packages"
    own = {f".venv-baseline/bin/python{end}" for end in ("", "3")} | {
        ".venv-baseline/ready",
        f"{inside}/toy/tests/x.py",
    }
    assert own <= entries, "files called tests stay: packages import some of them"
    assert f".kit/python/{version}/include/python{version}/Python.h" in entries
    assert (f".kit/python/{version}/bin/python{version}" in entries) == (version == "3.12")

"""The offline kit: pieces, what is refused when it is made, and what its set-up finds wrong before it unpacks."""

import hashlib
import io
import shutil
import subprocess
import tarfile

import pytest

from repro.images import offline_kit
from repro.images.offline_folder import OfflineError, readme
from tests.support import tasks
from tests.support.paths import ROOT

SETUP = offline_kit.TEMPLATES / "kit-setup.sh"


@pytest.fixture(params=["openssl", "sha256sum"])
def check(request, tmp_path):
    """Runs `setup.sh --check`, which unpacks nothing, with a plain system's tools: with OpenSSL, and without."""
    programs = tmp_path / "programs"
    programs.mkdir()
    if request.param == "sha256sum":
        (programs / "openssl").write_text("#!/bin/sh\nexit 1\n")
        (programs / "openssl").chmod(0o755)

    def run(folder) -> subprocess.CompletedProcess:
        argv = ["sh", folder / "setup.sh", "--check"]
        return subprocess.run(argv, env={"PATH": f"{programs}:/usr/bin:/bin"}, capture_output=True, text=True)

    return run


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


def test_a_whole_kit_is_accepted(kit, check):
    done = check(kit)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["base.tar.gz.001", "libraries.tar.xz.000", "setup.sh", "kit.conf"])
def test_one_changed_byte_is_refused_by_name(kit, check, name):
    path = kit / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 0x20 if name == "kit.conf" else 1
    path.write_bytes(content)
    done = check(kit)
    assert done.returncode != 0
    if name != "setup.sh":
        assert f"{name} is damaged" in done.stderr and "nothing was set up" in done.stderr


def test_every_missing_piece_is_named(kit, check):
    (kit / "base.tar.gz.000").unlink()
    (kit / "libraries.tar.xz.001").unlink()
    done = check(kit)
    assert done.returncode == 1
    assert "base.tar.gz.000 is missing" in done.stderr
    assert "libraries.tar.xz.001 is missing" in done.stderr, "a part comes as a whole or not at all"


def test_an_optional_part_may_stay_behind(kit, check):
    for path in kit.glob("libraries.*"):
        path.unlink()
    assert check(kit).returncode == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (None, "SHA256SUMS is missing"),
        (lambda text: "", "SHA256SUMS lists nothing"),
        (lambda text: "\0" * len(text), "SHA256SUMS lists nothing"),
        (lambda text: "\n\n", "setup:  is missing"),
        (lambda text: text[:-3], "setup: setup. is missing"),
    ],
    ids=["missing", "empty", "zeros", "lines without names", "cut within a line"],
)
def test_without_checksums_nothing_is_accepted(kit, check, damage, message):
    sums = kit / "SHA256SUMS"
    if damage:
        sums.write_text(damage(sums.read_text()))
    else:
        sums.unlink()
    done = check(kit)
    assert done.returncode == 1
    assert message in done.stderr


PYTHON = """#!/bin/sh
echo "$0" "$@" >> "$(dirname "$(dirname "$(readlink -f "$0")")")/asked"
"""


HASTY = {
    "date": 'echo >> "$0.calls"\necho "$(wc -l < "$0.calls")0"',
    "sleep": "exec /bin/sleep 0.05",
    "xz": '/bin/sleep 0.5\nexec /usr/bin/xz "$@"',
}
"""Programs by which ten seconds pass between any two looks at the clock, and in 0.05 s; unpacking takes half a second."""


def packed(path, compression, files):
    """An archive of one piece: the content of each file, or where a link leads."""
    with tarfile.open(f"{path}.000", f"w:{compression}") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if content.startswith("../"):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.mode, member.size = 0o755, len(content)
                archive.addfile(member, io.BytesIO(content.encode()))


@pytest.mark.parametrize("there", [True, False])
def test_baselines_are_set_up_if_their_part_was_brought(tmp_path, there):
    """With interpreters that only write down what they were asked."""
    folder, host = tmp_path / "kit", tmp_path / "a host"
    folder.mkdir()
    shutil.copy(SETUP, folder / "setup.sh")
    (folder / "kit.json").touch()
    (folder / "kit.conf").write_text(
        f"optional='{' '.join(offline_kit.OPTIONAL)}'\narchitectures='90'\n"
        "controller_python='3.11'\ntrainer_python='3.10'\nbaseline_python='3.12'\n"
    )
    binary = ".kit/python/{0}/bin/python{0}"
    packed(folder / "base.tar.gz", "gz", {binary.format(version): PYTHON for version in ("3.11", "3.10")})
    linked = {
        f".{name}/bin/python": f"../../{binary.format(version)}"
        for name, version in (("venv", "3.11"), ("venv-trainer", "3.10"))
    }
    packed(folder / "environments.tar.xz", "xz", linked)
    theirs = {binary.format("3.12"): PYTHON, ".venv-baseline/bin/python": f"../../{binary.format('3.12')}"}
    packed(folder / "baselines.tar.xz", "xz", theirs)
    files = sorted(folder.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    if not there:
        (folder / "baselines.tar.xz.000").unlink()
    slow = tmp_path / "slow"
    slow.mkdir()
    for name, script in HASTY.items():
        (slow / name).write_text(f"#!/bin/sh\n{script}\n")
        (slow / name).chmod(0o755)
    argv = ["sh", folder / "setup.sh", host]
    done = subprocess.run(argv, env={"PATH": f"{slow}:/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checking, now kit.json" in done.stderr
    assert f"unpacking into {host}: " in done.stderr and "MB so far" in done.stderr
    assert (host / ".venv-baseline").exists() == there
    if there:
        assert f"home = {host}/.kit/python/3.12/bin\n" in (host / ".venv-baseline" / "pyvenv.cfg").read_text()
        asked = (host / ".kit/python/3.12/asked").read_text()
        assert "compileall" in asked and "import torch" in asked


@pytest.mark.parametrize("baselines", [True, False])
def test_the_readme_of_a_kit_says_what_baselines_need(baselines):
    parts = {"base": 1, "environments": 1} | ({"baselines": 1} if baselines else {})
    pythons = {".venv": "3.11", ".venv-trainer": "3.10", ".venv-baseline": "3.12"}
    values = {"commit": "a", "architectures": [90], "overlay": None, "glibc": "2", "left_out_bytes": {}, "notes": []}
    for language in ("en", "zh"):
        text = readme("kit", language, parts_bytes=parts, pythons=pythons, left_out_files=[], **values)
        assert ("`baselines.*`" in text) == baselines
        assert ("make kit BASELINES=1" in text) == ("BASELINE_PYTHON=" in text) == (not baselines)
        assert "3.12" not in text


def test_a_kit_with_baselines_needs_their_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(offline_kit, "_changed", list)
    monkeypatch.setattr(
        offline_kit.bootstrap, "is_ready", lambda environment, groups=(): "baseline" not in environment.name
    )
    with pytest.raises(OfflineError, match=r"\.venv-baseline is not complete; `python3 -m repro.bootstrap baseline`"):
        offline_kit.make_kit(tmp_path / "kit", (90,), 60, baselines=True)
    assert not (tmp_path / "kit").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ARCH": "9.0"}, "ARCH=9.0: it is a whole number"),
        ({"ARCH": "9"}, "the compute capability without its point"),
        ({"ARCH": "90", "PART_MIB": "0"}, "PART_MIB=0: it is a whole number"),
        (
            {"ARCH": "90", "KIT": ROOT / ".kit"},
            ".kit: there a checkout keeps what it says of the kit that it was set up from",
        ),
    ],
)
def test_wrong_settings_are_refused(settings, message, tmp_path):
    done = tasks.run("kit", **{"KIT": tmp_path / "kit"} | settings)
    assert done.returncode == 2
    assert message in done.stderr

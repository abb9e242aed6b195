"""The pins agree with Dockerfile, locks and code, and each disagreement that is planted is found and named."""

import re
import shutil

import pytest

from repro.images.pins import PinError, check, load_pins, pins_table, read_lock
from repro.utils.paths import ROOT

COPIED = ("docker", "repro/bootstrap.py")


@pytest.fixture
def tree(tmp_path):
    """A copy of what the check reads, to plant something in."""
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    return tmp_path


def change(tree, name, old, new):
    text = (tree / name).read_text()
    assert old in text, f"{name} has no {old}"
    (tree / name).write_text(text.replace(old, new))


def test_the_pins_hold():
    assert check() == []


def test_every_pin_says_where_from_and_why():
    pins = load_pins()
    for pin in (*pins.artefacts, *pins.packages):
        assert pin.source, pin.name
        assert len(pin.why) > 10, pin.name


def test_the_table_has_every_pin():
    pins = load_pins()
    columns, rows = pins_table(pins)
    assert len(rows) == len(pins.artefacts) + len(pins.packages)
    assert all(len(row) == len(columns) for row in rows)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("docker/pins.toml", 'version = "1.23.5"\npython', 'version = "1.23.4"\npython', "pin 'numpy' is 1.23.4"),
        ("docker/pins.toml", "33161613d2269025", "33161613d2269026", "pin 'numpy': docker/trainer.lock does not have"),
        (
            "docker/trainer.in",
            "protobuf==3.20.3",
            "protobuf==3.20.1",
            "pin 'protobuf' is 3.20.3, docker/trainer.in asks",
        ),
        ("docker/trainer.lock", "tqdm==4.70.1", "tqdm==4.70.2", "pin 'tqdm' is 4.70.1, in docker/trainer.lock"),
        ("docker/trainer.lock", "mdurl==0.1.2", "mdurl2==0.1.2", "pin 'mdurl2' is missing"),
        ("docker/trainer.lock", "mdurl==0.1.2", "mdurl2==0.1.2", "pin 'mdurl' for Python 3.9 is not in"),
        ("docker/tools.lock", "uv==0.13.8", "uv==0.13.9", "pin 'uv'"),
        ("docker/Dockerfile", "f313b4bd", "f313b4be", "docker/Dockerfile: BASE is"),
        ("docker/Dockerfile", "ARG NCCL_SHA256=74d0", "ARG NCCL_SHA256=84d0", "docker/Dockerfile: NCCL_SHA256 is"),
        ("docker/Dockerfile", "ARG NCCL_KEY_FINGERPRINT=AE", "ARG NCCL_KEY_FINGERPRINT=BE", "NCCL_KEY_FINGERPRINT is"),
        ("docker/Dockerfile", "FROM base AS build", "FROM debian:12 AS build", "FROM debian:12 is not pinned"),
        (
            "docker/Dockerfile",
            "WORKDIR /tmp",
            "ADD https://example.org/x /x\nWORKDIR /tmp",
            "https://example.org/x is not",
        ),
        ("docker/Dockerfile", "debian/20260913T000000Z", "debian/20260914T000000Z", "docker/Dockerfile: DEBIAN is"),
        (
            "docker/build/apt-bullseye.lock",
            "gcc-10_10.2.1-6_amd64.deb",
            "gcc-10_10.2.1-7_amd64.deb",
            "pin 'Debian packages'",
        ),
        ("docker/build/apt-bullseye.lock", "a588acf469f9", "a588acf469f8", "pin 'CA certificates' is not in"),
        ("repro/bootstrap.py", '("3.10", "3.9")', '("3.10", "3.8")', "repro/bootstrap.py allows"),
        (
            "docker/pins.toml",
            'name = "OneFlow"\nversion = "0.8.0"',
            'name = "OneFlow"\nversion = "0.9.0"',
            "library 'OneFlow' must report 0.9.0",
        ),
        ("docker/pins.toml", 'name = "uv"', 'name = "base image"', "pin 'base image' is there twice"),
    ],
)
def test_a_disagreement_is_found(tree, name, old, new, message):
    change(tree, name, old, new)
    if message.endswith("twice"):
        (tree / "docker/pins.toml").write_text((tree / "docker/pins.toml").read_text() + UV)
    assert any(message in problem for problem in check(tree)), check(tree)


UV = """
[[artefact]]
name = "uv"
version = "0.13.8"
file = "uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
sha256 = "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984"
source = "PyPI"
why = "a second time"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('sha256 = "f313', 'sha256 = "x313', "pin 'base image': x313b4bd"),
        ('why = "installs the local environments; is not in an image"\n', "", "pin 'uv': missing 1 required"),
        ("[build]", "[built]", "build"),
        ('key_fingerprint = "AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80"\n', "", "pin 'NCCL 2.7.3' has neither"),
        ('python = "3.9"  ', 'python = "3.9"" ', "docker/pins.toml"),
    ],
)
def test_a_malformed_pin_is_named(tree, old, new, message):
    change(tree, "docker/pins.toml", old, new)
    with pytest.raises(PinError, match=re.escape(message)):
        load_pins(tree)


def test_a_lock_is_read_for_one_python():
    old, new = (read_lock(ROOT / "docker/trainer.lock", python) for python in ("3.9", "3.10"))
    assert old["pillow"][0] != new["pillow"][0]
    assert "colorama" not in old
    assert old["numpy"] == new["numpy"]

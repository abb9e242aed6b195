"""An overlay in use: Python finds the package in it, and one that is damaged or another wheel's is refused by name."""

import os
import subprocess
import sys

import pytest

from repro.images import kernel_overlay
from repro.images.kernel_overlay import DESCRIPTION, OverlayError, link, overlay_for, wheel_hashes
from tests.support.fatbins import wheel
from tests.support.overlays import LIBRARIES, write


@pytest.fixture(autouse=True)
def forget():
    """What was verified before."""
    kernel_overlay._verified.cache_clear()


@pytest.fixture
def site(tmp_path):
    return wheel(tmp_path / "site-packages", LIBRARIES)


@pytest.fixture
def overlays(tmp_path):
    return tmp_path / "overlay"


@pytest.fixture
def overlay(site, overlays):
    """An overlay for sm_90 of the wheel in `site`."""
    return write(overlays, site, wheel_hashes(site))


def test_it_is_found_by_its_architecture(overlay, overlays, site):
    found = overlay_for(90, site, overlays)
    assert (found.folder, found.architecture, found.compiled) == (overlay, 90, 2)
    assert overlay.name == f"sm_90-{found.digest[:16]}"
    assert overlay_for(80, site, overlays) is None
    assert overlay_for(90, site, overlays / "none") is None


def test_python_imports_the_package_from_it_and_all_else_is_the_wheels(overlay, overlays, site):
    overlay_for(90, site, overlays)
    program = "import oneflow, oneflow.core; print(oneflow.NAME, oneflow.__file__, oneflow.core.__file__)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (overlay, site)))}
    done = subprocess.run([sys.executable, "-B", "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["oneflow", f"{overlay}/oneflow/__init__.py", f"{overlay}/oneflow/core.py"]
    libraries = overlay / "oneflow.libs"
    assert (libraries / "libprotobuf-3.so").resolve() == site / "oneflow.libs" / "libprotobuf-3.so"
    assert (libraries / "liboneflow-1.so").read_bytes() == b"\x7fELF sm_90"
    assert not (libraries / "liboneflow-1.so").is_symlink()


def test_links_follow_an_environment_that_was_moved(overlay, overlays, site, tmp_path):
    overlay_for(90, site, overlays)
    moved = site.rename(tmp_path / "moved")
    overlay_for(90, moved, overlays)
    assert (overlay / "oneflow" / "core.py").resolve() == moved / "oneflow" / "core.py"


@pytest.mark.parametrize("name", ["liboneflow-1.so", "libcudnn-2.so.7"])
def test_one_changed_byte_is_refused_by_name(overlay, overlays, site, name):
    path = overlay / "oneflow.libs" / name
    path.write_bytes(path.read_bytes()[:-1] + b"1")
    with pytest.raises(OverlayError, match=f"{name} is missing or damaged; remove it, or make it again"):
        overlay_for(90, site, overlays)


def test_a_library_that_is_missing_or_a_link_is_refused(overlay, overlays, site):
    path = overlay / "oneflow.libs" / "liboneflow-1.so"
    path.unlink()
    link(overlay, site)
    assert path.is_symlink()
    with pytest.raises(OverlayError, match=r"liboneflow-1\.so is missing or damaged"):
        overlay_for(90, site, overlays)


def test_a_changed_description_is_refused(overlay, overlays, site):
    path = overlay / DESCRIPTION
    path.write_text(path.read_text().replace('"compiled": 2', '"compiled": 3'))
    with pytest.raises(OverlayError, match=r"overlay\.json is damaged, its SHA-256 is"):
        overlay_for(90, site, overlays)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"architecture": 90}'])
def test_a_description_that_cannot_be_read_is_refused(overlay, overlays, site, text):
    (overlay / DESCRIPTION).write_text(text)
    with pytest.raises(OverlayError, match=r"overlay\.json cannot be read"):
        overlay_for(90, site, overlays)


def test_one_of_another_wheel_is_refused(overlays, site):
    write(overlays, site, {name: "0" * 64 for name in wheel_hashes(site)})
    with pytest.raises(OverlayError, match="was made for another wheel than the installed one"):
        overlay_for(90, site, overlays)


def test_of_several_none_is_chosen(overlay, overlays, site):
    write(overlays, site, wheel_hashes(site), content=b"\x7fELF other")
    with pytest.raises(OverlayError, match="several overlays for sm_90"):
        overlay_for(90, site, overlays)


def test_one_that_is_being_written_is_not_used(overlays, site):
    (overlays / "sm_90-.partial").mkdir(parents=True)
    assert overlay_for(90, site, overlays) is None

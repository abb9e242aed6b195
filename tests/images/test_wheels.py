"""A wheel that is not the pinned one is never used, and the message names the pin."""

import hashlib
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from repro.images.pins import Pin, PinError, Pins
from repro.images.wheels import fetch, unpack


def pin_of(content, name="thing", file="thing-1-py3-none-any.whl", **more):
    return Pin(name, "1", "PyPI", "a test", file=file, sha256=hashlib.sha256(content).hexdigest(), **more)


def test_what_is_there_is_kept_and_what_does_not_belong_is_removed(tmp_path):
    (tmp_path / "thing-1-py3-none-any.whl").write_bytes(b"wheel")
    (tmp_path / "other-1-py3-none-any.whl").write_bytes(b"other")
    fetch([pin_of(b"wheel")], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thing-1-py3-none-any.whl"]


def test_one_changed_byte_is_found_and_what_cannot_be_fetched_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    path = tmp_path / "thing-1-py3-none-any.whl"
    path.write_bytes(b"wheeL")
    with pytest.raises(PinError, match="pins 'thing': pip cannot fetch them"):
        fetch([pin_of(b"wheel")], tmp_path)
    assert not path.exists()
    assert (
        f"removing {path}, which is not pinned: SHA-256 {hashlib.sha256(b'wheeL').hexdigest()}"
        in capsys.readouterr().err
    )


def test_a_wheel_of_another_name_is_not_taken(tmp_path):
    (tmp_path / "thing-1-py3-none-manylinux.whl").write_bytes(b"wheel")
    with pytest.raises(PinError, match=r"pin 'thing': the index has no file named thing-1-py3-none-any\.whl"):
        fetch([pin_of(b"wheel")], tmp_path)


def cublas_wheel(folder, content):
    wheel = folder / "wheels" / "cublas" / "cublas.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nvidia/cublas/lib/libcublas.so.12", content)
    return wheel


@pytest.mark.parametrize("content", [b"right", b"wrong"])
def test_cublas_is_held_to_the_hash_of_the_file_inside(tmp_path, content):
    wheel = cublas_wheel(tmp_path, content)
    members = {"nvidia/cublas/lib/libcublas.so.12": hashlib.sha256(b"right").hexdigest()}
    pin = pin_of(wheel.read_bytes(), "cuBLAS", "cublas.whl", members=members)
    pins = Pins("3.9", 0, (pin,), (), ())
    if content == b"right":
        folder = unpack(pins, "cuBLAS", tmp_path / "wheels")
        assert (folder / "libcublas.so.12").read_bytes() == b"right"
    else:
        with pytest.raises(PinError, match="pin 'cuBLAS': nvidia/cublas/lib/"):
            unpack(pins, "cuBLAS", tmp_path / "wheels")


def test_who_unpacks_at_the_same_time_waits(tmp_path, monkeypatch):
    """Without that, one finds what the other has written so far, which is not the pinned file."""

    def slowly(source, copy, _size):
        for part in (source.read(2), source.read()):
            time.sleep(0.2)
            copy.write(part)
            copy.flush()

    monkeypatch.setattr("repro.images.wheels.shutil.copyfileobj", slowly)
    wheel = cublas_wheel(tmp_path, b"right")
    members = {"nvidia/cublas/lib/libcublas.so.12": hashlib.sha256(b"right").hexdigest()}
    pins = Pins("3.9", 0, (pin_of(wheel.read_bytes(), "cuBLAS", "cublas.whl", members=members),), (), ())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(unpack, pins, "cuBLAS", tmp_path / "wheels")
        time.sleep(0.3)
        second = pool.submit(unpack, pins, "cuBLAS", tmp_path / "wheels")
    assert first.result() == second.result()

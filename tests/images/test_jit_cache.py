"""What is found in libraries, what is done without a GPU, and what a run records of the cache."""

import importlib.util
import json
import struct
import subprocess
import sys

import pytest

from repro.images.jit_cache import jit_cache
from repro.utils.paths import ROOT

WARM = ROOT / "docker/inside/warm.py"
GPU = [{"name": "NVIDIA H200"}]
HEADER = 64


@pytest.fixture(scope="module")
def warm():
    spec = importlib.util.spec_from_file_location("warm", WARM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fatbin(body):
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def elf(named):
    """The least of a 64-bit ELF file: a header, sections with their bytes, and the table of their names."""
    names = b"\0" + b"\0".join(name.encode() for name in named) + b"\0.shstrtab\0"
    parts, headers, at = [], [bytes(64)], HEADER
    for name, content in [*named.items(), (".shstrtab", names)]:
        headers.append(struct.pack("<IIQQQQ", names.index(name.encode()), 1, 0, 0, at, len(content)).ljust(64, b"\0"))
        parts.append(content)
        at += len(content)
    head = bytearray(HEADER)
    struct.pack_into("<Q", head, 40, at)
    struct.pack_into("<HHH", head, 58, 64, len(headers), len(headers) - 1)
    return bytes(head) + b"".join(parts) + b"".join(headers)


def test_each_fatbin_of_a_library_is_found(warm, tmp_path):
    first, second = fatbin(b"a" * 24), fatbin(b"b" * 40)
    library = tmp_path / "library.so"
    library.write_bytes(elf({".text": b"code" * 4, ".nv_fatbin": first + bytes(8) + second}))
    found = warm.fatbins(library)
    assert [length for _, _, length in found] == [len(first), len(second)]
    content = library.read_bytes()
    assert [content[at : at + length] for _, at, length in found] == [first, second]


def test_a_library_without_gpu_code_has_none(warm, tmp_path):
    (tmp_path / "library.so").write_bytes(elf({".text": b"code"}))
    assert warm.fatbins(tmp_path / "library.so") == []


@pytest.mark.parametrize(
    ("preloaded", "names"),
    [
        ("", ["libcudnn-1.so", "liboneflow-2.so"]),
        ("/opt/compat/libcublas_forward.so:/opt/compat/libcudnn_forward.so", ["liboneflow-2.so"]),
    ],
)
def test_what_a_newer_cudnn_stands_in_for_is_not_compiled(warm, tmp_path, monkeypatch, preloaded, names):
    for name in ("oneflow/__init__.py", "oneflow.libs/libcudnn-1.so", "oneflow.libs/liboneflow-2.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    assert [path.name for path in warm.libraries()] == names


def test_without_a_driver_it_says_so():
    done = subprocess.run([sys.executable, WARM], capture_output=True, text=True)
    if "no NVIDIA driver" not in done.stderr:
        pytest.skip("this machine has an NVIDIA driver")
    assert done.returncode == 1
    assert done.stderr.startswith("warm: no NVIDIA driver here")


def test_a_cache_is_warm_for_the_gpu_that_it_was_made_for(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "module").write_bytes(bytes(3 * 2**20))
    assert jit_cache(GPU, tmp_path) == {"path": str(tmp_path), "mib": 3, "warm": False, "warmed_for": None}
    (tmp_path / "warm.json").write_text(json.dumps({"gpu": "NVIDIA H200"}))
    assert jit_cache(GPU, tmp_path)["warm"] is True
    assert jit_cache([{"name": "Tesla V100-SXM2-16GB"}], tmp_path)["warm"] is False


def test_a_broken_note_counts_as_none(tmp_path):
    (tmp_path / "warm.json").write_text("{")
    assert jit_cache(GPU, tmp_path)["warm"] is False


def test_without_a_gpu_there_is_nothing_to_record(tmp_path):
    assert jit_cache([], tmp_path) is None

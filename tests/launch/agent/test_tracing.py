"""The CUPTI that a node's agent finds for a trace of kernels, and what it says where something is missing."""

import os
import re

import pytest

from repro.launch.agent import tracing
from repro.launch.agent.gpus import make_libraries
from repro.launch.agent.tracing import find_cupti, link_cupti


@pytest.fixture
def toolkits(tmp_path, monkeypatch):
    """Toolkits of three versions, a folder of the user's, and nothing that the loader knows."""
    for path in (
        "cuda-12.4/extras/CUPTI/lib64/libcupti.so.2024.1.0",
        "cuda-13.0/targets/x86_64-linux/lib/libcupti.so.13",
        "cuda-10.2/extras/CUPTI/lib64/libcupti.so.10.2",
        "mine/libcupti.so.11.8.87",
        "old/libcupti.so.10.2",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "cuda-12.4/extras/CUPTI/lib64/libcupti.so.12").symlink_to("libcupti.so.2024.1.0")
    monkeypatch.setattr(tracing, "of_the_loader", lambda: [])
    return tuple(f"{tmp_path}/cuda*/{place}" for place in ("targets/*/lib", "extras/CUPTI/lib64"))


def test_it_is_the_one_that_is_named_or_the_newest_toolkits(toolkits, tmp_path):
    newest = tmp_path / "cuda-13.0/targets/x86_64-linux/lib/libcupti.so.13"
    assert find_cupti("", toolkits) == str(newest)
    newest.unlink()
    assert find_cupti("", toolkits) == f"{tmp_path}/cuda-12.4/extras/CUPTI/lib64/libcupti.so.12", "not by its year"
    mine = f"{tmp_path}/mine/libcupti.so.11.8.87"
    assert find_cupti(f"{tmp_path}/mine", toolkits) == find_cupti(mine, toolkits) == mine
    for given in (f"{tmp_path}/old", "/nowhere"):
        with pytest.raises(OSError, match=re.escape(f"CUPTI={given}: on a cluster it is a libcupti.so of version 11")):
            find_cupti(given, toolkits)


def test_without_a_toolkit_it_is_the_loaders(monkeypatch):
    monkeypatch.setattr(tracing, "of_the_loader", lambda: ["/lib/libcupti.so.11.2", "/lib/libcupti.so.12"])
    assert find_cupti("", ()) == "/lib/libcupti.so.12"
    monkeypatch.setattr(tracing, "of_the_loader", lambda: ["/lib/libcupti.so.10.2"])
    with pytest.raises(OSError, match="none was found there; CUPTI=<folder> names a folder of the nodes"):
        find_cupti("", ())


def test_a_container_gets_the_file_and_not_a_name_of_it(toolkits, tmp_path):
    """What a link leads to is not in the container."""
    given = tmp_path / "cuda-12.4/extras/CUPTI/lib64/libcupti.so.12"
    link_cupti({"given": str(given), "link": f"{tmp_path}/link"})
    assert os.readlink(tmp_path / "link") == str(given.with_name("libcupti.so.2024.1.0"))
    link_cupti({})


def test_a_node_without_a_compiler_says_so(tmp_path):
    path = f"{tmp_path}/compat/libkernel_trace.so"
    with pytest.raises(OSError, match=re.escape(f"there is no gcc-of-nobody, which compiles {path}: install it there")):
        make_libraries({path: ["gcc-of-nobody", "-o", f"{path}.partial"]})

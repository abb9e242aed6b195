"""The kernels of 2020 compiled for GPUs, with the pinned compiler; needs no GPU."""

import locale

import pytest

from repro.images import past_kernels as module
from repro.images.past_kernels import PastKernelError, past_kernels

PTX_KERNEL = b".visible .entry draw_mask"


@pytest.mark.parametrize("architecture", [70, 90])
def test_they_compile_for_the_published_gpu_and_for_newer_ones(tmp_path, architecture):
    code = past_kernels(architecture, tmp_path)
    content = code.read_bytes()
    assert code.name.startswith(f"sm_{architecture}-")
    assert content.startswith(b"\x7fELF") and b".text.draw_mask" in content and b".text.layer_norm_sums" in content


def test_the_compiler_leaves_the_locale_as_it_was(tmp_path):
    before = locale.setlocale(locale.LC_ALL)
    past_kernels(70, tmp_path)
    assert locale.setlocale(locale.LC_ALL) == before
    assert locale.getpreferredencoding(False) == "UTF-8"


def test_a_gpu_newer_than_the_compiler_gets_ptx(tmp_path):
    content = past_kernels(100, tmp_path).read_bytes()
    assert PTX_KERNEL in content and content.endswith(b"\0")


def test_what_is_compiled_is_not_compiled_again(tmp_path, monkeypatch):
    first = past_kernels(70, tmp_path)
    monkeypatch.setattr(module, "unpack", None)
    assert past_kernels(70, tmp_path) == first


def test_another_source_is_compiled_and_its_errors_are_shown(tmp_path, monkeypatch):
    wrong = tmp_path / "kernels.cu"
    wrong.write_text("__global__ void broken() { missing(); }")
    monkeypatch.setattr(module, "SOURCE", wrong)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    with pytest.raises(PastKernelError, match=r'kernels\.cu cannot be compiled for sm_70:\n.*"missing" is undefined'):
        past_kernels(70, tmp_path)
    assert list(tmp_path.glob("*.bin")) == []


def test_a_gpu_that_is_too_old_is_refused(tmp_path):
    with pytest.raises(PastKernelError, match="from 50 on, not for 37"):
        past_kernels(37, tmp_path)

"""The stack of local trainers: chosen by the GPU, built or unpacked, and left alone where the user has chosen."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from repro.images import kernel_overlay, stack
from repro.images.kernel_overlay import Overlay
from repro.images.pins import PinError
from repro.images.stack import Libraries, StackError, build_forward, find_cublas, find_cudnn, preloaded, stack_of
from repro.launch.attempt import Limits
from repro.launch.host_environment import gpus
from repro.launch.local_attempt import LocalAttempt
from tests.support.runs import CONFIG

H200 = {"name": "NVIDIA H200", "driver_version": "580.159.04", "compute_cap": "9.0"}
V100 = {"name": "Tesla V100-SXM2-16GB", "driver_version": "440.33.01"}
T4 = {"name": "Tesla T4", "driver_version": "535.54.03", "compute_cap": "7.5"}
A100 = {"name": "NVIDIA A100-SXM4-40GB", "driver_version": "450.80.02"}


@pytest.fixture(autouse=True)
def no_kit(tmp_path, monkeypatch):
    """The checkout may be one that a kit set up, with libraries of its own."""
    monkeypatch.setattr(stack, "KIT", tmp_path / "no kit")


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """A folder with two cuBLAS, one of them CUDA 10's; a cache folder; no pinned copy, nothing known to the loader."""
    monkeypatch.setattr(stack, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(kernel_overlay, "OVERLAYS", tmp_path / "overlay")
    monkeypatch.setattr(stack, "_pinned", lambda name: None)
    monkeypatch.setattr(stack, "_loaders", lambda name: None)
    monkeypatch.setattr(stack, "_fetched", lambda name: tmp_path / "fetched" / stack.PINNED[name])
    folder = tmp_path / "lib"
    folder.mkdir()
    for name in ("libcublas.so.10", "libcublas.so.12.4.5.8", "libcublasLt.so.12"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("gpu", "name"), [(H200, "cu102-modern"), (A100, "cu102-modern"), (T4, "cu102"), (V100, "cu102")]
)
def test_the_generation_decides(libraries, monkeypatch, gpu, name):
    monkeypatch.setattr(stack, "_published", lambda notes: {})
    assert stack_of([gpu], libraries=Libraries(str(libraries))).name == name


def test_no_gpu_needs_nothing():
    assert stack_of([]).environment == {}
    assert stack_of([]).name == "cpu"


def test_gpu_code_compiled_ahead_is_taken_for_its_architecture_only(libraries, monkeypatch, tmp_path):
    monkeypatch.setattr(stack, "_published", lambda notes: {})
    made = Overlay(tmp_path / "sm_90-x", 90, "0123456789abcdef", 400, 0)
    monkeypatch.setattr(kernel_overlay, "overlay_for", lambda architecture: made if architecture == 90 else None)
    named = Libraries(str(libraries))
    chosen = stack_of([H200], libraries=named, given={})
    assert chosen.environment["PYTHONPATH"] == str(made.folder)
    assert "GPU code compiled ahead for sm_90: overlay 0123456789ab" in chosen.notes
    with_users = stack_of([H200], libraries=named, given={"PYTHONPATH": "/mine"})
    assert with_users.environment["PYTHONPATH"] == f"{made.folder}{os.pathsep}/mine"
    blackwell = H200 | {"name": "NVIDIA B200", "compute_cap": "10.0"}
    for gpus_here in ([H200, blackwell], [blackwell], [A100], [T4]):
        others = stack_of(gpus_here, libraries=named, given={})
        assert "PYTHONPATH" not in others.environment
        assert not any("overlay" in note for note in others.notes)


def test_a_kit_with_compiled_code_needs_no_overlay(libraries, monkeypatch, tmp_path):
    monkeypatch.setattr(stack, "KIT", tmp_path / "kit")
    (tmp_path / "kit").mkdir()
    text = "GPU code compiled ahead for sm_90: overlay 0123456789ab"
    (tmp_path / "kit" / "kit.json").write_text(json.dumps({"overlay": {"text": text}}))
    chosen = stack_of([H200], libraries=Libraries(str(libraries)), given={})
    assert text in chosen.notes and "PYTHONPATH" not in chosen.environment


def test_a_modern_gpu_gets_a_newer_cublas(libraries):
    chosen = stack_of([H200], libraries=Libraries(str(libraries)))
    assert chosen.environment["CUBLAS_FORWARD_LIBRARY"] == str(libraries / "libcublas.so.12.4.5.8")
    assert chosen.environment["CUDA_CACHE_PATH"].endswith("/cache/cuda-580.159.04-nvidia-h200")
    assert chosen.environment["CUDA_CACHE_MAXSIZE"] == "4000000000"
    assert chosen.environment["NCCL_NVLS_ENABLE"] == "0"
    cublas, cudnn = chosen.environment["LD_PRELOAD"].split(":")
    for library, function in ((cublas, "cublasGemmEx"), (cudnn, "cudnnConvolutionForward")):
        assert f" T {function}" in subprocess.run(["nm", "-D", library], capture_output=True, text=True).stdout


def test_a_modern_gpu_gets_a_newer_cudnn(libraries, tmp_path):
    """The user's; without a name the pinned one is fetched where none is found."""
    fetched = stack_of([H200], libraries=Libraries(str(libraries))).environment["CUDNN_FORWARD_LIBRARY"]
    assert fetched == str(tmp_path / "fetched" / "libcudnn.so.9")
    (libraries / "libcudnn.so.9").touch()
    chosen = stack_of([H200], libraries=Libraries(str(libraries), str(libraries))).environment
    assert chosen["CUDNN_FORWARD_LIBRARY"] == str(libraries / "libcudnn.so.9")


def test_a_library_that_cannot_be_fetched_is_named(monkeypatch):
    import repro.images.wheels as wheelhouse

    def refuse(pins, name):
        raise PinError("no index")

    monkeypatch.setattr(wheelhouse, "unpack", refuse)
    with pytest.raises(StackError, match=r"need a cuDNN newer .* \(no index\)\. CUDNN=<folder> names another"):
        stack._fetched("cuDNN")


def test_the_cudnn_of_the_baselines_will_do(libraries, tmp_path):
    folder = tmp_path / "baseline" / "lib" / "python3.12" / "site-packages" / "nvidia" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudnn.so.9").touch()
    baseline = str(tmp_path / "baseline" / "bin" / "python")
    assert find_cudnn(Libraries(baseline_python=baseline)) == folder / "libcudnn.so.9"
    assert find_cudnn(Libraries(baseline_python="/usr/bin/python3")) == tmp_path / "fetched" / "libcudnn.so.9"
    with pytest.raises(StackError, match=r"CUDNN=.* libcudnn\.so of version 8 or later"):
        find_cudnn(Libraries(cudnn=str(tmp_path)))


def test_what_the_user_has_set_stays(libraries):
    given = {"LD_PRELOAD": "/mine.so", "CUDA_CACHE_PATH": "/warm", "NCCL_NVLS_ENABLE": ""}
    chosen = stack_of([H200], libraries=Libraries(str(libraries)), given=given)
    assert chosen.environment["LD_PRELOAD"] == "/mine.so"
    assert chosen.environment["CUDA_CACHE_PATH"] == "/warm"
    assert chosen.environment["NCCL_NVLS_ENABLE"] == "0"
    assert "LD_PRELOAD was set before and stays" in chosen.notes


def test_a_setting_overrides_the_generation():
    assert stack_of([H200], "cpu").environment == {}
    with pytest.raises(StackError, match="STACK=cu111: it is cu102, cu102-modern, cpu"):
        stack_of([H200], "cu111")


def test_the_published_generation_gets_the_pinned_nccl(tmp_path, monkeypatch):
    import repro.images.wheels as wheelhouse

    monkeypatch.setattr(wheelhouse, "WHEELS", tmp_path / "wheels")
    plain = stack_of([V100], given={})
    assert "LD_PRELOAD" not in plain.environment
    assert any("wheel's 2.12.10" in note for note in plain.notes)
    wheel = tmp_path / "wheels" / "nccl" / "cupy_cuda102-8.1.0-cp38-cp38-manylinux1_x86_64.whl"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    monkeypatch.setattr(wheelhouse, "unpack", lambda pins, name: tmp_path / "nccl")
    assert stack_of([V100], given={}).environment["LD_PRELOAD"] == str(tmp_path / "nccl" / "libnccl.so.2")


def test_libraries_in_a_folder_with_a_blank_are_preloaded_all_the_same(tmp_path):
    """The loader takes a blank in LD_PRELOAD for the end of a path, and goes on without the library."""
    built, plain = build_forward("cublas_forward", tmp_path / "a host"), Path("/x/plain.so")
    link, other = preloaded([built, plain]).split(":")
    assert (Path(link).resolve(), other) == (built, str(plain))
    assert preloaded([built]) == preloaded([built]) == link, "comparisons of operators are kept by it"
    argv, environment = ["cat", "/proc/self/maps"], {"PATH": os.environ["PATH"]}
    for given, loaded in ((str(built), False), (link, True)):
        done = subprocess.run(argv, env={**environment, "LD_PRELOAD": given}, capture_output=True, text=True)
        assert (built.name in done.stdout) is loaded
    Path(link).unlink()


def test_a_folder_of_somebody_else_is_not_trusted_with_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    folder = Path("/tmp/oneflow-reproduction-4000000")
    try:
        with pytest.raises(StackError, match="belongs to somebody else"):
            preloaded([tmp_path / "a host" / "lib.so"])
    finally:
        folder.rmdir()


def test_the_library_is_compiled_once(tmp_path, monkeypatch):
    built = build_forward("cublas_forward", tmp_path)
    stamp = built.stat().st_mtime_ns
    monkeypatch.setenv("PATH", "")
    assert build_forward("cublas_forward", tmp_path) == built
    assert built.stat().st_mtime_ns == stamp
    assert [path.name for path in tmp_path.iterdir()] == [built.name]


def test_a_changed_header_is_compiled_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("repro.images.stack.COMPAT", tmp_path)
    (tmp_path / "some_forward.c").write_text('#include "some_search.h"\n')
    names = set()
    for text in ("int a;\n", "int b;\n", "int a;\n"):
        (tmp_path / "some_search.h").write_text(text)
        names.add(build_forward("some_forward", tmp_path / "built").name)
    assert len(names) == 2


def test_without_a_compiler_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(StackError, match="there is no gcc: install it"):
        build_forward("cublas_forward", tmp_path)


def test_where_a_newer_cublas_comes_from(libraries, tmp_path, monkeypatch):
    toolkit = tmp_path / "local" / "cuda-12.8" / "targets" / "x86_64-linux" / "lib"
    toolkit.mkdir(parents=True)
    (toolkit / "libcublas.so.12").touch()
    (toolkit / "libcublas.so.12.8.4.1").touch()
    assert find_cublas(toolkits=tmp_path / "local") == toolkit / "libcublas.so.12.8.4.1"
    assert find_cublas(Libraries(str(toolkit / "libcublas.so.12"))) == toolkit / "libcublas.so.12"
    monkeypatch.setattr(stack, "_pinned", lambda name: tmp_path / name)
    assert find_cublas(toolkits=tmp_path / "local") == tmp_path / "cuBLAS"
    assert find_cudnn() == tmp_path / "cuDNN"


def test_the_libraries_of_an_offline_kit_come_before_all_but_the_users(libraries, tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "KIT", tmp_path / "kit")
    (tmp_path / "kit" / "lib").mkdir(parents=True)
    for name in ("libcublas.so.12", "libcudnn.so.9"):
        (tmp_path / "kit" / "lib" / name).touch()
    monkeypatch.setattr(stack, "_pinned", lambda name: tmp_path / name)
    assert find_cublas() == tmp_path / "kit" / "lib" / "libcublas.so.12"
    assert find_cudnn() == tmp_path / "kit" / "lib" / "libcudnn.so.9"
    assert find_cublas(Libraries(str(libraries))) == libraries / "libcublas.so.12.4.5.8"


def test_a_folder_without_a_newer_cublas_is_refused(tmp_path):
    (tmp_path / "libcublas.so.10").touch()
    with pytest.raises(StackError, match=r"it is a libcublas\.so of version 11 or later"):
        find_cublas(Libraries(str(tmp_path)))


def test_the_loaders_list_is_read(tmp_path, monkeypatch):
    tool = tmp_path / "ldconfig"
    line = "\\tlibcublas.so.%s (libc6,x86-64) => /usr/lib/libcublas.so.%s\\n"
    tool.write_text(f"#!/bin/sh\nprintf '{line}' 10 10 12 12\n")
    tool.chmod(0o755)
    monkeypatch.setattr(stack.shutil, "which", lambda name, path=None: str(tool))
    assert str(stack._loaders("libcublas.so")) == "/usr/lib/libcublas.so.12"


@pytest.mark.parametrize(("old_driver", "capability"), [(True, None), (False, "9.0")])
def test_an_old_driver_does_not_tell_the_capability(tmp_path, monkeypatch, old_driver, capability):
    tool = tmp_path / "nvidia-smi"
    refusal = 'echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2' if old_driver else "echo 9.0"
    tool.write_text(
        f'#!/bin/sh\ncase "$1" in *compute_cap*) {refusal};; '
        '*) echo "GPU, 440.33.01, 16160, 88.00, 1530, 877, GPU-1";; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpus()[0].get("compute_cap") == capability


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_only_trainers_on_gpus_get_the_stack(tmp_path, device):
    script = tmp_path / "trainer.py"
    script.write_text("import os, pathlib; pathlib.Path('cache').write_text(os.environ.get('CUDA_CACHE_PATH', 'none'))")
    config = replace(CONFIG, device=device)
    trainer = (sys.executable, str(script))
    LocalAttempt(config, tmp_path, Limits(), trainer=trainer, environment={"CUDA_CACHE_PATH": "/warm"}).run()
    assert (tmp_path / "cache").read_text() == ("/warm" if device == "cuda" else "none")


def test_a_run_records_its_stack(task, tmp_path, libraries):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase "$1" in *compute_cap*) echo 9.0;; '
        '*) echo "NVIDIA H200, 580.159.04, 143771, 96.00, 1980, 3201, GPU-1";; esac\n'
    )
    tool.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    (libraries / "libcudnn.so.9").touch()
    done = task("bench", MODEL="gpt", CASES="DP_1x1x1*", REPEATS=1, PATH=path, CUBLAS=libraries, CUDNN=libraries)
    assert done.returncode == 0, done.stderr
    (record,) = (tmp_path / "runs").glob("*/run.json")
    environment = json.loads(record.read_text())["environment"]
    assert environment["stack"]["name"] == "cu102-modern"
    assert "libcublas_forward" in environment["stack"]["environment"]["LD_PRELOAD"]
    assert environment["stack"]["environment"]["CUBLAS_FORWARD_LIBRARY"].startswith(str(libraries))
    assert environment["jit_cache"]["path"] == environment["stack"]["environment"]["CUDA_CACHE_PATH"]


def test_a_stack_that_cannot_be_had_stops_before_anything_starts(refused):
    assert "STACK=cu111: it is cu102 or cu102-modern or cpu" in refused("bench", MODEL="gpt", STACK="cu111")

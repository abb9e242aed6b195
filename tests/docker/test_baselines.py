"""The image of the baselines as `make image STACK=baseline` builds it, with a small stand-in for PyTorch in its lock."""

import hashlib
import io
import json
import shutil
import subprocess
import zipfile

import pytest

from repro.images import build, verify, wheels
from repro.images.build import Sources, build_layout
from repro.images.debian import pack_debian
from repro.images.engine import Engine
from repro.images.layers import compare
from repro.images.oci_layout import packed
from repro.images.pins import load_pins
from repro.images.verify import check_image
from repro.launch.base import LaunchOptions
from repro.launch.local import LocalLauncher
from repro.planning.baselines import baseline_program
from repro.utils.errors import PlanError
from tests.docker.surroundings import DEBIAN, DEBIAN_SECURITY, ROOT

BASE = "debootstrapped:bookworm"
TORCH = """
__version__ = "2.10.0"
compile = print
class version: cuda = "12.8"
class cuda: device_count = staticmethod(lambda: 0)
class nn:
    class functional: scaled_dot_product_attention = None
"""


def wheel(folder, name, version, content):
    """A wheel of one module; its line in a lock."""
    whole, about = io.BytesIO(), f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": content,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(whole, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    (folder / f"{name}-{version}-py3-none-any.whl").write_bytes(whole.getvalue())
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(whole.getvalue()).hexdigest()}\n"


@pytest.fixture(scope="module")
def checkout(scratch):
    """What a build reads, with another lock and the wheels that it names."""
    root = scratch / "checkout"
    shutil.copytree(ROOT / "docker", root / "docker")
    folder = root / ".cache" / "wheels" / "baseline"
    folder.mkdir(parents=True)
    lines = [wheel(folder, "torch", "2.10.0", TORCH), wheel(folder, "numpy", "2.4.6", "")]
    (root / "docker" / "baseline.lock").write_text("".join([*lines, wheel(folder, "megatron_core", "0.16.1", "")]))
    (root / "docker" / "baseline.lock").write_text(
        (root / "docker" / "baseline.lock").read_text().replace("megatron_core", "megatron-core")
    )
    return root


@pytest.fixture(scope="module")
def image(engine, scratch, docker, checkout):
    """The image in the engine, and as its layout has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine["DOCKER_HOST"])
        archive = pack_debian("bookworm", DEBIAN, scratch, load_pins().source_date_epoch)
        docker("import", archive, BASE)
        archive.unlink()
        patch.setattr(build, "ROOT", checkout)
        patch.setattr(build, "_needed_mib", lambda stacks: 0)
        patch.setattr(
            build,
            "locked_wheels",
            lambda stack: wheels.locked_wheels(stack, checkout / ".cache/wheels", checkout / "docker"),
        )
        sources = Sources(BASE, DEBIAN, DEBIAN_SECURITY)
        (built,) = build_layout(["baseline"], load_pins(), sources, scratch / "image-baseline")
        Engine.connect().load(packed(scratch / "image-baseline"))
        yield built


@pytest.fixture
def reached(engine, image, monkeypatch):
    """This process as a client of the engine that has the image."""
    monkeypatch.setenv("DOCKER_HOST", engine["DOCKER_HOST"])
    return image


def test_its_debian_is_the_pinned_one(reached):
    compared = compare(reached, "baseline", load_pins())
    assert compared.known_base and compared.problems == [], compared.line()


def test_image_check_holds_it_to_its_lock(reached, checkout, monkeypatch):
    locked = verify.locked_versions
    monkeypatch.setattr(verify, "locked_versions", lambda stack: locked(stack, checkout / "docker"))
    report = check_image("baseline", load_pins(), Engine.connect(), {})
    assert report.holds, report.findings
    assert {"torch", "numpy", "megatron-core"} <= {finding.what for finding in report.findings}
    monkeypatch.setattr(
        verify, "locked_versions", lambda stack: locked(stack, checkout / "docker") | {"torch": "2.10.1"}
    )
    assert not check_image("baseline", load_pins(), Engine.connect(), {}).holds


def test_it_is_nobodys_and_compiles(reached, docker):
    (described,) = json.loads(docker("image", "inspect", "oneflow-reproduction:baseline"))
    assert described["Config"]["User"] == "10001:10001"
    assert described["Config"]["Labels"]["reproduction.stack"] == "baseline"
    program = (
        "import ctypes, os, subprocess, sysconfig; os.chdir('/tmp'); open('a.c', 'w').write('#include <Python.h>\\nint f(void) "
        "{return 7;}'); subprocess.check_call(['gcc', '-shared', '-fPIC', '-I', sysconfig.get_paths()['include'], '-o', 'a.so', "
        "'a.c']); print(ctypes.CDLL('/tmp/a.so').f())"
    )
    options = ("--rm", "--network", "host", "--read-only", "--cap-drop", "ALL", "--tmpfs", "/tmp:exec")
    assert docker("run", *options, "oneflow-reproduction:baseline", "python", "-c", program) == "7"


def test_a_run_in_images_takes_it_for_its_baselines(reached, docker):
    (described,) = json.loads(docker("image", "inspect", "oneflow-reproduction:baseline"))
    launcher = LocalLauncher.of(LaunchOptions(runtime="docker"))
    program = baseline_program(None, (), "pytorch,pytorch-compiled,megatron", 0, image_of=launcher.baseline_image)
    assert program.image == described["Id"]
    assert (program.versions["megatron_core"], program.versions["compiles"]) == ("0.16.1", True)
    with pytest.raises(PlanError, match=r"the baselines' image baseline: PyTorch 2\.10\.0 sees 0 of the 1 GPUs"):
        baseline_program(None, (), "pytorch", 1, image_of=launcher.baseline_image)


def test_a_second_build_is_the_same(reached, docker, scratch, checkout, monkeypatch):
    monkeypatch.setattr(build, "ROOT", checkout)
    monkeypatch.setattr(build, "_fetch", lambda stacks, pins: None)
    sources = Sources(BASE, DEBIAN, DEBIAN_SECURITY)
    (again,) = build_layout(["baseline"], load_pins(), sources, scratch / "image-baseline-again", ("--no-cache",))
    assert again.layers == reached.layers
    assert (
        subprocess.run(
            ["cmp", scratch / "image-baseline/index.json", scratch / "image-baseline-again/index.json"]
        ).returncode
        == 0
    )

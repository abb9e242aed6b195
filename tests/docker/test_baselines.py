"""The image of the baselines as `make image STACK=baseline` builds it, with a small stand-in for PyTorch in its lock.

The PyTorch of docker/baseline.lock takes 4.2 GB to download and 28 GB of disk to build; no test builds that image.
"""

import hashlib
import io
import json
import shutil
import zipfile
from dataclasses import replace

import pytest

from repro.images import build, verify, wheels
from repro.images.build import Sources, build_layout
from repro.images.debian import pack_debian
from repro.images.engine import Engine
from repro.images.layers import compare
from repro.images.oci_layout import packed
from repro.images.pins import load_pins
from repro.images.recipes import RECIPES
from repro.images.verify import check_image
from repro.launch.base import LaunchOptions
from repro.launch.local import LocalLauncher
from repro.planning.baselines import baseline_program
from repro.utils.errors import PlanError
from tests.docker.surroundings import DEBIAN, DEBIAN_SECURITY, ROOT

pytestmark = pytest.mark.long
BASE = "debootstrapped:bookworm"
IMAGE = "oneflow-reproduction:baseline"
PACKAGES = ("python3", "libibverbs1", "ibverbs-providers", "python3-dev", "python3-venv", "gcc", "g++", "libc6-dev")
TORCH = """
__version__ = "2.10.0"
compile = print
class version: cuda = "12.8"
class cuda: device_count = staticmethod(lambda: 0)
class nn:
    class functional: scaled_dot_product_attention = None
"""
COMPILE = """
import ctypes, os, subprocess, sysconfig
os.chdir("/tmp")
open("a.c", "w").write("#include <Python.h>\\nint f(void) {return 7;}")
subprocess.check_call(["gcc", "-shared", "-fPIC", "-I", sysconfig.get_paths()["include"], "-o", "a.so", "a.c"])
print(ctypes.CDLL("/tmp/a.so").f())
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
    return f"{name.replace('_', '-')}=={version} --hash=sha256:{hashlib.sha256(whole.getvalue()).hexdigest()}\n"


@pytest.fixture(scope="module")
def checkout(scratch):
    """What a build reads, with another lock and the wheels that it names."""
    root = scratch / "checkout"
    shutil.copytree(ROOT / "docker", root / "docker")
    folder = root / ".cache" / "wheels" / "baseline"
    folder.mkdir(parents=True)
    packages = (("torch", "2.10.0", TORCH), ("numpy", "2.4.6", ""), ("megatron_core", "0.16.1", ""))
    (root / "docker" / "baseline.lock").write_text("".join(wheel(folder, *package) for package in packages))
    return root


@pytest.fixture(scope="module")
def newer(checkout, scratch, docker):
    """The packages that the mirror has in place of those of the snapshot; the checkout's lock gets them.

    Debian 12 still changes, and mirrors keep the last version only.
    """
    archive = pack_debian("bookworm", DEBIAN, scratch, load_pins().source_date_epoch)
    docker("import", archive, BASE)
    archive.unlink()
    mirrors = ("--env", f"DEBIAN={DEBIAN}", "--env", f"DEBIAN_SECURITY={DEBIAN_SECURITY}")
    folder = checkout / "docker" / "build"
    options = ("--rm", "--network", "host", "--volume", f"{folder}:/build:ro", *mirrors)
    done = docker("run", *options, BASE, "/build/apt-install.sh", *PACKAGES, check=False)
    lines = [line for line in done.stderr.splitlines() if line.endswith(".deb")]
    assert bool(done.returncode) == bool(lines), done.stderr
    with open(folder / "apt-bookworm.lock", "a") as lock:
        lock.writelines(f"{line}\n" for line in lines)
    return lines


@pytest.fixture(scope="module")
def image(engine, scratch, checkout, newer):
    """The image in the engine, and as its layout has it; this process is then a client of that engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine["DOCKER_HOST"])
        patch.setattr(build, "ROOT", checkout)
        patch.setattr(verify, "ROOT", checkout)
        patch.setitem(RECIPES, "baseline", replace(RECIPES["baseline"], layout=scratch / "baseline", needed_mib=2000))
        fetched = wheels.baseline_wheels
        places = (checkout / ".cache" / "wheels", checkout / "docker")
        patch.setattr(build, "baseline_wheels", lambda lock, python: fetched(lock, python, *places))
        (built,) = build_layout(["baseline"], load_pins(), Sources(BASE, DEBIAN, DEBIAN_SECURITY), scratch / "baseline")
        Engine.connect().load(packed(scratch / "baseline"))
        yield built


def test_its_debian_is_the_pinned_one(image, newer):
    if newer:
        pytest.skip(f"the mirror has newer packages than the snapshot: {', '.join(line.split()[1] for line in newer)}")
    compared = compare(image, "baseline", load_pins())
    assert compared.known_base and compared.problems == [], compared.line()


def test_image_check_holds_it_to_its_lock(image, checkout):
    report = check_image("baseline", load_pins(), Engine.connect(), {})
    assert report.holds, report.findings
    assert {"torch", "numpy", "megatron-core"} <= {finding.what for finding in report.findings}
    lock = checkout / "docker" / "baseline.lock"
    before = lock.read_text()
    lock.write_text(before.replace("torch==2.10.0", "torch==2.10.1"))
    assert not check_image("baseline", load_pins(), Engine.connect(), {}).holds
    lock.write_text(before)


def test_it_is_nobodys_and_compiles(image, docker):
    (described,) = json.loads(docker("image", "inspect", IMAGE))
    assert described["Config"]["User"] == "10001:10001"
    assert described["Config"]["Labels"]["reproduction.stack"] == "baseline"
    options = ("--rm", "--network", "host", "--read-only", "--cap-drop", "ALL", "--tmpfs", "/tmp:exec")
    assert docker("run", *options, IMAGE, "python", "-c", COMPILE) == "7"


def test_a_run_in_images_takes_it_for_its_baselines(image, docker):
    (described,) = json.loads(docker("image", "inspect", IMAGE))
    launcher = LocalLauncher.of(LaunchOptions(runtime="docker"))
    program = baseline_program(None, (), "pytorch,pytorch-compiled,megatron", 0, image=launcher.baseline_image)
    assert program.image == described["Id"]
    assert (program.versions["megatron_core"], program.versions["compiles"]) == ("0.16.1", True)
    with pytest.raises(PlanError, match=r"the image of the baselines: PyTorch 2\.10\.0 sees 0 of the 1 GPUs"):
        baseline_program(None, (), "pytorch", 1, image=launcher.baseline_image)


def test_a_second_build_is_the_same(image):
    problems = build.reproduce(["baseline"], load_pins(), Sources(BASE, DEBIAN, DEBIAN_SECURITY))
    assert not [problem for problem in problems if "when built again" in problem], "other layers than pinned: see above"

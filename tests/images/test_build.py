"""What can be known of the images without an engine: how they are written, run, checked and accounted for."""

import copy
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.cli.settings import Exit, exit_statuses
from repro.images import build as image
from repro.images import offline_bundle
from repro.images.build import Sources, find_docker
from repro.images.engine import Engine, ImageError
from repro.images.oci_layout import LayoutImage, normalise
from repro.images.offline_bundle import check_bundle, write_bundle
from repro.images.offline_folder import OfflineError, new_folder, readme, sums
from repro.images.pins import PinError, load_pins
from repro.images.recipes import RECIPES
from repro.images.verify import compare, expected, mounts_of
from repro.images.wheels import baseline_wheels
from repro.utils.paths import ROOT, sha256
from tests.support.docker_engine import fake_engine

BIN = Path(sys.executable).parent
SCRIPTS = sorted([*ROOT.glob("docker/**/*.sh")])
IMAGE = LayoutImage("oneflow-reproduction:cu102", "sha256:" + "a" * 64, "sha256:" + "b" * 64, ("c" * 64,), 10)


def test_hadolint_has_nothing_to_say():
    done = subprocess.run([BIN / "hadolint", "docker/Dockerfile"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_shellcheck_has_nothing_to_say():
    assert SCRIPTS
    done = subprocess.run([BIN / "shellcheck", *SCRIPTS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_what_runs_inside_needs_no_newer_python():
    for path in (ROOT / "docker/inside").glob("*.py"):
        compile(path.read_text(), path, "exec", dont_inherit=True)
        done = subprocess.run([BIN / "ruff", "check", "--target-version", "py39", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def client(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "good"),
    [
        ('[ "$1" = buildx ] && echo buildx v0.13', True),
        ('[ "$1" = version ] && echo 20.10.24', True),
        ('[ "$1" = version ] && echo 27.0.1', False),
        ("exit 1", False),
    ],
)
def test_a_client_is_taken_if_it_can_build(tmp_path, monkeypatch, script, good):
    monkeypatch.setenv("DOCKER", client(tmp_path, "mine", script))
    monkeypatch.setattr(image.shutil, "which", lambda name: name if name == str(tmp_path / "mine") else None)
    if good:
        assert find_docker() == str(tmp_path / "mine")
    else:
        with pytest.raises(ImageError, match="cannot: install docker-buildx"):
            find_docker()


@pytest.mark.parametrize(("stack", "free_mib", "needed_mib"), [("cu102", 1000, 2500), ("baseline", 9000, 11600)])
def test_images_that_do_not_fit_are_not_begun(tmp_path, monkeypatch, stack, free_mib, needed_mib):
    monkeypatch.setattr(image, "find_docker", lambda: "docker")
    monkeypatch.setattr(image.Engine, "connect", lambda: None)
    monkeypatch.setattr(image, "_fetch_wheels", lambda stacks, pins: pytest.fail("something was fetched"))
    monkeypatch.setattr(image.shutil, "disk_usage", lambda path: SimpleNamespace(free=free_mib << 20))
    with pytest.raises(ImageError, match=f"{tmp_path} has {free_mib} MiB free, and the images need {needed_mib} MiB"):
        image.build_layout([stack], load_pins(), Sources(), tmp_path / "image")


@pytest.mark.parametrize("archive", [b"", b"no archive", b"no archive" * 1000])
def test_of_images_that_an_engine_does_not_save_whole_nothing_is_left(tmp_path, monkeypatch, archive):
    with fake_engine(tmp_path) as (engine, address):
        monkeypatch.setenv("DOCKER_HOST", address)
        engine.images, engine.archive = {"a": {}}, archive
        with pytest.raises(ImageError, match="the engine did not save the image whole"):
            image._normalise_saved(Engine.connect(), ["a"], tmp_path / "image", 0)
    assert not (tmp_path / "image").exists()


def test_a_disk_that_fills_up_is_told_without_a_traceback():
    full = pytest.raises(Exit, match="the disk is full: a file could not be written")
    with full, exit_statuses(), open("/dev/full", "wb", buffering=0) as file:
        file.write(b"a layer")


def test_no_client_at_all(monkeypatch):
    monkeypatch.delenv("DOCKER", raising=False)
    monkeypatch.setattr(image.shutil, "which", lambda name: None)
    with pytest.raises(ImageError, match="none is here"):
        find_docker()


def test_sources_become_build_arguments():
    options = Sources("base@sha256:1", nccl="2.7.3", ca="/ca.pem").arguments(load_pins(), "cu102")
    assert "BASE=base@sha256:1" in options
    assert "NCCL=2.7.3" in options
    assert options[-2:] == ["--secret", "id=ca,src=/ca.pem"]


@pytest.mark.parametrize(
    ("stack", "suite", "lock"), [("cu102", "bullseye", "trainer"), ("baseline", "bookworm", "baseline")]
)
def test_an_image_is_built_by_its_own_lock_on_its_own_debian(stack, suite, lock):
    values = dict(word.split("=", 1) for word in Sources().arguments(load_pins(), stack) if "=" in word)
    assert values["BASE"].startswith(f"debian:{suite}-slim@sha256:")
    assert values["LOCK_SHA256"] == sha256(ROOT / f"docker/{lock}.lock")
    assert values["DEBIAN"].startswith("http://snapshot.debian.org/archive/debian/")
    assert values["DEBIAN_SECURITY"].startswith("http://snapshot.debian.org/archive/debian-security/")


def test_a_wheel_of_baselines_is_the_one_of_the_lock(tmp_path):
    (tmp_path / "toy.whl").write_bytes(b"wheel")
    digest = sha256(tmp_path / "toy.whl")
    (tmp_path / "baseline.lock").write_text(f"toy==1 \\\n    --hash=sha256:{digest}\n")
    folder = tmp_path / "wheels" / "baseline"
    folder.mkdir(parents=True)
    (tmp_path / "toy.whl").rename(folder / "toy-1-py3-none-any.whl")
    (folder / "stranger-1-py3-none-any.whl").touch()
    assert baseline_wheels("baseline", "3.11", tmp_path / "wheels", tmp_path) == folder
    assert [path.name for path in folder.iterdir()] == ["toy-1-py3-none-any.whl"]


def test_a_changed_wheel_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "baseline.lock").write_text(f"toy==1 \\\n    --hash=sha256:{'a' * 64}\n")
    folder = tmp_path / "wheels" / "baseline"
    folder.mkdir(parents=True)
    (folder / "toy-1-py3-none-any.whl").write_bytes(b"another")
    with pytest.raises(PinError, match="pins 'toy': pip cannot fetch them"):
        baseline_wheels("baseline", "3.11", tmp_path / "wheels", tmp_path)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["#5 0.2 pin 'NCCL 2.7.8': SHA-256 of /wheels/x is 1; docker/pins.toml has 2", "#5 ERROR"],
            "pin 'NCCL 2.7.8'",
        ),
        (
            [
                "#5 0.2 pin 'Debian packages': these differ from docker/build/apt-bullseye.lock, or are not in it:",
                "#5 0.2 aaaa  x.deb",
            ],
            "aaaa  x.deb",
        ),
        (["ERROR: failed to solve: base@sha256:12: not found"], "pin 'base image' (BASE=b)"),
        (["ERROR: failed to solve: base@sha256:12: not found"], "`make base` makes one with debootstrap"),
        (["#5 0.2 E: Failed to fetch http://snapshot.debian.org/x"], "DEBIAN=<mirror> and DEBIAN_SECURITY=<mirror>"),
        (["#5 0.2 pin 'Debian packages': these differ:", "#5 0.2 aaaa  x.deb"], "DEBIAN=<mirror>"),
        (["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "tqdm==4.70.1"], "a wheel is not the one"),
        (["something else"], "something else"),
    ],
)
def test_why_a_build_stopped(lines, message):
    assert message in image._why("cu102", lines, Sources("b"))


def test_a_base_of_baselines_that_no_registry_has_is_made_with_debootstrap():
    said = image._why("baseline", ["ERROR: failed to solve: base@sha256:12: not found"], Sources())
    assert "pin 'base image of the baselines'" in said
    assert "`make base STACK=baseline` makes one" in said
    assert "`make image STACK=baseline BASE=oneflow-reproduction-base:bookworm`" in said


@pytest.fixture
def probed():
    """What the probe of a right image says."""
    expected = load_pins().expected("cu102")
    return {
        "libraries": {name: {"version": version, "source": "/x"} for name, version in expected.items()},
        "called": {"/opt/nccl/libnccl.so.2": ["ncclAllReduce", "ncclSend"], "/opt/liboneflow-1.so": ["cublasGemmEx"]},
        "unknown": ["GPUs"],
        "libibverbs": True,
        "root_writable": False,
        "privileged_files": [],
        "import_s": 0.5,
    }


def test_an_image_of_baselines_has_the_packages_of_its_lock(probed):
    versions = expected(load_pins(), "baseline", "")
    assert versions["torch"] == "2.10.0"
    probed["libraries"] = {name: {"version": version, "source": "/x"} for name, version in versions.items()}
    assert all(finding.holds is not False for finding in compare(probed, "baseline", versions))
    probed["libraries"]["torch"]["version"] = "2.10.1"
    del probed["libraries"]["numpy"]
    differing = [finding.what for finding in compare(probed, "baseline", versions) if finding.holds is False]
    assert sorted(differing) == ["numpy", "torch"]


def differing(probed, stack="cu102"):
    return [finding.what for finding in compare(probed, stack, load_pins().expected(stack)) if finding.holds is False]


def test_a_right_image_holds_and_says_what_is_unknown(probed):
    findings = compare(probed, "cu102", load_pins().expected("cu102"))
    assert all(finding.holds is not False for finding in findings)
    assert [finding.what for finding in findings if finding.holds is None] == ["GPUs"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda probed: probed["libraries"]["cuDNN called"].update(version="7.6.6"), "cuDNN called"),
        (lambda probed: probed["libraries"].pop("NumPy"), "NumPy"),
        (lambda probed: probed["called"]["/opt/liboneflow-1.so"].append("ncclRecv"), "nccl calls"),
        (lambda probed: probed.update(libibverbs=False), "libibverbs"),
        (lambda probed: probed.update(root_writable=True), "root file system"),
        (lambda probed: probed.update(privileged_files=["/bin/su"]), "setuid and setgid files"),
    ],
)
def test_a_wrong_image_does_not(probed, change, what):
    change(probed)
    assert differing(probed) == [what]


@pytest.mark.parametrize(
    ("stack", "label", "version"),
    [
        ("cu102", "2.7.8", "2.7.8"),
        ("cu102", "2.7.3", "2.7.3"),
        ("cu102-modern", "2.12.10, the wheel's own", "2.12.10"),
    ],
)
def test_the_label_says_which_nccl_the_process_must_show(stack, label, version):
    assert expected(load_pins(), stack, label)["NCCL called"] == version


@pytest.fixture
def modern(probed):
    """What the probe of the other image says."""
    modern = copy.deepcopy(probed)
    modern["called"] = {
        "/opt/compat/libcublas_forward.so": ["cublasGemmEx"],
        "/l/liboneflow-1.so": ["cublasLtMatmul"],
        "/opt/compat/libcudnn_forward.so": ["cudnnConvolutionForward"],
    }
    for name, version in load_pins().expected("cu102-modern").items():
        modern["libraries"][name]["version"] = version
    return modern


def test_other_libraries_are_reported_and_not_held_to_the_pins(modern):
    assert differing(modern, "cu102-modern") == []
    modern["libraries"]["cuBLAS called"]["version"] = "13.0.2"
    modern["libraries"]["cuDNN called"]["version"] = "9.28.0"
    assert differing(modern, "cu102-modern") == ["cuDNN called", "cuBLAS called"]
    given = ("cuBLAS called", "cuDNN called")
    findings = compare(modern, "cu102-modern", load_pins().expected("cu102-modern"), given)
    assert all(finding.holds is not False for finding in findings)


def test_a_convolution_that_goes_to_the_wheel_is_found(modern):
    modern["called"]["/l/libcudnn-1.so.7.6.5"] = modern["called"].pop("/opt/compat/libcudnn_forward.so")
    assert differing(modern, "cu102-modern") == ["cudnn calls"]


def test_the_modern_stack_mounts_two_folders(tmp_path):
    newer = {"cuBLAS": tmp_path / "a", "cuDNN": tmp_path / "b"}
    assert mounts_of("cu102-modern", newer) == (f"{tmp_path}/a:/opt/cublas:ro", f"{tmp_path}/b:/opt/cudnn:ro")
    assert mounts_of("cu102", {}) == ()


def test_the_probe_runs_in_the_local_environment():
    from repro.utils.paths import TRAINER_PYTHON

    done = subprocess.run([TRAINER_PYTHON, ROOT / "docker/inside/probe.py"], capture_output=True, text=True, cwd="/tmp")
    assert done.returncode == 0, done.stderr
    libraries = json.loads(done.stdout)["libraries"]
    pins = load_pins().expected("cu102")
    for name in ("OneFlow", "OneFlow's commit", "cuDNN called", "cuBLAS called", "NCCL in the wheel", "NumPy"):
        assert libraries[name]["version"] == pins[name], name
    assert libraries["NCCL called"]["version"] == libraries["NCCL in the wheel"]["version"]
    assert RECIPES["cu102"].probe[1].endswith("probe.py")


def test_a_folder_without_sums_is_no_bundle(tmp_path):
    assert check_bundle(tmp_path) == [f"{tmp_path}/SHA256SUMS is missing: this is no bundle, or an incomplete one"]


def test_a_bundle_never_overwrites(tmp_path, monkeypatch):
    (tmp_path / "manifest.json").touch()
    monkeypatch.setattr("repro.images.offline_bundle.LAYOUT", tmp_path)
    with pytest.raises(OfflineError, match="exists already"):
        write_bundle(tmp_path, load_pins())


def test_a_folder_that_could_not_be_filled_is_removed(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "x", "KIT") as partial:
        (partial / "file").touch()
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sbom", [True, False])
def test_the_readmes_have_the_same_structure_and_code(sbom):
    english, chinese = (
        readme("bundle", language, images=[IMAGE], archive=offline_bundle.ARCHIVE, sbom=sbom).splitlines()
        for language in ("en", "zh")
    )
    for one, other in zip(english, chinese, strict=True):
        assert one.split(" ")[0] == other.split(" ")[0] if one.startswith(("#", "|", "`")) else bool(one) == bool(other)
        assert set(re.findall(r"`[^`]+`|^sh .*", one)) <= set(re.findall(r"`[^`]+`|^sh .*", other))
    assert ("sbom/" in "".join(english)) == sbom
    for digest in (IMAGE.id, IMAGE.digest):
        assert digest in "".join(english)
        assert digest in "".join(chinese)


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """A bundle of a layout with one image, without wheels."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w"):
        pass
    documents = {
        "0/layer.tar": layer.getvalue(),
        "config.json": json.dumps({"architecture": "amd64", "os": "linux", "config": {}}).encode(),
        "manifest.json": json.dumps(
            [{"Config": "config.json", "RepoTags": [IMAGE.tag], "Layers": ["0/layer.tar"]}]
        ).encode(),
    }
    saved = io.BytesIO()
    with tarfile.open(fileobj=saved, mode="w") as archive:
        for name, content in documents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    saved.seek(0)
    normalise(saved, tmp_path / "layout", 0)
    monkeypatch.setattr(offline_bundle, "LAYOUT", tmp_path / "layout")
    monkeypatch.setattr(offline_bundle, "SBOM", tmp_path / "none")
    monkeypatch.setattr(offline_bundle, "_wheels", lambda folder, pins: None)
    return write_bundle(tmp_path / "bundle", load_pins())


def test_a_bundle_holds_what_it_says(bundle):
    assert check_bundle(bundle) == []
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=bundle)
    assert done.returncode == 0


def test_damage_of_a_bundle_is_named(bundle):
    (bundle / "trainer.lock").write_text("other")
    (bundle / "apt.lock").unlink()
    (bundle / "stranger").touch()
    missing, stranger, changed = check_bundle(bundle)
    assert missing == "apt.lock is missing"
    assert stranger == "stranger does not belong to it"
    assert changed.startswith("trainer.lock was changed: its SHA-256 is ")


@pytest.mark.parametrize("openssl", [True, False])
def test_a_node_is_set_up_from_a_whole_bundle_only(bundle, tmp_path, openssl):
    """Its set-up takes the checksums by OpenSSL, or without it by coreutils."""
    programs = tmp_path / "bin"
    programs.mkdir()
    scripts = {"docker": "echo loaded"} | ({} if openssl else {"openssl": "exit 1"})
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)

    def set_up():
        argv = ["sh", bundle / "setup.sh", "image"]
        return subprocess.run(argv, env={"PATH": f"{programs}:/usr/bin:/bin"}, capture_output=True, text=True)

    whole = set_up()
    assert whole.returncode == 0 and whole.stdout.endswith("loaded\n"), whole.stderr
    (bundle / "trainer.lock").write_text("other")
    (bundle / "apt.lock").unlink()
    damaged = set_up()
    assert damaged.returncode == 1 and "loaded" not in damaged.stdout
    assert "setup: missing or damaged: apt.lock trainer.lock; bring these over again" in damaged.stderr
    assert "cannot open" not in damaged.stderr
    sums = bundle / "SHA256SUMS"
    for text, message in (
        ("", "damaged: SHA256SUMS;"),
        ("\0" * 99, "damaged: SHA256SUMS;"),
        ("\n", "damaged: ;"),
        (None, "SHA256SUMS is missing;"),
    ):
        sums.unlink() if text is None else sums.write_text(text)
        done = set_up()
        assert done.returncode == 1 and "loaded" not in done.stdout and message in done.stderr


def test_an_image_that_is_not_in_the_bundle_is_named(bundle):
    """The checksums are right, and the archive has another image than images.json names."""
    other = json.dumps({IMAGE.tag: {"id": "sha256:1", "digest": "sha256:2"}})
    (bundle / "images.json").write_text(other)
    text = "".join(f"{digest}  {name}\n" for name, digest in sums(bundle).items())
    (bundle / "SHA256SUMS").write_text(text)
    (problem,) = check_bundle(bundle)
    assert problem.startswith("images.json names ['sha256:2'], images.tar has ['sha256:")

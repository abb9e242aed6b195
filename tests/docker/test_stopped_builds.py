"""A build stops, and names the pin, when an artefact is not the pinned one."""

import http.server
import os
import re
import shutil
import subprocess
import threading

import pytest

from repro.images.pins import load_pins
from repro.images.wheels import artefact_wheel, trainer_wheels
from tests.docker.surroundings import DEBIAN, DEBIAN_SECURITY, ROOT
from tests.support.patience import patience

PACKAGE = "2.7.3-1+cuda10.2"


@pytest.fixture
def context(scratch, built, tmp_path_factory):
    """What a build reads, in a folder where it may be changed; large files are linked, not copied."""
    folder = scratch / "context"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("docker", "repro/models", "repro/trainers"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "repro" / "__init__.py", folder / "repro")
    shutil.copytree(ROOT / ".cache/wheels", folder / ".cache/wheels", copy_function=link)
    return folder


def link(source, target):
    os.link(source, target)
    return target


def change_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)


@pytest.fixture
def build(docker, base, context):
    """Builds a target of the Dockerfile from the changed context; returns the completed process."""

    def run(target, **arguments):
        values = {"BASE": base, "DEBIAN": DEBIAN, "DEBIAN_SECURITY": DEBIAN_SECURITY, **arguments}
        given = [word for name, value in values.items() for word in ("--build-arg", f"{name}={value}")]
        return docker(
            "build",
            "--file",
            context / "docker/Dockerfile",
            "--target",
            target,
            "--network",
            "host",
            "--progress",
            "plain",
            *given,
            context,
            check=False,
        )

    return run


def test_a_changed_wheel_stops_the_build(build, context):
    """Without the wheel of OneFlow, which is 1 GB to hand over and to look at."""
    lock = context / "docker/trainer.lock"
    lock.write_text(re.sub(r"(?m)^oneflow==(.*\\\n)*.*\n", "", lock.read_text()))
    (oneflow,) = (context / ".cache/wheels/trainer").glob("oneflow-*.whl")
    oneflow.unlink()
    change_a_byte(context / ".cache/wheels/trainer/tqdm-4.70.1-py3-none-any.whl")
    done = build("environment")
    assert done.returncode
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "tqdm==4.70.1" in done.stderr


def test_a_changed_wheel_that_cannot_be_fetched_again_stops_make(built, make):
    wheel = trainer_wheels(load_pins()) / "tqdm-4.70.1-py3-none-any.whl"
    original = wheel.read_bytes()
    try:
        change_a_byte(wheel)
        done = make("image", STACK="cu102", PIP_NO_INDEX="1")
    finally:
        wheel.write_bytes(original)
    assert done.returncode == 1
    assert f"removing {wheel}, which is not pinned: SHA-256" in done.stderr
    assert "pins 'tqdm': pip cannot fetch them" in done.stderr


def test_a_changed_nccl_wheel_stops_the_build(build, context):
    change_a_byte(context / ".cache/wheels/nccl" / artefact_wheel(load_pins(), "NCCL 2.7.8").name)
    done = build("nccl-2.7.8")
    assert done.returncode
    assert "pin 'NCCL 2.7.8': SHA-256 of /wheels/cupy" in done.stderr


def test_a_package_that_is_not_in_the_lock_stops_the_build(build, context):
    lock = context / "docker/build/apt-bullseye.lock"
    lines = [line for line in lock.read_text().splitlines() if "libibverbs1" not in line]
    lock.write_text("\n".join(lines) + "\n")
    done = build("base")
    assert done.returncode
    assert "pin 'Debian packages': these differ from" in done.stderr
    assert "libibverbs1_33.2-1_amd64.deb" in done.stderr


@pytest.fixture(scope="module")
def registry(scratch, docker, make_small):
    """A registry on this machine that holds a base; yields its name there and its digest."""
    folder = scratch / "registry"
    folder.mkdir()
    (folder / "config.yml").write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {folder}/data\n"
        "http:\n  addr: 127.0.0.1:5017\nlog:\n  level: error\n"
    )
    process = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stderr=subprocess.DEVNULL)
    try:
        name = "127.0.0.1:5017/base"
        make_small(name)
        for _ in range(50):
            done = docker("push", name, check=False)
            if done.returncode == 0:
                break
        digest = next(word for word in done.stdout.split() if word.startswith("sha256:"))
        yield name, digest
    finally:
        process.terminate()
        process.wait(patience(20))


def test_the_base_is_taken_by_its_digest(registry, build, context):
    """All that the Dockerfile puts upon it is left out."""
    name, digest = registry
    recipe = context / "docker/Dockerfile"
    beginning, line, _ = recipe.read_text().partition("FROM ${BASE} AS base\n")
    recipe.write_text(beginning + line)
    done = build("base", BASE=f"{name}@{digest}")
    assert done.returncode == 0, done.stderr


def test_a_wrong_digest_of_the_base_stops_make(registry, make):
    name, digest = registry
    wrong = digest[:-4] + ("0000" if digest[-4:] != "0000" else "1111")
    done = make("image", STACK="cu102", BASE=f"{name}@{wrong}")
    assert done.returncode == 1
    assert "pin 'base image'" in done.stderr
    assert wrong in done.stderr


def gpg(home, *arguments, **options):
    command = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    return subprocess.run([*command, *arguments], check=True, capture_output=True, **options).stdout


def make_key(home, name):
    gpg(home, "--quick-generate-key", name, "rsa2048", "sign", "never")
    listed = gpg(home, "--with-colons", "--list-keys", name, text=True)
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))


@pytest.fixture(scope="module")
def vendor(scratch):
    """A signed apt repository with a stand-in for libnccl2; yields its URL, folder, and two keys' fingerprints."""
    folder, home = scratch / "vendor", scratch / "keys"
    root = scratch / "libnccl2"
    library = root / "usr/lib/x86_64-linux-gnu"
    library.mkdir(parents=True)
    folder.mkdir()
    home.mkdir(mode=0o700)
    (library / "libnccl.so.2.7.3").write_text("stand-in")
    (library / "libnccl.so.2").symlink_to("libnccl.so.2.7.3")
    (root / "DEBIAN").mkdir()
    control = {
        "Package": "libnccl2",
        "Version": PACKAGE,
        "Architecture": "amd64",
        "Description": "a stand-in",
        "Maintainer": "nobody <nobody@example.org>",
    }
    (root / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in control.items()))
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, folder], check=True, capture_output=True)
    right, other = make_key(home, "vendor"), make_key(home, "other")
    sign(folder, home, right)
    for name, key in (("key.pub", right), ("other.pub", other)):
        (folder / name).write_bytes(gpg(home, "--armor", "--export", key))
    handler = type("Handler", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: handler(*a, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"url": f"http://127.0.0.1:{server.server_port}", "folder": folder, "right": right, "other": other}
    server.shutdown()
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"])


def sign(folder, home, key):
    packages = subprocess.run(["apt-ftparchive", "packages", "."], cwd=folder, check=True, capture_output=True).stdout
    (folder / "Packages").write_bytes(packages)
    release = subprocess.run(["apt-ftparchive", "release", "."], cwd=folder, check=True, capture_output=True).stdout
    (folder / "Release").write_bytes(release)
    (folder / "InRelease").write_bytes(gpg(home, "--local-user", key, "--clearsign", "--output", "-", input=release))


def arguments(vendor, **changes):
    return {"NCCL_REPOSITORY": vendor["url"], "NCCL_KEY": "key.pub", "NCCL_KEY_FINGERPRINT": vendor["right"], **changes}


def test_nccl_from_a_signed_repository(build, vendor):
    done = build("nccl-2.7.3", **arguments(vendor))
    assert done.returncode == 0, done.stderr


def test_a_key_with_another_fingerprint_stops_the_build(build, vendor):
    done = build("nccl-2.7.3", **arguments(vendor, NCCL_KEY="other.pub"))
    assert done.returncode
    assert f"pin 'NCCL 2.7.3': the key of {vendor['url']} has fingerprint {vendor['other']}" in done.stderr


def test_a_repository_signed_with_another_key_stops_the_build(build, vendor):
    done = build("nccl-2.7.3", **arguments(vendor, NCCL_KEY="other.pub", NCCL_KEY_FINGERPRINT=vendor["other"]))
    assert done.returncode
    assert f"pin 'NCCL 2.7.3': {vendor['url']} is not signed by" in done.stderr


def test_a_version_that_the_repository_lacks_stops_the_build(build, vendor):
    done = build("nccl-2.7.3", **arguments(vendor, NCCL_PACKAGE="2.7.9-1+cuda10.2"))
    assert done.returncode
    assert "does not hand out libnccl2=2.7.9-1+cuda10.2" in done.stderr


def test_a_changed_package_stops_the_build(build, vendor):
    (package,) = vendor["folder"].glob("*.deb")
    original = package.read_bytes()
    try:
        change_a_byte(package)
        done = build("nccl-2.7.3", **arguments(vendor, NCCL_REPOSITORY=f"{vendor['url']}/."))
    finally:
        package.write_bytes(original)
    assert done.returncode
    assert "pin 'NCCL 2.7.3'" in done.stderr

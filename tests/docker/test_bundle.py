"""The bundle: whole, found out if it is not, and enough by itself to set up a node without a network."""

import json
import os
import shutil
import subprocess

import pytest

from repro.cli import image as tasks
from repro.cli.settings import Invocation
from repro.images import offline_bundle
from repro.images.engine import Engine
from repro.images.oci_layout import normalise, read_layout
from repro.images.pins import load_pins
from tests.docker.surroundings import DEBIAN, DEBIAN_SECURITY


@pytest.fixture(scope="module")
def layout(engine, docker, make_small, scratch):
    """A layout of two small images, which the engine no longer has."""
    tags = [f"oneflow-reproduction:small-{number}" for number in range(2)]
    for tag in tags:
        make_small(tag)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine["DOCKER_HOST"])
        with Engine.connect().save(tags) as archive:
            normalise(archive, scratch / "layout", load_pins().source_date_epoch)
    docker("image", "rm", "--force", *tags)
    return scratch / "layout"


@pytest.fixture(scope="module")
def bundle(layout, scratch):
    """The bundle as `make bundle` writes it, of these images and all wheels."""
    folder = scratch / "bundle"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline_bundle, "LAYOUT", layout)
        tasks.bundle.body(Invocation("bundle", {}), folder)
    yield folder
    shutil.rmtree(folder)


def test_it_is_whole(bundle, make):
    done = make("bundle-check", BUNDLE=bundle)
    assert done.returncode == 0, done.stderr


def test_both_readmes_have_the_same_digests(bundle, layout):
    for name in ("README.md", "README.zh.md"):
        text = (bundle / name).read_text()
        for image in read_layout(layout):
            assert image.id in text and image.digest in text


def test_damage_is_found_and_named(bundle, make):
    lock = bundle / "trainer.lock"
    original = lock.read_bytes()
    lock.write_bytes(original.replace(b"tqdm", b"tqdn", 1))
    (bundle / "stranger").touch()
    try:
        done = make("bundle-check", BUNDLE=bundle)
    finally:
        lock.write_bytes(original)
        (bundle / "stranger").unlink()
    assert done.returncode == 1
    assert "trainer.lock was changed" in done.stderr
    assert "stranger does not belong to it" in done.stderr


def test_a_node_without_network_gets_the_images_from_it_alone(bundle, layout, engine, docker):
    """The engine gets them from the folder, in a network namespace with nothing in it."""
    images = read_layout(layout)
    assert not [image for image in images if docker("image", "ls", "--quiet", image.tag)]
    done = subprocess.run(
        ["unshare", "--net", "sh", bundle / "setup.sh", "image"],
        capture_output=True,
        text=True,
        env={**os.environ, **engine, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for image in images:
        (described,) = json.loads(docker("image", "inspect", image.tag))
        assert described["Id"] == image.id
        docker("image", "rm", "--force", image.tag)


@pytest.mark.long
def test_a_node_without_docker_gets_an_environment_from_it_alone(bundle, base, docker):
    """In a container with Python 3.9 and no network, which sees nothing but the bundle."""
    docker(
        "build",
        "--file",
        "docker/Dockerfile",
        "--target",
        "build",
        "--network",
        "host",
        "--tag",
        "bare-node",
        "--build-arg",
        f"BASE={base}",
        "--build-arg",
        f"DEBIAN={DEBIAN}",
        "--build-arg",
        f"DEBIAN_SECURITY={DEBIAN_SECURITY}",
        ".",
    )
    printed = docker(
        "run",
        "--rm",
        "--network",
        "none",
        "--volume",
        f"{bundle}:/bundle:ro",
        "bare-node",
        "sh",
        "/bundle/setup.sh",
        "venv",
        "/opt/trainer",
    )
    assert "OneFlow 0.8.0" in printed

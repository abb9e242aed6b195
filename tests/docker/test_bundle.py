"""The bundle: whole, found out if it is not, and enough by itself to set up a node without a network."""

import json
import os
import shutil
import subprocess

import pytest

from repro.images.stack import IMAGE_STACKS, tag_of
from tests.docker.surroundings import DEBIAN, DEBIAN_SECURITY


@pytest.fixture(scope="module")
def bundle(built, make, scratch):
    folder = scratch / "bundle"
    done = make("bundle", BUNDLE=folder)
    assert done.returncode == 0, done.stderr
    yield folder
    shutil.rmtree(folder)


def test_it_is_whole(bundle, make):
    done = make("bundle-check", BUNDLE=bundle)
    assert done.returncode == 0, done.stderr


def test_both_readmes_have_the_same_digests(bundle, built):
    for name in ("README.md", "README.zh.md"):
        text = (bundle / name).read_text()
        for stack in IMAGE_STACKS:
            for digest in built[tag_of(stack)]:
                assert digest in text


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


def test_a_node_without_network_gets_the_images_from_it_alone(bundle, built, engine, docker):
    """The engine forgets the images and gets them back from the folder, in a network namespace with nothing in it.

    A container of one of them keeps its layers, which are large: `make image` loaded them all, as the same archive.
    """
    docker("create", "--name", "keeper", tag_of("cu102-modern"))
    for stack in IMAGE_STACKS:
        docker("image", "rm", "--force", tag_of(stack))
    done = subprocess.run(
        ["unshare", "--net", "sh", bundle / "setup.sh", "image"],
        capture_output=True,
        text=True,
        env={**os.environ, **engine, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
    )
    docker("rm", "keeper")
    assert done.returncode == 0, done.stdout + done.stderr
    for stack in IMAGE_STACKS:
        (described,) = json.loads(docker("image", "inspect", tag_of(stack)))
        assert described["Id"] == built[tag_of(stack)][0]


@pytest.mark.long
def test_a_node_without_docker_gets_an_environment_from_it_alone(bundle, built, base, docker):
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

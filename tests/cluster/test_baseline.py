"""The baselines' environment on nodes: provisioning brings the image, or makes it from the lock, where an inventory asks."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest
import yaml

from repro.cluster import provision as provision_module
from repro.cluster.cluster import BaselinePlace, with_runtime
from repro.images import wheels
from repro.images.oci_layout import LayoutImage
from repro.images.recipes import RECIPES
from repro.images.runtime import RUNTIMES
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.target import ClusterTarget
from repro.utils.paths import TRAINER
from tests.support.clusters import V100

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  roles: [baseline]
"""
DOCKER = """#!/bin/sh
# An engine that has an image once it was loaded; it writes down what it was given.
case "$*" in
"image inspect"*) [ -f "$ENGINE/loaded" ] && echo sha256:1 || exit 1 ;;
"load --quiet") tar -tf - > "$ENGINE/loaded" ;;
"image ls"*) ;;
*) exit 9 ;;
esac
"""
PYTHON = """#!/bin/sh
[ "$1 $2 $#" = "-m venv 3" ] || exit 9
# Makes an environment once: what it makes after that at the same place is a copy of it as it was new.
[ -d {new} ] || {{ {python} -m venv "$3" && cp -a "$3" {new}; exit; }}
cp -a {new} "$3"
"""
PINNED = replace(V100, baseline=BaselinePlace(lock="baseline").within(RUNTIMES["docker"], V100.work))


@pytest.fixture
def given(monkeypatch):
    """What provisioning hands to Ansible, which is not started."""
    found = {}
    monkeypatch.setattr(provision_module, "_play", lambda *arguments, extra, **more: found.update(extra))
    return found


@pytest.fixture
def play(tmp_path):
    """Runs the role on this machine with these variables; the distribution's packages stay as they are."""
    (tmp_path / "play").mkdir()
    (tmp_path / "play" / "play.yml").write_text(PLAY)
    (tmp_path / "roles" / "packages" / "tasks").mkdir(parents=True)
    (tmp_path / "roles" / "packages" / "tasks" / "main.yml").write_text("[]\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(DOCKER)
    (tmp_path / "bin" / "docker").chmod(0o755)

    def run(**variables):
        known = {
            "cluster_work": str(tmp_path / "work"),
            "cluster_image": {"name": "trainers"},
            "cluster_stack": "cu102",
        }
        known |= {"platform_id": "debian", "platform_version": "12", "ansible_python_interpreter": sys.executable}
        (tmp_path / "variables.json").write_text(json.dumps(known | variables))
        command = [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            tmp_path / "play" / "play.yml",
            "--inventory",
            "localhost,",
        ]
        own = {
            "ANSIBLE_ROLES_PATH": f"{tmp_path / 'roles'}:{provision_module.ANSIBLE / 'roles'}",
            "ANSIBLE_HOME": str(tmp_path),
            "ENGINE": str(tmp_path),
            "LC_ALL": "C.UTF-8",
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        }
        command += ["--extra-vars", f"@{tmp_path / 'variables.json'}"]
        return subprocess.run(command, env=os.environ | own, capture_output=True, text=True)

    return run


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """Where `make image STACK=baseline` would leave the image; nothing is there yet."""
    monkeypatch.setitem(RECIPES, "baseline", replace(RECIPES["baseline"], layout=tmp_path / "image-baseline"))
    return tmp_path / "image-baseline"


def test_the_image_that_was_built_here_is_brought_once(given, play, layout, tmp_path, monkeypatch):
    (layout / "blobs").mkdir(parents=True)
    (layout / "manifest.json").touch()
    image = LayoutImage("oneflow-reproduction:baseline", "sha256:1", "sha256:2", (), 1)
    monkeypatch.setattr("repro.images.oci_layout.read_layout", lambda folder: [image])
    provision_module.provision(PINNED)
    assert given["provision_baseline"]["ids"] == ["sha256:1", "sha256:2"]
    for changed in (True, False):
        done = play(cluster_runtime="docker", provision_baseline=given["provision_baseline"])
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("changed=0" not in done.stdout) == changed
    assert (tmp_path / "loaded").read_text().splitlines() == ["blobs/", "manifest.json"]
    assert list((tmp_path / "work").iterdir()) == [], "no copy stays behind"


def test_where_it_was_not_built_provisioning_says_what_builds_it(given, play, layout):
    provision_module.provision(PINNED)
    done = play(cluster_runtime="docker", provision_baseline=given["provision_baseline"])
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert (
        "this node has no image oneflow-reproduction:baseline" in said
        and "`make image STACK=baseline` makes it" in said
    )


def test_without_containers_it_is_made_by_hash(given, play, tmp_path, monkeypatch):
    """From wheels that are brought, as for nodes without a network; a wheel that the lock does not name is refused."""
    about, whole = "torch-1.0.dist-info", io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("torch.py", "")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", f"torch.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    folder, lock = tmp_path / "wheels", tmp_path / "docker" / "baseline.lock"
    folder.mkdir()
    (folder / "torch-1.0-py3-none-any.whl").write_bytes(whole.getvalue())
    lock.parent.mkdir()
    lock.write_text(f"torch==1.0 --hash=sha256:{hashlib.sha256(whole.getvalue()).hexdigest()}\n")
    monkeypatch.setattr(wheels, "baseline_wheels", lambda lock, python: folder)
    monkeypatch.setattr(provision_module, "_from_bundle", lambda bundle: {})
    provision_module.provision(with_runtime(PINNED, "venv"), bundle=tmp_path)
    assert given["provision_baseline"]["pythons"] == ("3.11",)
    here = {"pythons": [f"3.{sys.version_info.minor}"]}
    variables = {"cluster_runtime": "venv", "provision_baseline": given["provision_baseline"] | here}
    python = tmp_path / "bin" / f"python3.{sys.version_info.minor}"
    python.write_text(PYTHON.format(new=tmp_path / "new", python=shutil.which("python3")))
    python.chmod(0o755)
    done = play(**variables)
    assert done.returncode == 0, done.stdout + done.stderr
    python = tmp_path / "work" / "baseline" / "bin" / "python"
    assert str(python) == with_runtime(PINNED, "venv").baseline.python.replace(PINNED.work, str(tmp_path / "work"))
    assert subprocess.run([python, "-c", "import torch"]).returncode == 0
    lock.write_text(f"torch==1.0 --hash=sha256:{'a' * 64}\n")
    refused = play(**variables)
    assert refused.returncode != 0 and "DO NOT MATCH THE HASHES" in refused.stdout


def test_an_inventory_that_does_not_ask_for_it_gets_none(given):
    provision_module.provision(V100)
    assert "provision_baseline" not in given


def test_a_run_records_the_lock_of_the_nodes(tmp_path):
    target = ClusterTarget(PINNED, UploadedCode.of(PINNED, TRAINER), 29500)
    program = target.baseline_program(("pytorch",), {"node1": {"torch": "2.10.0", "fused_attention": True}})
    assert (program.lock, program.image) == ("docker/baseline.lock", "oneflow-reproduction:baseline")


def test_deprovisioning_takes_it_back():
    recorded = yaml.safe_load((provision_module.ANSIBLE / "roles/record/defaults/main.yml").read_text())["record_paths"]
    assert {"{{ cluster_work }}/baseline", "{{ cluster_work }}/baseline-cu102"} <= set(recorded)

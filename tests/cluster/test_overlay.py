"""GPU code compiled ahead on nodes: provisioning lays it beside OneFlow, from where Python imports the package."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from repro.cluster import provision as provision_module
from repro.cluster.provision import ProvisionError
from repro.images import kernel_overlay
from repro.images.kernel_overlay import overlay_for, wheel_hashes
from tests.support.clusters import V100
from tests.support.fatbins import wheel
from tests.support.overlays import LIBRARIES, write

MODERN = replace(V100, stack="cu102-modern", compiled_for=90, runtime_name="venv")
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: trainer_image, tasks_from: overlay}
"""


@pytest.fixture
def overlay(tmp_path, monkeypatch):
    """An overlay on the controller, and the wheel that it was made for."""
    kernel_overlay._verified.cache_clear()
    site = wheel(tmp_path / "site-packages", LIBRARIES)
    write(tmp_path / "overlay", site, wheel_hashes(site))
    found = overlay_for(90, site, tmp_path / "overlay")
    monkeypatch.setattr(kernel_overlay, "overlay_for", lambda architecture: found if architecture == 90 else None)
    return found


@pytest.fixture
def given(monkeypatch):
    """What provisioning hands to Ansible, which is not started."""
    found = {}
    monkeypatch.setattr(provision_module, "_play", lambda *place, **options: found.update(options["extra"]))
    monkeypatch.setattr(provision_module, "_library", lambda name, bundle: name)
    return found


def test_the_role_lays_it_beside_oneflow_once(overlay, given, tmp_path):
    provision_module.provision(MODERN)
    work = tmp_path / "work"
    wheel(work / "venv/lib/python3.9/site-packages", LIBRARIES)
    variables = {"cluster_work": str(work), "cluster_runtime": "venv", "provision_overlay": given["provision_overlay"]}
    variables["ansible_python_interpreter"] = sys.executable
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "variables.json").write_text(json.dumps(variables))
    command = [sys.executable, "-m", "ansible", "playbook", tmp_path / "play.yml", "--inventory", "localhost,"]
    command += ["--extra-vars", f"@{tmp_path / 'variables.json'}"]
    own = {
        "ANSIBLE_ROLES_PATH": str(provision_module.ANSIBLE / "roles"),
        "ANSIBLE_HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }
    for changed in (True, False):
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("changed=0" not in done.stdout) == changed
    program = "import oneflow, oneflow.core; print(oneflow.__file__)"
    environment = os.environ | {"PYTHONPATH": f"{work}/overlay"}
    found = subprocess.run([sys.executable, "-B", "-c", program], env=environment, capture_output=True, text=True)
    assert found.stdout.strip() == f"{work}/overlay/oneflow/__init__.py", found.stderr
    libraries = work / "overlay/oneflow.libs"
    assert (libraries / "liboneflow-1.so").read_bytes() == b"\x7fELF sm_90"
    assert (libraries / "libprotobuf-3.so").read_bytes() == LIBRARIES["libprotobuf-3.so"]


def test_without_it_provisioning_says_how_to_make_it(overlay, given):
    with pytest.raises(ProvisionError, match=r"`make setup`, then `make compile-kernels ARCH=80`"):
        provision_module.provision(replace(MODERN, compiled_for=80))
    assert not given


def test_an_inventory_that_wants_none_gets_none(given):
    provision_module.provision(replace(MODERN, compiled_for=None))
    assert "provision_overlay" not in given

"""The same training over verbs without containers, and as a job of Slurm, on the machines that were provisioned."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e import slurm_site
from tests.e2e.inventories import changed_inventory
from tests.e2e.launching import WORK, note
from tests.e2e.vm.training import trained_over_verbs
from tests.support.paths import TRAINER_PYTHON

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("provisioned_machines"), pytest.mark.timeout(3 * 3600)]


def on_all(machines, *argv) -> None:
    """Do something as root on all machines at the same time."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: machines.root(node, *argv), machines.names))


def test_a_training_over_verbs_in_a_venv(machines, tmp_path):
    """Debian 12 has no Python that OneFlow has a wheel for: the machines see this one's environment of the trainers."""
    venv = TRAINER_PYTHON.parent.parent.resolve()
    prefix = [TRAINER_PYTHON, "-c", "import sys; print(sys.base_prefix)"]
    interpreter = Path(subprocess.check_output(prefix, text=True).strip())
    shares = (("venv", venv), ("interpreter", interpreter))
    on_all(machines, "sync")
    machines.kill()
    replace(machines, shares=tuple((tag, str(folder)) for tag, folder in shares)).start()
    machines.wait()
    for tag, folder in shares:
        mount = f"mkdir -p {folder} && mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,ro {tag} {folder}"
        on_all(machines, "sh", "-ec", mount)
        on_all(machines, "chmod", "o+x", *folder.parents)
    on_all(machines, "ln", "-sfn", venv, f"{WORK}/venv")
    cluster, started = changed_inventory(machines, tmp_path / "inventory", cluster_runtime="venv"), time.monotonic()
    trained_over_verbs(machines, tmp_path, cluster.folder, "in a venv over SSH")
    note("virtual machines: a training over verbs in a venv", time.monotonic() - started, "")


def test_a_training_over_verbs_under_slurm(machines, tmp_path):
    install = "apt-get -q update && apt-get -q -y --no-install-recommends install slurmctld slurmd munge"
    started = time.monotonic()
    on_all(machines, "sh", "-ec", f"DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; {install}")
    slurm_site.start(machines, machines.patience)
    note("virtual machines: Slurm installed and started", time.monotonic() - started, "")
    slurm = {"partition": "main", "time_minutes": 120}
    cluster = changed_inventory(machines, tmp_path / "inventory", cluster_launcher="slurm", cluster_slurm=slurm)
    started = time.monotonic()
    trained_over_verbs(machines, tmp_path, cluster.folder, "in Docker under Slurm")
    note("virtual machines: a training over verbs under Slurm", time.monotonic() - started, "")
    remove = "apt-get -q -y purge --autoremove slurmctld slurmd munge"
    on_all(machines, "sh", "-ec", f"DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; {remove}")

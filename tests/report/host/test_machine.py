"""What a host's page says of the machines: those that ranks ran on, not the one that began the run."""

from dataclasses import replace

import pytest

from repro.analysis.evidence import Evidence
from repro.cluster.fingerprint import Fingerprint, as_json
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.target import ClusterTarget
from repro.report.host.answer import gpus_text
from repro.report.host.machine import machine
from repro.report.host.notes import Notes
from repro.report.host.results import MeasuredHost
from repro.report.host.run import KeptRun
from repro.runs.environment import RankMachine
from repro.runs.files import FINGERPRINTS
from repro.runs.program_versions import Versions
from repro.runs.record import Run, write_json
from repro.utils.i18n import LANGUAGES, catalogue
from tests.support.attempts import recorded
from tests.support.clusters import V100
from tests.support.pages import cells
from tests.support.synthetic import described

FIELDS = {
    "system.distribution": "Ubuntu 16.04",
    "system.kernel": "4.4.0",
    "cpu.model": "Xeon 5118",
    "cpu.sockets": "2",
    "cpu.cores_per_socket": "12",
    "cpu.threads_per_core": "2",
    "memory.total": "376 GiB",
    "gpu.model": "Tesla V100",
    "gpu.count": "8",
    "gpu.driver": "440.33.01",
    "gpu.memory": "16160 MiB",
}
CLOCK = {"time.offset_s": 0.0, "time.uncertainty_s": 0.1}


def prints(*names, **changes) -> dict[str, Fingerprint]:
    return {name: Fingerprint(name, FIELDS | changes, CLOCK, None, ()) for name in names}


def host_of(tmp_path, fingerprints, *nodes, attempt=None) -> MeasuredHost:
    """A host with one run of the published cluster, from this machine; its attempts ran on these nodes."""
    environment = ClusterTarget(V100, UploadedCode(), 29500).environment("ssh", [*fingerprints], fingerprints)
    here = {"cpu": "Laptop", "system": "Debian of the laptop", "kernel": "6.1-laptop", "memory_mib": 7777}
    cache = {"path": "/x", "mib": 300, "warm": True}
    description = described(created=1.79e9, environment=replace(environment, **here, jit_cache=cache))
    run = Run(tmp_path / "run")
    attempts = [recorded({"unit": "a", "nodes": list(nodes)})]
    if attempt:
        (run.files / attempts[0].folder).mkdir(parents=True)
        write_json(run.files / attempts[0].folder / FINGERPRINTS, as_json(V100, attempt))
    kept_run = KeptRun(run, description, attempts, [], None, {}, None, Versions(), Evidence(0, ()))
    return MeasuredHost("v100", tmp_path, (kept_run,), (), (), Notes({}))


def facts(host, language="en") -> dict[str, str]:
    (section,) = machine(catalogue(language).gettext, host)
    return dict(cells(section))


def test_the_machines_of_a_cluster_are_its_nodes(tmp_path):
    other = prints("n3", **{"cpu.model": "of no rank", "gpu.count": "4"})
    host = host_of(tmp_path, prints("n1", "n2") | other, "n1", "n2")
    said = facts(host)
    assert said["GPU"] == "2 nodes with 8 x Tesla V100 each"
    assert (said["Processor"], said["Memory"]) == ("Xeon 5118, 48", "376 GiB")
    assert (said["System"], said["Driver"]) == ("Ubuntu 16.04, Linux 4.4.0", "440.33.01")
    assert said["OneFlow software stack"] == "cu102"
    assert not [text for text in said.values() if "aptop" in text or "7777" in text or "300 MiB" in text]
    assert gpus_text(catalogue("en").gettext, host) == "Tesla V100 (machines with 8 GPUs)"
    assert len(host.runs[0].gpus) == 16


def test_nodes_that_differ_are_each_described(tmp_path):
    said = facts(
        host_of(tmp_path, prints("n1") | prints("n2", **{"memory.total": "188 GiB", "gpu.count": "4"}), "n1", "n2")
    )
    assert said["GPU"] == "8 x Tesla V100; 4 x Tesla V100"
    assert said["Memory"] == "376 GiB; 188 GiB"


def test_under_slurm_nodes_are_those_of_the_attempts(tmp_path):
    said = facts(host_of(tmp_path, {}, "n7", attempt=prints("n7")))
    assert (said["GPU"], said["Processor"]) == ("8 x Tesla V100", "Xeon 5118, 48")


@pytest.mark.parametrize("language", LANGUAGES)
def test_of_nodes_without_a_fingerprint_nothing_is_said(tmp_path, language):
    host = host_of(tmp_path, {}, "n1")
    assert [*facts(host, language).values()] == ["cu102"]
    assert gpus_text(catalogue(language).gettext, host) == ""
    half = facts(host_of(tmp_path, prints("n1", **{"cpu.sockets": "0", "memory.total": ""}), "n1", "n2"))
    assert half["Processor"] == "Xeon 5118" and "Memory" not in half


def test_nodes_without_a_gpu_have_none(tmp_path):
    host = host_of(tmp_path, prints("n1", "n2", **{"gpu.count": "0"}), "n1", "n2")
    assert facts(host)["GPU"] == "none"


def test_a_node_with_different_gpus_has_each_under_its_name():
    models = {"gpu.model": "Tesla V100, NVIDIA A100", "gpu.memory": "16160 MiB, 40536 MiB", "gpu.count": "2"}
    node = RankMachine.of_node(FIELDS | models | {"cpu.sockets": "-"})
    assert [(gpu["name"], gpu["memory.total"]) for gpu in node.gpus] == [
        ("Tesla V100", "16160"),
        ("NVIDIA A100", "40536"),
    ]
    assert node.processor == "Xeon 5118", "how many there are is not known"


@pytest.mark.parametrize("count", ["9999", "9" * 9, "9" * 5000, "²", "-1", ""])
def test_a_number_that_no_node_has_is_not_taken_for_that_of_its_gpus(count):
    assert RankMachine.of_node(FIELDS | {"gpu.count": count}).gpus == ()

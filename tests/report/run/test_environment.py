"""The section on what a run ran on: nodes of a cluster, also where nothing is known of them."""

from dataclasses import replace

import pytest

from repro.cluster.fingerprint import Fingerprint
from repro.launch.host_environment import capture
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.target import ClusterTarget
from repro.planning.plan import make_plan
from repro.published.cases import load_catalogue
from repro.report.document import Document, markdown
from repro.report.run.environment import environment_section, nodes_section
from repro.utils.i18n import catalogue
from tests.support.attempts import recorded
from tests.support.clusters import V100


@pytest.mark.parametrize(
    ("language", "message"), [("en", "not known: no fingerprint was taken"), ("zh", "未知：未采集节点指纹")]
)
def test_nodes_without_a_fingerprint(language, message):
    environment = ClusterTarget(V100, UploadedCode(), 29500).environment("slurm", [], {})
    section = environment_section(catalogue(language).gettext, environment, {})
    page = markdown(Document(language, "", "", (section,)), None)
    assert message in page
    assert "?" not in page, "no row of what is not known"


CLOCK = {"time.offset_s": 0.0, "time.uncertainty_s": 0.0}


def test_of_a_cluster_the_nodes_come_first_and_of_its_controller_nothing_that_is_taken_for_theirs():
    node = {"system.distribution": "Node OS 7", "system.kernel": "5.4.0", "cpu.model": "Node CPU"}
    node |= {"cpu.sockets": "2", "cpu.cores_per_socket": "8", "cpu.threads_per_core": "2", "memory.total": "503 GiB"}
    node |= {"gpu.count": "8", "gpu.model": "V100", "gpu.driver": "440.33", "gpu.memory": "32768 MiB"}
    nodes = {name: Fingerprint(name, node, CLOCK, None, ()) for name in ("n1", "n2")}
    environment = ClusterTarget(V100, UploadedCode(), 29500).environment("ssh", ["a", "b"], nodes)
    environment = replace(environment, host="head", system="Head OS", kernel="9.9", cpu="Head CPU", memory_mib=12345)
    first, second = environment_section(str, environment, {}).blocks
    rows = {row[0].text: row[1].text for row in first.rows}
    assert rows["Node names"] == "n1, n2" and rows["System"] == "Node OS 7, Linux 5.4.0"
    assert (rows["Processor"], rows["Memory"]) == ("Node CPU, 32", "503 GiB")
    assert (rows["GPU"], rows["Driver"]) == ("16 × V100 (32768 MiB)", "440.33")
    assert "head" in str(second) and "head" not in str(first)
    assert not any(own in f"{first}{second}" for own in ("Head OS", "9.9", "Head CPU", "12345"))


@pytest.mark.parametrize(("language", "count"), [("en", "1 of 2"), ("zh", "1 / 2")])
def test_nodes_of_attempts_that_ran_at_the_same_time(language, count):
    plan = make_plan(load_catalogue().select("bert", "bert_1n1g_bs96,bert_1n1g_bs64"), 32)
    one, two = (unit.name for unit in plan.units)
    beside = [{"attempt": "units/x/repeat-1.attempt-1", "nodes": ["n2"]}]
    attempts = [
        recorded({"unit": one, "nodes": ["n1"], "beside": beside}),
        recorded({"unit": one, "nodes": ["n2"]}),
        recorded({"unit": two, "nodes": ["n2"], "beside": [*beside, *beside]}),
    ]
    (section,) = nodes_section(catalogue(language).gettext, plan, attempts)
    rows = [line for line in markdown(Document(language, "", "", (section,)), None).splitlines() if "bert_" in line]
    assert [each.strip() for each in rows[0].split("|")[1:-1]] == [one, "n1; n2", count, "1"]
    assert [each.strip() for each in rows[1].split("|")[1:-1]][1:] == ["n2", count.replace("2", "1"), "2"]
    assert nodes_section(catalogue(language).gettext, plan, attempts[1:2]) == [], "nothing ran at the same time"


def test_the_image_of_one_machine_is_named_by_its_hash():
    for runtime, known in (
        ({"name": "docker", "version": "Docker 20.10", "image": "a:b", "id": "sha256:1"}, "sha256:1"),
        ({"name": "apptainer", "version": "apptainer 1.4.5", "image": "/a.sif", "sha256": "2f"}, "SHA-256 2f"),
    ):
        section = environment_section(str, replace(capture(), runtime=runtime), {})
        assert f"`{runtime['image']}` {known} ({runtime['version']})" in str(section)

"""The section on what a run ran on: nodes of a cluster, also where nothing is known of them."""

import pytest

from repro.launch.host_environment import capture
from repro.launch.nodes.code_upload import Code
from repro.launch.nodes.target import ClusterTarget
from repro.report.document import Document, markdown
from repro.report.run.environment import environment_section
from repro.utils.i18n import catalogue
from tests.support.clusters import V100


@pytest.mark.parametrize(
    ("language", "message"), [("en", "not known: no fingerprint was taken"), ("zh", "未知：未采集节点指纹")]
)
def test_nodes_without_a_fingerprint(language, message):
    environment = ClusterTarget(V100, Code(), 29500).environment("slurm", [], {})
    section = environment_section(catalogue(language).gettext, {**capture(), **environment}, {})
    page = markdown(Document(language, "", "", (section,)), None)
    assert message in page
    assert "?" not in page, "no row of what is not known"

"""Data on the nodes of a cluster: what DATA may name there, where stand-ins are, and what a node lacks."""

import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.commands import NodeFacts
from repro.launch.nodes.target import ClusterTarget, unreadable_argv
from repro.launch.nodes.work import work_of
from repro.launch.ssh.launcher import SshLauncher, SshSession
from repro.planning.plan import Wanted, make_plan
from repro.planning.program_data import with_data
from repro.published.cases import load_catalogue
from repro.utils.errors import PlanError
from tests.support.clusters import V100
from tests.support.recorded import Recorded


def launcher(**changes) -> SshLauncher:
    return SshLauncher(ClusterTarget(replace(V100, **changes), UploadedCode(), 29500))


@pytest.mark.parametrize(
    ("path", "changes", "message"),
    [
        ("imagenet", {}, "name it as nodes see it"),
        ("/home/alice/imagenet", {}, "containers see only what is in cluster_data, which is '/data/ofrecord' in"),
        ("/data/ofrecords", {}, "containers see only"),
        ("/data/ofrecord/../x", {}, "containers see only"),
        ("/data/ofrecord/imagenet", {"data": ""}, "which is '' in"),
    ],
)
def test_a_path_that_ranks_cannot_see_is_refused(path, changes, message):
    assert message in launcher(**changes).data_refusal(path)


def test_other_paths_are_not():
    assert launcher().data_refusal("/data/ofrecord") is None
    assert launcher().data_refusal("/data/ofrecord/imagenet") is None
    assert launcher(runtime_name="venv", data="").data_refusal("/home/alice/imagenet") is None


def test_each_node_is_told_where_its_stand_ins_are():
    plan = with_data(make_plan(load_catalogue().select("resnet50", "resnet50_0808_1n1g_bs128"), 32))
    work = work_of(V100, UploadedCode(), plan.units[0], False, 29500, "run-1", "repeat-1.attempt-1")
    order = work.order(0, [NodeFacts("10.1.0.1", "1000:1000")])
    assert order["config"]["data"]["folder"] == "/var/lib/w/standins"
    assert order["caches"] == ["/var/lib/w/standins"], "made by the agent, as Docker would make it for root"
    assert "/var/lib/w/standins:/var/lib/w/standins" in order["argv"]


def test_tf32_is_for_the_stack_that_forwards_calls():
    cases = load_catalogue().select("bert", "bert_1n1g_bs96")
    with pytest.raises(
        PlanError, match="PRECISION=tf32 needs GPUs newer than Turing and stack cu102-modern, and cluster_"
    ):
        launcher(stack="cu102").plan(cases, Wanted(precision="tf32"))
    assert launcher(stack="cu102-modern").plan(cases, Wanted(precision="tf32")).tf32


def test_nodes_are_asked_for_files_before_a_run():
    cases = load_catalogue().select("gpt", "DP_1x1x1*,gpt2*")
    plan = with_data(make_plan(cases, 32), ("gpt-3d-2021-05=/data/ofrecord/text",), here=False)
    remotes = {"n1": Recorded({"sh": ""}), "n2": Recorded({"sh": "/data/ofrecord/text.idx\n"})}
    pool = SimpleNamespace(on_each=lambda work: {name: work(remote) for name, remote in remotes.items()})
    session = SshSession(launcher().target, pool, {})
    (line,) = session.missing_data(plan)
    assert line.startswith("n2: there is no /data/ofrecord/text.idx")
    assert len(remotes["n1"].commands) == 1
    assert session.missing_data(with_data(make_plan(cases, 32))) == []


def test_one_command_prints_the_paths_that_a_node_cannot_read(tmp_path):
    (tmp_path / "there").touch()
    paths = [str(tmp_path / name) for name in ("there", "not there", "nor this")]
    printed = subprocess.run(unreadable_argv(paths), capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == paths[1:]

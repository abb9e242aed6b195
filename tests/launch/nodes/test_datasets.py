"""Data that models learn, brought to nodes; and the PyTorch that nodes have for baselines."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.cluster.cluster import BaselinePlace
from repro.cluster.ssh import RemoteError
from repro.launch.base import LaunchSession
from repro.launch.nodes.baselines import probe_argv, versions_on
from repro.launch.nodes.datasets import ABSENT, bring, folder_on_nodes, take_argv
from repro.planning.datasets import Dataset
from repro.planning.loss_curves import make_curve_plan
from repro.utils.errors import PlanError
from repro.utils.paths import sha256_of
from tests.support.clusters import V100
from tests.support.recorded import Recorded


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for name in ("text.bin", "text.idx"):
        (folder / name).write_text(name)
    sums = {name: sha256_of(name.encode()) for name in ("text.bin", "text.idx")}
    return Dataset(folder, {"kind": "text", "sha256": sums})


class Node(Recorded):
    """A node that takes files; those in `altered` do not arrive as they were sent."""

    def __init__(self, cluster=V100, altered=(), there=False):
        self.cluster, self.node, self.files = cluster, cluster.nodes[0], {}
        self._altered = altered
        super().__init__({"test -f": (0 if there else 1, ""), "mkdir": "", "sh -c": "", "sha256sum": "", "mv": ""})

    def put(self, local, remote):
        self.files[remote] = "x" if local.name in self._altered else local.read_text()
        self.answers["sha256sum"] = "".join(f"{sha256_of(each.encode())}  -\n" for each in self.files.values())


def test_data_is_copied_and_checked_once(text):
    node = Node()
    bring(node, text)
    folder = folder_on_nodes(V100, text)
    assert folder.startswith("/var/lib/w/standins/datasets/text-"), "where containers see it"
    own = f"{folder}/n1-"
    assert node.files == {f"{own}text.bin": "text.bin", f"{own}text.idx": "text.idx"}, "nodes may share the folder"
    moved = [f"mv -- {own}{name} {folder}/{name}" for name in ("text.bin", "text.idx", "facts.json")]
    assert node.commands[-3:] == moved, "the last says that it is whole"
    there = Node(there=True)
    bring(there, text)
    assert there.files == {}


def test_data_that_arrives_altered_is_refused(text):
    node = Node(altered=("text.idx",))
    with pytest.raises(RemoteError, match=r"text\.idx arrived altered"):
        bring(node, text)
    assert not any(command.startswith("sh -c") for command in node.commands)


@pytest.fixture
def taken(text, tmp_path):
    """Lets a node whose work folder is here take the text from a folder; the completed process."""
    cluster = replace(V100, work=f"{tmp_path}/work folder")

    def take(source):
        return subprocess.run(take_argv(cluster, text, str(source)), capture_output=True, text=True)

    take.folder = Path(folder_on_nodes(cluster, text))
    return take


def test_a_node_takes_data_from_a_folder_of_its_own_once(text, taken, tmp_path):
    assert taken(tmp_path / "nowhere").returncode == ABSENT
    assert not taken.folder.exists()
    (text.folder / "facts.json").write_text(json.dumps(text.facts))
    assert taken(text.folder).returncode == 0
    names = {"facts.json", "text.bin", "text.idx"}
    assert {path.name: path.read_text() for path in taken.folder.iterdir()} == {
        name: (text.folder / name).read_text() for name in names
    }
    assert taken(tmp_path / "nowhere").returncode == 0, "what it has it does not look for"


def test_a_node_takes_no_data_that_is_not_what_was_sent(text, taken):
    (text.folder / "facts.json").write_text(json.dumps(text.facts))
    (text.folder / "text.idx").write_text("x")
    done = taken(text.folder)
    assert done.returncode not in (0, ABSENT)
    assert "text.idx: FAILED" in done.stdout + done.stderr
    assert list(taken.folder.iterdir()) == []


def test_other_contents_have_another_folder(text):
    other = Dataset(text.folder, {**text.facts, "sha256": {**text.facts["sha256"], "text.bin": "0" * 64}})
    assert folder_on_nodes(V100, text) != folder_on_nodes(V100, other)


def test_a_plan_reads_the_data_of_its_models_alone(text):
    folder = folder_on_nodes(V100, text)
    there = replace(text, folder=type(text.folder)(folder))
    for model, expected in (("gpt", True), ("bert", False)):
        units = make_curve_plan(32, there.data, model=model).units
        assert {unit.config.data.is_in(folder) for unit in units} == {expected}
    assert not replace(there.data, prefix=f"{folder}-other/text").is_in(folder)


def test_where_nothing_brings_data_that_is_said(text):
    with pytest.raises(PlanError, match=r"nothing brings the data sets of this machine \(text\) to the nodes"):
        LaunchSession.bring(SimpleNamespace(), None, [text])
    LaunchSession.bring(SimpleNamespace(), None, [])


IN_IMAGE = replace(V100, baseline=BaselinePlace("/opt/conda/bin/python", "pytorch:1"))
FOUND = {"torch": "2.4.0", "cuda": "12.4", "gpus": 8}


def test_pytorch_is_asked_in_its_image():
    node = Node(IN_IMAGE)
    node.answers = {"docker run --rm": json.dumps(FOUND)}
    assert versions_on(node, "7:8") == FOUND
    argv = probe_argv(IN_IMAGE, "7:8", "a-name")
    assert argv[-5:-2] == ["pytorch:1", "/opt/conda/bin/python", "-E"]
    venv = replace(V100, baseline=BaselinePlace("/opt/pytorch/bin/python"), runtime_name="venv")
    assert probe_argv(venv, "7:8", "a-name")[:2] == ["env", "/opt/pytorch/bin/python"]
    sif = replace(V100, baseline=BaselinePlace("/opt/pytorch/bin/python", "/x.sif"), runtime_name="apptainer")
    assert {"--nv", "/x.sif"} <= set(probe_argv(sif, "7:8", "a-name"))


def test_the_container_that_is_asked_has_the_name_and_limits_of_all_others():
    """So that it can be found and removed, and passes no privilege on."""
    given = " ".join(probe_argv(IN_IMAGE, "7:8", "a-name"))
    assert re.search(r"--init --name reproduction-[0-9a-f]+-a-name ", given), (
        "as a job's sweep finds those with its token"
    )
    for words in (
        "--cap-drop ALL --security-opt no-new-privileges --user 7:8",
        "--label reproduction.run=the versions of PyTorch --label reproduction.user=7 --label reproduction.work=/var/lib/w",
    ):
        assert words in given


def test_a_container_that_does_not_answer_is_removed(monkeypatch):
    node = Node(IN_IMAGE)
    answer = node.run

    def run(argv, **options):
        done = answer(argv, **options)
        if argv[:2] == ["docker", "run"]:
            raise RemoteError("n1", "took longer than 60 s")
        return done

    node.run = run
    with pytest.raises(RemoteError, match="took longer"):
        versions_on(node, "7:8")
    started, removed = node.commands
    (name,) = re.findall(r"--name (\S+)", started)
    assert removed == f"docker rm --force --volumes {name}"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (125, "docker: Error: No such image: pytorch:1"),
            "n1: the baselines cannot run: docker: Error: No such image",
        ),
        (json.dumps({**FOUND, "gpus": 2}), "n1: PyTorch 2.4.0 sees 2 of the 8 GPUs"),
    ],
)
def test_a_node_without_it_is_named_with_the_variable(answer, message):
    node = Node(IN_IMAGE)
    node.answers = {"docker run --rm": answer}
    with pytest.raises(RemoteError) as error:
        versions_on(node, "7:8")
    assert str(error.value).startswith(message) and "cluster_baseline in" in str(error.value)

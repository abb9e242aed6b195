"""Engines as nodes have them: Docker with either store of images, and Podman under its name, by their recorded answers."""

import json
import subprocess
from dataclasses import replace

import pytest

from repro.cluster.cluster import Image
from repro.cluster.node_fields import images_of
from repro.launch.agent import node as agent
from repro.launch.nodes.commands import Share, node_argv
from repro.launch.nodes.node_check import check_order, host_of, problems
from tests.support.clusters import NODES, V100
from tests.support.paths import ROOT

RECORDED = {path.stem: json.loads(path.read_text()) for path in (ROOT / "tests/data/engines").glob("*.json")}
NAME = "oneflow-reproduction:cu102"
FACTS = {
    "writable": True,
    "read_only": False,
    "free_mib": 10_000,
    "address": "10.0.0.1",
    "user": "1000:1000",
    "port_free": True,
    "infiniband": ["/dev/infiniband/uverbs0"],
    "launcher": "",
    "libraries": [],
    "gpus": [],
    "compiler": True,
    "cpus": [],
    "numa": [],
}


@pytest.fixture(params=sorted(RECORDED))
def engine(request, monkeypatch):
    """An engine with the image of the name, which has its recorded `id` and `manifest`."""
    recorded = RECORDED[request.param]

    def docker(*arguments):
        done = recorded["commands"][" ".join(arguments)]
        return subprocess.CompletedProcess(arguments, done["status"], done["stdout"], done["stderr"])

    monkeypatch.setattr(agent, "docker", docker)
    return recorded


def asked(cluster) -> dict:
    """A node's facts once its engine was asked what a run on the cluster asks."""
    return FACTS | {"images": agent.image_ids(check_order(cluster, 29500)["images"])}


def pinned(digest: str = "", manifest: str = "", name: str = NAME):
    return replace(V100, image=Image(name, digest, manifest=manifest))


def test_the_image_is_accepted_and_run_by_what_the_engine_knows_it_by(engine):
    cluster = pinned(engine["id"], engine["manifest"])
    facts = asked(cluster)
    assert problems(cluster, NODES[0], facts, 0.0, 29500) == []
    share = Share(0, 1, 8, "10.0.0.1", 29500, "/w/run", "/w/repro/trainers")
    argv = node_argv(cluster, host_of(NODES[0], facts), share, "cpu", {}, "c", {})
    (known,) = (word for word in argv if word in cluster.image.ids)
    assert agent.image_ids([known])["found"][known] == known


def test_either_digest_may_be_the_only_one(engine):
    known = agent.image_ids([NAME])["found"][NAME]
    assert known in (engine["id"], engine["manifest"])
    for cluster in (pinned(known), pinned(manifest=known), pinned()):
        assert problems(cluster, NODES[0], asked(cluster), 0.0, 29500) == []


def test_the_digest_that_an_engine_does_not_know_is_told_of_the_other(engine):
    known = agent.image_ids([NAME])["found"][NAME]
    (other,) = {engine["id"], engine["manifest"]} - {known}
    (problem,) = problems(pinned(other), NODES[0], asked(pinned(other)), 0.0, 29500)
    assert f"is {known} there, and the inventory asks for {other}" in problem and "cluster_image.manifest" in problem


def test_an_image_that_is_not_there_is_no_failure_of_the_engine(engine):
    cluster = pinned(name="nothing:here")
    (problem,) = problems(cluster, NODES[0], asked(cluster), 0.0, 29500)
    assert problem.startswith("n1: it has no image nothing:here")


def test_a_fingerprint_has_the_image_by_its_plain_name(engine):
    listed = engine["commands"]["images --no-trunc --format {{.Repository}}:{{.Tag}} {{.ID}}"]["stdout"]
    found = images_of({"commands": {"docker images": {"output": listed}}})
    assert found == {NAME: agent.image_ids([NAME])["found"][NAME]}

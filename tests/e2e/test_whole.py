"""All together, as a reviewer does it: bare nodes are provisioned, checked, and run cases across the network."""

import csv
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro.cluster.inventory import inventory_names
from repro.images.stack import tag_of
from repro.preflight.gpu import CHECKS as GPU
from repro.preflight.network import CHECKS as NETWORK
from repro.preflight.node import CHECKS as NODE
from repro.simulation.engine import exclusive
from repro.simulation.images import STACK, trainer_image
from repro.simulation.nodes import attach
from tests.e2e.launching import prepare
from tests.e2e.provisioned import kept_name
from tests.support import tasks
from tests.support.runs import attempts
from tests.support.simulated import containers_asked_for

NEEDED = ("clock", "port", "link", "names", "ssh", "container", "bandwidth")
"""The checks that a run over several nodes hangs on."""


@dataclass
class Site:
    """A cluster's name or inventory, and the folder that its runs are kept in."""

    cluster: str | Path
    runs: Path

    def make(self, target: str, **settings) -> subprocess.CompletedProcess:
        """Run what `make TARGET` runs, on this cluster where the target takes one; it has to succeed."""
        own = {"CLUSTER": self.cluster, "RUNS": self.runs}
        done = tasks.run(target, **{name: own[name] for name in own if tasks.has(target, name)}, **settings)
        print(done.stdout, done.stderr)
        assert done.returncode == 0, f"{target}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def bench(self, cases: str) -> Path:
        """Run cases once at smoke scale; the folder of the run."""
        done = self.make("bench", CASES=cases, SCALE="smoke", REPEATS="1")
        (report,) = (line for line in done.stdout.splitlines() if line.endswith("report.en.md"))
        return Path(report).parent

    def check_preflight(self, **settings) -> None:
        """No check failed, and NEEDED were made and are in order."""
        self.make("preflight", **settings)
        (kept,) = self.runs.glob("preflight-*/preflight.json")
        results = {}
        for finding in json.loads(kept.read_text())["findings"]:
            results.setdefault(finding["check"], set()).add(finding["result"])
        for check in NEEDED:
            assert results[check] == {"ok"}, (check, results[check])


def check_run(folder: Path, units: dict[str, int], nodes) -> None:
    """Every unit (name -> ranks) ran on as many nodes as it could, and both reports say that its losses are right."""
    rows = {row["unit"]: row for row in csv.DictReader((folder / "results.csv").open())}
    assert {name: int(rows[name]["world_size"]) for name in units if name in rows} == units
    run = json.loads((folder / "run.json").read_text())
    assert run["environment"]["cluster"]["hosts"] == nodes.names
    assert [attempt for attempt in attempts(folder) if attempt["failure"]] == []
    started = {node: [" ".join(asked["args"]) for asked in containers_asked_for(nodes, node)] for node in nodes.names}
    for name, ranks in units.items():
        places = [node for node, lines in started.items() if any(f"/{name}-" in line for line in lines)]
        assert len(places) == min(ranks, nodes.count), (name, places)
    for language, holds in (("en", "yes"), ("zh", "是")):
        lines = (folder / f"report.{language}.md").read_text().splitlines()
        parity = {line.split("|")[1].strip() for line in lines if line.endswith(f"| {holds} |")}
        assert units.keys() <= parity, (language, parity)


def test_make_sim_brings_up_nodes_and_takes_them_down(two_nodes, tmp_path):
    """As its own commands show it; other nodes of the same engine stay when these go."""
    site = Site(f"whole-{os.getpid()}", tmp_path)
    try:
        site.make("sim", NODES=2, NAME=site.cluster)
        nodes = attach(site.cluster)
        assert [nodes.ssh(node, "hostname").stdout.strip() for node in nodes.names] == nodes.names
        assert site.cluster in inventory_names()
    finally:
        site.make("sim-down", NAME=site.cluster)
    assert site.cluster not in inventory_names() and two_nodes.name in two_nodes.engine.clusters()
    assert {two_nodes.ssh(node, "true").returncode for node in two_nodes.names} == {0}


def test_provisioned_nodes_train(provisioned_nodes, tmp_path):
    """They start from disks that test_provision.py kept, or from bare ones: the real OneFlow, two ranks on each.

    Kernels and the all-reduce, which train, are checked on them in test_reproduce.py.
    """
    assert provisioned_nodes.disks in ("", kept_name(provisioned_nodes.engine))
    site = Site(prepare(provisioned_nodes, tmp_path), tmp_path / "runs")
    site.check_preflight(ONLY=",".join(check.name for check in (*GPU, *NODE, *NETWORK)))
    run = site.bench("MP_1x8x1_16_1536x16")
    check_run(run, {"smoke_gpt-3d-2021-05_1x4x1_recompute": 4}, provisioned_nodes)
    (across,) = (each for each in attempts(run) if len(each["nodes"]) == 2)
    starts = [json.loads((run / across["folder"] / f"metrics-rank{rank}.jsonl").open().readline()) for rank in range(4)]
    assert [start["host"] for start in starts] == ["node1", "node1", "node2", "node2"]
    assert {start["versions"]["oneflow"] for start in starts} == {"0.8.0"}
    site.make("verify", RUN=run.name)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_four_bare_nodes_get_the_image_and_train_every_model_and_layout(make_nodes, tmp_path, simulation):
    with exclusive():
        digest = trainer_image(simulation)
    simulation.docker("save", "--output", tmp_path / "image.tar", tag_of(STACK))
    nodes = make_nodes("four", 4, kind="bare")
    image = {"name": tag_of(STACK), "digest": digest, "registry": "", "archive": str(tmp_path / "image.tar")}
    site = Site(nodes.write_inventory(cluster_gpus_per_node=1, cluster_image=image), tmp_path)
    site.make("provision")
    site.check_preflight()
    run = site.bench(
        "DP_8x1x1_16_1536x16 MP_1x8x1_16_1536x16 2D_2x4x1_16_1536x16 DP_PP_8x1x4_512_1536x16 "
        "MP_PP_1x8x4_512_2304x24 bert_2n8g_bs24 resnet50_0808_2n8g_bs128"
    )
    layouts = ("4x1x1", "1x4x1", "2x2x1", "2x1x2_acc2", "1x2x2_acc2")
    units = {f"smoke_gpt-3d-2021-05_{layout}_recompute": 4 for layout in layouts}
    units |= {"smoke_bert-2020-08-22_4x1x1": 4, "smoke_resnet50-2020-08-08_4x1x1": 4}
    check_run(run, units, nodes)
    site.make("verify", RUN=run.name)
    nodes.down()

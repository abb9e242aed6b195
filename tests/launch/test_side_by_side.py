"""Attempts side by side on the nodes of a cluster: each on nodes of its own, recorded with what ran beside it."""

import io
import threading
import time
from dataclasses import replace

import pytest

from repro.launch.attempt import Outcome
from repro.launch.nodes.places import NodePlaces
from repro.launch.progress import Progress
from repro.launch.runner import Bench
from repro.planning.plan import Wanted, make_plan
from repro.planning.schedule import Block, drawn
from repro.published.cases import load_catalogue
from repro.runs.failures import Failure
from repro.runs.plan import Plan
from repro.runs.record import Run
from tests.support.clusters import NODES, V100
from tests.support.synthetic import described

CASES = load_catalogue()


class Cluster:
    """Attempts that hold their nodes for a moment, and notice if somebody else holds one."""

    def __init__(self, seconds=0.02, broken=()):
        self.seconds, self.broken = seconds, set(broken)
        self.lock, self.held, self.log = threading.Lock(), {}, []

    def __call__(self, unit, folder):
        return Attempt(self, unit, ())


class Attempt:
    def __init__(self, cluster, unit, nodes):
        self.cluster, self.unit, self.nodes = cluster, unit, nodes

    def on(self, names):
        return Attempt(self.cluster, self.unit, names)

    def run(self, on_event, stop):
        cluster = self.cluster
        with cluster.lock:
            assert not cluster.held.keys() & set(self.nodes), "two attempts on a node"
            assert len(self.nodes) == 1 or all(len(names) == 1 for names in cluster.held.values()), "two on the network"
            cluster.held |= dict.fromkeys(self.nodes, self.nodes)
            cluster.log.append((self.unit.name, self.nodes))
        time.sleep(cluster.seconds)
        with cluster.lock:
            for name in self.nodes:
                del cluster.held[name]
        broken = cluster.broken & set(self.nodes)
        return Outcome(Failure(f"{sorted(broken)[0]} is broken" if broken else "it is only a test"), 0.0)


def bench(tmp_path, units, repeats, cluster, retries=0, lost=()):
    plan = Plan("published", "cpu", repeats, tuple(units))
    run = Run.create("test", described(plan), tmp_path / "runs")
    places = NodePlaces(V100, False, lost.__contains__)
    return Bench(run, plan, Progress(io.StringIO()), cluster, retries, places)


def units(*names):
    cases = [CASES.case(name) for name in names] if names else CASES.cases
    return make_plan(cases, 32).units


def test_all_published_cases_run_each_on_nodes_of_its_own(tmp_path):
    cluster = Cluster()
    ended = bench(tmp_path, units(), 2, cluster).run_all()
    assert len(ended) == len(cluster.log) == 2 * 57
    by_folder = {attempt.folder: attempt for attempt in ended}
    needed = {unit.name: -(-unit.world_size // 8) for unit in units()}
    for attempt in ended:
        assert len(attempt.nodes) == needed[attempt.unit]
        for other in attempt.beside:
            assert other.nodes == by_folder[other.attempt].nodes
            assert not set(other.nodes) & set(attempt.nodes)
            assert attempt.folder in [each.attempt for each in by_folder[other.attempt].beside]
    assert any(len(attempt.beside) >= 3 for attempt in ended), "one on each node"
    assert not any("beside" in attempt.recorded for attempt in ended if len(attempt.nodes) == 4)


def test_a_program_and_what_is_measured_against_it_follow_each_other_on_the_same_nodes(tmp_path):
    chosen = [CASES.case(name) for name in ("bert_1n1g_bs96", "bert_1n8g_bs96", "DP_1x1x1_2_1536x16")]
    plan = make_plan(chosen, 32, Wanted(programs=("published", "tuned")))
    measured = bench(tmp_path, plan.units, 3, Cluster())
    ended, run = measured.run_all(), measured.run.folder.name
    by_turn = {(attempt.unit, attempt.repeat): attempt for attempt in ended}
    for unit in plan.units:
        for repeat in range(1, 4) if unit.follows else ():
            names = drawn([unit.follows, unit.name], Block(unit.follows, repeat), run)
            first, second = (by_turn[name, repeat] for name in names)
            assert first.nodes == second.nodes
            beside = [other.attempt for other in second.beside]
            assert first.folder not in beside and second.started >= first.started
            between = [
                attempt
                for attempt in ended
                if attempt.nodes == first.nodes and first.started < attempt.started < second.started
            ]
            assert between == []


def test_a_failure_stops_nobody_else_and_is_tried_again_in_its_place(tmp_path):
    cluster = Cluster()
    ended = bench(tmp_path, units("bert_1n1g_bs96", "bert_2n8g_bs96"), 1, cluster, retries=2).run_all()
    assert sorted(each.unit for each in ended) == ["bert_1n1g_bs96"] * 3 + ["bert_2n8g_bs96"] * 3
    assert len({each.nodes for each in ended}) == 2


def test_a_lost_node_does_not_fail_one_attempt_after_another(tmp_path):
    cluster = Cluster(broken=("n2",))
    chosen = units("bert_1n1g_bs96", "bert_1n1g_bs64", "bert_1n1g_bs32", "bert_4n8g_bs96")
    ended = bench(tmp_path, chosen, 1, cluster, lost=("n2",)).run_all()
    assert {each.unit for each in ended if "n2" in each.nodes} == {"bert_4n8g_bs96"}


def test_the_longest_start_first_as_far_as_the_model_knows():
    places, chosen = NodePlaces(V100, False), {unit.name: unit for unit in units()}
    long, short = (places.block(chosen[name], 1) for name in ("gpt2_small_1n8g_bs4_zero0", "bert_1n1g_bs24"))
    assert long.nodes == short.nodes == 1 and long.seconds > short.seconds > 0
    unknown = NodePlaces(replace(V100, gpu="a GPU of tomorrow"), False)
    assert unknown.block(chosen["bert_1n1g_bs24"], 2) == Block("bert_1n1g_bs24", 2, 1, 0.0)


@pytest.mark.parametrize(("spread", "nodes"), [(False, 1), (True, 2)])
def test_smoke_runs_take_as_many_nodes_as_they_can(spread, nodes):
    assert len(NodePlaces(replace(V100, nodes=NODES[:2]), spread).take(4)) == nodes

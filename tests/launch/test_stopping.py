"""A bench that is planned with looks: which repeats it leaves out, and what it records and says of that."""

import io
import json
import time

import pytest

from repro.launch import runner
from repro.launch.attempt import Outcome
from repro.launch.progress import Progress
from repro.launch.runner import Bench, remaining
from repro.planning.plan import MOST_REPEATS, Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.run.page import render
from repro.runs.metrics import METRICS
from repro.runs.record import Run
from tests.support import raw_output
from tests.support.synthetic import CODE, SIX, VERSIONS, described, ran_on

SINGLE, OTHER = "DP_1x1x1_2_1536x16", "MP_1x1x1_8_768x12"


class Trained:
    """An attempt on the published GPU, at a ratio to the published throughput; its loss falls."""

    def __init__(self, unit, folder, speed):
        self.unit, self.folder, self.speed = unit, folder, speed

    def run(self, on_event, stop):
        def start(rank):
            return {"host": "node1", "device": "cuda", "versions": VERSIONS}

        raw_output.write(self.folder, self.unit, self.speed, time.time(), start)
        for line in (self.folder / METRICS.format(0)).read_text().splitlines():
            on_event({"rank": 0, **json.loads(line)})
        return Outcome(None, 1.0)


def bench(tmp_path, monkeypatch, ratios, gpu=None):
    """A bench of two cases whose repeats have these ratios to the published throughput, by case."""
    cases = load_catalogue().select("gpt", f"{SINGLE},{OTHER}")
    published = {case.name: float(case.published.throughput) for case in cases}
    plan = make_plan(cases, 1)
    run = Run.create("test", described(plan, environment=ran_on(gpu)), tmp_path / "runs")

    def attempt_of(unit, folder):
        repeat = int(folder.name.removeprefix("repeat-").partition(".")[0])
        return Trained(unit, folder, ratios[unit.name][repeat - 1] * published[unit.name])

    monkeypatch.setattr(runner, "program_code", lambda folder, program, replaced, model: CODE)
    said = io.StringIO()
    attempts = Bench(run, plan, Progress(said), attempt_of).run_all()
    return run, plan, attempts, said.getvalue()


def test_a_case_stops_when_it_is_decided_and_others_go_on(tmp_path, monkeypatch):
    outlier = (*SIX[:5], 1.03, *SIX[:5], 1.0003)
    run, plan, attempts, said = bench(tmp_path, monkeypatch, {SINGLE: SIX, OTHER: outlier})
    assert plan.repeats == MOST_REPEATS and [look.repeats for look in plan.looks] == [6, 12]
    assert run.description().plan == plan, "the rule is in the run's record"
    repeats = {name: [each for each in attempts if each.unit == name] for name in (SINGLE, OTHER)}
    assert [len(each) for each in repeats.values()] == [6, 12]
    assert [each[-1].enough for each in repeats.values()] == ["decided", "decided"]
    assert "6 further repeats are not needed" in said and "24 runs at most" in said
    assert not [*remaining(plan, attempts)]
    rendered = render(run)
    assert rendered.status == 0 and rendered.judgement.counts["reproduced"] == 2
    assert not rendered.findings.problems, "repeats that were left out did not fail"


def test_a_run_goes_on_with_what_is_undecided_alone(tmp_path, monkeypatch):
    _, plan, attempts, _ = bench(tmp_path, monkeypatch, {SINGLE: SIX, OTHER: (*SIX[:5], 1.03, *SIX[:5], 1.0003)})
    first = [attempt for attempt in attempts if attempt.repeat <= 8]
    assert {(unit.name, repeat) for unit, repeat in remaining(plan, first)} == {(OTHER, n) for n in (9, 10, 11, 12)}


@pytest.mark.parametrize(
    ("ratios", "gpu", "why"),
    [([1.0109, *SIX[:5]], {"name": "NVIDIA H200"}, "no verdict"), ([1.02, 1.021, *SIX[:4]], None, "undecidable")],
)
def test_a_case_that_can_have_no_verdict_stops_at_the_first_look(tmp_path, monkeypatch, ratios, gpu, why):
    _, _, attempts, _ = bench(tmp_path, monkeypatch, {SINGLE: ratios, OTHER: ratios}, gpu)
    assert len(attempts) == 12 and {attempts[-1].enough, attempts[-2].enough} == {why}


def test_a_number_of_repeats_that_is_asked_for_is_run(tmp_path):
    assert make_plan(load_catalogue().select("gpt", SINGLE), 1, Wanted(repeats=7)).looks == ()

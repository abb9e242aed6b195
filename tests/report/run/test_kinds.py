"""The kinds of run: a kind of a test's own goes from its plan to a report in both languages, with one registration."""

from dataclasses import dataclass, replace

import pytest

from repro.analysis.compare_runs import compare
from repro.planning.plan import Wanted, make_plan
from repro.planning.profiling import as_profile
from repro.published.cases import load_catalogue
from repro.report.charts.figure import FigureSpec
from repro.report.charts.lines import LineChart, Series
from repro.report.document import Cell, Column, Section, Table, Text
from repro.report.host.run import KeptRun
from repro.report.run.kinds import OWN, Kind, find, kind_of, names, register, registered
from repro.report.run.page import render
from repro.runs.attempts import AttemptRecord
from repro.runs.plan import REDUCED, SMOKE, Plan
from repro.runs.record import Run
from repro.utils.errors import PlanError
from tests.support.attempts import recorded
from tests.support.synthetic import described, published_run, ran_on

CASE = "bert_1n1g_bs96"


@dataclass(frozen=True)
class Falls:
    """The last loss of each configuration over its first."""

    shares: dict[str, float]

    @property
    def problems(self) -> list[str]:
        return [f"{name}: its loss does not fall" for name, share in self.shares.items() if share >= 1]

    def summary(self) -> str:
        return f"{len(self.shares) - len(self.problems)} of {len(self.shares)} losses fall"


def analyse(run: Run, plan: Plan, attempts: list[AttemptRecord], results: list) -> Falls:
    return Falls({each.unit: each.losses[-1] / each.losses[0] for each in attempts})


def sections(_, data) -> list[Section]:
    rows = tuple((Cell(name), Cell(f"{share:.2f}")) for name, share in data.findings.shares.items())
    return [Section("falls", "Falling losses", (Table("falls", (Column("Configuration"), Column("Left")), rows),))]


def figures(data, folder) -> list[FigureSpec]:
    points = tuple(enumerate(data.attempts[0].losses, 1))
    chart = LineChart("Loss", "nats", "iteration", (Series("loss", points),))
    return [FigureSpec("falls", lambda _: chart, lambda _: "The first attempt.")]


@pytest.fixture
def falling():
    closing = [Section("falls-source", "Where this is from", (Text("A test."),))]
    yield register(
        Kind("falling", "falling: whether losses fall", analyse, sections, figures, "falls", lambda _, data: closing)
    )
    del registered["falling"]


def planned(kind: str) -> Plan:
    plan = make_plan(load_catalogue().select(None, CASE), 0, Wanted(scale=SMOKE, repeats=1))
    units = tuple(replace(unit, stands_for=(), reference=None) for unit in plan.units)
    return replace(plan, scale=REDUCED, units=units, kind=kind)


def run_of(plan: Plan, folder, losses) -> Run:
    """A run of the plan whose attempts all had these losses."""
    description = described(plan, created=1.79e9, command="make falling", environment=ran_on(count=0))
    run = Run.create(f"bert-{plan.label}", description, folder)
    for unit in plan.units:
        where = run.attempt_folder(unit.name, 1).relative_to(run.folder)
        content = {"unit": unit.name, "wall_s": 2.0, "trainer_s": 1.0, "folder": str(where), "losses": losses}
        run.add_attempt(recorded(content, throughput=10.0))
    return run


def test_a_kind_goes_from_its_plan_to_its_report(falling, tmp_path):
    run = run_of(planned("falling"), tmp_path, [4.0, 2.0, 1.0])
    assert run.id.endswith("bert-falling")
    rendered = render(run, figures=True)
    assert (rendered.kind, rendered.status, rendered.summary()) == (falling, 0, "1 of 1 losses fall")
    for language, outcome in (("en", "Kind of run"), ("zh", "运行类型")):
        text = (run.folder / f"report.{language}.md").read_text(encoding="utf-8")
        assert f"| {outcome} | falling: whether losses fall |" in text
        order = [text.index(part) for part in ("## Falling losses", f"falls.{language}.svg", "## Where this is from")]
        assert order == sorted(order)
        assert "## Verdicts" not in text
    assert (run.folder / "figures" / "falls.en.svg").is_file()


def test_its_problems_decide_the_status_of_its_report(falling, tmp_path):
    rendered = render(run_of(planned("falling"), tmp_path, [1.0, 2.0]), figures=False)
    assert rendered.status == 1
    assert rendered.findings.problems == ["smoke_bert-2020-08-22_1x1x1: its loss does not fall"]
    assert rendered.summary() == "0 of 1 losses fall"


def test_two_kinds_of_one_name_are_refused(falling):
    with pytest.raises(ValueError, match="falling already"):
        register(replace(falling, title="another"))


def test_a_run_of_a_kind_that_is_not_known_is_refused(tmp_path):
    with pytest.raises(
        PlanError, match=r"of the kind falling, .* known: bench, rehearsal, curves, convergence, profile"
    ):
        render(run_of(planned("falling"), tmp_path, [2.0, 1.0]))


def test_a_bench_is_named_by_its_scale_and_judged_by_its_verdicts(tmp_path):
    run = published_run(tmp_path, [CASE])
    rendered = render(run, figures=False)
    assert rendered.kind.judges_speed and rendered.findings.problems == []
    assert rendered.findings.summary() == "1 of 1 configurations succeeded in every repeat"
    assert (rendered.status, rendered.summary()) == (rendered.judgement.status, rendered.judgement.summary())
    assert run.description().plan.label == "full"


def test_only_a_bench_at_the_published_scale_measures_speed():
    def measures_speed(plan: Plan) -> bool:
        return KeptRun(None, described(plan), [], [], None, {}, None, {}, None).measures_speed

    cases = load_catalogue().select(None, CASE)
    plans = [make_plan(cases, 1), make_plan(cases, 0), as_profile(make_plan(cases, 1))]
    assert [(plan.label, plan.scale, measures_speed(plan)) for plan in plans] == [
        ("full", "published", True),
        ("smoke", "smoke", False),
        ("profile", "published", False),
    ]


def test_attempts_run_side_by_side_where_speed_is_not_judged():
    kinds = {name: find(name) for name in names()}
    assert [name for name, kind in kinds.items() if kind.side_by_side] == ["rehearsal", "curves", "convergence"]
    assert not any(kind.side_by_side and kind.judges_speed for kind in kinds.values())
    assert [kind.name for kind in kinds.values()] == list(OWN)


def test_only_speeds_of_benches_are_compared(falling, tmp_path):
    runs = [run_of(planned("falling"), tmp_path, [2.0, 1.0]) for _ in range(2)]
    assert kind_of(runs[0].description().plan) is falling
    with pytest.raises(PlanError, match="is a falling run: only runs of make bench"):
        compare(*runs)


def test_a_run_of_another_kind_is_no_bench_to_go_on_with(task, tmp_path):
    run = run_of(planned("curves"), tmp_path / "runs", [2.0, 1.0])
    done = task("bench", RUN=run.id)
    assert (done.returncode, done.stderr) == (2, f"RUN={run.id} is no run of make bench\n")

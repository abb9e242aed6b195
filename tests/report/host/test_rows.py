"""Rows over runs: which runs a row has, which of them count, and what the row's figure and interval are."""

import json
import math
from dataclasses import replace

import pytest

from repro.analysis.cross_hardware import comparisons
from repro.analysis.results import summarise
from repro.models.programs import KINDS
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.host import measured
from repro.report.host.goals import decided
from repro.report.host.keep import keep
from repro.report.host.results import load
from repro.report.host.rows import MET, MISSED, OLD, OPEN, configuration, rows
from repro.runs.digests import REPRODUCED
from repro.runs.record import Run
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.stats import TooFew
from tests.support.configs import configured
from tests.support.kept import bench_run, faster
from tests.support.pages import cells

DAY = 86400
ONE_GPU = "DP_1x1x1_2_1536x16"
CATALOGUE = load_catalogue()
ENGLISH = catalogue("en").gettext


def again(kept, number, factor=1.0, commit="", code=None):
    """A later run of the same plan, in which OneFlow was this much faster; `commit` and `code` are those of programs."""
    run = replace_id(kept.run, f"run-{number}")
    environment = kept.environment
    if commit:
        environment = replace(environment, git_commit=commit, git_changed_files=0)
    attempts = [
        faster(replace(each, code={"sha256": code} if code else each.code), 1.0 if "pytorch" in each.unit else factor)
        for each in kept.attempts
    ]
    created = kept.description.created + number * DAY
    described = replace(kept.description, environment=environment, created=created)
    results = summarise(kept.plan, attempts)
    return replace(kept, run=run, description=described, attempts=attempts, results=results)


def replace_id(run, name):
    """A run of another id, with nothing else of it."""

    class Renamed:
        id = name
        files = run.files
        path = run.path

    return Renamed()


def over(host, *runs):
    """The host with these runs."""
    return replace(host, runs=tuple(runs))


def row_of(host, name=ONE_GPU):
    return next(row for row in host.ratios if row.unit.name == name)


@pytest.fixture
def kept(host):
    return host.runs[0]


def test_runs_of_equal_code_are_one_row(host, kept):
    runs = [again(kept, n, factor, code="a") for n, factor in enumerate((1.0, 1.02, 0.97), 1)]
    found = over(host, *runs)
    assert len(found.ratios) == len(host.ratios)
    row = row_of(found)
    assert [each.run.id for each in row.runs] == ["run-1", "run-2", "run-3"] and row.superseded == ()
    assert row.ratio.value == pytest.approx(0.9 * (1.02 * 0.97) ** (1 / 3), rel=1e-3)
    interval = row.ratio.interval
    logs = [math.log(each.ratio.value) for each in row.measurements]
    mean = math.fsum(logs) / 3
    half = 4.302653 * math.sqrt(math.fsum((each - mean) ** 2 for each in logs) / 2 / 3)
    assert (interval.low, interval.high) == pytest.approx((math.exp(mean - half), math.exp(mean + half)))
    assert interval.confidence == 0.95


def test_repeats_within_a_run_do_not_narrow_the_interval_over_sessions(host, kept):
    """Two sessions far apart, each of them with six repeats that hardly differ: the interval holds both."""
    row = row_of(over(host, again(kept, 1, 0.95, code="a"), again(kept, 2, 1.0, code="a")))
    within = [each.ratio.interval for each in row.measurements]
    assert within[0].high < within[1].low
    assert row.ratio.interval.low < within[0].low and row.ratio.interval.high > within[1].high
    assert row.status == OPEN


@pytest.mark.parametrize(
    ("factors", "status"),
    [((1.0,), OPEN), ((0.8,), OPEN), ((1.2, 1.2005, 1.201), MET), ((0.8, 0.8005, 0.801), MISSED), ((1.0, 1.2), OPEN)],
)
def test_runs_decide_a_goal_and_a_single_one_does_not(host, kept, factors, status):
    runs = [again(kept, n, factor, code="a") for n, factor in enumerate(factors, 1)]
    assert row_of(over(host, *runs)).status == status


HOUR = DAY / 24


def at(kept, *hours, factors=None):
    """Runs of equal code that began this many hours after the first, with OneFlow this much faster."""
    return [
        replace(run, description=replace(run.description, created=kept.description.created + hour * HOUR))
        for number, hour in enumerate(hours)
        for run in [again(kept, number, (factors or (1.0,) * len(hours))[number], code="a")]
    ]


def test_runs_of_one_session_decide_as_little_as_one_run(host, kept):
    """Three runs within an hour of each other, far above the goal and close together: one session."""
    together = over(host, *at(kept, 0, 1, 2, factors=(1.2, 1.2005, 1.201)))
    row = row_of(together)
    assert set(together.sessions.values()) == {"S1"} and row.sessions == ("S1",) and len(row.runs) == 3
    assert row.status == OPEN and not row.ratio.interval and row.ratio.interval.needed == 2
    apart = over(host, *at(kept, 0, 24, 48, factors=(1.2, 1.2005, 1.201)))
    assert row_of(apart).sessions == ("S1", "S2", "S3") and row_of(apart).status == MET


def test_a_session_counts_once_however_many_runs_it_has(host, kept):
    """Two runs of one session at 1.0, one of another at 1.1: the mean of the sessions, not of the runs."""
    row = row_of(over(host, *at(kept, 0, 1, 24, factors=(1.0, 1.0, 1.1))))
    assert row.sessions == ("S1", "S2") and row.ratio.interval.samples == (2,)
    assert row.ratio.value == pytest.approx(0.9 * math.sqrt(1.1), rel=1e-3)
    assert row.throughput / row.base_throughput == pytest.approx(row.ratio.value)


def test_equal_runs_give_no_interval(host, kept):
    row = row_of(over(host, again(kept, 1, code="a"), again(kept, 2, code="a")))
    assert isinstance(row.ratio.interval, TooFew) and row.ratio.interval.equal
    assert row.status == OPEN


def test_the_code_of_the_newest_run_counts_whichever_was_read_first(host, kept):
    runs = [again(kept, 1, 1.1, code="a"), again(kept, 2, 1.0, code="b"), again(kept, 3, 0.9, code="b")]
    for order in (runs, runs[::-1]):
        row = row_of(over(host, *order))
        assert [each.run.id for each in row.runs] == ["run-2", "run-3"]
        assert [each.kept_run.run.id for each in row.superseded] == ["run-1"]


def test_a_row_of_older_code_decides_nothing_whatever_its_interval(host, kept):
    """The newest run of the program has other code, and other configurations than the row."""
    runs = [again(kept, n, factor, code="a") for n, factor in enumerate((1.2, 1.2005, 1.201), 1)]
    newest = again(kept, 4, code="b")
    newest = replace(newest, results=[each for each in newest.results if each.unit.world_size > 1])
    found = over(host, *runs, newest)
    assert row_of(over(host, *runs)).status == MET and row_of(found).status == OLD
    others = [row for row in found.layouts if row.goal]
    assert others and OLD not in {row.status for row in others}
    more = " Rows that were measured with older code of their program only do not count: 1."
    assert decided(ENGLISH, [*others, row_of(found)]) == decided(ENGLISH, others) + more
    assert decided(ENGLISH, [row_of(found)]) == "No goal is decided." + more


def with_tuned(kept, code):
    """The run with the unit on one GPU in the tuned program as well, of this code, at the same speed."""
    unit = next(each for each in kept.plan.units if each.name == ONE_GPU)
    tuned = replace(unit, name=f"{ONE_GPU}.tuned", program="tuned", config=replace(unit.config, program="tuned"))
    plan = replace(kept.plan, units=(*kept.plan.units, tuned))
    copies = [replace(each, unit=tuned.name, code={"sha256": code}) for each in kept.attempts if each.unit == ONE_GPU]
    attempts = [*kept.attempts, *copies]
    results = summarise(plan, attempts)
    judged = replace(kept.judgement, comparisons=tuple(comparisons([(CATALOGUE.case(ONE_GPU), results[0])])))
    description = replace(kept.description, plan=plan)
    return replace(kept, description=description, attempts=attempts, results=results, judgement=judged)


def test_a_superseded_tuned_unit_leaves_the_published_programs_comparison(host, kept):
    old, new = with_tuned(again(kept, 1, code="a"), "a"), with_tuned(again(kept, 2, code="a"), "b")
    found = over(host, old, new)
    first, second = (run.judgement.comparisons[0] for run in (old, new))
    assert (first.kind, first.case) == ("memory", ONE_GPU)
    (both,) = found.comparisons
    assert (both.kind, both.case, both.measured) == ("memory", ONE_GPU, (first.measured + second.measured) / 2)
    old = replace(
        again(kept, 1, code="a"), judgement=replace(old.judgement, comparisons=(replace(first, measured=1.0),))
    )
    (newest,) = over(host, old, again(kept, 2, code="b")).comparisons
    assert newest.measured == kept.judgement.comparisons[0].measured != 1.0, "that of older code does not count"


def test_an_older_run_beside_another_baseline_is_superseded(host, kept):
    """A program that has changed since is no second row because what it stood beside has changed as well."""
    old, new = (row_of(over(host, again(kept, n, code=code))).measurements[0] for n, code in enumerate("ab", 1))
    unit = old.base.unit
    elsewhere = replace(old, base=replace(old.base, unit=replace(unit, config=replace(unit.config, seed=7))))
    assert elsewhere.configuration != new.configuration
    (row,) = rows([elsewhere, new])
    assert [each.kept_run.run.id for each in row.measurements] == ["run-2"]
    assert [each.kept_run.run.id for each in row.superseded] == ["run-1"]
    assert len(rows([elsewhere, replace(new, kept_run=again(kept, 2, code="a"))])) == 2, (
        "the same code counts beside both"
    )


def test_an_older_run_of_other_iterations_is_superseded(host, kept):
    """What a program did before it was changed is no second row because it was trained for a shorter time."""
    old, new = (row_of(over(host, again(kept, n, code=code))).measurements[0] for n, code in enumerate("ab", 1))
    unit = old.result.unit
    shorter = configured(unit, iterations=60, log_interval=10)
    short = replace(old, result=replace(old.result, unit=shorter))
    assert short.configuration != new.configuration
    (row,) = rows([short, new])
    assert [each.kept_run.run.id for each in row.measurements] == ["run-2"]
    assert [each.kept_run.run.id for each in row.superseded] == ["run-1"]
    assert len(rows([short, replace(new, kept_run=again(kept, 2, code="a"))])) == 2, "the same code counts for both"


def test_runs_without_a_digest_are_told_apart_by_their_commits(host, kept):
    first, second, third = (again(kept, n, 1 + n / 100, commit=commit * 40) for n, commit in enumerate("112", 1))
    assert len(row_of(over(host, first, second)).runs) == 2
    assert [each.run.id for each in row_of(over(host, second, third)).runs] == ["run-3"]


def test_changed_files_equal_nothing(host, kept):
    first, second = (again(kept, n, 1 + n / 100, commit="1" * 40) for n in (1, 2))
    dirty = replace(second.environment, git_changed_files=1)
    second = replace(second, description=replace(second.description, environment=dirty))
    assert [each.run.id for each in row_of(over(host, first, second)).runs] == ["run-2"]


def test_cases_that_train_alike_are_one_row(tmp_path):
    """The single GPU of a shrunk case is the case that was published for one."""
    folder = tmp_path / "reproduced" / "h200" / "runs"
    for number, case in enumerate((ONE_GPU, "DP_8x1x1_16_1536x16"), 1):
        name = f"2026112{number}-080000-gpt-published"
        run = bench_run(tmp_path / f"original-{number}", name, case, repeats=(1.0,), failed=False)
        keep(run.path, folder / f"{run.id}.zip")
    host = load("h200", tmp_path / "reproduced")
    (row,) = (row for row in host.ratios if row.unit.world_size == 1)
    assert [each.unit.name for each in row.results] == [ONE_GPU, "DP_8x1x1_16_1536x16.as_1x1x1"]


@pytest.mark.parametrize("case", [ONE_GPU, "bert_1n1g_bs96", "resnet50_0821_1n1g_bs128"])
def test_a_run_of_now_would_be_in_the_row_of_the_kept_ones(case):
    """Settings that programs got since then do not make another configuration of what is trained alike."""
    plans = [Run(path).description().plan for path in REPRODUCED.glob("*/runs/[0-9]*.zip")]
    kept = {json.dumps(configuration(unit), sort_keys=True) for plan in plans for unit in plan.units}
    now = make_plan(
        load_catalogue().select(None, case),
        1,
        Wanted(scale="published", repeats=1, baselines=("pytorch-compiled",), programs=("tuned",)),
    )
    assert len(now.units) == 2
    assert {json.dumps(configuration(unit), sort_keys=True) for unit in now.units} <= kept


def test_a_baseline_beside_either_program_is_the_same_unless_it_computes_as_its_program_does():
    cases, variants = load_catalogue().select(None, "bert_1n1g_bs96"), ("pytorch", "pytorch-unfused")
    plans = [
        make_plan(cases, 1, Wanted(scale="published", repeats=1, baselines=variants, programs=(program,)))
        for program in KINDS
    ]
    published, tuned = ({unit.variant: configuration(unit) for unit in plan.units} for plan in plans)
    assert {variant for variant in published if published[variant] == tuned[variant]} == {"pytorch"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_lists_what_counts_and_how_much_is_superseded(host, kept, language):
    runs = [again(kept, 1, 1.1, code="a"), again(kept, 2, 1.0, code="b"), again(kept, 3, 0.99, code="b")]
    (section,) = measured.comparisons(catalogue(language).gettext, over(host, *runs))
    row = next(each for each in cells(section) if each[0] == ONE_GPU)
    counting, superseded = row[-1].split({"en": "; superseded: ", "zh": "；另有 "}[language])
    assert [f"](#run-{n})" in counting for n in (1, 2, 3)] == [False, True, True]
    assert superseded.startswith("1")


def test_the_steady_state_is_shown_where_the_rule_is_off_by_more_than_one_per_cent(host, kept):
    row = row_of(over(host, again(kept, 1, code="a"), again(kept, 2, 1.01, code="a")))
    by_rule = [each.ratio.value for each in row.measurements]

    def with_steady(*factors):
        measurements = (
            replace(
                each,
                steady=value * factor,
                result=replace(each.result, steady=each.result.throughput * factor),
                base=replace(each.base, steady=each.base.throughput),
            )
            for each, value, factor in zip(row.measurements, by_rule, factors, strict=True)
        )
        return replace(row, measurements=tuple(measurements))

    near, far = with_steady(0.991, 0.991), with_steady(0.98, 0.97)
    assert not near.in_steady_state and near.ratio == row.ratio
    assert far.in_steady_state
    assert far.ratio.value == pytest.approx(math.sqrt(by_rule[0] * 0.98 * by_rule[1] * 0.97))
    assert far.throughput / far.base_throughput == pytest.approx(far.ratio.value)
    assert far.ratio.interval.low < by_rule[1] * 0.97 < far.ratio.interval.high
    unknown = replace(far, measurements=(far.measurements[0], replace(far.measurements[1], steady=None)))
    assert not unknown.in_steady_state


def test_what_only_older_code_measured_is_marked_in_the_table_and_absent_from_memory(host, kept):
    """The newest run of the program has one configuration; those that older runs alone have are of older code."""
    old, newest = again(kept, 1, code="a"), again(kept, 2, code="b")
    newest = replace(newest, results=[each for each in newest.results if each.unit.world_size == 1])
    found = over(host, old, newest)
    assert [row.current for row in over(host, old).layouts] and all(row.current for row in over(host, old).layouts)
    assert found.layouts and not any(row.current for row in found.layouts)
    every_layout = measured.layouts(ENGLISH, found)[-1].blocks[0]
    notes = {cell.note for row in every_layout.rows for cell in row if cell.note}
    assert "older code" in notes
    assert {row.case.layout.world_size for row in measured.memories(over(host, old))} >= {1}
    only_large = replace(
        newest, results=[each for each in again(kept, 2, code="b").results if each.unit.world_size > 1]
    )
    assert measured.memories(over(host, old, only_large)) == []

"""Loss curves: what is planned, what a comparison says of curves made for it, and a whole `make curves`."""

import json
import math
import random
from dataclasses import replace

import jsonschema
import pytest

from repro.analysis.loss_curves import (
    FACTOR,
    FLOOR,
    WINDOW,
    CurveComparison,
    CurveTolerance,
    compare,
    deviation,
    read_losses,
)
from repro.planning.loss_curves import CONTROL, ERROR, LAYOUT, REFERENCE, make_curve_plan
from repro.published.trainer_config import TrainingData
from repro.runs.plan import Plan
from repro.trainers.config import parse
from repro.utils.errors import PlanError
from tests.support.attempts import recorded
from tests.support.metrics import row
from tests.support.paths import ROOT
from tests.support.runs import only_run
from tests.support.synthetic import published_run

TEXT = TrainingData("synthetic")


def curve(count, noise=0.0, order=1):
    """Losses that fall as those of a training do, with each batch's own difficulty; `order` is that of the batches."""
    batches, rounding = random.Random(order), random.Random(str(noise))
    return [
        (2 + 3 * 0.97**step + batches.uniform(-0.2, 0.2)) * (1 + noise * rounding.uniform(-1, 1))
        for step in range(count)
    ]


def write(folder, name, losses, repeat=1):
    """Write an attempt's metrics; returns its record."""
    attempt = folder / f"{name}.{repeat}"
    attempt.mkdir()
    rows = [row(step, loss) for step, loss in enumerate(losses, 1)]
    (attempt / "metrics-rank0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return recorded({"unit": name, "folder": attempt.name, "repeat": repeat})


def compared(tmp_path, changed, model="gpt"):
    """The comparisons of a CPU plan by name, whose curves are one curve with rounding noise, or those in `changed`."""
    plan = make_curve_plan(0, TEXT, model=model)
    attempts = []
    for unit in plan.units:
        noise = {CONTROL: 1e-5, LAYOUT: 1.5e-5, REFERENCE: 0.0}.get(unit.role, 0.05)
        losses = changed.get(unit.name, curve(unit.config.iterations, noise))
        if losses is None:
            continue
        attempts.append(write(tmp_path, unit.name, losses))
    return compare(plan, attempts, tmp_path)


@pytest.mark.parametrize("gpus", [0, 1, 2, 4])
def test_every_unit_can_be_trained_and_keeps_the_global_batch(gpus):
    plan = make_curve_plan(gpus, TEXT)
    for unit in plan.units:
        config = parse(unit.config.written("out", "out").as_json())
        assert config.global_batch == unit.global_batch
        assert config.dropout == 0.0
        assert unit.world_size <= (gpus or 4)
    names = [unit.name for unit in plan.units]
    assert len(names) == len(set(names))
    assert {unit.reference for unit in plan.units if unit.reference} <= set(names)


def test_four_gpus_run_every_layout_in_both_precisions():
    names = {unit.name for unit in make_curve_plan(4, TEXT).units}
    for precision in ("fp32", "amp"):
        for layout in ("1x1x1", "dp2", "dp4", "tp2", "tp4", "dp2_tp2", "pp2", "pp4", "tp2_pp2", "dp2_pp2", "zero1_dp4"):
            assert f"gpt_{precision}_{layout}" in names
        for model in ("bert", "resnet50"):
            assert {f"{model}_{precision}_dp2", f"{model}_{precision}_dp4"} <= names
    assert all(unit.config.iterations == 200 for unit in make_curve_plan(4, TEXT).units)


def padded(unit):
    config = parse(unit.config.written("out", "out").as_json())
    return config.padded_vocab_size if config.spec.has_vocabulary else None


def test_layouts_and_precisions_are_compared_with_one_device_in_fp32():
    units = {unit.name: unit for unit in make_curve_plan(4, TEXT).units}
    for unit in units.values():
        if unit.role == LAYOUT:
            reference = units[unit.reference]
            assert (reference.role, reference.world_size, reference.config.precision) == (REFERENCE, 1, "fp32")
            assert padded(unit) == padded(reference), "rows of padding take part in the softmax"
    assert units["resnet50_amp_dp4"].reference == "resnet50_fp32_1x1x1_shards4"
    assert units["resnet50_fp32_1x1x1_shards4"].config.accumulation_steps == 4
    assert "resnet50_amp_1x1x1_shards1" in units and "resnet50_amp_1x1x1_shards4" not in units


def test_what_does_not_fit_is_named():
    plan = make_curve_plan(2, TEXT)
    assert "gpt_fp32_tp4" in {skipped.case for skipped in plan.skipped}
    assert all(unit.world_size <= 2 for unit in plan.units)


def test_a_choice_brings_along_what_it_is_judged_by():
    units = make_curve_plan(4, TEXT, names="gpt_amp_tp2").units
    assert [unit.name for unit in units if unit.role == LAYOUT] == ["gpt_amp_1x1x1", "gpt_amp_tp2"]
    assert {unit.role for unit in units} == {REFERENCE, LAYOUT, CONTROL, ERROR}
    assert {unit.model for unit in units} == {"gpt"}


@pytest.mark.parametrize("wrong", [{"names": "gpt_fp32_dp3"}, {"model": "gtp"}])
def test_a_choice_of_nothing_is_refused(wrong):
    with pytest.raises(PlanError, match=r"it is bert|no layout of that name"):
        make_curve_plan(0, TEXT, **wrong)


def test_a_wrong_layout_is_answered_with_layouts():
    """The others cannot be chosen: references and perturbations come with what is."""
    with pytest.raises(PlanError, match="gpt_fp32_tp2") as refused:
        make_curve_plan(0, TEXT, names="gpt_fp32_1x1x1_seed")
    assert str(refused.value).count("_seed") == 1


def test_deviation():
    reference = [2.0] * (WINDOW + 1)
    found = deviation([2.0] * WINDOW + [3.0], reference)
    assert found.largest == pytest.approx(0.5)
    assert found.mean == pytest.approx(0.5 / (WINDOW + 1))
    assert found.windowed == pytest.approx(0.5 / WINDOW)
    assert deviation([2.2, 1.8] * WINDOW, [2.0] * 2 * WINDOW).windowed == pytest.approx(0.1), "signs do not cancel"


@pytest.mark.parametrize("place", [0, 3, WINDOW])
def test_a_loss_that_is_no_number_is_within_no_tolerance(place):
    reference = [2.0] * (WINDOW + 1)
    broken = [math.nan if number == place else loss for number, loss in enumerate(reference)]
    found = deviation(broken, reference)
    assert math.isnan(found.largest) and math.isnan(found.windowed)
    unit = next(each for each in make_curve_plan(0, TEXT).units if each.role == LAYOUT)
    assert not CurveComparison(unit, deviation=found, tolerance=CurveTolerance(0.01, 0.0)).holds
    within = deviation(reference, reference)
    assert CurveComparison(unit, deviation=within, tolerance=CurveTolerance(0.01, 0.0)).holds
    assert not CurveComparison(unit, deviation=within, tolerance=CurveTolerance(math.nan, 0.0)).holds
    error = replace(unit, role=ERROR)
    far = deviation([3.0] * (WINDOW + 1), reference)
    assert CurveComparison(error, deviation=far, tolerance=CurveTolerance(0.01, 0.0)).holds
    assert not CurveComparison(error, deviation=far, tolerance=CurveTolerance(math.nan, 0.0)).holds


@pytest.mark.parametrize("lengths", [(WINDOW - 1, WINDOW - 1), (WINDOW, WINDOW + 1)])
def test_deviation_refuses_too_few_iterations(lengths):
    with pytest.raises(ValueError, match="iterations"):
        deviation(*([1.0] * length for length in lengths))


def test_curves_that_agree_hold_and_errors_are_seen(tmp_path):
    curves = compared(tmp_path, {})
    assert curves.problems == []
    assert curves.summary() == (
        "11 of 11 loss curves agree with their references; 2 of 2 injected errors were detected"
    )
    tolerance = curves.comparisons[0].tolerance
    assert tolerance.value == FACTOR * tolerance.noise > FLOOR


def test_a_deviating_curve_is_named(tmp_path):
    wrong = [loss * (1.001 if step > 30 else 1.0) for step, loss in enumerate(curve(40))]
    (problem,) = compared(tmp_path, {"gpt_fp32_tp2": wrong}).problems
    assert problem.startswith("gpt_fp32_tp2: deviates by 9.0e-04 from gpt_fp32_1x1x1, allowed are")


def test_another_order_of_the_data_does_not_hold(tmp_path):
    curves = compared(tmp_path, {"gpt_fp32_dp4": curve(40, order=2)})
    assert [problem.split(":")[0] for problem in curves.problems] == ["gpt_fp32_dp4"]


def test_too_few_iterations_are_refused(tmp_path):
    (problem,) = compared(tmp_path, {"gpt_fp32_pp2": curve(39)}).problems
    assert problem == "gpt_fp32_pp2: gpt_fp32_pp2 has the losses of 39 iterations, 40 are needed"


def test_a_reference_without_a_curve_leaves_nothing_to_hold(tmp_path):
    curves = compared(tmp_path, {"gpt_fp32_1x1x1": None})
    assert len(curves.problems) == len(curves.comparisons)
    assert "no repeat of gpt_fp32_1x1x1 succeeded" in curves.problems[0]


def test_a_tolerance_that_lets_errors_pass_does_not_hold(tmp_path):
    noisy = {f"gpt_fp32_1x1x1_acc{count}": curve(40, 0.3) for count in (2, 4)}
    problems = compared(tmp_path, noisy).problems
    assert [problem.split(":")[0] for problem in problems] == ["gpt_fp32_1x1x1_rate", "gpt_fp32_1x1x1_seed"]
    assert "would let pass" in problems[0]


def test_an_error_must_exceed_the_widest_tolerance_of_its_model(tmp_path):
    units = [unit for unit in make_curve_plan(1, TEXT, model="gpt").units if unit.role in (REFERENCE, CONTROL, ERROR)]
    amp = next(unit for unit in make_curve_plan(1, TEXT).units if unit.name == "gpt_amp_1x1x1")
    plan = Plan("reduced", "cuda", 1, (*units, amp), kind="curves")
    noise = {"gpt_amp_1x1x1_acc2": 0.004, "gpt_fp32_1x1x1_seed": 0.05, "gpt_fp32_1x1x1_rate": 0.005}
    attempts = [write(tmp_path, unit.name, curve(200, noise.get(unit.name, 0.0))) for unit in plan.units]
    curves = compare(plan, attempts, tmp_path)
    tolerances = {each.unit.config.precision: each.tolerance.value for each in curves.of(CONTROL)}
    assert tolerances["fp32"] == FLOOR
    assert tolerances["amp"] > 10 * 2**-11
    assert [problem.split(":")[0] for problem in curves.problems] == ["gpt_fp32_1x1x1_rate"]


def test_the_worst_repeat_decides(tmp_path):
    plan = make_curve_plan(0, TEXT, repeats=2, names="gpt_fp32_dp2")
    kept = [unit for unit in plan.units if unit.name in ("gpt_fp32_1x1x1", "gpt_fp32_1x1x1_acc2", "gpt_fp32_dp2")]
    attempts = []
    for unit in kept:
        for repeat in (1, 2):
            losses = curve(40, 0.01 if (unit.role, repeat) == (LAYOUT, 2) else 0.0)
            attempts.append(write(tmp_path, unit.name, losses, repeat))
    curves = compare(replace(plan, units=tuple(kept)), attempts, tmp_path)
    assert [each.holds for each in curves.comparisons] == [True, False]


def test_losses_are_read_up_to_a_gap(tmp_path):
    rows = [{"event": "start"}, *(row(step, step / 2) for step in (1, 2, 4))]
    (tmp_path / "metrics-rank0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"event": "iter')
    assert read_losses(tmp_path) == (0.5, 1.0)
    assert read_losses(tmp_path / "nowhere") == ()


def test_make_curves_reports_and_fails_where_no_error_is_seen(task, tmp_path):
    """The stand-in prints the same losses whatever it is told: all layouts agree, and no planted error is seen."""
    done = task("curves", MODEL="bert")
    assert done.returncode == 1, done.stderr
    assert "bert_fp32_1x1x1_rate: this error deviates by 0.0e+00 only" in done.stderr
    assert "make curves RUN=" in done.stderr
    folder = only_run(tmp_path)
    plan = Plan.from_json(json.loads((folder / "run.json").read_text())["plan"])
    assert (plan.kind, plan.scale, folder.name.split("-", 2)[2]) == ("curves", "reduced", "bert-curves")
    for language, agreed in (("en", "within the tolerance: 2 of 2"), ("zh", "2 / 2")):
        assert agreed in (folder / f"report.{language}.md").read_text()
    again = task("report", RUN=folder.name, CHECK=1)
    assert again.returncode == 1, again.stderr
    assert (folder / "figures" / "curves.en.svg").is_file()
    assert "curves.en.svg" in (folder / "report.en.md").read_text()
    schema = json.loads((ROOT / "repro" / "data" / "verdicts.schema.json").read_text())
    jsonschema.validate(json.loads((folder / "verdicts.json").read_text()), schema)
    assert task("verify", RUN=folder.name).returncode == 0


def test_a_run_of_another_task_is_not_gone_on_with(refused, tmp_path):
    run = published_run(tmp_path / "runs", ["DP_1x1x1_2_1536x16"])
    assert "is no run of make curves" in refused("curves", RUN=run.id)

"""What a rehearsal trains for each published case: full world size and length, tiny widths, equal trainings once."""

import pytest

from repro.planning.rehearsal import (
    SAMPLES_PER_RANK,
    changed_settings,
    is_reference,
    make_rehearsal_plan,
    memory_mib,
    rehearsal_config,
)
from repro.published.cases import Layout, load_catalogue
from repro.published.trainer_config import TrainerConfig, TrainingData
from repro.runs.failures import Failure
from repro.trainers.config import parse
from repro.utils.errors import PlanError

CASES = load_catalogue().cases


def plan_of(pattern: str | None = None, **options):
    return make_rehearsal_plan(load_catalogue().select(None, pattern), **options)


@pytest.fixture(scope="module")
def whole():
    return plan_of()


def test_every_case_is_rehearsed_once_in_38_trainings(whole):
    trainings = [unit for unit in whole.units if not is_reference(unit)]
    assert sorted(case for unit in trainings for case in unit.stands_for) == sorted(case.name for case in CASES)
    assert len(trainings) == 38
    assert not whole.skipped


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_but_widths_is_as_published(case):
    config = rehearsal_config(case)
    parsed = parse(config.written("out", "standins").as_json())
    assert parsed.layout.world_size == case.layout.world_size
    assert (parsed.accumulation_steps, parsed.iterations) == (case.accumulation_steps, case.iterations)
    assert parsed.log_interval == case.log_interval
    assert parsed.data.kind != "synthetic" and parsed.data.standin.scale == "small"
    assert config.micro_batch == (case.micro_batch if case.model == "gpt" else SAMPLES_PER_RANK)
    assert parsed.activation_checkpointing == case.activation_checkpointing
    assert parsed.optimizer_sharding == case.optimizer_sharding


def test_what_a_layout_is_compared_with_pads_the_vocabulary_alike(whole):
    named = {unit.name: unit for unit in whole.units}
    compared = [unit for unit in whole.units if unit.reference]
    assert {unit.model for unit in compared} == {"gpt"} and len(compared) == 22
    for unit in compared:
        reference = named[unit.reference]
        assert reference.world_size == 1 and reference.global_batch == unit.global_batch
        same, other = (parse(each.config.written("out", "x").as_json()) for each in (unit, reference))
        assert same.padded_vocab_size == other.padded_vocab_size > same.shape.vocab_size
        assert same.data == other.data and same.dropout == other.dropout == 0


def test_models_whose_records_are_dealt_to_ranks_keep_their_dropout(whole):
    dropouts = {unit.config.dropout for unit in whole.units if unit.model == "bert"}
    assert dropouts == {0.1}


def test_layouts_can_be_shrunk():
    (reference, unit) = plan_of("DP_PP_8x1x4_512_1536x16", most_ranks=8).units
    assert is_reference(reference)
    assert unit.config.layout == Layout(2, 1, 4)
    assert (unit.stands_for, unit.derived_from) == ((), ("DP_PP_8x1x4_512_1536x16",))


def test_fewer_iterations_print_as_many_rows_as_are_compared():
    (unit,) = plan_of("bert_1n8g_bs96", iterations=21).units
    assert (unit.config.iterations, unit.config.log_interval) == (21, 3)
    with pytest.raises(PlanError, match="ITERATIONS=4"):
        plan_of("bert_1n8g_bs96", iterations=4)


def test_the_tuned_program_trains_on_synthetic_batches():
    published, tuned = plan_of("bert_1n8g_bs96", programs=("published", "tuned")).units
    assert published.config.data.kind == "ofrecord"
    assert tuned.config.data == TrainingData("synthetic") and tuned.reference is None


def test_a_case_that_cannot_be_placed_is_skipped_with_the_reason():
    def misfit(report: str, config: TrainerConfig) -> Failure | None:
        return Failure("{ranks} ranks", {"ranks": 8}) if config.layout.data == 8 else None

    plan = plan_of("bert_1n?g_bs96", misfit=misfit)
    assert [skipped.case for skipped in plan.skipped] == ["bert_1n8g_bs96"]
    with pytest.raises(PlanError, match="none of these cases can be placed: 8 ranks"):
        plan_of("bert_1n8g_bs96", misfit=misfit)


def test_what_is_changed_is_listed():
    case = load_catalogue().case("bert_1n8g_bs96")
    assert changed_settings(case) == {
        "device": ("cuda", "cpu"),
        "micro_batch": (96, 4),
        "seq_length": (128, 32),
        "vocab_size": (30522, 512),
        "layers": (12, 2),
        "hidden_size": (768, 64),
        "attention_heads": (12, 4),
        "max_predictions": (20, 4),
    }


@pytest.mark.parametrize(
    ("pattern", "measured_mib"),
    [
        ("resnet50_0808_1n1g_bs128", 435),
        ("resnet50_0808_1n8g_bs128", 7690),
        ("bert_1n8g_bs96", 4133),
        ("gpt2_small_1n8g_bs4_zero1", 3383),
        ("MP_1x8x1_16_1536x16", 3614),
    ],
)
def test_memory_is_estimated_near_what_ranks_took(pattern, measured_mib):
    """Measured with 8 ranks and fewer on two processors; larger ones are extrapolated."""
    (unit,) = (unit for unit in plan_of(pattern).units if not is_reference(unit))
    assert memory_mib(unit.report, unit.config) == pytest.approx(measured_mib, rel=0.3)

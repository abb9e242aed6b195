"""Deviations of the ports: each whole, in both languages, with evidence and sources, and of programs that there are."""

import re
from dataclasses import fields

import pytest

from repro.models.programs import PUBLISHED, Program
from repro.models.registry import specs
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.published.deviations import (
    ALL,
    COUNTED,
    EVIDENCE,
    KINDS,
    LOSS,
    MATTERS,
    MEMORY,
    SPEED,
    deviations,
    deviations_of,
)
from repro.published.trainer_config import TrainerConfig
from repro.report.programs import CHOICES, NAMES
from repro.utils.i18n import LANGUAGES
from tests.support.configs import configured
from tests.support.paths import ROOT

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+@[\w.]+:[^#\s]+(#L\d+(-L\d+)?)?")
NAMED = {
    SPEED: r"[Ss]peed|[Ff]aster|[Ss]lower|%|[Tt]ime\b|\bms\b|[Cc]ost|[Nn]one expected|Unknown",
    MEMORY: r"[Mm]emory|[MG]i?B|Unknown",
    LOSS: r"[Ll]oss|windows|Unknown",
}
"""What an effect has to speak of if it matters for this; "Unknown" alone is for all of them."""
REPORTS = {program.report for spec in specs() for program in spec.programs}


def program(case: str, **changes) -> tuple[str, TrainerConfig]:
    """The report whose program trains a case, and its configuration."""
    (unit,) = make_plan(load_catalogue().select(None, case), 32, Wanted(scale="published")).units
    unit = configured(unit, **changes)
    return unit.report, unit.config


def ids(found) -> set[str]:
    return {each.id for each in found}


def test_ids_are_unique():
    assert len(ids(deviations())) == len(deviations())


@pytest.mark.parametrize("each", deviations(), ids=lambda each: each.id)
def test_an_entry_is_whole(each):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", each.id)
    assert each.programs and (each.programs == (ALL,) or set(each.programs) <= REPORTS)
    assert each.kind in KINDS and each.evidence in EVIDENCE
    assert set(each.matters) <= set(MATTERS) and set(each.where) <= {
        *COUNTED,
        "precision",
        "optimizer_sharding",
        "input",
        "standin",
    }
    assert {value for name, value in each.where.items() if name in COUNTED} <= {"one", "several"}
    for text in (each.what, each.effect):
        assert set(text) == set(LANGUAGES) and all(text.values())
        assert re.search(r"[\u4e00-\u9fff]", text["zh"]) and not re.search(r"[\u4e00-\u9fff]", text["en"])
    assert each.sources
    for source in each.sources:
        assert REPOSITORY.fullmatch(source) or (ROOT / source).is_file(), source


@pytest.mark.parametrize("each", deviations(), ids=lambda each: each.id)
def test_an_effect_speaks_of_all_that_it_matters_for(each):
    silent = [name for name in each.matters if not re.search(NAMED[name], each.effect["en"])]
    assert not silent


def test_each_published_program_deviates_in_its_framework():
    for spec in specs():
        for program in spec.programs:
            kinds = {each.kind for each in deviations() if each.of(program.report)}
            assert "runtime" in kinds, program.report


def test_a_deviation_applies_where_its_conditions_hold():
    pipeline, alone = program("DP_PP_8x1x4_512_1536x16"), program("DP_1x1x1_2_1536x16")
    assert {"tied-table-on-two-stages", "compute-stream", "nccl"} <= ids(deviations_of(*pipeline))
    assert not {"tied-table-on-two-stages", "compute-stream", "nccl"} & ids(deviations_of(*alone))
    assert "compute-stream" not in ids(deviations_of(*program("2D_PP_2x4x4_512_2304x24")))
    assert "unknown-images" not in ids(deviations_of(*alone))
    assert "unknown-images" in ids(deviations_of(*program("resnet50_0821_1n1g_bs128")))
    assert "synthetic-input" in ids(deviations_of(*alone))
    assert "synthetic-input" not in ids(deviations_of(*program("DP_1x1x1_2_1536x16", data={"kind": "tokens"})))
    standin = {"kind": "megatron", "standin": "tokens", "scale": "published"}
    assert {"standin-input"} == ids(deviations_of(*program("DP_1x1x1_2_1536x16", data=standin))) - ids(
        deviations_of(*program("DP_1x1x1_2_1536x16", data={"kind": "megatron", "prefix": "text"}))
    )
    assert "initial-values" in ids(deviations_of(*alone, "loss")) - ids(deviations_of(*alone, "speed", "memory"))


def test_the_tuned_program_deviates_as_the_published_one():
    assert ids(deviations_of(*program("DP_1x1x1_2_1536x16", program="tuned"))) == ids(
        deviations_of(*program("DP_1x1x1_2_1536x16", program=PUBLISHED))
    )


def test_every_choice_of_a_program_has_a_text():
    assert {each.name for each in fields(Program)} == {*CHOICES, *NAMES}

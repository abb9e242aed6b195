"""The history of the reports: every number has its source, every source its place, and both languages say the same."""

import re
from dataclasses import replace

import pytest

from repro.published.cases import CaseError, load_catalogue
from repro.published.history import FILE, REFERENCE, HistorySource, calculate, load_history, numbers, unfounded
from tests.support.paths import ROOT

CATALOGUE = load_catalogue()
HISTORY = load_history(CATALOGUE)
ENTRY = next(entry for entry in HISTORY if entry.derived)


def test_the_history_tells_what_no_figure_does():
    assert {entry.slug for entry in HISTORY if entry.state == "settled"} >= {
        "resnet50-accuracy-of-one",
        "resnet50-figures-taken-back",
        "resnet50-weight-decay-twice",
        "bert-batch-size-48",
        "gpt-3d-three-builds",
        "gpt-3d-dp-pp-without-compute-stream",
        "gpt-3d-memory-of-the-first-stage",
        "gpt-3d-loss-that-sums",
    }
    assert any(entry.state == "open" for entry in HISTORY)


def test_no_number_is_without_a_source():
    assert [fault for entry in HISTORY for fault in unfounded(entry)] == []


def test_a_number_that_no_source_has_is_refused():
    changed = {language: text + " 41.7" for language, text in ENTRY.text.items()}
    assert list(unfounded(replace(ENTRY, text=changed))) == ["text: no source has 41.7"]


def test_a_number_of_one_language_only_is_refused():
    faults = list(unfounded(replace(ENTRY, meaning={**ENTRY.meaning, "zh": ENTRY.meaning["zh"] + " 8"})))
    assert faults == ["meaning: only one language has 8"]


def test_a_calculation_that_gives_another_number_is_refused():
    (value, by), *rest = ENTRY.derived
    faults = list(unfounded(replace(ENTRY, derived=((value, f"{by} + 0.1"), *rest))))
    assert len(faults) == 1 and faults[0].endswith(f"not {value}")


def test_digits_of_names_and_commits_are_no_numbers():
    assert numbers("GPT-2 at 8a78044, v0.1.9, 5.7 % on 14 August, ResNet50, 2D_PP_2x4x4") == {5.7, 14, 8}


def test_sums_products_and_logarithms_are_calculated_and_nothing_else():
    assert calculate("-(2 + 3) * 4 / 2 - 1") == -11
    assert calculate("log(1) + 0.5") == 0.5
    for other in ("abs(1)", "__import__('os')", "2 ** 3", "x", "'a'"):
        with pytest.raises(ValueError, match="only numbers"):
            calculate(other)


def test_every_source_leads_to_lines_at_a_commit():
    for source in (source for entry in HISTORY for source in entry.sources):
        match = REFERENCE.fullmatch(source.at)
        if match["repository"]:
            assert source.link.startswith(f"https://github.com/{match['repository']}/")
            assert match["commit"] in source.link and source.link.endswith(source.at.partition("#")[2])
        else:
            assert source.link == source.at


def test_links_name_lines_or_the_commit():
    commit = "a" * 40
    assert HistorySource(f"a/b@{commit}:c/d.py#L3-L5", "x").link == f"https://github.com/a/b/blob/{commit}/c/d.py#L3-L5"
    assert HistorySource(f"a/b@{commit}", "x").link == f"https://github.com/a/b/commit/{commit}"


def fragments(source: HistorySource) -> list[str]:
    """The parts of a quote between its omissions."""
    return [part.strip() for part in source.quote.split("…") if part.strip()]


def test_quotes_from_this_project_are_there():
    own = [source for entry in HISTORY for source in entry.sources if source.at.startswith("repro/")]
    assert own
    for source in own:
        text = (ROOT / source.at).read_text(encoding="utf-8")
        assert all(fragment in text for fragment in fragments(source))


def test_quoted_log_rows_are_those_of_the_sample_logs():
    """Rows of logs which this project keeps as samples are quoted as they are there."""
    kept = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "data" / "logs").glob("*.log"))
    rows = [
        fragment
        for entry in HISTORY
        for source in entry.sources
        for fragment in fragments(source)
        if re.match(r"train: epoch|\| 10 |\d+ %, \d+ MiB", fragment)
    ]
    assert len(rows) >= 5
    assert [row for row in rows if row not in kept] == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('state = "settled"', 'state = "guessed"', "state: is 'guessed'"),
        (
            'reports = ["resnet50-2020-08-08", "resnet50-2020-08-21"]',
            'reports = ["resnet50-2019"]',
            "'resnet50-2019' is unknown",
        ),
        ('cases = ["DP_PP_8x1x4_512_1536x16"]', 'cases = ["DP_PP_9"]', "'DP_PP_9' is unknown"),
        ("@503009c938f27f70b9e7e99bc073c984681b8d66:", "@503009c:", "all 40 digits"),
        ('slug = "gpt-3d-three-builds"', 'slug = "resnet50-accuracy-of-one"', "is that of another entry too"),
        ('slug = "gpt-3d-three-builds"', 'slug = "GPT builds"', "words in lower case"),
        ('date = "2020-08-13 22:20"', 'date = "13 August"', "a date"),
        ('en = "Weight decay is applied twice"', 'en = "Weight decay [twice]"', "title.en: has a bracket"),
        ("405.53 images/s", "405.35 images/s", "only one language has"),
        ('value = "5.7"', 'value = "5.8"', "not 5.8"),
    ],
)
def test_what_does_not_hold_is_refused(tmp_path, before, after, fault):
    text = FILE.read_text(encoding="utf-8")
    assert before in text
    file = tmp_path / "history.toml"
    file.write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(CaseError, match=re.escape(fault)):
        load_history(CATALOGUE, file)


def test_the_later_figures_of_bert_are_those_of_the_catalogue():
    """Both come from the same version of the report."""
    (report,) = (each for each in CATALOGUE.reports if each.id == "bert-2020-08-22")
    (entry,) = (each for each in HISTORY if each.slug == "bert-batch-size-48")
    rows = report.also("later run")
    assert len(rows) == 8
    assert {float(row["throughput"]) for row in rows} <= numbers(entry.text["en"]) & numbers(entry.sources[0].quote)

"""The model's report: the same in both languages, and the one in the repository."""

import re

import pytest

from repro.perfmodel.constants import load_calibration
from repro.perfmodel.validation import load_measurements
from repro.published.cases import load_catalogue
from repro.report.document import markdown
from repro.report.perfmodel.page import FOLDER, build, figures, tell
from repro.utils.i18n import LANGUAGES
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    story = tell(load_calibration())
    documents = {}
    for language in LANGUAGES:
        documents[language] = build(story, language, figures(story.results, folder, language))
        (folder / f"model.{language}.md").write_text(markdown(documents[language], folder), encoding="utf-8")
    return folder, documents


def test_regenerated_byte_for_byte(rendered):
    folder, _documents = rendered
    kept = ROOT / FOLDER
    names = sorted(file.name for file in folder.iterdir())
    assert names == sorted(file.name for file in kept.iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (kept / name).read_bytes(), f"{name}: run `make model` and commit it"


def test_both_languages_have_the_same_structure_and_numbers(rendered):
    _folder, documents = rendered
    zh, en = documents["zh"], documents["en"]
    assert [s.id for s in zh.sections] == [s.id for s in en.sections]
    for one, other in zip(zh.sections, en.sections, strict=True):
        assert [block.kind for block in one.blocks] == [block.kind for block in other.blocks]
        for mine, theirs in zip(one.blocks, other.blocks, strict=True):
            if mine.kind == "table":
                assert mine.id == theirs.id
                assert _numbers(mine) == _numbers(theirs)


def _numbers(table) -> list[list[float | None]]:
    return [[cell.sort for cell in row] for row in table.rows]


def test_chinese_has_no_english_sentence(rendered):
    folder, _documents = rendered
    text = re.sub(r"`[^`]*`", "", (folder / "model.zh.md").read_text(encoding="utf-8"))
    prose = [line for line in text.splitlines() if line and not line.startswith(("|", "!"))]
    assert not [line for line in prose if re.search(r"([A-Za-z]+ ){4,}", line)]


def test_cases_and_trainings_add_up(rendered):
    """Every published case was used for the fit or held out, and the tables have a row per training."""
    _folder, documents = rendered
    for document in documents.values():
        outcome = next(section for section in document.sections if section.id == "outcome")
        counts = [*map(int, re.findall(r"(?<![\w.])\d+", re.sub(r"`[^`]*`", "", outcome.blocks[1].text)))]
        rows = {
            block.id: len(block.rows)
            for section in document.sections
            for block in section.blocks
            if block.kind == "table"
        }
        cases = len(load_catalogue().ported)
        assert cases in counts
        fitted, held_out = sorted({count for count in counts if cases - count in counts})
        assert fitted + held_out == cases
        assert {rows["training"], rows["held-out"]} <= set(counts)
        assert rows["training"] <= fitted and rows["held-out"] <= held_out


def test_a_measured_figure_has_the_span_of_its_repeats(rendered):
    _folder, documents = rendered
    for document in documents.values():
        (table,) = (
            block for section in document.sections for block in section.blocks if getattr(block, "id", "") == "kept"
        )
        at = next(
            place for place, cell in enumerate(table.rows[0]) if cell.text == f"{load_measurements()[0].throughput:.1f}"
        )
        for row, measured in zip(table.rows, load_measurements(), strict=True):
            several = len(measured.runs) > 1 or measured.lowest < measured.highest
            assert row[at].note.endswith(f"n\u00a0=\u00a0{len(measured.runs)}") == several
            assert row[at].note.startswith(f"{measured.lowest:.1f}") == several


def test_the_measured_figures_name_their_program(rendered):
    _folder, documents = rendered
    (table,) = (
        block for section in documents["en"].sections for block in section.blocks if getattr(block, "id", "") == "kept"
    )
    at = [column.title for column in table.columns].index("Program")
    assert [row[at].text for row in table.rows] == [each.program for each in load_measurements()]

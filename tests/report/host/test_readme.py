"""The table in the project's READMEs: put in its place, found when it differs, removed without kept runs."""

import shutil

import pytest

from repro.report.host import readme
from repro.report.host.page import INDEX
from repro.report.host.readme import BEFORE, BEGIN, END, with_block
from repro.runs.record import RecordError
from repro.utils.paths import ROOT


@pytest.fixture
def root(tmp_path):
    """A folder with the READMEs, without the table."""
    for language, file in INDEX.items():
        shutil.copy(ROOT / file, tmp_path / file)
        text = (tmp_path / file).read_text(encoding="utf-8")
        (tmp_path / file).write_text(with_block(text, language, ""), encoding="utf-8")
    return tmp_path


def test_the_readme_gets_its_table_and_keeps_the_rest(root, host):
    before = {file: (root / file).read_text(encoding="utf-8") for file in INDEX.values()}
    assert {path.name for path in readme.differing([host], root)} == set(INDEX.values())
    readme.render([host], root)
    assert readme.differing([host], root) == []
    for language, file in INDEX.items():
        text = (root / file).read_text(encoding="utf-8")
        block = text[text.index(BEGIN) : text.index(END)]
        assert text.replace(f"{block}{END}\n\n", "") == before[file]
        assert text.index(END) < text.index(BEFORE[language])
        assert "\nmake bench MODEL=gpt FIT=2,4 RUNS=runs\n" in block
        status = {"en": "1 undecided", "zh": "待定 1"}[language]
        program = {"en": "published program", "zh": "原程序"}[language]
        assert f"| gpt | {program} | amp | 4 | 1 | 0.90 | ≥ 0.85 | {status} |" in block
        assert with_block(text, language, "") == before[file]
    readme.render([host], root)
    assert readme.differing([host], root) == []


def test_a_changed_table_is_found_and_replaced_in_its_place(root, host):
    readme.render([host], root)
    path = root / "README.md"
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace("| 0.90 |", "| 1.90 |"), encoding="utf-8")
    assert readme.differing([host], root) == [path]
    readme.render([host], root)
    assert path.read_text(encoding="utf-8") == right


def test_without_kept_runs_the_readme_has_no_table(root):
    assert readme.blocks([]) == {"en": "", "zh": ""}
    assert readme.differing([], root) == []


def test_a_readme_without_a_place_for_it_is_said():
    with pytest.raises(RecordError, match="neither the markers"):
        with_block("# Title\n", "en", f"{BEGIN}\nx\n{END}")

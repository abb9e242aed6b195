"""The page on method: what other pages link to is there, and what it says follows from the code."""

import re

import pytest

from repro.analysis.independence import student_coverage
from repro.models.variants import VARIANTS
from repro.report import method, numbers
from repro.report.document import markdown
from repro.report.html import check_same_structure
from repro.report.run.baselines import DESCRIPTIONS
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.paths import REPORTS
from tests.support.pages import anchors


def text(language="en"):
    return markdown(method.build(language), method.FOLDER)


def test_both_languages_have_the_same_sections():
    check_same_structure(method.build("en"), method.build("zh"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_sections_are_anchors_in_markdown_and_links_name_the_file_of_the_language(language):
    there = anchors(text(language))
    assert {section.id for section in method.build(language).sections} <= there
    link = method.link(catalogue(language).gettext, "sessions", "words")
    assert link == f"[words](../../{method.file_name(language)}#sessions)"


def test_every_baseline_is_described():
    assert set(VARIANTS) == set(DESCRIPTIONS)
    assert [name for name in VARIANTS if f"- `{name}`: " not in text()] == []


def test_the_coverage_of_intervals_is_the_simulated_one():
    coverages = [student_coverage(sessions) for sessions in range(2, 7)]
    assert f"they hold {numbers.percentage(min(coverages))} to {numbers.percentage(max(coverages))}" in text()


WORDS = 35
"""A paragraph that is longer holds for one page only."""


def test_pages_of_hosts_and_reports_repeat_no_paragraph():
    """What holds for several pages is said on the page on method, which they link to; captions of figures stay short."""
    pages = [*sorted(REPORTS.glob("published/*-*.en.md")), *sorted(REPORTS.glob("reproduced/*/README.md"))]
    seen: dict[str, set[str]] = {}
    for page in pages:
        for paragraph in re.split(r"\n\s*\n", page.read_text(encoding="utf-8")):
            words = " ".join(re.sub(r"\d[\d.]*|`[^`]*`|\[[^]]*\]\([^)]*\)", "", paragraph).split())
            if not paragraph.startswith(("|", "!", "#", "*", "- `")) and len(words.split()) > WORDS:
                seen.setdefault(words, set()).add(page.parent.name + "/" + page.name)
    assert {words: names for words, names in seen.items() if len(names) > 1} == {}

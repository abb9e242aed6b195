"""The prose of the project, held to `repro/data/glossary.toml`: one word per concept, plain English, native Chinese.

What counts as prose is read from the sources of every text: messages and their translations, data with texts in both
languages, documents, templates, and the pages under `reports/`. Code, links and placeholders are no prose.
"""

import html
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from babel.messages.pofile import read_po

from repro.utils.i18n import FOLDER, LANGUAGES
from repro.utils.paths import DATA, PACKAGE
from tests.support.paths import ROOT

GLOSSARY = tomllib.loads((DATA / "glossary.toml").read_text(encoding="utf-8"))
DOCUMENTS = ("README*.md", "*/README*.md", "docs/**/*.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
CHINESE = "[一-鿿]"
UNITS = r"(?:ms|s|µs|us|MiB|GiB|MB|GB|%|samples/s|GB/s|TFLOP/s|MHz|°C|W)"
HALF_WIDTH, FULL_WIDTH = rf"\([^()\n]*{CHINESE}[^()\n]*\)", rf"（{UNITS}）"
PERCENT = r"[\d_] %(?![A-Za-z(])"
NOT_PROSE = re.compile(
    r"^```.*?^```[^\n]*$"  # fenced code
    r"|<!--.*?-->|<a id=[^>]*></a>|</?[a-z][^>]*>"  # comments, anchors and tags
    r"|\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}"  # template expressions
    r"|!\[[^\]]*\](?=\()"  # descriptions of figures, which join titles
    r"|`[^`\n]*`|(?<=\])\([^)\s]*\)|https?://[^\s)]+"  # code, targets of links, addresses
    r"|(?<!\{)\{\w*(?:[:!][^}]*)?\}",  # placeholders of messages
    re.DOTALL | re.MULTILINE,
)
WORD = r"[A-Za-z][A-Za-z'’-]*"
RUN_OF_ENGLISH = re.compile(rf"(?:\b{WORD}[,;:]? ){{{GLOSSARY['english']['words'] - 1},}}{WORD}\b")
QUOTED = re.compile(r"^原报告 tables? |SIGABRT|Must be non NULL|(?:[a-z]+-[a-z-]+, ){2}")
"""English that stays on Chinese pages: headings of published reports, program output, lists of deviations by their ids."""
NAMES = re.compile("|".join(GLOSSARY["english"]["names"]))


def prose(text: str) -> str:
    """The text with everything that is no prose replaced by "_"."""
    return NOT_PROSE.sub("_", text)


@cache
def texts(language: str) -> list[tuple[str, str]]:
    """The prose of every text of a language, with the place to correct it."""
    return [(place, prose(text)) for place, text in chain(messages(language), data(language), files(language))]


def messages(language: str) -> Iterator[tuple[str, str]]:
    for file in sorted(FOLDER.glob("zh/LC_MESSAGES/*.po")):
        with open(file, "rb") as source:
            for message in read_po(source):
                if message.id:
                    yield file.name, message.id if language == "en" else message.string


def data(language: str) -> Iterator[tuple[str, str]]:
    def inside(value: object) -> Iterator[str]:
        if isinstance(value, dict) and set(value) == set(LANGUAGES):
            yield str(value[language])
        elif isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                yield from inside(each)

    for file in sorted([*DATA.rglob("*.toml"), *(PACKAGE / "models").glob("*.toml")]):
        text = file.read_text(encoding="utf-8")
        yield from ((file.name, each) for each in inside(tomllib.loads(text)))
        if language == "en" and file.name != "glossary.toml":
            yield file.name, "\n".join(re.findall(r"^# ?(.*)$", text, re.MULTILINE))


def files(language: str) -> Iterator[tuple[str, str]]:
    documents = [path for pattern in DOCUMENTS for path in ROOT.glob(pattern)]
    pages = [*(ROOT / "reports").rglob("*.md"), *PACKAGE.rglob("*.md.j2"), *PACKAGE.rglob("*.html.j2")]
    for path in sorted({*documents, *pages}):
        if language == ("zh" if ".zh." in path.name else "en"):
            yield str(path.relative_to(ROOT)), _read(path)


def _read(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.name == "CHANGELOG.md":  # earlier releases stay as they were
        text = "## ".join(text.split("## ")[:2])
    return text


def avoided(language: str) -> Iterator[tuple[str, str]]:
    """Each word to avoid with the one to use, or the reason."""
    for entry in (*GLOSSARY["term"], *GLOSSARY["style"]):
        for pattern in entry.get(f"avoid_{language}", ()):
            yield pattern, entry.get("why") or entry[language]


def found(language: str, pattern: str) -> list[tuple[str, str]]:
    """Place and surroundings of the first match of a pattern in each text of a language."""
    matches = ((place, re.search(pattern, text), text) for place, text in texts(language))
    return [(place, text[max(0, each.start() - 30) : each.end() + 30]) for place, each, text in matches if each]


@pytest.mark.parametrize(
    ("language", "pattern", "instead"), [(one, *each) for one in LANGUAGES for each in avoided(one)]
)
def test_one_word_per_concept(language, pattern, instead):
    assert found(language, pattern) == [], f"use: {instead}"


@pytest.mark.parametrize("pattern", [HALF_WIDTH, FULL_WIDTH])
def test_brackets_are_half_width_around_units_and_full_width_around_chinese(pattern):
    assert found("zh", pattern) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_percent_signs_follow_their_number(language):
    assert found(language, PERCENT) == []


def test_no_english_sentence_on_a_chinese_page():
    assert {(place, run) for place, text in texts("zh") for run in english(text)} == set()


def test_no_english_sentence_on_a_chinese_page_of_the_site(site):
    """Texts between tags, without code and logs, what errors printed, and headings of published reports."""
    found = set()
    for path in sorted((site / "zh").glob("*.html")):
        text = re.sub(r"<(script|style|code|pre)\b.*?</\1>", "_", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        nodes = (html.unescape(node) for node in re.split(r"<[^>]*>", text) if " " in node)
        found |= {(path.name, run) for node in nodes if not QUOTED.search(node) for run in english(node)}
    assert found == set()


def english(text: str) -> list[str]:
    """Runs of English words that are no names."""
    return RUN_OF_ENGLISH.findall(NAMES.sub("_", prose(text)))


# What the checks see


def test_every_kind_of_text_is_checked():
    places = {language: {place for place, _ in texts(language)} for language in LANGUAGES}
    assert {"README.zh.md", "docker/README.zh.md", "reports/published/README.zh.md", "verdict.po"} <= places["zh"]
    assert {"README.md", "CONTRIBUTING.md", "reports/model/model.en.md", "verdict.po"} <= places["en"]
    for language in LANGUAGES:
        assert {"history.toml", "deviations.toml"} <= places[language]


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("结果 the links can do it 好", ["the links can do it"]),
        ("`the links can do it`", []),
        ("[文本](the/links/can/do)", []),
        ("型号 Intel(R) Xeon(R) Gold 5118 CPU @ 2.30GHz", []),
        ("只有 three English words 而已", []),
    ],
)
def test_english_is_distinguished_from_code_and_names(text, runs):
    assert english(text) == runs


@pytest.mark.parametrize(
    ("pattern", "bad", "good"),
    [
        (HALF_WIDTH, "显存 (每卡)", "显存（每卡）"),
        (FULL_WIDTH, "延迟（ms）", "延迟 (ms)"),
        (PERCENT, "2 % of it", "2% of it"),
    ],
)
def test_the_typography_that_is_rejected(pattern, bad, good):
    assert re.search(pattern, prose(bad)) and not re.search(pattern, prose(good))


def test_no_chosen_term_is_one_to_avoid():
    for language in LANGUAGES:
        for pattern, _ in avoided(language):
            for term in GLOSSARY["term"]:
                assert not re.search(pattern, term[language]), (pattern, term[language])

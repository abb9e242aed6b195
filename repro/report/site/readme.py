"""Puts the answer, as the home page gives it, into the project's READMEs, between two markers."""

from __future__ import annotations

import re
from pathlib import Path

from repro.report.document import Document, Figure, Section, Table, markdown
from repro.report.site import home
from repro.report.site.pages import Content
from repro.runs.files import RecordError
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.paths import ROOT

BEGIN, END = "<!-- answer:begin -->", "<!-- answer:end -->"
FILES = {"en": "README.md", "zh": "README.zh.md"}
PAGES = {"index": "{index}", "claims": "reports/claims.csv", "published": "reports/published/{index}"}
LINK = re.compile(r"\]\(([\w.-]+)\.html(#[^)\s]*)?\)")


def expected(content: Content, figures: dict[str, Figure], root: Path = ROOT) -> dict[Path, str]:
    """The text that each README should have; `figures` are those of the home page by language.

    RecordError for a README without the markers.
    """
    texts = {}
    for language in LANGUAGES:
        path = root / FILES[language]
        text = path.read_text(encoding="utf-8")
        if text.count(BEGIN) != 1 or text.count(END) != 1:
            raise RecordError(f"{path}: there must be one {BEGIN} and one {END}, with the answer in between")
        head, rest = text.split(BEGIN)
        texts[path] = f"{head}{BEGIN}\n{block(content, language, figures[language])}\n{END}{rest.split(END)[1]}"
    return texts


def block(content: Content, language: str, figure: Figure) -> str:
    """The answer in one language as Markdown."""
    _ = catalogue(language).gettext
    reports = home.reports(_, language, content.audit, content.claims)
    (table,) = (candidate for candidate in reports.blocks if isinstance(candidate, Table))
    blocks = (*home.result(_, content.audit, content.hosts, content.claims), table, figure)
    section = Section("answer", _("The answer"), blocks)
    text = markdown(Document(language, "", "", (section,)), ROOT)
    return linked(text[text.index("##") :].strip(), language)


def linked(text: str, language: str) -> str:
    """Markdown with links to the repository's files in place of those to pages of the site."""
    return LINK.sub(lambda link: f"]({_file(link[1], language)}{_anchor(*link.groups())})", text)


def _anchor(page: str, fragment: str | None) -> str:
    """The fragment of a link, where the page's Markdown has that anchor too; "" elsewhere."""
    return fragment if fragment and page == "published" else ""


def _file(page: str, language: str) -> str:
    """The file of the repository that has what a page of the site shows."""
    if page.startswith("report-"):
        return f"reports/published/{page.removeprefix('report-')}.{language}.md"
    if page.startswith("host-"):
        return f"reports/reproduced/{page.removeprefix('host-')}/{FILES[language]}"
    return PAGES[page].format(index=FILES[language])

"""Writes the site into a folder, and the files of the repository that are made from the same data."""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path

from repro.report import method
from repro.report.document import Attachment, Document, markdown, template
from repro.report.html import LANGUAGE_NAMES, LANGUAGE_TAGS, attached, block_functions, script_of, style_of, words
from repro.report.site import links, readme, reproduce
from repro.report.site.anchors import anchored
from repro.report.site.claims import csv
from repro.report.site.comparisons import comparison_rows
from repro.report.site.pages import Content, Page, home_figures, navigation, pages
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.paths import REPORTS, ROOT
from repro.utils.progress import Steps, said_meanwhile

FOLDER = REPORTS / "site"
"""Where `make site` writes the pages, which links between them and the reports start from; git ignores it."""
FIGURES = REPORTS / "figures"
CLAIMS = "claims.csv"
ARTIFACTS = {"en": "ARTIFACT.md", "zh": "ARTIFACT.zh.md"}
POLICY = (
    "default-src 'none'; style-src {0}; script-src {0}; img-src {0} data:; base-uri 'none'; form-action 'none'".format(
        "'self' file:"
    )
)
"""The site's own files and nothing else. For pages opened from a disk not every browser counts these as 'self'."""
DESCRIPTION = 155
"""Characters of a page's description that search engines show."""


def render(folder: Path = FOLDER, jobs: int | None = None) -> list[Path]:
    """Write all pages into a folder that is emptied first; their paths.

    Links lead where they do from `FOLDER`, whatever the folder. `jobs` is the number of processes, by default one per
    processor.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for language in LANGUAGES:
        (folder / language).mkdir(parents=True)
    assets = {"site.css": style_of("document.css.j2", "site.css"), "site.js": script_of("page.js", "site.js")}
    (folder / "assets").mkdir()
    for name, text in assets.items():
        (folder / "assets" / name).write_text(text, encoding="utf-8", newline="\n")
    names = [page.name for page in pages(content())]
    steps = Steps(len(names), "pages")
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        futures = {pool.submit(_write, folder, name): name for name in names}
        with said_meanwhile(steps.now, share=steps.share):
            for future in as_completed(futures):
                future.result()
                steps.done(futures[future])
    (folder / "index.html").write_text(_entrance(), encoding="utf-8")
    return [path for path in folder.rglob("*") if path.is_file()]


@cache
def content() -> Content:
    """What the site shows, read once per process."""
    return Content.load()


@said_meanwhile(lambda: "reading the kept runs")
def tables() -> dict[Path, str]:
    """The files outside the site that come from the same data, by their place: claims, appendix, READMEs and their figure."""
    site_content = content()
    with tempfile.TemporaryDirectory() as scratch:
        drawn = {language: home_figures(site_content, language, Path(scratch))[0] for language in LANGUAGES}
        pictures = {FIGURES / figure.file.name: figure.file.read_text(encoding="utf-8") for figure in drawn.values()}
    shown = {language: replace(block, file=FIGURES / block.file.name) for language, block in drawn.items()}
    appendix = {
        language: markdown(reproduce.build(language, site_content.claims, site_content.hosts), ROOT)
        for language in LANGUAGES
    }
    return {
        **pictures,
        **readme.expected(site_content, shown),
        REPORTS / CLAIMS: csv(site_content.claims, comparison_rows(site_content.audit, site_content.hosts)),
        **{
            method.FOLDER / method.file_name(language): markdown(method.build(language), method.FOLDER)
            for language in LANGUAGES
        },
        **{ROOT / ARTIFACTS[language]: readme.linked(appendix[language], language) for language in LANGUAGES},
    }


def write() -> list[Path]:
    """Write the site and the files outside it; the paths of the home pages and of these files."""
    texts = tables()
    FIGURES.mkdir(exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    render()
    return [*(FOLDER / language / "index.html" for language in LANGUAGES), *texts]


def differing() -> list[Path]:
    """The files of the repository that are missing or not what the data gives; the pages are not among them."""
    return sorted(path for path, text in tables().items() if not path.is_file() or path.read_text("utf-8") != text)


def _write(folder: Path, name: str) -> None:
    """Write one page in both languages; for a process of the pool, which reads the content once."""
    site_content = content()
    every = {page.name: page for page in pages(site_content)}
    with tempfile.TemporaryDirectory() as scratch:
        drawn = Path(scratch)
        documents = {language: every[name].build(language, drawn) for language in LANGUAGES}
        for language, document in documents.items():
            shown = anchored(document, {claim.id for claim in site_content.claims})
            text = html(every[name], shown, set(every))
            (folder / language / f"{name}.html").write_text(text, encoding="utf-8", newline="\n")


def html(page: Page, document: Document, names: set[str]) -> str:
    """One page in one language."""
    language = document.language
    _ = catalogue(language).gettext
    resolve = links.resolver(page.base, FOLDER / language, names, links.rendered())

    def attachment(block: Attachment) -> dict:
        target = resolve(str(block.file))
        if target and target.endswith(".html"):
            return {"href": target, "name": "", "size": ""}
        return {**attached(block, FOLDER / language, embedded=False)}

    return template("site.html.j2").render(
        page=page,
        document=document,
        tag=LANGUAGE_TAGS[language],
        others=[(other, LANGUAGE_TAGS[other], LANGUAGE_NAMES[other]) for other in LANGUAGES if other != language],
        navigation=navigation(_, content().hosts),
        words=words(_),
        description=_plain(document.lead)[:DESCRIPTION],
        policy=POLICY,
        **block_functions(attachment, resolve),
    )


def _plain(text: str) -> str:
    """A text without the marks of code, links and stress."""
    from markupsafe import Markup

    from repro.report.html import prose

    return Markup(prose(text, lambda target: None)).striptags()


def _entrance() -> str:
    """The page at the top, which leads to the reader's language without a script."""
    return template("entrance.html.j2").render(
        languages=[(language, LANGUAGE_TAGS[language], LANGUAGE_NAMES[language]) for language in LANGUAGES]
    )

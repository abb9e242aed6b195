"""Where the links in a page's texts lead on the site."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from repro.report import method
from repro.utils.i18n import LANGUAGES
from repro.utils.paths import REPORTS

INDEX = {"README.md": "en", "README.zh.md": "zh"}


@cache
def rendered() -> dict[Path, str]:
    """The Markdown pages that the site has as well, by the name of the site's page."""
    published, reproduced = REPORTS / "published", REPORTS / "reproduced"
    page_names: dict[Path, str] = {}
    for language in LANGUAGES:
        suffix = f".{language}.md"
        for path in published.glob(f"*{suffix}"):
            page_names[path] = f"report-{path.name.removesuffix(suffix)}"
        page_names[REPORTS / "model" / f"model{suffix}"] = "model"
        page_names[method.FOLDER / method.file_name(language)] = "method"
    for index in INDEX:
        page_names[published / index] = "published"
        page_names |= {path: f"host-{path.parent.name}" for path in reproduced.glob(f"*/{index}")}
    page_names[REPORTS / "claims.csv"] = "claims"
    return {path.resolve(): name for path, name in page_names.items()}


def resolver(base: Path, folder: Path, names: set[str], page_names: dict[Path, str]) -> Callable[[str], str | None]:
    """What turns the target of a link in a text into one of the page; None for what a reader could not open.

    Parameters
    ----------
    base : the folder from which relative targets start.
    folder : the folder that the page is in, two below the reports'.
    names : the pages of the site, which targets ending in `.html` name.
    known : what `rendered` gives.
    """

    def resolve(target: str) -> str | None:
        if target.startswith("#") or urlsplit(target).scheme in ("http", "https"):
            return target
        page, _, fragment = target.partition("#")
        fragment = f"#{fragment}" if fragment else ""
        if page.removesuffix(".html") in names and page.endswith(".html"):
            return target
        path = (base / page).resolve()
        if path in page_names:
            return f"{page_names[path]}.html{fragment}"
        shown = REPORTS.resolve() in path.parents and path.is_file()
        return Path(os.path.relpath(path, folder)).as_posix() + fragment if shown else None

    return resolve

"""What is committed under reports/: few and small files, and links that lead to files or anchors that there are."""

import functools
import html.parser
from pathlib import Path

import pytest

from repro.utils.paths import REPORTS, ROOT
from tests.support.pages import anchors, links

PAGES = [*sorted(REPORTS.rglob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]


SITE = REPORTS / "site"
PAGE_BYTES = 300_000


def files():
    return [path for path in REPORTS.rglob("*") if path.is_file()]


def test_beside_the_site_and_one_archive_for_each_run_there_are_few_and_small_files():
    """Fewer than 60, than 25 of each host that measured anything, and 4 MB in all."""
    others = [path for path in files() if SITE not in path.parents and path.suffix != ".zip"]
    folders = {path.name: path for path in (REPORTS / "reproduced").iterdir() if path.is_dir()}
    numbers = {name: sum(folder in path.parents for path in others) for name, folder in folders.items()}
    assert {name: number for name, number in numbers.items() if number >= 25} == {}
    assert len(others) - sum(numbers.values()) < 60
    assert sum(path.stat().st_size for path in others) < 4_000_000


def test_every_figure_is_shown_by_a_page():
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page.read_text(encoding="utf-8"))}
    drawn = {path for path in REPORTS.rglob("*.svg") if SITE not in path.parents}
    assert drawn and sorted(drawn - shown) == []


def test_the_archives_of_a_host_stay_below_10_mb_and_all_below_20():
    hosts = [path for path in (REPORTS / "reproduced").iterdir() if path.is_dir()]
    sizes = {host.name: sum(path.stat().st_size for path in host.glob("runs/*.zip")) for host in hosts}
    assert {name: size for name, size in sizes.items() if size >= 10_000_000} == {}
    assert sum(sizes.values()) < 20_000_000


def test_no_page_of_the_site_is_larger_than_300_kb(site):
    sizes = {path.name: path.stat().st_size for path in site.rglob("*.html")}
    assert sizes
    assert {name: size for name, size in sizes.items() if size > PAGE_BYTES} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    for link in links(page.read_text(encoding="utf-8")):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


class Page(html.parser.HTMLParser):
    """The identifiers and links of an HTML page."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.ids |= {named["id"]} if named.get("id") else set()
        self.links += [named[name] for name in ("href", "src") if named.get(name)]


@functools.cache
def read(file: Path) -> Page:
    return Page(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", sorted(SITE.rglob("*.html")), ids=lambda path: path.relative_to(SITE).as_posix())
def test_every_link_of_an_html_page_leads_somewhere(file):
    page = read(file)
    assert page.links
    for link in page.links:
        if link.startswith(("data:", "https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (file.parent / name).resolve() if name else file
        assert target.exists(), link
        if anchor:
            assert anchor in read(target).ids, link

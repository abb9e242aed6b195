"""The site in a real browser, opened from the disk: accessible, no wider than the screen, filters, languages, no script."""

import pytest

from repro.runs.digests import REPRODUCED
from repro.utils.i18n import LANGUAGES

AXE = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make setup")
HOSTS = sorted(f"host-{path.parent.name}" for path in REPRODUCED.glob("*/runs"))
PAGES = ["index", "claims", "published", "report-gpt-3d-2021-05", "method", "model"]
PAGES += ["reproduce"]
PAGES += HOSTS
FIRST = ("index", "claims")
"""The pages that are tried in every way; the others in one each, by turns."""


@pytest.fixture
def address(site):
    """The address of a page by its name."""
    return lambda name, language="en": (site / language / f"{name}.html").as_uri()


@pytest.fixture
def opened(browser):
    """Opens a page in a context of its own; what the page complains of fails the test."""
    contexts, complaints = [], []

    def open_page(url: str, width: int = 1280, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda sent: complaints.append(sent.url) if not sent.url.startswith(("file:", "data:", "blob:")) else None,
        )
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


WAYS = [("en", "light", 1280), ("zh", "light", 390), ("en", "dark", 390), ("zh", "dark", 1280)]
"""Each language, scheme and width with each other one at least once."""


@pytest.mark.parametrize(
    "name, language, scheme, width",
    [(name, *way) for index, name in enumerate(PAGES) for way in (WAYS if name in FIRST else (WAYS[index % 4],))],
)
def test_axe_finds_nothing_and_the_page_is_no_wider_than_the_screen(opened, address, name, language, scheme, width):
    page = opened(address(name, language), width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = AXE.Axe().run(page, options={"preload": False, "resultTypes": ["violations"]})
    assert [(each["id"], each["nodes"][0]["html"][:120]) for each in found.response["violations"]] == []


def test_filters_leave_the_rows_that_match(opened, address):
    page = opened(address("claims"))
    shown = page.locator("[data-table=claims] tbody tr:visible")
    every = shown.count()
    page.get_by_label("Figure", exact=True).select_option("speed-up")
    speedups = shown.count()
    assert 0 < speedups < every
    page.locator("#claims").get_by_label("Search").fill("bert 24")
    assert 0 < shown.count() < speedups
    assert all("bert" in text and "speed-up" in text for text in shown.all_inner_texts())
    assert page.locator(".filters output").first.inner_text() == f"{shown.count()} of {every} rows"


def test_a_table_is_downloaded_as_csv(opened, address):
    page = opened(address("claims"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").first.click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("Case,Figure,Model,GPUs,Published")
    assert len(lines) == 1 + page.locator("[data-table=claims] tbody tr").count()


def test_switching_the_language_keeps_the_place(opened, address):
    page = opened(address("published"))
    page.evaluate("document.querySelector('#noise').scrollIntoView()")
    page.get_by_role("link", name="中文").evaluate("link => link.click()")  # a click of Playwright's scrolls the page
    page.wait_for_url("**/zh/published.html#noise")
    assert abs(page.evaluate("document.querySelector('#noise').getBoundingClientRect().top")) < 300


def test_a_link_to_a_case_opens_its_fold(opened, address):
    page = opened(address("claims") + "#bert_1n1g_bs96")
    assert page.locator("[id='bert_1n1g_bs96']").evaluate("each => each.open")
    assert page.get_by_text("make bench MODEL=bert CASES=bert_1n1g_bs96").is_visible()


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_scripts_everything_is_there(opened, address, language):
    page = opened(address("claims", language), java_script_enabled=False)
    assert page.locator("[data-table=claims] tbody tr:visible").count() == 119
    other = "English" if language == "zh" else "中文"
    page.get_by_role("link", name=other).click()
    assert f"/{'en' if language == 'zh' else 'zh'}/claims.html" in page.url


def test_the_entrance_leads_on(opened, site):
    page = opened((site / "index.html").as_uri())
    page.wait_for_url("**/index.html")
    assert page.locator("h1").inner_text()


def test_a_printed_table_has_its_headers_as_text(opened, address):
    """Chromium paints no button where a header is repeated on a further page."""
    page = opened(address("claims"))
    page.emulate_media(media="print")
    heads = page.locator("[data-table=claims] thead th")
    for head in heads.all():
        assert not head.locator("button").is_visible()
        shown = head.evaluate("each => getComputedStyle(each, '::before').content")
        assert shown.strip('"') == head.get_attribute("data-title")


A4 = 688
"""Pixels between the margins of a sheet."""
SHEET = 1001
"""The same in height."""


@pytest.mark.parametrize("name", PAGES)
def test_a_printed_page_fits_the_paper(opened, address, name):
    """Nothing is cut off at the right, and what is folded on the screen is on paper."""
    page = opened(address(name, "en"), width=A4)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details:not([open])')].length") == 0
    wide = f"each => each.getBoundingClientRect().right > {A4 + 1}"
    assert (
        page.evaluate(
            f"[...document.querySelectorAll('table, figure svg')].filter({wide}).map(each => each.dataset.table ?? 'svg')"
        )
        == []
    )
    assert page.evaluate(f"({PRINTED}).filter(size => size < 5)") == [], "text of figures, in pixels"
    assert page.pdf(format="A4").startswith(b"%PDF")
    tall = f"each => each.getBoundingClientRect().height > {SHEET / 2}"
    unbroken = (
        f"[...document.querySelectorAll('tr, figure, li')].filter({tall}).map(each => each.textContent.slice(0, 80))"
    )
    assert page.evaluate(unbroken) == [], "what is kept on one sheet leaves at most half of the one before blank"


@pytest.fixture
def every_page(opened, site):
    """Each page of a language by its name, opened at a width with nothing folded."""

    def pages(language: str, width: int):
        names = sorted(path.stem for path in (site / language).glob("*.html"))
        assert set(PAGES) < set(names)
        page = opened("about:blank", width)
        for name in names:
            page.goto((site / language / f"{name}.html").as_uri())
            page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            yield name, page

    return pages


BEYOND = """[...document.querySelectorAll('figure')].flatMap(figure => {
    const column = figure.parentElement.getBoundingClientRect(), drawn = figure.querySelector('svg');
    const inside = box => box.left >= column.left - 1 && box.right <= column.right + 1;
    const scrolling = [figure, ...figure.querySelectorAll('*')].filter(
        each => !(each instanceof SVGElement) && each.scrollWidth > each.clientWidth
    );
    return [drawn, ...drawn.querySelectorAll('text')].filter(each => !inside(each.getBoundingClientRect()))
        .concat(scrolling).map(each => each.textContent.slice(0, 80));
})"""
"""Figures, or texts of them, that end beyond their column, and what of a figure scrolls sideways."""
PRINTED = """[...document.querySelectorAll('figure svg')].flatMap(svg => {
    const drawn = svg.viewBox.baseVal, paper = svg.getBoundingClientRect();
    const scale = Math.min(paper.width / drawn.width, paper.height / drawn.height);
    return [...svg.querySelectorAll('text')].map(text => scale * parseFloat(getComputedStyle(text).fontSize));
})"""
"""How high the texts of figures are, in pixels, where a figure is as high as the paper lets it be."""
SMALL = """[...document.querySelectorAll('figure svg')].flatMap(svg => [...svg.querySelectorAll('text')].filter(
    text => parseFloat(getComputedStyle(text).fontSize) * svg.clientWidth / svg.viewBox.baseVal.width < 8.95
).map(text => text.textContent))"""
"""Texts of figures that are less than 9 pixels high."""


@pytest.mark.parametrize("language", LANGUAGES)
def test_on_a_phone_every_figure_is_seen_whole_and_can_be_read(every_page, language):
    shown = 0
    for name, page in every_page(language, 390):
        shown += page.locator("figure svg").count()
        assert (name, page.evaluate(BEYOND), page.evaluate(SMALL)) == (name, [], [])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    assert shown > 20


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_table_is_wider_than_its_column_on_a_desktop(every_page, language):
    wide = """[...document.querySelectorAll('table')].map(table => [
        table.dataset.table, table.parentElement.scrollWidth, table.parentElement.clientWidth
    ])"""
    shown = 0
    for name, page in every_page(language, 1280):
        tables = page.evaluate(wide)
        shown += len(tables)
        assert (name, [each for each in tables if each[1] > each[2]]) == (name, [])
    assert shown > 100


@pytest.mark.parametrize(
    "language, short", [("en", ["Place", "Severity", "Why"]), ("zh", ["位置", "级别", "说明"])], ids=LANGUAGES[::-1]
)
def test_the_audit_shows_every_column_on_a_desktop_and_the_first_ones_on_a_phone(opened, address, language, short):
    titles = """[...document.querySelectorAll('[data-table=audit] thead th')].filter(
        each => each.checkVisibility() && each.getBoundingClientRect().right <= innerWidth
    ).map(each => each.dataset.title)"""
    every = """[...document.querySelectorAll('[data-table=audit] thead th')].map(each => each.dataset.title)"""
    page = opened(address("published", language))
    assert page.evaluate(titles) == page.evaluate(every)
    assert len(page.evaluate(every)) == 7
    assert opened(address("published", language), 390).evaluate(titles) == short


@pytest.mark.parametrize("language", ("en", "zh"))
@pytest.mark.parametrize(
    "name, table", [("index", "speed"), ("claims", "claims"), ("reproduce", "without-gpu"), ("reproduce", "hardware")]
)
def test_a_table_that_answers_a_readers_question_is_whole_on_a_phone(opened, address, name, table, language):
    """Both ratios, what was measured, and what to run are seen without scrolling within the table."""
    page = opened(address(name, language), width=390)
    sizes = page.evaluate(
        f"(table => [table.scrollWidth, table.parentElement.clientWidth])(document.querySelector('[data-table={table}]'))"
    )
    assert 200 < sizes[0] <= sizes[1]

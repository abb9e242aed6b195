"""The HTML report in a real browser, opened from a file as a reader opens it."""

from contextlib import contextmanager

import pytest

from repro.report.html import html
from tests.support.paths import ROOT
from tests.support.sample_report import sample

OUTPUT = ROOT / "tests" / "output"
TITLES = [("zh", "zh-CN", "评测复现"), ("en", "en", "Benchmark reproduction")]
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
TRIES = 20
NO_STORAGE = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('no storage') }})"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    page = folder / "report.html"
    documents = sample(folder)
    page.write_text(html({"zh": documents["zh"], "en": documents["en"]}, folder), encoding="utf-8")
    return page.as_uri()


@pytest.fixture
def opened(browser, address):
    """Opens the report in a context of its own; fails the test if the page logs or requests anything."""

    @contextmanager
    def opening(hash="#en-top", viewport=DESKTOP, before=None, **context):
        context = browser.new_context(**{"viewport": viewport, "locale": "en-GB", **context})
        page = context.new_page()
        messages, requests = [], []
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        if before:
            page.add_init_script(before)
        page.goto(address + hash)
        yield page
        context.close()
        assert messages == []
        assert {each.split("#")[0] for each in requests if not each.startswith("data:")} == {address}

    return opening


def visible(page, selector):
    return [each for each in page.query_selector_all(selector) if each.is_visible()]


def language(page):
    return page.evaluate("document.documentElement.lang")


def switch(page, to):
    """Press where the link is: Playwright's own click would first scroll the page."""
    box = page.locator(f".languages [data-language={to}]").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def under_the_bar(page):
    """The block at the top of the window, and what share of it has gone by."""
    return page.evaluate("""() => {
        const edge = document.querySelector(".bar").getBoundingClientRect().bottom;
        for (const block of document.querySelectorAll("[data-at]")) {
            const box = block.getBoundingClientRect();
            if (box.height && box.bottom > edge + 1) return [block.dataset.at, (edge - box.top) / box.height];
        }
    }""")


@pytest.mark.parametrize(("code", "tag", "title"), TITLES)
def test_shows_one_language_and_takes_a_picture(opened, code, tag, title):
    with opened(f"#{code}-top") as page:
        assert (language(page), page.title()) == (tag, title)
        assert [each.inner_text() for each in visible(page, "h1")] == [title]
        assert page.locator("[aria-current=true]").get_attribute("data-language") == code
        OUTPUT.mkdir(exist_ok=True)
        page.screenshot(path=OUTPUT / f"report.{code}.png", full_page=True)
        assert (OUTPUT / f"report.{code}.png").stat().st_size > 20_000


@pytest.mark.parametrize(("locale", "tag"), [("zh-CN", "zh-CN"), ("en-US", "en"), ("de-DE", "en")])
def test_begins_in_the_browsers_language(opened, locale, tag):
    with opened("", locale=locale) as page:
        assert language(page) == tag


@pytest.mark.parametrize("place", ["results", "figures", "part-2", "details", "part-5", "environment"])
def test_switching_keeps_the_place(opened, place):
    with opened(f"#en-{place}", viewport={"width": 1280, "height": 400}) as page:
        page.evaluate("window.scrollBy(0, 70)")
        at, gone = under_the_bar(page)
        switch(page, "zh")
        there, gone_there = under_the_bar(page)
        assert language(page) == "zh-CN"
        assert (there, gone_there) == (at, pytest.approx(gone, abs=0.06))
        switch(page, "en")
        assert under_the_bar(page) == [at, pytest.approx(gone, abs=0.06)]


def test_language_and_place_are_in_the_address(opened):
    with opened("#en-part-4", viewport={"width": 1280, "height": 400}) as page:
        switch(page, "zh")
        assert page.evaluate("location.hash") == "#zh-part-4"
        page.reload()
        assert language(page) == "zh-CN"
        assert under_the_bar(page)[0].split(".")[0] == "part-4"


def test_a_link_into_the_other_language_changes_it(opened):
    with opened("#en-top") as page:
        page.evaluate("location.hash = '#zh-part-3'")
        page.wait_for_function("document.documentElement.lang === 'zh-CN'")
        assert under_the_bar(page)[0] == "part-3"


def test_language_is_remembered_without_an_address(opened, address):
    with opened("#en-top") as page:
        switch(page, "zh")
        # What is stored reaches the process of another page a moment later.
        for _ in range(TRIES):
            page.goto("about:blank")
            page.goto(address)
            if language(page) == "zh-CN":
                break
            page.wait_for_timeout(100)
        assert language(page) == "zh-CN"


def test_works_where_nothing_can_be_stored(opened):
    with opened("#en-top", before=NO_STORAGE) as page:
        switch(page, "zh")
        page.click(".theme")
        assert language(page) == "zh-CN"
        assert page.get_attribute("html", "data-theme") == "dark"


def column(page, index, code="en"):
    rows = page.query_selector_all(f".edition[data-in={code}] table[data-table=results] tbody tr")
    cells = [row.query_selector_all("th, td")[index] for row in rows]
    return [(cell.query_selector(":scope > span") or cell).text_content() for cell in cells]


def header(page, index):
    return page.locator(".edition[data-in=en] table[data-table=results] thead th").nth(index)


COLOURS = """cells => {
    const good = document.body.appendChild(document.createElement("i"));
    good.style.color = "var(--good)";
    return cells.map(cell => [cell.querySelector("small") !== null,
        getComputedStyle(cell.querySelector(":scope > span") ?? cell).color === getComputedStyle(good).color]);
}"""


def test_what_is_good_has_its_colour_beside_a_note_and_alone(opened):
    with opened("#en-results") as page:
        seen = page.eval_on_selector_all("td.good", COLOURS)
        assert {tuple(cell) for cell in seen} == {(True, True), (False, True)}


def test_sorts_numbers_with_missing_ones_last(opened):
    with opened("#en-results") as page:
        button, printed = header(page, 1).locator("button"), ["383.76", "2942.30", "–", "95.30"]
        orders = [["95.30", "383.76", "2942.30", "–"], ["2942.30", "383.76", "95.30", "–"], printed]
        for order, state in zip(orders, ("ascending", "descending", "none"), strict=True):
            button.click()
            assert (column(page, 1), header(page, 1).get_attribute("aria-sort")) == (order, state)


def test_sorts_text_by_keyboard_in_both_languages(opened):
    with opened("#en-results") as page:
        header(page, 0).locator("button").focus()
        page.keyboard.press("Enter")
        names = ["2D_2x4x1", "DP_8x1x1", "DP_16x1x1", "MP_1x8x1"]
        assert column(page, 0) == column(page, 0, "zh") == names
        page.keyboard.press("Space")
        assert column(page, 0) == names[::-1]
        assert header(page, 0).get_attribute("aria-sort") == "descending"
        header(page, 1).locator("button").click()
        assert header(page, 0).get_attribute("aria-sort") == "none"


def colours(page):
    return page.evaluate("""() => ["body", "figure svg text[fill='#1d2329']", "figure svg path[stroke='#0b4f9e']"].map(
        (selector) => [...document.querySelectorAll(selector)].find((each) => each.checkVisibility())
    ).map((each, i) => i ? getComputedStyle(each)[i === 1 ? "fill" : "stroke"]
        : getComputedStyle(document.documentElement).backgroundColor)""")


def test_follows_the_systems_colours_until_told_otherwise(opened):
    light = ["rgb(255, 255, 255)", "rgb(29, 35, 41)", "rgb(11, 79, 158)"]
    dark = ["rgb(20, 24, 29)", "rgb(228, 232, 236)", "rgb(116, 179, 255)"]
    with opened(color_scheme="light") as page:
        assert colours(page) == light
    with opened(color_scheme="dark") as page:
        assert colours(page) == dark
        page.click(".theme")
        assert colours(page) == light
        page.reload()
        assert colours(page) == light
        assert page.get_attribute(".theme", "aria-pressed") == "false"


def test_prints_dark_on_white_and_without_controls(opened):
    with opened("#zh-top", color_scheme="dark") as page:
        page.emulate_media(media="print")
        assert colours(page)[0] == "rgb(255, 255, 255)"
        assert not visible(page, ".bar, .contents, .edition[data-in=en] h1")
        assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("code", ["zh", "en"])
def test_fits_a_phone(opened, code):
    with opened(f"#{code}-top", viewport=PHONE) as page:
        widths = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]")
        assert widths == [360, 360, 360]
        figures = page.evaluate(
            "[...document.querySelectorAll('figure')].filter(each => each.checkVisibility())"
            ".map(each => [each.querySelector('svg').getBoundingClientRect().right, each.getBoundingClientRect().right])"
        )
        assert figures and all(drawn <= column for drawn, column in figures)
        assert not visible(page, ".contents ol")
        page.locator(f".edition[data-in={code}] .contents summary").click()
        assert visible(page, ".contents ol")
        page.screenshot(path=OUTPUT / f"report.{code}.phone.png")


def test_contents_lead_to_sections_and_mark_the_one_being_read(opened):
    with opened("#en-top") as page:
        page.click(".edition[data-in=en] .contents a[href='#en-part-3']")
        page.wait_for_selector(".contents a[aria-current][href='#en-part-3']")
        assert under_the_bar(page)[0] == "part-3"


def test_raw_data_is_one_click_away(opened):
    with opened("#en-top") as page:
        page.click(".shortcuts a[href='#en-data'] >> visible=true")
        with page.expect_download() as download:
            page.click("a[download='run.json'] >> visible=true")
        assert download.value.suggested_filename == "run.json"
        assert download.value.path().read_text(encoding="utf-8") == '{"id": "样例"}\n'


def test_without_scripts_both_languages_can_be_read(opened):
    with opened("", java_script_enabled=False) as page:
        assert [each.inner_text() for each in visible(page, "h1")] == ["评测复现", "Benchmark reproduction"]
        assert not visible(page, ".theme")

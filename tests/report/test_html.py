"""The HTML report: valid, whole in one file, safe, and the same in both languages."""

import base64
import hashlib
import re
from dataclasses import replace

import html5lib
import pytest

from repro.report.document import Attachment, Cell, Column, Figure, Section, Table, Text
from repro.report.html import EMBEDDED_BYTES, attached, html, prose
from repro.report.paper import SIZES, print_class
from tests.support.sample_report import sample

HTML = "{http://www.w3.org/1999/xhtml}"


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return sample(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(documents):
    return html(documents, documents["en"].sections[-1].blocks[0].file.parent)


@pytest.fixture(scope="module")
def tree(page):
    return html5lib.HTMLParser(strict=True).parse(page)


def text_of(element) -> str:
    return "".join(element.itertext())


def test_is_valid_and_both_languages_are_marked(tree):
    editions = [each for each in tree.iter(f"{HTML}div") if each.get("class") == "edition"]
    assert [(each.get("lang"), each.get("data-in")) for each in editions] == [("en", "en"), ("zh-CN", "zh")]
    assert "吞吐率" in text_of(editions[1]) and "Throughput" in text_of(editions[0])


def test_identifiers_are_unique_and_links_lead_somewhere(tree):
    identifiers = [each.get("id") for each in tree.iter() if each.get("id")]
    assert len(identifiers) == len(set(identifiers))
    targets = [each.get("href") for each in tree.iter() if (each.get("href") or "").startswith("#")]
    assert {target[1:] for target in targets} <= set(identifiers)
    assert len(targets) > 20


def test_nothing_is_loaded_from_elsewhere(tree, page):
    loaded = [each.get(name) for each in tree.iter() for name in ("src", "href", "srcset") if each.get(name)]
    assert all(address.startswith(("#", "data:")) for address in loaded)
    assert not re.search(r"url\((?!#)|@import", page)


def test_policy_allows_this_style_and_script_only(tree):
    policy = next(each.get("content") for each in tree.iter(f"{HTML}meta") if each.get("http-equiv"))
    for tag in ("style", "script"):
        (element,) = tree.iter(f"{HTML}{tag}")
        digest = base64.b64encode(hashlib.sha256(text_of(element).encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not [each for each in tree.iter() for name in each.attrib if name == "style" or name.startswith("on")]


def test_text_is_escaped_and_code_marked(tree, page):
    assert "<b>" not in page and "<i>" not in page
    assert "a < b && `c`" in text_of(tree)
    assert str(prose("a `b_c` < d")) == "a <code>b_<wbr>c</code> &lt; d"
    assert str(prose("one ` only")) == "one ` only"


def test_tables_can_be_sorted_where_it_makes_sense(tree):
    tables = {each.get("data-table"): each for each in tree.iter(f"{HTML}table")}
    assert len(list(tables["results"].iter(f"{HTML}button"))) == 4
    assert not list(tables["environment"].iter(f"{HTML}button"))
    values = [each.get("data-sort") for each in tables["results"].iter(f"{HTML}td") if each.get("data-sort")]
    assert values == [], "numbers sort as they are written, and a cell without one goes last by itself"


def test_figures_say_what_they_show(tree):
    drawings = list(tree.iter("{http://www.w3.org/2000/svg}svg"))
    labels = [each.get("aria-label") for each in drawings if each.get("role") == "img"]
    assert labels == ["OneFlow: 384.9 (1)"] * 2


def test_each_drawing_has_its_own_caption_if_any(documents, tmp_path):
    drawing = '<svg width="9" height="9" viewBox="0 0 9 9"><text>{}</text>\n</svg>\n'
    file = tmp_path / "three.svg"
    drawings = "".join(map(drawing.format, "abc"))
    file.write_text(f'<svg xmlns="http://www.w3.org/2000/svg">\n{drawings}</svg>\n')
    captions = ("of a", "", "of c")
    three = {name: with_block(each, 0, Figure("three", file, "a; b; c", captions)) for name, each in documents.items()}
    tree = html5lib.HTMLParser(strict=True).parse(html(three, tmp_path))
    shown = [" ".join(text_of(element).split()) for element in tree.iter(f"{HTML}figure")]
    assert shown[:3] == ["a of a", "b", "c of c"]


def test_files_are_held_in_the_page_unless_large(tmp_path):
    small, large = tmp_path / "run.json", tmp_path / "raw.csv"
    small.write_bytes(b"{}")
    large.write_bytes(b"1" * (EMBEDDED_BYTES + 1))
    assert attached(Attachment("a", small, ""), tmp_path)["href"] == "data:application/json;base64,e30="
    assert attached(Attachment("b", large, ""), tmp_path) == {"href": "raw.csv", "name": "raw.csv", "size": "1.0 MiB"}


def with_block(document, index, block):
    section = replace(document.sections[0], blocks=(block,))
    return replace(document, sections=(*document.sections[:index], section, *document.sections[index + 1 :]))


@pytest.mark.parametrize(
    "change",
    [
        lambda document: replace(document, sections=document.sections[1:]),
        lambda document: replace(document, sections=(*document.sections, Section("more", "more"))),
        lambda document: with_block(document, 0, Text("no table")),
        lambda document: with_block(document, 0, replace(document.sections[0].blocks[1], rows=())),
        lambda document: replace(document, sections=(replace(document.sections[0], level=3), *document.sections[1:])),
    ],
)
def test_languages_must_have_the_same_structure(documents, change, tmp_path):
    with pytest.raises(ValueError, match="differ"):
        html({"zh": documents["zh"], "en": change(documents["en"])}, tmp_path)


def test_languages_must_have_the_same_numbers(documents, tmp_path):
    table = documents["en"].sections[0].blocks[1]
    first = (table.rows[0][0], replace(table.rows[0][1], sort=383.77), *table.rows[0][2:])
    changed = replace(table, rows=(first, *table.rows[1:]))
    blocks = (documents["en"].sections[0].blocks[0], changed)
    sections = (replace(documents["en"].sections[0], blocks=blocks), *documents["en"].sections[1:])
    with pytest.raises(ValueError, match=r"section results: .*numbers of zh and en differ"):
        html({"zh": documents["zh"], "en": replace(documents["en"], sections=sections)}, tmp_path)


def test_table_refuses_a_row_of_another_length():
    with pytest.raises(ValueError, match="1 cells for 0 columns"):
        Table("t", (), ((Cell("a"),),))


def test_a_table_with_more_to_show_is_printed_smaller():
    def of(columns):
        titles = tuple(Column("Modelled (samples/s)", numeric=True) for _ in range(columns))
        return print_class(Table("t", titles, (tuple(Cell("12345.6", 12345.6) for _ in titles),)))

    names = [of(columns) for columns in range(1, 16)]
    assert names[0] == "" and names == sorted(names, key=list(SIZES).index), "never larger with a further column"
    assert set(names) == set(SIZES)


def test_the_sizes_of_print_are_those_of_the_style_sheet(page):
    rules = dict(re.findall(r"table(?:\.(\w+))? \{ font-size: ([\d.]+)pt", page))
    assert {name: float(size) for name, size in rules.items()} == SIZES

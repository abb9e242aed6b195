"""The site: its pages, where their links lead, and that it is what the data gives."""

import html
import re
import tomllib
from collections import Counter
from types import SimpleNamespace

import pytest

from repro.published.claim_ids import THROUGHPUT
from repro.report import names as written
from repro.report import numbers
from repro.report.document import Cell, Column, Document, Items, Section, Table, Text, markdown
from repro.report.host.configurations import configuration_name
from repro.report.html import prose
from repro.report.site import build, home, links, readme, reproduce, speed
from repro.report.site.anchors import anchored
from repro.report.site.claims import AS_PUBLISHED, DERIVED, NOT_RUN, OTHERWISE, claims
from repro.report.site.pages import home_figures, pages
from repro.runs.files import RecordError
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.paths import REPORTS, ROOT
from tests.support.site import place


def test_what_is_committed_is_what_the_data_gives():
    assert build.differing() == []


def test_there_is_a_page_for_everything_in_both_languages(content, site):
    names = {page.name for page in pages(content)}
    assert {"index", "claims", "published", "method", "model", "reproduce"} <= names
    assert {f"report-{report.id}" for report in content.audit.material.reports} <= names
    assert {f"host-{host.name}" for host in content.hosts} <= names
    for language in LANGUAGES:
        assert {path.stem for path in (site / language).glob("*.html")} == names


def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:img|script|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//', text), page
        if page.parent != site:
            assert "default-src 'none'" in html.unescape(text)


def identifiers(text: str) -> list[str]:
    return re.findall(r'\sid="([^"]+)"', text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_claims_are_anchors_on_their_page_and_in_their_report_and_link_both_ways(content, site, language):
    texts = {path.stem: path.read_text("utf-8") for path in (site / language).glob("*.html")}
    anchors = {name: set(identifiers(text)) for name, text in texts.items()}
    for claim in content.claims:
        report = f"report-{claim.report.id}"
        assert {claim.anchor, claim.case.name} <= anchors["claims"]
        assert claim.anchor in anchors[report]
        assert f'href="{report}.html#{claim.anchor}"' in texts["claims"]
        assert f'href="claims.html#{claim.anchor}"' in texts[report]
        assert not claim.findings or claim.anchor in anchors["published"]


def test_every_table_has_a_caption_of_its_own(site):
    """A table without one has its section's title, which only one of the section's tables may."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        captions = re.findall(r"<caption[^>]*>\s*(.*?)\s*</caption>", text, re.DOTALL)
        assert len(captions) == text.count("<table ") and all(captions), page
        assert [each for each in captions if captions.count(each) > 1] == [], page


def test_labels_for_those_who_hear_a_page_are_plain_words(site):
    """Without Markdown: a screen reader would read out its backticks, brackets and asterisks."""
    for page in site.rglob("*.html"):
        labels = re.findall(r'aria-label="([^"]*)"', page.read_text("utf-8"))
        assert [label for label in map(html.unescape, labels) if re.search(r"`|\]\(|\*\*|<", label)] == [], page


def test_no_caption_is_a_link(site):
    """The words of a caption say what is shown; links in it have words of their own."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        captions = re.findall(r"<(?:fig)?caption[^>]*>(.*?)</(?:fig)?caption>", text, re.DOTALL)
        assert [caption for caption in captions if re.fullmatch(r"\s*<a [^>]*>[^<]*</a>\.?\s*", caption)] == [], page
        for figure in re.findall(r"<a [^>]*>(?:(?!</a>).)*<(?:figure|svg)", text, re.DOTALL):
            raise AssertionError((page, figure[:80]))


def test_no_page_has_an_anchor_twice(site):
    for page in site.rglob("*.html"):
        found = identifiers(page.read_text("utf-8"))
        assert len(found) == len(set(found)), page


def test_every_link_of_the_site_leads_somewhere(site):
    texts = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    anchors = {path: set(identifiers(text)) for path, text in texts.items()}
    for path, text in texts.items():
        for target in re.findall(r'href="([^"]+)"', text):
            target = html.unescape(target)
            if re.match(r"https?:|data:", target):
                continue
            file, _, fragment = target.partition("#")
            written = build.FOLDER / path.relative_to(site).parent
            there = place((written / file).resolve(), site) if file else path
            assert there.is_file(), f"{path}: {target}"
            assert not fragment or there.suffix != ".html" or fragment in anchors[there], f"{path}: {target}"


def test_a_page_is_at_most_500_kb(site):
    assert {page.name for page in site.rglob("*.html") if page.stat().st_size > 500_000} == set()


def test_only_the_first_cell_of_a_claim_is_its_anchor():
    cells = (Cell("1", claim="a/throughput"), Cell("2", claim="a/throughput"), Cell("3", claim="b/speedup"), Cell("4"))
    table = Table("t", tuple(Column(str(n)) for n in range(4)), (cells,))
    page = anchored(Document("en", "Title", "", (Section("s", "S", (Text("x"), table)),)), {"a/throughput"})
    assert [(each.anchor, each.link) for each in page.sections[0].blocks[1].rows[0]] == [
        ("a.throughput", "claims.html#a.throughput"),
        ("", "claims.html#a.throughput"),
        ("", ""),
        ("", ""),
    ]


def said_first(*of) -> list[str]:
    """The items of the first screen: what may be concluded, was measured, audited and published."""
    return [item for block in home.result(*of) if isinstance(block, Items) for item in block.items]


def test_the_home_page_says_what_the_data_says(content):
    _ = catalogue("en").gettext
    *statements, measured, audited, published = said_first(_, content.audit, content.hosts, content.claims)
    concluded = " ".join(statements)
    assert "57 cases in 5 reports" in published
    assert f"{sum(not finding.hint for finding in content.audit.findings)} findings" in audited
    assert "No finding corrects the throughput of a case" in audited
    ran = {claim.case.name for claim in content.claims if claim.metric == "throughput" and claim.coverage != "not-run"}
    assert f"{len(ran)} of the 57 cases on H100 and H200: " in measured
    assert re.search(r"[ :,]0 ", measured) is None, "what did not happen is not counted"
    assert "**No case has a verdict:**" in concluded
    for model in ("BERT fp32", "GPT AMP", "ResNet50 fp32"):
        counted = rf"(the one|both|all \d+|\d+ of \d+) decided {model} configurations? \((pytorch|megatron)"
        assert len(re.findall(counted, concluded)) >= 2, "with either program"
    (section, *_rest) = home.build("en", content.audit, content.hosts, content.claims, ()).sections
    texts = [block.text for block in section.blocks if isinstance(block, Text)]
    assert any("OneFlow 0.8.0, running a port of the published program" in text for text in texts)
    assert any("Another version of CUDA, cuDNN or NCCL does disqualify a run" in text for text in texts)
    without, *_others = said_first(_, content.audit, (), claims(content.audit, ()))
    assert without == "**Measured:** nothing yet, so there is no verdict."


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_figure_of_the_home_page_counts_the_cases_that_its_text_counts(content, tmp_path, language):
    (figure,) = home_figures(content, language, tmp_path)
    levels = Counter(claim.coverage for claim in content.claims if claim.metric == THROUGHPUT)
    counted = [int(number) for number in re.findall(r"\d+(?=[;；]|$)", figure.alternative)]
    assert counted == [levels[AS_PUBLISHED] + levels[OTHERWISE], levels[DERIVED], levels[NOT_RUN], 0]
    assert sum(counted) == len({claim.case.name for claim in content.claims})


def test_the_home_page_has_the_ratios_of_todays_code_in_the_published_precision(content):
    _ = catalogue("en").gettext
    table = speed.table(_, content.hosts)
    names = speed.short_names(content.hosts)
    lowest: dict[tuple[str, str, str, str], dict[str, tuple[float, int, str]]] = {}
    for host in content.hosts:
        for row in host.ratios:
            if (
                row.current
                and not row.shared
                and row.unit.case_in_precision
                and not row.base.label.endswith("-unfused")
            ):
                model = f"{written.name(written.family(row.unit.report))} {written.name(row.unit.precision)}"
                framework = "Megatron-Core" if row.base.label.startswith("megatron") else "PyTorch"
                link = f"[{names[host.name]}](host-{host.name}.html)"
                of = lowest.setdefault((model, framework, link, row.unit.program), {})
                name = configuration_name(row)
                of[name] = min(of.get(name, (99.0, 0, "")), (row.ratio.value, len(row.sessions), row.base.label))
    assert {(row[0].text, row[0].note, row[1].text) for row in table.rows} == {key[:3] for key in lowest}
    for row in table.rows:
        for cell, program in ((row[2], "published"), (row[3], "tuned")):
            of = lowest.get((row[0].text, row[0].note, row[1].text, program), {})
            span = numbers.span(f"{value:.2f}" for value, *_rest in sorted(of.values()))
            least = min((sessions for _value, sessions, _label in of.values()), default=0)
            labels = {label for _value, _sessions, label in of.values()}
            assert cell.text == (span if of else "–")
            assert not of or (
                cell.note.endswith(f", n\xa0=\xa0{least}") and all(label in cell.note for label in labels)
            )
    assert len({row[1].text for row in table.rows}) == len(content.hosts) >= 2
    assert speed.table(_, ()) is None and speed.scaling(_, ()) == ""


def test_gpus_are_called_by_their_model_unless_two_hosts_share_it():
    def host(name, gpus):
        run = SimpleNamespace(gpus=[{"name": gpus}])
        return SimpleNamespace(name=name, measured=[run])

    hosts = [host("a", "NVIDIA H100 80GB HBM3"), host("b", "Tesla V100-SXM2-16GB"), host("c", "NVIDIA GeForce")]
    assert speed.short_names(hosts) == {"a": "H100", "b": "V100", "c": "NVIDIA GeForce"}
    hosts.append(host("d", "NVIDIA H100 NVL"))
    assert speed.short_names(hosts)["a"] == "NVIDIA H100 80GB HBM3"


def test_a_verdict_changes_the_home_page(content):
    """The sentences follow the verdicts, not today's state."""
    from dataclasses import replace

    claim = next(each for each in content.claims if each.metric == "throughput" and each.measured)
    found = claim.measured[0]
    decided = replace(found, verdict=replace(found.verdict, outcome="slower"))
    changed = [replace(each, measured=(decided,)) if each is claim else each for each in content.claims]
    _ = catalogue("en").gettext
    verdicts, *_others = said_first(_, content.audit, content.hosts, changed)
    assert "**Verdicts:** 0 reproduced, 0 faster, 1 slower" in verdicts
    assert "0 of the 1 cases with a verdict hold" in home.short(_, changed)


@pytest.mark.parametrize(
    "target, expected",
    [
        ("https://example.org/a", "https://example.org/a"),
        ("#runs", "#runs"),
        ("claims.html#x", "claims.html#x"),
        ("README.zh.md#history", "published.html#history"),
        ("gpt-3d-2021-05.zh.md#results", "report-gpt-3d-2021-05.html#results"),
        ("audit.json", "../../published/audit.json"),
        ("../../README.md", None),
        ("missing.md", None),
        ("javascript:alert(1)", None),
    ],
)
def test_where_links_lead(target, expected):
    resolve = links.resolver(REPORTS / "published", build.FOLDER / "en", {"claims"}, links.rendered())
    assert resolve(target) == expected


def test_texts_cannot_bring_markup():
    shown = prose('<b>[x](https://a/"onclick=1) **y** `[no](#link)` [z](#here)', lambda target: target)
    assert "<b>" not in shown
    assert '"onclick' not in shown.replace("&#34;onclick", "")
    assert "<strong>y</strong>" in shown
    assert "<code>[no](#link)</code>" in shown
    assert '<a href="#here">z</a>' in shown


def test_differing_names_what_is_stale(tmp_path, monkeypatch):
    stale, missing, same = (tmp_path / name for name in ("stale", "missing", "same"))
    stale.write_text("old", encoding="utf-8")
    same.write_text("same", encoding="utf-8")
    monkeypatch.setattr(build, "tables", lambda: {stale: "new", same: "same", missing: "new"})
    assert build.differing() == [missing, stale]


def test_the_artifact_appendix_has_a_command_for_every_case(content):
    for file in build.ARTIFACTS.values():
        text = (ROOT / file).read_text(encoding="utf-8")
        assert [claim.id for claim in content.claims if claim.case.name not in text] == []


def test_the_artifact_appendix_begins_with_what_needs_no_gpu_and_leads_to_the_measured_ratios(content):
    for language in LANGUAGES:
        document = reproduce.build(language, content.claims, content.hosts)
        ids = [section.id for section in document.sections]
        assert ids[:3] == ["start", "without-gpu", "hardware"]
        commands = [row[0].text for row in document.sections[1].blocks[0].rows]
        minor = [column.minor for column in document.sections[1].blocks[0].columns]
        assert minor == [False, False, True, False], "a phone shows what takes how long"
        assert "`make audit CHECK=1`" in commands
        for host in content.hosts:
            assert (f"`make verify HOST={host.name}`" in commands) == bool(host.measured)
        assert "ratios" in ids
        text = readme.linked(markdown(document, ROOT), language)
        assert ".html" not in text and f"]({readme.FILES[language]})" in text
        for host in content.hosts:
            assert f"](reports/reproduced/{host.name}/{readme.FILES[language]})" in text
    without = reproduce.build("en", content.claims, ())
    assert "ratios" not in [section.id for section in without.sections]


def test_the_readmes_have_the_answer_of_the_home_page(content):
    for language, file in readme.FILES.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        block = text.split(readme.BEGIN)[1].split(readme.END)[0]
        _ = catalogue(language).gettext
        assert home.short(_, content.claims) in block
        assert ".html" not in block


def test_a_readme_without_a_place_for_the_answer_is_said(content, tmp_path):
    for file in readme.FILES.values():
        (tmp_path / file).write_text("# Title\n", encoding="utf-8")
    with pytest.raises(RecordError, match="answer:begin"):
        readme.expected(content, {}, tmp_path)


def test_the_home_page_cites_what_the_citation_file_says():
    stated = (ROOT / "CITATION.cff").read_text("utf-8")
    title, version = (re.search(rf"^{field}: (.+)$", stated, re.MULTILINE)[1] for field in ("title", "version"))
    author = re.search(r"^  - name: (.+)$", stated, re.MULTILINE)[1]
    assert f"title = {{{title}}}" in home.CITATION
    assert f"note = {{Version {version}}}" in home.CITATION
    assert f"author = {{{author}}}" in home.CITATION
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == version

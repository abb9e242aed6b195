"""The ten published reports: both languages say the same, in full, and the committed files are what the data gives."""

import calendar
import re
import shutil
import time
from dataclasses import replace

import pytest

from repro.report.committed import contents, differences
from repro.report.document import Document
from repro.report.published import page as published_report
from repro.report.published.figures import published_figures
from repro.report.published.page import FOLDER, INDEX, build, differing, index, render
from repro.utils.i18n import LANGUAGES, catalogue
from tests.support.audited import audited

AUDIT = audited()
REPORTS = AUDIT.material.reports
IDS = [report.id for report in REPORTS]
HISTORY = AUDIT.material.history
MONTHS = list(calendar.month_name)[1:]
SAME_IN_CHINESE = {
    "ResNet50-V1.5",
    "BERT base",
    "GPT",
    "0.8.0 (ms)",
    "dropout",
    "LayerNorm",
    "Dropout",
    "Loss",
    "GPU",
    "CUDA",
    "cuDNN",
    "NCCL",
    "Python",
    "RDMA",
    "OneFlow",
    "XLA",
    "loss",
    "CV",
    "{framework} {version}",
}


def numbers(text: str) -> list[str]:
    """Every number of a text in ascending order, with months as numbers."""
    for month, name in enumerate(MONTHS, 1):
        text = re.sub(rf"\b{name}\b", str(month), text)
    return sorted(re.findall(r"\d+(?:\.\d+)?", text))


def pieces(document: Document):
    """Every text of a document with its place, in order."""
    yield "title", document.title
    yield "lead", document.lead
    for section in document.sections:
        yield f"{section.id} heading", section.title
        for number, block in enumerate(section.blocks):
            place = f"{section.id} {number} {block.kind} {getattr(block, 'id', '')}"
            if block.kind == "table":
                yield f"{place} caption", block.caption
                yield from ((f"{place} column {at}", column.title) for at, column in enumerate(block.columns))
                for at, row in enumerate(block.rows):
                    yield from (
                        (f"{place} row {at} cell {n}", f"{cell.text} {cell.note}") for n, cell in enumerate(row)
                    )
            elif block.kind == "items":
                yield from ((f"{place} item {at}", item) for at, item in enumerate(block.items))
            elif block.kind == "figure":
                yield place, f"{block.alternative} {block.caption}"
            else:
                yield place, block.title if block.kind == "attachment" else block.text


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return published_figures(tmp_path_factory.mktemp("figures"))


def documents(language: str, drawn) -> list[Document]:
    reports = [build(AUDIT, report, language, drawn[report.id][language]) for report in REPORTS]
    return [*reports, index(AUDIT, language)]


def test_both_languages_have_the_same_structure_and_numbers(drawn):
    for chinese, english in zip(documents("zh", drawn), documents("en", drawn), strict=True):
        there, here = dict(pieces(chinese)), dict(pieces(english))
        assert list(there) == list(here)
        for place, text in there.items():
            assert numbers(text) == numbers(here[place]), (english.title, place, text, here[place])
            assert bool(text.strip()) == bool(here[place].strip())


def test_a_number_missing_in_one_language_would_be_noticed():
    english = build(AUDIT, REPORTS[0], "en", [])
    changed = replace(english, lead=english.lead + " 7.72")
    assert numbers(dict(pieces(changed))["lead"]) != numbers(dict(pieces(english))["lead"])


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """What rendering writes, to be compared and copied."""
    folder = tmp_path_factory.mktemp("rendered")
    render(folder)
    return folder


def test_the_committed_files_are_what_the_data_gives(rendered):
    assert differences(FOLDER, contents(rendered), contents(FOLDER)) == []


def test_rendering_is_the_same_each_time_and_quick(rendered, tmp_path):
    began = time.process_time()
    written = render(tmp_path)
    assert time.process_time() - began < 10
    names = {path.name for path in written if path.suffix != ".svg"}
    assert names == {
        "audit.json",
        *INDEX.values(),
        *(f"{name}.{ending}" for name in IDS for ending in ("zh.md", "en.md")),
    }
    assert differences(tmp_path, contents(rendered), contents(tmp_path)) == []


def test_a_changed_file_is_named(rendered, tmp_path):
    shutil.copytree(rendered, tmp_path, dirs_exist_ok=True)
    changed = tmp_path / "gpt-3d-2021-05.zh.md"
    changed.write_text(changed.read_text(encoding="utf-8").replace("38.29", "38.92"), encoding="utf-8")
    assert differing(tmp_path) == [changed]


def test_a_file_too_many_or_too_few_is_named(rendered, tmp_path):
    shutil.copytree(rendered, tmp_path, dirs_exist_ok=True)
    figure = next(tmp_path.glob("figures/*.svg"))
    figure.unlink()
    (tmp_path / "stray.md").touch()
    assert differing(tmp_path) == [figure, tmp_path / "stray.md"]


def test_every_sentence_is_translated(monkeypatch, drawn):
    missing = set()

    class Recorder:
        def __init__(self, language):
            self.translations = catalogue(language)

        def gettext(self, message):
            text = self.translations.gettext(message)
            if text == message and re.search("[A-Za-z]", message) and not message.startswith("Oneflow-Inc/"):
                missing.add(message)
            return text

    monkeypatch.setattr(published_report, "catalogue", Recorder)
    documents("zh", drawn)
    assert missing <= SAME_IN_CHINESE


def test_chinese_sentences_use_chinese_punctuation(drawn):
    for document in documents("zh", drawn):
        for place, text in pieces(document):
            assert not re.search(r"[\u4e00-\u9fff][,;:!?]", text), (place, text)
            bare = re.sub(r"`[^`]*`|“[^”]*”", "", text)
            assert not re.search(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", bare), (place, text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_published_figure_stands_in_its_report(language):
    for report in REPORTS:
        text = (FOLDER / f"{report.id}.{language}.md").read_text(encoding="utf-8")
        for case in AUDIT.material.cases_of(report):
            published = case.published
            figures = (
                published.throughput,
                published.latency_ms,
                published.memory_mib,
                published.speedup,
                published.gpu_utilisation,
                *published.repeats,
            )
            for figure in (str(each) for each in figures if each is not None):
                assert re.search(rf"\| {re.escape(figure)}[ |]", text), (report.id, case.name, figure)
        for row in report.stray:
            assert str(row["throughput"]) in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_audit_stands_beside_the_figures(language):
    small = (FOLDER / f"gpt2-small-2020-12.{language}.md").read_text(encoding="utf-8")
    for printed, right in (("-11.4", "-17.4"), ("-2727", "-2007"), ("-23.1", "-18.1"), ("+3.4", "3.5")):
        assert re.search(rf"\| {re.escape(printed)}(?: \(|（)[^|]*{right}[)）] \|", small), printed
    bert = build(AUDIT, AUDIT.material.catalogue.report("bert-2020-08-22"), language, [])
    assert "ResNet50-V1.5" in bert.lead and "BERT" in bert.title


def test_peers_stand_beside_their_cases():
    text = (FOLDER / "gpt-3d-2021-05.en.md").read_text(encoding="utf-8")
    megatron = [peer for peer in AUDIT.material.peers if peer.framework == "Megatron-LM"]
    assert len(megatron) == 18
    for peer in megatron:
        assert re.search(rf"\| {peer.case} \|.*\| {re.escape(str(peer.throughput))} \(×", text), peer.case


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_history_is_in_the_overview_and_the_reports_it_concerns_lead_there(language):
    text = (FOLDER / INDEX[language]).read_text(encoding="utf-8")
    for entry in HISTORY:
        for part in (entry.title, entry.text, entry.meaning):
            assert part[language] in text
        assert all(source.link in text and source.quote in text for source in entry.sources)
        assert f'<a id="{entry.slug}"></a>' in text and f"](#{entry.slug})" in text
        for identity in IDS:
            page = (FOLDER / f"{identity}.{language}.md").read_text(encoding="utf-8")
            link = f"[{entry.title[language]}]({INDEX[language]}#{entry.slug})"
            assert (link in page) is (identity in entry.reports)


def test_what_another_source_says_stands_apart_with_its_source():
    text = (FOLDER / "gpt-3d-2021-05.en.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if "environment / driver" in line)
    assert "| – | >= 450.80.02 (NVIDIA, CUDA Toolkit Release Notes" in row

"""The hand-written notes on a host: what is read, what is shown, and what is refused."""

import re
from dataclasses import replace

import pytest

from repro.report.host import page
from repro.report.host.answer import believed
from repro.report.host.cells import with_interval
from repro.report.host.notes import NOTES, Notes, read
from repro.report.host.results import load
from repro.runs.record import RecordError
from repro.utils.i18n import catalogue


@pytest.fixture(scope="module")
def h100(content):
    """A copy, since what is computed of it here follows another performance model than the site's."""
    return replace(next(host for host in content.hosts if host.name == "h100"))


EXPERIMENT = """
[[experiment]]
case = "dp2"
gpus = 2
en = "one buffer"
zh = "一个缓冲区"
without_it = 52.8
with_it = 51
stays = false
"""


def test_experiments_are_a_table(altered):
    (altered / "h200" / NOTES).write_text(EXPERIMENT)
    host = load("h200", altered)
    for language, change, no in (("en", "one buffer", "no"), ("zh", "一个缓冲区", "否")):
        section = next(each for each in page.build(host, language, []).sections if each.id == "experiments")
        (row,) = section.blocks[0].rows
        assert [cell.text for cell in row] == ["dp2", change, "2", "52.8", "51", no]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('english = "text"', "notes.toml: english: it has a text for each of zh, en"),
        ("en = text", "not TOML"),
        ("en = 1", "notes.toml: en: it has a text"),
        ("experiment = 1", "notes.toml: experiment: write each as a table"),
        ("experiment = [1]", "experiment 1: case, en, gpus, stays"),
        (EXPERIMENT.replace("stays", "kept"), "experiment 1: kept, stays: each has"),
        (EXPERIMENT.replace("51", "true"), "experiment 1: with_it: each has"),
        (EXPERIMENT * 2 + "more = 1", "experiment 2: more: each has"),
        ('shared = "20261124"', "notes.toml: shared: name the runs by how their ids begin"),
        ('shared = [""]', "notes.toml: shared: name the runs by how their ids begin"),
    ],
)
def test_notes_that_are_wrong_are_named(tmp_path, written, message):
    (tmp_path / NOTES).write_text(written)
    with pytest.raises(RecordError, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    "sentence",
    [
        "It meets its target in every case that ran more than once.",
        "All three published cases take what was published.",
        "PyTorch's DistributedDataParallel loses more.",
        "It keeps 97.6 % of four single ones.",
        "An iteration takes 15 ms in DP_1x1x1_2_1536x16.",
        "Loss curves agree in both layouts.",
        "It is faster than PyTorch.",
        "重复过一次以上的用例都达到了目标。",
        "公布过显存的用例，占用低于公布值。",
        "PyTorch 损失更大。",
        "两块 GPU 上保持 95.2%。",
        "曲线一致。",
    ],
)
def test_a_claim_is_refused(tmp_path, sentence):
    (tmp_path / NOTES).write_text(f'en = """{sentence}"""', encoding="utf-8")
    with pytest.raises(RecordError, match=r"the text in en says '.+': figures, how many of the cases"):
        read(tmp_path)


@pytest.mark.parametrize(
    "sentence",
    [
        "{20261121-184823} went beside {20261122-032420}, and ResNet50 took `CUDA 10.2` on V100s.",
        "All-reduce of DP_1x1x1_2_1536x16 keeps {efficiency dp.as_2x1x1} and {ratio dp.as_1x1x1 pytorch}.",
        "参数更新改由驱动编译；ResNet50 用 AMP 平均每个样本。",
    ],
)
def test_names_and_placeholders_are_no_claims(tmp_path, sentence):
    (tmp_path / NOTES).write_text(f'en = """{sentence}"""', encoding="utf-8")
    assert read(tmp_path).texts == {"en": sentence}


def test_placeholders_are_what_the_rows_have(host):
    text = "{ratio DP_1x1x1_2_1536x16 pytorch} and {efficiency\nDP_8x1x1_16_1536x16.as_4x1x1}"
    section = next(
        each for each in page.build(replace(host, notes=Notes({"en": text})), "en", []).sections if each.id == "notes"
    )
    ratio, efficiency = section.blocks[1].text.split(" and ")
    assert (ratio, efficiency) == ("0.900 (n = 1)", "98.0% (n = 1)")


@pytest.mark.parametrize("text", ["{ratio gone pytorch}", "{ratio DP_1x1x1_2_1536x16 jax}", "{efficiency gone}"])
def test_a_placeholder_for_no_row_is_named(host, text):
    with pytest.raises(
        RecordError, match=re.escape(f"the text in en has {text}, which 0 kept runs or rows are called")
    ):
        page.build(replace(host, notes=Notes({"en": text})), "en", [])


def test_notes_in_another_encoding_are_named(tmp_path):
    (tmp_path / NOTES).write_bytes('zh = "第一。"'.encode("gbk"))
    with pytest.raises(RecordError, match=r"notes\.toml: not TOML in UTF-8"):
        read(tmp_path)


def test_what_ran_beside_another_program_counts_only_where_nothing_else_does(h100):
    """As if the first session of H100's pipelines had had a rehearsal beside it; the second lacks some comparisons of one layout."""
    shared, alone = "20261127-145841-gpt-full", "20261128-035742-all-full"
    without, h100 = h100, replace(h100, notes=replace(h100.notes, shared=(shared,)))

    def counted(host, layout):
        every = [*host.ratios, *host.gains, *host.megatrons]
        rows = [row for row in every if row.unit.name.startswith(f"DP_PP_8x1x4_512_1536x16.iter20.as_{layout}")]
        return {kept_run.run.id for row in rows for kept_run in row.runs}

    assert counted(h100, "2x1x2") == {alone} and counted(h100, "1x1x4") == {shared, alone}
    assert counted(without, "2x1x2") == {shared, alone}
    rows = [row for row in (*h100.gains, *h100.ratios, *h100.efficiencies) if row.current]
    shared_rows = [row for row in rows if row.shared]
    assert all(map(h100.is_shared, (kept_run for row in shared_rows for kept_run in row.runs)))
    said = f"Comparisons marked “shared host”: {len(shared_rows)}."
    assert shared_rows and said in believed(catalogue("en").gettext, h100)
    assert "shared host" not in believed(catalogue("en").gettext, without)
    assert with_interval(catalogue("en").gettext, shared_rows[0]).note.endswith("shared host")


def test_a_run_that_is_not_kept_shared_nothing(altered):
    (altered / "h200" / NOTES).write_text('shared = ["20200101-"]\n')
    with pytest.raises(RecordError, match=r"notes.toml: shared: no kept run begins with 20200101-"):
        load("h200", altered)


def test_a_host_without_notes_has_none(tmp_path):
    assert read(tmp_path).texts == {} and read(tmp_path).experiments == ()

"""The hand-written notes on a host: what is read, what is shown, and what is refused."""

import pytest

from repro.report.host import page
from repro.report.host.notes import NOTES, read
from repro.report.host.results import load
from repro.runs.record import RecordError

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
        (row,) = section.blocks[1].rows
        assert [cell.text for cell in row] == ["dp2", change, "2", "52.8", "51.0", no]


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
    ],
)
def test_notes_that_are_wrong_are_named(tmp_path, written, message):
    (tmp_path / NOTES).write_text(written)
    with pytest.raises(RecordError, match=message):
        read(tmp_path)


def test_notes_in_another_encoding_are_named(tmp_path):
    (tmp_path / NOTES).write_bytes('zh = "第一。"'.encode("gbk"))
    with pytest.raises(RecordError, match=r"notes\.toml: not TOML in UTF-8"):
        read(tmp_path)


def test_a_host_without_notes_has_none(tmp_path):
    assert read(tmp_path).texts == {} and read(tmp_path).experiments == ()

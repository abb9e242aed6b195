"""Figures of the kept runs beside the published ones: which runs they are of, and where the page says so."""

from dataclasses import replace

import pytest

from repro.report.host.answer import by_model
from repro.report.host.cells import differences
from repro.report.host.measured import factors, memory, transfers
from repro.utils.i18n import catalogue


@pytest.fixture(scope="module")
def h100(content):
    """A copy, since what is computed of it here follows another performance model than the site's."""
    return replace(next(host for host in content.hosts if host.name == "h100"))


def test_the_result_in_words_leaves_out_what_ran_beside_another_program_and_the_table_marks_it(h100):
    """As if the only run of bert_1n1g_bs32 on H100, whose ratios are the highest, and one of three of bs96 had been such."""
    _ = catalogue("en").gettext
    without, beside = h100, ("20261127-202858-all-full-f9d2", "20261128-035208-all-full")
    h100 = replace(h100, notes=replace(h100.notes, shared=beside))
    bert = "**BERT fp32** over `pytorch-unfused`, 1 GPU: port {} ("
    assert any(text.startswith(bert.format("1.02–1.04")) for text in by_model(_, h100))
    assert any(text.startswith(bert.format("1.02–1.11")) for text in by_model(_, without))
    by_case = {row[0].text: row for row in transfers(_, h100)[0].blocks[0].rows}
    assert [cell.note.endswith(", shared host") for cell in by_case["bert_1n1g_bs32"][2:4]] == [True, True]
    assert [cell.note.partition("n")[2] for cell in by_case["bert_1n1g_bs96"][2:4]] == ["\xa0=\xa02"] * 2
    rows = [row for of_case in factors(h100) for row in of_case.by_program.values()]
    assert {row.unit.name for row in rows if row.shared} == {"bert_1n1g_bs32", "bert_1n1g_bs32.tuned"}


def test_a_case_has_the_figures_of_the_runs_that_read_files(h100):
    """The run on synthetic batches is newer than some of those that read files."""
    (port,) = (of.by_program["published"] for of in factors(h100) if of.case.name == "resnet50_0808_1n1g_bs128")
    assert port.unit.reads_files and len(port.sessions) == 3
    ours = [row for row in h100.configurations if row.unit.stands_for and row.unit.program == "published"]
    assert [row.unit.stands_for for row in ours if not row.unit.reads_files] == [port.unit.stands_for]


def test_memory_is_the_same_in_every_table_and_counted_once_per_case(content):
    _ = catalogue("en").gettext
    for host in content.hosts:
        published, beside_baselines = (section.blocks[-1] for section in memory(_, host))
        by_name = {row[0].text: row for row in beside_baselines.rows}
        titles = [column.title for column in beside_baselines.columns]
        both = [row for row in published.rows if row[0].text in by_name]
        for row in both:
            for program, cell in zip(("Port", "Tuned"), row[2:], strict=True):
                assert by_name[row[0].text][titles.index(program)].text == cell.text, row[0].text
        assert len(both) > 2
        (agreeing,) = (row for row in transfers(_, host)[0].blocks[1].rows if row[0].text == "memory (MiB)")
        assert agreeing[1].text.endswith(f" / {sum(row[2].text != '–' for row in published.rows)}")


def test_a_range_of_differences_has_words_between_its_signs():
    assert differences(catalogue("en").gettext, [0.143, -0.013]).text == "−1.3% to +14.3%"
    assert differences(catalogue("zh").gettext, [0.143, -0.013]).text == "−1.3% 至 +14.3%"
    assert differences(catalogue("en").gettext, [0.0421, 0.0419]).text == "+4.2%"

"""What is added to a run's report: figures and raw data."""

import subprocess
import sys

from repro.report.document import Document, Section
from repro.report.run.attachments import DRAWING_PAYS_AFTER_S, drawing_pays, illustrated
from repro.runs.archive import write_archive
from repro.runs.record import Run
from tests.support.attempts import recorded
from tests.support.paths import ROOT
from tests.support.patience import patience
from tests.support.run_data import measured, report_data


def test_figures_and_data_are_added_to_a_report(tmp_path):
    data = report_data(tmp_path, [measured("smoke_a", (100.0, 101.0))])
    (tmp_path / "run.json").write_text("{}")
    document = Document("zh", "t", "", (Section("results", "结果"), Section("environment", "环境")))
    drawn = illustrated(document, data, Run(tmp_path), tmp_path, draw=True)
    assert [section.id for section in drawn.sections] == ["results", "figures", "environment", "data"]
    assert [block.file.name for block in drawn.sections[-1].blocks] == ["run.json"]
    plain = illustrated(document, data, Run(tmp_path), tmp_path, draw=False)
    assert [section.id for section in plain.sections] == ["results", "environment", "data"]


def test_the_raw_data_of_an_archive_is_the_archive(tmp_path):
    data = report_data(tmp_path, [measured("smoke_a", (100.0,))])
    run = Run(write_archive(tmp_path / "kept.zip", {"attempts.jsonl": b""}).path)
    document = illustrated(Document("en", "t", "", ()), data, run, tmp_path / "report", draw=False)
    assert [block.file for block in document.sections[-1].blocks] == [tmp_path / "kept.zip"]


def test_drawing_pays_after_a_long_run_only():
    assert not drawing_pays([recorded({"wall_s": DRAWING_PAYS_AFTER_S / 2}), recorded({"status": "interrupted"})])
    assert drawing_pays([recorded({"wall_s": DRAWING_PAYS_AFTER_S})] * 2)


def test_a_report_without_figures_does_not_import_matplotlib():
    program = "import sys, repro.report.run.page, repro.report.html, repro.report.run.attachments; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=patience()).returncode == 0

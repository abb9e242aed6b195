"""Which kept runs may be withdrawn, and what the page says once they are."""

import json
import shutil

import pytest

from repro.cli.host import withdraw as withdraw_task
from repro.cli.settings import Exit, Invocation, OptionError
from repro.report.host import page
from repro.report.host.keep import keep
from repro.report.host.notes import NOTES
from repro.report.host.results import load
from repro.report.host.withdrawal import withdrawable
from repro.runs.digests import NAME, Withdrawal, chain_faults, withdraw
from repro.runs.manifest import MANIFEST, record
from repro.runs.record import RecordError
from tests.support.kept import bench_run

ONE_GPU = "DP_1x1x1_2_1536x16"
BASELINE = f"{ONE_GPU}.pytorch"


class Hosts:
    """The folder of hosts, in which runs are kept in turn, each a day younger than the one before."""

    def __init__(self, folder):
        self.originals = folder / "originals"
        self.folder = folder / "reproduced"
        self.h200 = self.folder / "h200"
        self.count = 0

    def add(self, code, cases=ONE_GPU, without=(), fails=(), stands_for=None, interval=None):
        """Keep a run made with some code; the attempts of the units in `without` never were, those in `fails` failed.

        `stands_for` are the cases that its first unit is said to stand for, `interval` is the iterations from one of its
        rows to the next.
        """
        self.count += 1
        name = f"2026112{self.count}-080000-gpt-published"
        run = bench_run(self.originals, name, cases, repeats=(1.0,), failed=False)
        described = json.loads((run.folder / "run.json").read_text())
        described["environment"]["git_commit"] = code * 40
        unit = described["plan"]["units"][0]
        unit["stands_for"] = stands_for or unit["stands_for"]
        if interval:
            for each in described["plan"]["units"]:
                each["config"]["log_interval"] = interval
            for path in run.folder.rglob("config.json"):
                path.write_text(json.dumps({**json.loads(path.read_text()), "log_interval": interval}))
        (run.folder / "run.json").write_text(json.dumps(described))
        attempts = [each for each in run.attempts() if each["unit"] not in without]
        failure = {"message": "it ended", "values": {}}
        for each in attempts:
            if each["unit"] in fails:
                each |= {"status": "failed", "failure": failure, "throughput": None}
        run.attempts_file.write_text("".join(json.dumps(each) + "\n" for each in attempts))
        for unit in without:
            shutil.rmtree(run.folder / "units" / unit)
        (run.folder / MANIFEST).unlink()
        record(run)
        keep(run.path, self.h200 / "runs" / f"{run.id}.zip")
        return run.id

    def found(self):
        return withdrawable(load("h200", self.folder))


@pytest.fixture
def hosts(tmp_path):
    return Hosts(tmp_path)


def archive(run_id):
    return f"h200/runs/{run_id}.zip"


def both(unit=ONE_GPU):
    return {unit: unit, f"{unit}.pytorch": f"{unit}.pytorch"}


def test_a_run_of_which_everything_was_measured_again_may_be_withdrawn(hosts):
    old, new = hosts.add("a"), hosts.add("b")
    assert hosts.found() == [Withdrawal(archive(old), both(), (new,))]


def test_a_run_that_was_superseded_in_another_length_stays(hosts):
    """The page lists it as superseded, but `make verify` would find nothing that measured its configuration."""
    old = hosts.add("a", interval=5)
    hosts.add("b")
    assert (old, ONE_GPU) in load("h200", hosts.folder).superseded
    assert hosts.found() == []


def test_a_run_of_the_same_code_stays(hosts):
    hosts.add("a")
    hosts.add("a")
    assert hosts.found() == []


def test_several_runs_may_supersede_one(hosts):
    old = hosts.add("a")
    hosts.add("b", without=(BASELINE,))
    hosts.add("b", without=(ONE_GPU,))
    assert hosts.found() == [], "nothing newer has the ratio of both"
    new = hosts.add("c", without=(BASELINE,))
    newest = hosts.add("c")
    assert [each.path for each in hosts.found()][:1] == [archive(old)]
    assert {name for each in hosts.found() for name in each.successors} <= {new, newest}


def test_a_configuration_that_nothing_newer_has_keeps_its_run(hosts):
    hosts.add("a", without=(BASELINE,))
    hosts.add("b", without=(ONE_GPU,))
    assert hosts.found() == []


def test_a_failure_stays_until_its_configuration_gave_a_figure(hosts):
    failed = hosts.add("a", fails=(ONE_GPU,))
    hosts.add("b", without=(ONE_GPU,))
    assert hosts.found() == []
    new = hosts.add("b")
    assert hosts.found() == [Withdrawal(archive(failed), both(), (new,))]


def test_a_run_without_a_success_goes_once_its_configurations_gave_figures(hosts):
    failed = hosts.add("a", fails=(ONE_GPU, BASELINE))
    assert hosts.found() == []
    new = hosts.add("b")
    assert hosts.found() == [Withdrawal(archive(failed), both(), (new,))]


def test_a_failure_is_not_made_up_for_by_an_older_run(hosts):
    hosts.add("a")
    hosts.add("b", fails=(ONE_GPU, BASELINE))
    assert hosts.found() == []


def test_the_only_run_of_a_published_case_stays(hosts):
    """Cases that train alike are one configuration under two names, and a newer run may have only one of them."""
    old = hosts.add("a", stands_for=["MP_1x1x1_8_768x12"])
    hosts.add("b")
    assert (old, ONE_GPU) in load("h200", hosts.folder).superseded and hosts.found() == []
    hosts.add("b", stands_for=["MP_1x1x1_8_768x12"])
    assert [each.path for each in hosts.found()] == [archive(old)]


def test_a_run_that_the_notes_name_stays(hosts):
    hosts.add("a")
    hosts.add("b")
    assert hosts.found()
    (hosts.h200 / NOTES).write_text('en = "So it was in {20261121-080000}."\n')
    assert hosts.found() == []
    (hosts.h200 / NOTES).write_text('en = "So it was in {20261122-080000}."\n')
    assert hosts.found()


def test_labels_stay_and_the_page_says_what_was_withdrawn(hosts):
    old, new = hosts.add("a"), hosts.add("b")
    before = {each.run.id: each.label for each in load("h200", hosts.folder).runs}
    withdraw(hosts.h200, hosts.found())
    host = load("h200", hosts.folder)
    assert {each.run.id: each.label for each in host.runs} == {new: before[new]} == {new: "R2"}
    for language, text in (("en", "newer program code: 1; [SHA256SUMS]"), ("zh", "有 1 次较早的运行已撤下")):
        sections = {each.id: each for each in page.build(host, language, []).sections}
        assert text in sections["runs"].blocks[1].text
    assert hosts.found() == [] and old not in {each.run.id for each in host.runs}
    label = hosts.add("b")
    assert {each.run.id: each.label for each in load("h200", hosts.folder).runs}[label] == "R3"


def test_a_page_without_withdrawn_runs_says_nothing_of_them(host):
    sections = {each.id: each for each in page.build(host, "en", []).sections}
    assert [block.kind for block in sections["runs"].blocks] == ["text", "table"]


def test_a_withdrawal_that_its_successor_does_not_bear_out_gives_no_page(hosts):
    old = hosts.add("a")
    new = hosts.add("b", without=(BASELINE,))
    withdraw(hosts.h200, [Withdrawal(archive(old), both(), (new,))])
    with pytest.raises(RecordError, match=f"in turn, measured {BASELINE}"):
        load("h200", hosts.folder)


def test_the_task_lists_or_withdraws_what_the_history_has(hosts, monkeypatch, capsys):
    old, new = hosts.add("a"), hosts.add("b")
    kept, listed = hosts.h200 / "runs" / f"{old}.zip", hosts.folder / NAME
    monkeypatch.setattr("repro.runs.digests.runs_of", lambda host: hosts.folder / host / "runs")
    asked, before = Invocation("withdraw", {}), listed.read_text()
    withdraw_task.body(asked, "h200", check=True)
    said = f"{archive(old)}: superseded by {new}\n"
    assert capsys.readouterr().out == said + "runs of h200 that can be withdrawn: 1\n"
    monkeypatch.setattr("repro.runs.history.committed", lambda path, digest: None)
    with pytest.raises(Exit, match=f"commit these archives first, so that the history has them: {archive(old)}"):
        withdraw_task.body(asked, "h200")
    assert kept.is_file() and listed.read_text() == before
    monkeypatch.setattr("repro.runs.history.committed", lambda path, digest: b"")
    withdraw_task.body(asked, "h200")
    assert capsys.readouterr().out.splitlines()[-1].startswith("withdrawn: 1; make model, ")
    assert not kept.exists()
    added = listed.read_text().removeprefix(before).splitlines()
    assert added[0] == f"# withdrawn {archive(old)} ({ONE_GPU}, {BASELINE}): superseded by {new}"
    assert len(added) == 2 and chain_faults(listed) == []
    withdraw_task.body(asked, "h200")
    assert capsys.readouterr().out == "runs of h200 that can be withdrawn: 0\n"


def test_the_task_needs_a_host():
    with pytest.raises(OptionError, match="HOST=<name>: name the host"):
        withdraw_task.body(Invocation("withdraw", {}))

"""The code that attempts recorded is looked up in the repository, and what cannot be looked up is said."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from repro.analysis import code_lookup, what_ran
from repro.analysis.code_lookup import CODE, WRITTEN, sentences, withheld
from repro.launch.program_code import program_code
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.runs.history import History, history
from tests.support.attempts import recorded
from tests.support.paths import ROOT
from tests.support.synthetic import described, ran_on

CASE = load_catalogue().case("DP_1x1x1_2_1536x16")
PLAN = make_plan(
    [CASE], 1, Wanted(scale="published", repeats=1, baselines=("pytorch",), programs=("published", "tuned"))
)
PUBLISHED, TUNED, BASELINE = (unit.name for unit in PLAN.units)


def git(folder, *arguments):
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def root(tmp_path):
    """A checkout with programs of a few files, changed in a second commit."""
    for name in ("models/gpt.py", "trainers/run.py", "trainers/tuning/program.py", "trainers/tuning/gpt.py"):
        (tmp_path / "repro" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repro" / name).write_text(f"# {name}\n")
    (tmp_path / "repro" / "trainers" / "tuning" / "bert.py").write_text("# of another model\n")
    (tmp_path / "repro" / "baselines").mkdir()
    (tmp_path / "repro" / "baselines" / "run.py").write_text("# PyTorch\n")
    git(tmp_path, "init", "-q")
    for text in ("one", "two"):
        (tmp_path / "repro" / "trainers" / "run.py").write_text(f"{text} = 1\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", text)
    return tmp_path


def code(root, unit):
    if unit == BASELINE:
        return program_code("baselines", "published", root=root)
    return program_code("trainers", "tuned" if unit == TUNED else "published", root=root, model="gpt")


def said(root, codes, commit=None, past=None):
    """What is said of attempts with these codes, by their units."""
    commit = git(root, "rev-parse", "HEAD") if commit is None else commit
    attempts = [recorded({"unit": unit, **({"code": found} if found else {})}) for unit, found in codes]
    description = described(PLAN, environment=ran_on(git_commit=commit))
    run = SimpleNamespace(description=lambda: description, attempts=lambda: attempts)
    return sentences(run, past or history(root), root)


def test_code_is_computed_again_from_the_commit(root):
    head = git(root, "rev-parse", "HEAD")[:12]
    codes = [(unit, code(root, unit)) for unit in (PUBLISHED, TUNED, BASELINE)]
    assert len({found["sha256"] for _, found in codes}) == 3
    text = f"code of 3 of 3 attempts: that of commit {head}, computed again from the repository"
    assert said(root, codes) == [(True, text)]


@pytest.mark.parametrize("unit", [PUBLISHED, TUNED, BASELINE])
def test_other_code_is_named(root, unit):
    right = code(root, unit)
    assert said(root, [(unit, {**right, "sha256": "0" * 64})]) == [
        (
            False,
            "code of 1 of 1 attempts: 000000000000 was recorded, which is not that of commit "
            f"{git(root, 'rev-parse', 'HEAD')[:12]} in the repository",
        )
    ]
    before = git(root, "rev-parse", "HEAD~1")
    assert said(root, [(unit, right)], before)[0][0] is (unit == BASELINE)
    other = {PUBLISHED: TUNED, TUNED: BASELINE, BASELINE: PUBLISHED}[unit]
    assert said(root, [(unit, code(root, other))])[0][0] is False


def test_early_releases_left_out_less(root, monkeypatch):
    from repro.runs import program_files

    expected = []
    (root / "repro" / "models" / "registry.py").write_text("# finds models\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "registry")
    for passed_over in (lambda *given, **named: ("repro/trainers/tuning/",), lambda *given, **named: ()):
        monkeypatch.setattr("repro.launch.program_code.left_out", passed_over)
        expected.append(code(root, PUBLISHED))
    monkeypatch.undo()
    assert len({form["sha256"] for form in (*expected, code(root, PUBLISHED))}) == 3 and program_files.APART
    assert [good for good, _ in said(root, [(PUBLISHED, each) for each in expected])] == [True]


def test_the_code_of_a_lost_commit_is_looked_for_everywhere(root):
    lost, head = "1" * 40, git(root, "rev-parse", "HEAD")
    git(root, "commit", "-q", "--allow-empty", "-m", "newest")
    newest = git(root, "rev-parse", "HEAD")
    found = said(root, [(PUBLISHED, code(root, PUBLISHED))], lost, History(frozenset({head, newest})))
    assert found == [
        (
            True,
            f"code of 1 of 1 attempts: that of commit {newest[:12]}, which has the same; the run's own commit is lost",
        )
    ]
    nowhere = said(root, [(PUBLISHED, {"sha256": "0" * 64, "changed": []})], lost)
    assert nowhere == [
        (False, "code of 1 of 1 attempts: 000000000000 was recorded, which no commit of the history has")
    ]


def test_what_cannot_be_looked_up_is_said(root):
    right = code(root, PUBLISHED)
    codes = [
        (PUBLISHED, None),
        (PUBLISHED, {"changed": []}),
        (PUBLISHED, {**right, "replaced": "my own"}),
        (PUBLISHED, {**right, "changed": ["a.py", "b.py"]}),
        (PUBLISHED, right),
        ("of no plan", right),
    ]
    found = said(root, codes)
    assert [good for good, _ in found] == [True] * 4
    assert [text.partition(": ")[2] for _, text in found[:3]] == [
        "no digest recorded, so that only the commit says which it was",
        "NOT checked: my own ran in place of the project's program",
        "NOT checked: 2 files differed from the commit, and nobody has them",
    ]
    assert found[0][1].startswith("code of 2 of 5 attempts: ")


def test_a_commit_without_the_program_is_named_unless_the_model_is_from_outside(root, monkeypatch):
    git(root, "rm", "-q", "repro/models/gpt.py")
    git(root, "commit", "-qm", "Remove")
    right = {"sha256": "0" * 64, "changed": []}
    ((good, text),) = said(root, [(PUBLISHED, right)])
    assert not good and text.endswith(f"but commit {git(root, 'rev-parse', 'HEAD')[:12]} has no program of gpt")
    monkeypatch.setattr(code_lookup, "PACKAGE", root / "repro")
    ((good, text),) = said(root, [(PUBLISHED, right)])
    assert good and "NOT checked: the project has no model gpt, which was from outside" in text
    git(root, "rm", "-rq", "repro")
    shutil.rmtree(root / "repro", ignore_errors=True)
    git(root, "commit", "-qm", "Remove all", "--allow-empty")
    monkeypatch.undo()
    assert said(root, [(BASELINE, right)])[0][0] is False


# Facts that are missing


def lacking(root, unproven, attempts=(), commit=None):
    description = described(environment=ran_on(git_commit=commit or git(root, "rev-parse", "HEAD")))
    run = SimpleNamespace(description=lambda: description, attempts=lambda: list(map(recorded, attempts)))
    history.cache_clear()
    return withheld(run, unproven, history(root), root)


def test_a_fact_that_the_programs_record_was_taken_out(root):
    assert lacking(root, list(WRITTEN)) == [], "early programs recorded none of it"
    (root / "repro" / "trainers" / "train.py").write_text('metrics.write("census")\n')
    git(root, "add", ".")
    git(root, "commit", "-qm", "Record operators")
    head = git(root, "rev-parse", "HEAD")[:12]
    text = f"not recorded, although the programs of commit {head} record it: it was taken out"
    assert lacking(root, ["operators", "kind of data"]) == [f"operators: {text}"]
    assert lacking(root, ["operators"], commit=git(root, "rev-parse", "HEAD~1")) == []
    assert lacking(root, ["operators"], commit="1" * 40) == [], "of a lost commit nobody knows"


def test_the_digest_of_the_code_may_be_missing_of_killed_attempts(root):
    (root / "repro" / "launch").mkdir()
    (root / "repro" / "launch" / "runner.py").write_text('record = {"code": 1}\n')
    git(root, "add", ".")
    git(root, "commit", "-qm", "Record code")
    right = {"status": "ok", "code": {"sha256": "0"}}
    assert lacking(root, [], [right, {"status": "interrupted"}]) == []
    for status in ("ok", "failed"):
        (line,) = lacking(root, [], [right, {"status": status}])
        assert line.startswith("digest of the code: not recorded")


def test_the_present_programs_record_every_fact():
    for file, text in WRITTEN.values():
        assert text in (ROOT / file).read_bytes()
    assert WRITTEN.keys() - {CODE} == {
        what_ran.FRAMEWORK,
        what_ran.DATA,
        what_ran.TF32,
        what_ran.OPERATORS,
        what_ran.SETTINGS,
        what_ran.AMP,
    }

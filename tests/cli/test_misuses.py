"""What a reviewer may mistype or misuse: each ends with its status and one sentence that names it, before anything starts."""

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile

import pytest

from repro.cli.make import run
from repro.utils.paths import ROOT
from tests.support.processes import heed_interrupts

KEPT = next((ROOT / "reports" / "reproduced").glob("*/runs/*.zip"))
MISUSES = [
    ("bench", {"REPEATS": "1000000000"}, 2, "REPEATS=1000000000: it is a whole number from 1 to 1000"),
    ("bench", {"REPEATS": "1e3"}, 2, "REPEATS=1e3: it is a whole number"),
    ("bench", {"REPEATS": "-1"}, 2, "REPEATS=-1: it is a whole number"),
    ("bench", {"ITERATIONS": "99999999999999999999"}, 2, "ITERATIONS=.*: it is a whole number from 1 to 1000000"),
    ("bench", {"JOBS": "1000000"}, 2, "JOBS: make bench has no such variable"),
    ("curves", {"JOBS": "1000000"}, 2, "JOBS=1000000: it is a whole number from 1 to 1024"),
    ("bench", {"PORT": "65536"}, 2, "PORT=65536: it is a whole number from 1 to 65535"),
    ("bench", {"ATTEMPT_TIMEOUT": "999999999"}, 2, "ATTEMPT_TIMEOUT=999999999: it is a whole number from 1 to"),
    ("bench", {"DRY_RUN": "yes"}, 2, "DRY_RUN=yes: it is 0 or 1"),
    ("bench", {"SCALE": "smoke", "CASES": "nothing_*"}, 2, "nothing_"),
    ("bench", {"MODEL": "gtp"}, 2, "gtp"),
    (
        "bench",
        {"RUNTIME": "docker", "IMAGE": "--privileged", "DRY_RUN": "1"},
        2,
        "IMAGE=--privileged: it is an image's name",
    ),
    ("bench", {"RUNTIME": "apptainer", "IMAGE": "-x", "DRY_RUN": "1"}, 2, "IMAGE=-x: it is an image's name"),
    ("bench", {"RUNS": "/etc/passwd", "SCALE": "smoke"}, 2, "RUNS=/etc/passwd: no folder can be made"),
    ("bench", {"RUNS": "/proc/x", "SCALE": "smoke"}, 2, "RUNS=/proc/x: no folder can be made"),
    ("bench", {"RUNS": "/dev/null/x", "DRY_RUN": "1"}, 2, "RUNS=/dev/null/x: no folder can be made"),
    ("bench", {"RUNS": "x" * 400, "DRY_RUN": "1"}, 2, "RUNS=x+ … .*: no folder can be made there: File name too long"),
    ("bench", {"RUN": "../../etc"}, 2, r"RUN=\.\./\.\./etc: no such run"),
    ("bench", {"RUN": "--help"}, 2, "RUN=--help: no such run"),
    ("report", {"RUN": "/etc/passwd"}, 2, "RUN=/etc/passwd: no such run"),
    ("report", {"RUN": "/dev/zero"}, 2, "RUN=/dev/zero: no such run"),
    ("report", {"RUN": "/"}, 2, "RUN=/: no such run"),
    ("report", {"RUN": f"{KEPT}", "RUNS": "/etc/passwd"}, 2, "^RUNS=/etc/passwd: no folder can be made there"),
    ("preflight", {"RUNS": "/etc/passwd"}, 2, "^RUNS=/etc/passwd: no folder can be made there"),
    ("fingerprint", {"CLUSTER": "v100x32", "RUNS": "/proc/x"}, 2, "^RUNS=/proc/x: no folder can be made there"),
    ("provision", {"CLUSTER": "v100x32", "RUNS": "/proc/x"}, 2, "^RUNS=/proc/x: no folder can be made there"),
    ("preflight", {"ONLY": ","}, 2, "^ONLY=,: name a check, or leave it out"),
    ("image", {"CA": "/nowhere"}, 2, "^CA=/nowhere: no such file"),
    ("kit", {"ARCH": "90", "KIT": "/etc"}, 2, "^KIT=/etc: it exists already; remove it or name another folder"),
    ("kit", {"ARCH": "90", "KIT": "/dev/null/x"}, 2, "^KIT=/dev/null/x: no folder can be made there"),
    ("report", {"RUN": "x.zip"}, 2, r"RUN=x\.zip: no such archive"),
    ("report", {"RUN": "a\x1b[2Jb"}, 2, "no such run"),
    ("report", {"RUN": "x" * 5000}, 2, "no such run"),
    ("report", {}, 2, r"^there is no run in .*; RUN= names one"),
    ("parse", {"LOG": "nothing"}, 2, "^LOG=nothing: no such file"),
    ("report", {"TOLERANCE": "nan"}, 2, "TOLERANCE=nan: it is a number of per cent"),
    ("verify", {"RUN": "\0"}, 2, "no such run"),
    ("verify", {"HOST": "../x"}, 2, r"HOST=\.\./x: a name of small letters"),
    ("verify", {"HOST": "h200", "RUN": "x"}, 2, r"RUN and HOST: give one of them"),
    ("verify", {"HOST": "nowhere"}, 2, "HOST=nowhere: no run is kept in .*; there are those of h100"),
    ("kit", {"ARCH": "59"}, 2, "ARCH=59: the compute capability without its point"),
    ("plan", {"CLUSTER": "dgx-h100x1000000000000"}, 2, r"at most 4096 nodes"),
    (
        "bench",
        {"BASELINE_PYTHON": "/bin/true", "DRY_RUN": "1"},
        2,
        r"BASELINE_PYTHON=/bin/true cannot run the baselines",
    ),
    (
        "bench",
        {"BASELINE_PYTHON": "/nowhere/python3"},
        2,
        "^BASELINE_PYTHON=/nowhere/python3: no such program that can be started",
    ),
    ("bench", {"DATA": "/nowhere"}, 2, "^DATA=/nowhere: no such folder, and no nowhere.idx"),
    ("bench", {"DATA": "bert=/nowhere,gtp=synthetic"}, 2, "^DATA=bert=/nowhere: no such folder"),
    ("bench", {"DATA": "x" * 400}, 2, "^DATA=x+: no such folder"),
    ("bench", {"DATA": "gtp=synthetic"}, 2, "^DATA=gtp=synthetic: there is no model or report gtp"),
    ("bench", {"DATA": "bert="}, 2, "^DATA=bert=: it is a path or synthetic"),
    ("bench", {"DATA": "/etc", "SCALE": "smoke"}, 2, "^DATA: for the published shapes on GPUs"),
    ("bench", {"RUNTIME": "apptainer", "IMAGE": "/nowhere.sif"}, 2, r"^IMAGE=/nowhere\.sif: no such file"),
    ("bench", {"BASELINE_PYTHON": "/usr"}, 2, "^BASELINE_PYTHON=/usr: it is no program that can be started"),
    ("bench", {"BASELINE_PYTHON": "/nowhere", "CLUSTER": "v100x32"}, 2, "^BASELINE_PYTHON: for runs on one machine"),
    ("archive", {"RUN": "x", "HOST": "h200", "KEY": "/usr"}, 2, "^KEY=/usr: it is no file"),
    ("profile", {"CUPTI": "/nowhere"}, 2, "^CUPTI=/nowhere: no such file or folder"),
    ("reproduce", {"CUPTI": "/nowhere"}, 2, "^CUPTI=/nowhere: no such file or folder"),
    ("archive", {"RUN": "x", "HOST": "h200", "KEY": "/nowhere"}, 2, "^KEY=/nowhere: no such file"),
    ("compare", {"RUNS": "a b"}, 2, "^RUNS=a: no such run"),
    ("compare", {"RUNS": "x.zip y.zip"}, 2, r"^RUNS=x\.zip: no such archive"),
    ("compare", {"RUNS": "a"}, 2, "name the two runs to compare"),
    ("compare", {"RUNS": "a,a"}, 2, "name the two runs to compare, each once"),
    ("compare", {"RUNS": f"{KEPT},{KEPT.parent}/./{KEPT.name}"}, 2, "name the two runs to compare, each once"),
    ("bench", {"RUN": f"{KEPT}"}, 2, r"RUN=.*\.zip: an archive is never changed.*unpack it into a folder of runs/"),
    ("curves", {"RUN": "x.zip"}, 2, r"RUN=x\.zip: an archive is never changed"),
    ("archive", {"HOST": "h200"}, 2, "name the run to keep"),
    ("explore", {"SHAPE": "1000000000x1000000000"}, 2, "SHAPE=.*at most"),
    (
        "explore",
        {"BATCH": "7"},
        2,
        "BATCH=7: no layout of this shape on 32 GPUs divides it; it has to be a multiple of the data parallel size, which can "
        "be 2, 4, 8, 16, 32",
    ),
    ("plan", {"CLUSTER": f"dgx-h100x{'9' * 400}"}, 2, "^CLUSTER=dgx-h100x9+: at most 4096 nodes$"),
    ("plan", {"CLUSTER": "9" * 400}, 2, "^CLUSTER=9+: no such cluster"),
    ("bench", {"CLUSTER": "9" * 400}, 2, "^CLUSTER=9+: no inventory"),
    ("archive", {"RUN": "9" * 400, "HOST": "h200"}, 2, "9+ … .*: no file or folder can have so long a name"),
    ("audit", {"DATA": f"/{'9' * 400}"}, 2, "^DATA=/9+ … .*: no such folder"),
    ("audit", {"LOGS": "/etc/passwd"}, 2, "^LOGS=/etc/passwd: it is no folder"),
    ("parse", {"LOG": "/"}, 2, r"^LOG=/: it is no file \(a log file\)"),
    ("report", {"TOLERANCE": "٣"}, 2, "TOLERANCE=٣: it is a number of per cent"),
    ("report", {"TOLERANCE": "1_0"}, 2, "TOLERANCE=1_0: it is a number of per cent"),
    ("plan", {"CLUSTER": "dgx-h100x1٣"}, 2, "CLUSTER=dgx-h100x1٣: no such cluster"),
    ("image", {"BASE": "--privileged"}, 2, "^BASE=--privileged: it is an image's name, ID or file"),
    ("bench", {"CUBLAS": "/nonexistent", "DRY_RUN": "1"}, 2, "^CUBLAS=/nonexistent: no such file or folder"),
    ("bench", {"LAUNCHER": "ssh", "DRY_RUN": "1"}, 2, "^LAUNCHER: for runs on the nodes of a cluster"),
    ("preflight", {"CLUSTER": "v100x32", "STACK": "cu102"}, 2, "^STACK: for runs on one machine"),
    ("curves", {"JOBS": "2", "PORT": "5000"}, 2, "^JOBS=2: PORT is the port of one attempt"),
    ("curves", {"CASES": "nothing"}, 2, "^CASES=nothing: no layout of that name; there are bert_fp32_"),
    (
        "deprovision",
        {"CLUSTER": "v100x32", "LIMIT": "v100-1,x"},
        2,
        r"^LIMIT=v100-1,x: [^ ]*hosts\.yml has no node 'x'",
    ),
    ("compile-kernels", {"ARCH": "999"}, 2, "^ARCH=999: the pinned compilers know no such GPU; it is 80, 86, .*, 121$"),
    ("bundle-check", {}, 2, "^BUNDLE=bundle: no such folder"),
    ("effects", {"RESULTS": "/etc"}, 2, r"^RESULTS=/etc: no metrics-rank0\.jsonl there"),
    ("new-cluster", {"NAME": "new", "HOSTS": "a", "GBITS": "٣"}, 2, "^GBITS=٣: it is a number"),
    ("bench", {"CLUSTER": "a\nb"}, 2, r"^CLUSTER=a b: no inventory .*/a b/hosts\.yml"),
    ("plan", {"CLUSTER": "--help"}, 2, "CLUSTER=--help: no such cluster"),
    ("plan", {"CLUSTER": "/dev/null"}, 2, "CLUSTER=/dev/null: no such cluster"),
    ("reproduce", {}, 2, "HOST=<name>: name this machine"),
    ("reproduce", {"HOST": "x", "STEPS": "everything"}, 2, "STEPS=everything: no step everything"),
    ("reproduce", {"HOST": "x", "STEPS": ","}, 2, "^STEPS names no step; there are rehearse, preflight"),
    ("nothing", {}, 2, "nothing"),
]


@pytest.mark.parametrize(("task", "settings", "status", "message"), MISUSES, ids=lambda value: repr(value)[:60])
def test_it_is_one_sentence_with_its_status(task, settings, status, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(task, settings.items()) == status
    said = capsys.readouterr().err.strip()
    assert re.search(message, said), said
    assert len(said) < 3000 and "\x1b" not in said and not list(tmp_path.iterdir())


def test_a_pipe_is_no_log(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert run("parse", [("LOG", f"{tmp_path}/pipe")]) == 2
    assert capsys.readouterr().err == f"LOG={tmp_path}/pipe: it is no file (a log file)\n"


@pytest.mark.parametrize(("task", "variable"), [("bundle", "BUNDLE"), ("kit", "KIT")])
def test_what_is_where_a_folder_would_be_written_first_stays(task, variable, capsys, tmp_path):
    (tmp_path / "x.partial").mkdir()
    (tmp_path / "x.partial" / "mine").touch()
    assert run(task, [(variable, f"{tmp_path}/x"), *([("ARCH", "90")] if task == "kit" else [])]) == 2
    assert f"{variable}={tmp_path}/x: {tmp_path}/x.partial, where it is written first," in capsys.readouterr().err
    assert (tmp_path / "x.partial" / "mine").exists()


@pytest.mark.parametrize("name", ["REPRO_TRAINER_COMMAND", "REPRO_BASELINE_COMMAND"])
def test_a_command_that_no_shell_reads_is_named(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, "python '")
    assert run("bench", [("DRY_RUN", "1"), ("SCALE", "smoke")]) == 2
    assert capsys.readouterr().err == f"{name}=python ': no shell reads this command: No closing quotation\n"


def test_a_copy_of_a_run_is_not_compared_with_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(KEPT, tmp_path / "copy.zip")
    assert run("compare", [("RUNS", f"{KEPT},copy.zip")]) == 2
    assert "a run equals itself" in capsys.readouterr().err


TASKS_OVER_RUNS = [
    ("report", {}),
    ("verify", {}),
    ("archive", {}),
    ("archive", {"HOST": "h200"}),
    ("compare", None),
]


@pytest.mark.parametrize(("task", "settings"), TASKS_OVER_RUNS, ids=str)
def test_an_archive_that_is_none_of_a_run_is_wrong_input_to_every_task(task, settings, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.zip").write_bytes(KEPT.read_bytes()[:3000])
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("a.txt", "a")
    for name, message in (
        ("cut", "cannot be read as a ZIP archive.*; copy it again"),
        ("other", "^RUNS?=other.zip: .*no run.json in it"),
    ):
        named = {"RUNS": f"{KEPT} {name}.zip"} if settings is None else {"RUN": f"{name}.zip", **settings}
        assert run(task, named.items()) == 2
        assert re.search(message, capsys.readouterr().err)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "with its aliases expanded it has more than 100000 values"),
        ("&a [*a]\n", "with its aliases expanded"),
        ("x: " + "y" * 2**21, "it has more than 1 MiB"),
        ("[" * 5000, "Ansible cannot read this inventory"),
        ("nodes: {hosts: {'node[1:1000000000]': {}}}", "with its ranges expanded it has more than 4096 hosts"),
        ("nodes: {hosts: {'n[01:99][a:z]-[1:40:2]': {}}}", "with its ranges expanded"),
    ],
    ids=["a billion laughs", "itself", "two MiB", "nested without end", "a billion hosts", "three ranges"],
)
def test_an_inventory_that_would_never_be_read_is_refused(text, message, tmp_path, capsys):
    (tmp_path / "hosts.yml").write_text(text)
    assert run("plan", [("CLUSTER", f"{tmp_path}")]) == 2
    assert message in capsys.readouterr().err


def test_variables_that_are_no_file_are_refused(tmp_path, capsys):
    (tmp_path / "hosts.yml").write_text("nodes: {hosts: {node1: {}}}")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all").symlink_to("/dev/zero")
    assert run("plan", [("CLUSTER", f"{tmp_path}")]) == 2
    assert "group_vars/all: it is no file" in capsys.readouterr().err


def started(*words, **environment):
    """A process of the command line, with what a site may have set."""
    return subprocess.run(
        ["bash", "-c", " ".join(words)],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        errors="replace",
    )


TASK = '"$PYTHON" -m repro cases MODEL=gpt'


def test_packages_of_other_pythons_are_not_imported(tmp_path):
    (tmp_path / "pandas.py").write_text("raise SystemExit('of another Python')")
    (tmp_path / "markupsafe.py").write_text("raise SystemExit('of another Python')")
    (tmp_path / "start.py").write_text("raise SystemExit('started')")
    done = started(TASK, PYTHONPATH=str(tmp_path), PYTHONSTARTUP=str(tmp_path / "start.py"))
    assert done.returncode == 0 and "gpt2_small" in done.stdout, done.stderr
    made = started("make -s cases MODEL=gpt REPRO=1 2>&1 || true", PYTHONHOME="/nowhere", PYTHONPATH=str(tmp_path))
    assert "no such variable" in made.stdout, made.stdout


@pytest.mark.parametrize("words", ["--make", "--check", "--make cases audit", "--check cases audit"])
def test_make_names_one_task(words):
    done = started(f'"$PYTHON" -m repro {words}')
    assert (done.returncode, done.stderr) == (
        2,
        f"python -m repro {words.split()[0]} TASK: name one task, as `make` lists them\n",
    )


def test_a_closed_input_is_an_empty_one():
    done = started('"$PYTHON" -m repro new-cluster NAME=x', "<&-")
    assert done.returncode == 2 and done.stderr.startswith("HOSTS is missing"), done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&-", "<&- 2>&-"])
def test_closed_outputs_are_no_error(closed):
    assert started(TASK, closed).returncode == 0
    wrong = started('"$PYTHON" -m repro cases MODEL=none', closed)
    assert wrong.returncode == 2 and "Traceback" not in wrong.stderr + wrong.stdout


def test_an_output_in_ascii_shows_escapes():
    done = started('"$PYTHON" -m repro bench MODEL=模型', PYTHONIOENCODING="ascii")
    assert done.returncode == 2 and "Traceback" not in done.stderr and "\\u6a21" in done.stderr


@pytest.mark.parametrize(
    "module", ["repro.targets", "repro.cli.make", "repro.published.cases", "repro.perfmodel.plan_table"]
)
def test_an_interrupt_is_one_word_from_the_imports_to_the_planning(module):
    argv = [sys.executable, "-X", "importtime", "-m", "repro", "plan", "REPEATS=1000"]
    process = subprocess.Popen(
        argv, cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=heed_interrupts
    )
    while module not in process.stderr.readline():
        assert process.poll() is None, "it ended before"
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    assert process.wait() in (
        130,
        -signal.SIGINT,
    )  # Python ends by the signal itself if it came in the exec() of a dataclass
    assert "Traceback" not in said and said.endswith("interrupted\n"), said[-2000:]

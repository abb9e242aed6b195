"""Runs and archives that were made to harm whoever reads them: each is one sentence, soon, and writes nothing elsewhere.

`FUZZ=500 .venv/bin/python -m pytest tests/attacks/test_hostile_runs.py -k fuzz` tries 500 other changes to a run.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import stat
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro.analysis.evidence import require
from repro.cli import report as tasks
from repro.cli.settings import Exit, Invocation
from repro.report.run.page import render
from repro.runs import limits
from repro.runs.files import names, reading
from repro.runs.manifest import record
from repro.runs.record import Run
from repro.utils.errors import ReproError
from tests.support.synthetic import published_run

CASE = "DP_1x1x1_2_1536x16"
ATTEMPT = f"units/{CASE}/repeat-1.attempt-1"
SOON_S, MEMORY_KIB = 20, 700 * 1024
"""CPU seconds and memory that an answer may take; most take a hundredth of it."""
FUZZ = os.environ.get("FUZZ")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run of one case and two repeats, as it was recorded."""
    run = published_run(tmp_path_factory.mktemp("original"), [CASE], (1.0, 1.001), label="given")
    record(run)
    return run.folder


@pytest.fixture
def handed_over(original, tmp_path):
    """A copy of it that lies outside one's own runs."""
    return Path(shutil.copytree(original, tmp_path / "handed-over" / "given"))


def answer(task, run, runs) -> str:
    """What a task says of a run; a test fails by any exception that is none for people."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            task.body(Invocation(task.name, {}), str(run), runs)
    except Exit as refusal:
        return refusal.message
    except ReproError as refusal:
        return str(refusal)
    return ""


def edit(file: Path, change: Callable[[dict], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def edit_attempt(run: Path, **changes) -> None:
    lines = [json.loads(line) for line in (run / "attempts.jsonl").read_text().splitlines()]
    lines[0].update(changes)
    (run / "attempts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit_unit(run: Path, change: Callable[[dict], object]) -> None:
    edit(run / "run.json", lambda content: change(content["plan"]["units"][0]))


METRICS_ROW = {"event": "iteration", "loss": 1.0, "throughput": 1.0, "latency_ms": 1.0}
RECORDS = {
    "no JSON": lambda run: (run / "run.json").write_text("{"),
    "no UTF-8": lambda run: (run / "run.json").write_bytes(b"\xff\xfe{}"),
    "a list": lambda run: (run / "run.json").write_text("[]"),
    "nested without end": lambda run: (run / "run.json").write_text("[" * 100_000),
    "nested deeper than any": lambda run: (run / "run.json").write_text('{"a":' * 200 + "1" + "}" * 200),
    "a million values": lambda run: (run / "run.json").write_text(json.dumps([[]] * (limits.VALUES + 1))),
    "nothing in it": lambda run: (run / "run.json").write_text("{}"),
    "no plan": lambda run: edit(run / "run.json", lambda content: content.pop("plan")),
    "an id that is a path": lambda run: edit(run / "run.json", lambda content: content.update(id="../../x")),
    "created in the year 10^300": lambda run: edit(run / "run.json", lambda content: content.update(created=1e300)),
    "a command of many lines": lambda run: edit(run / "run.json", lambda content: content.update(command="x\n# y")),
    "10^12 ranks": lambda run: edit_unit(run, lambda unit: unit["config"]["layout"].update(data=10**12)),
    "ranks that multiply": lambda run: edit_unit(
        run, lambda unit: unit["config"]["layout"].update(data=60_000, tensor=60_000)
    ),
    "10^12 layers": lambda run: edit_unit(run, lambda unit: unit["config"]["shape"].update(layers=10**12)),
    "10^400 iterations": lambda run: edit_unit(run, lambda unit: unit["config"].update(iterations=10**400)),
    "no iterations": lambda run: edit_unit(run, lambda unit: unit["config"].update(iterations=0, log_interval=0)),
    "a rule of 10^9 rows": lambda run: edit_unit(run, lambda unit: unit["rule"].update(rows=10**9)),
    "a unit that is a path": lambda run: edit_unit(run, lambda unit: unit.update(name="../../../etc")),
    "a unit of another key": lambda run: edit_unit(run, lambda unit: unit.update(surprise=1)),
    "10^9 repeats": lambda run: edit(run / "run.json", lambda content: content["plan"].update(repeats=10**9)),
    "units that are none": lambda run: edit(run / "run.json", lambda content: content["plan"].update(units=[1])),
    "GPUs without a name": lambda run: edit(run / "run.json", lambda content: content["environment"].update(gpus=[3])),
    "an attempt that is a number": lambda run: (run / "attempts.jsonl").write_text("7\n"),
    "an attempt that is cut": lambda run: (run / "attempts.jsonl").write_text('{"unit": "x"\n{}\n'),
    "an attempt elsewhere": lambda run: edit_attempt(run, folder="../../../etc"),
    "an attempt at the root": lambda run: edit_attempt(run, folder="/etc"),
    "an attempt of no status": lambda run: edit_attempt(run, status="perfect"),
    "a throughput of 10^400": lambda run: edit_attempt(run, throughput=10**400),
    "a throughput that is a text": lambda run: edit_attempt(run, throughput="fast"),
    "losses that are texts": lambda run: edit_attempt(run, losses=["low"]),
    "a message that pads": lambda run: edit_attempt(
        run, status="failed", failure={"message": "{n:>999999999}", "values": {"n": 1}}
    ),
    "a message that looks inside": lambda run: edit_attempt(
        run, status="failed", failure={"message": "{n.__class__}", "values": {"n": 1}}
    ),
    "metrics that are none": lambda run: (run / ATTEMPT / "metrics-rank0.jsonl").write_text("[1]\n2\n"),
    "metrics of NULs": lambda run: (run / ATTEMPT / "metrics-rank0.jsonl").write_bytes(b"\0" * 1000 + b"\n"),
    "metrics that are nested": lambda run: (run / ATTEMPT / "metrics-rank0.jsonl").write_text("[" * 10**5 + "\n"),
    "a million events": lambda run: (run / ATTEMPT / "metrics-rank0.jsonl").write_bytes(b"{}\n" * 1_000_000),
    "more than a million events": lambda run: (run / ATTEMPT / "metrics-rank0.jsonl").write_bytes(
        b'{"event": "x"}\n' * (limits.LINES + 1)
    ),
    "rows that go back": lambda run: (run / ATTEMPT / "metrics-rank0.jsonl").write_text(
        "".join(json.dumps({**METRICS_ROW, "iteration": -at, "time": -at}) + "\n" for at in range(50_000))
    ),
    "an attempt of number 10^12": lambda run: edit_attempt(
        run, folder=ATTEMPT.replace("attempt-1", f"attempt-{10**12}")
    ),
    "a log of NULs": lambda run: (run / ATTEMPT / "logs/local_rank_0/stdout").write_bytes(b"\0" * 10**6),
    "a manifest of nothing": lambda run: (run / "manifest-sha256.txt").write_text("x\n"),
    "a manifest of paths elsewhere": lambda run: (run / "manifest-sha256.txt").write_text(f"{'0' * 64}  ../../x\n"),
}
"""Changes to a run's files, by what they make of it."""

ENTRIES = {
    "a link to a file": lambda run: replaced(run / "run.json").symlink_to("/etc/passwd"),
    "a link that leads up": lambda run: replaced(run / "run.json").symlink_to("../../secret"),
    "a link for a file to be written": lambda run: (run / "report.en.md.partial").symlink_to("../../secret"),
    "a link for the figures": lambda run: (run / "figures").symlink_to("../.."),
    "a link for the units": lambda run: replaced(run / "units").symlink_to("/"),
    "a link in a chain": lambda run: ((run / "a").symlink_to("b"), (run / "b").symlink_to("/etc/passwd")),
    "a pipe": lambda run: os.mkfifo(replaced(run / "attempts.jsonl")),
    "a name with a line end": lambda run: (run / "a\nb").write_text(""),
    "a name that turns the text round": lambda run: (run / "a\u202eb").write_text(""),
    "a name that clears the screen": lambda run: (run / "a\x1b[2J").write_text(""),
    "a name that is no text": lambda run: (run / os.fsdecode(b"a\xff")).write_text(""),
    "folders without end": lambda run: (run / "/".join("d" * 40)).mkdir(parents=True),
}
"""What lies in a run's folder, by what it is."""


def replaced(path: Path) -> Path:
    """The path, with nothing there any more."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return path


def sentence(said: str) -> bool:
    """Whether something is said, in no more lines than a person reads, without a traceback."""
    return bool(said.strip()) and len(said.splitlines()) <= 24 and len(said) < 8000 and "Traceback" not in said


@pytest.mark.parametrize("what", RECORDS)
def test_a_record_that_is_none_is_one_sentence(handed_over, tmp_path, what):
    RECORDS[what](handed_over)
    begun = time.process_time()
    for task in (tasks.report, tasks.verify):
        assert sentence(answer(task, handed_over, tmp_path / "runs")), task.name
    with pytest.raises(ReproError), reading(handed_over):
        require(without_manifest(handed_over))
        render(Run(handed_over), figures=True, folder=tmp_path / "rendered")
        raise ReproError("what is left reads as a run")
    assert time.process_time() - begun < SOON_S
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def without_manifest(run: Path) -> Run:
    (run / "manifest-sha256.txt").unlink(missing_ok=True)
    return Run(run)


@pytest.mark.parametrize("what", ENTRIES)
@pytest.mark.parametrize("own", [False, True], ids=["handed over", "among one's own"])
def test_links_pipes_and_odd_names_are_refused_before_anything_is_written(original, tmp_path, what, own):
    (tmp_path / "secret").write_text("mine")
    run = Path(shutil.copytree(original, tmp_path / ("runs" if own else "handed-over") / "given"))
    ENTRIES[what](run)
    before = everything(tmp_path)
    for task in (tasks.report, tasks.verify, tasks.archive):
        said = answer(task, run, tmp_path / "runs")
        assert sentence(said) and "was not read" in said, (task.name, said)
    assert everything(tmp_path) == before and (tmp_path / "secret").read_text() == "mine"


def everything(folder: Path) -> dict[str, tuple]:
    """Every entry below a folder, with its kind, size and time."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            seen = os.lstat(os.path.join(parent, name))
            found[os.path.join(parent, name)] = (seen.st_mode, seen.st_size, seen.st_mtime_ns)
    return found


def test_a_run_from_elsewhere_is_rendered_outside_its_folder(handed_over, tmp_path):
    before = everything(handed_over)
    assert answer(tasks.report, handed_over, tmp_path / "runs") == ""
    assert everything(handed_over) == before
    assert {"report.en.md", "report.html", "results.csv", "verdicts.json"} <= set(names(tmp_path / "runs/given"))
    text = (tmp_path / "runs/given/report.en.md").read_text()
    assert "](../../handed-over/given/run.json)" in text


def test_a_link_that_was_placed_where_a_report_will_be_is_refused(handed_over, tmp_path):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "runs/given").mkdir(parents=True)
    (tmp_path / "runs/given/report.en.md.partial").symlink_to("../../secret")
    assert "a link that leads elsewhere" in answer(tasks.report, handed_over, tmp_path / "runs")
    assert (tmp_path / "secret").read_text() == "mine"


def packed(folder: Path, archive: Path, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipFile:
    opened = zipfile.ZipFile(archive, "w", compression)
    for name in names(folder):
        opened.write(folder / name, name)
    return opened


def member(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    made.compress_type = zipfile.ZIP_DEFLATED
    return made


def bombed(opened: zipfile.ZipFile, count: int, mib: int) -> None:
    for number in range(count):
        with opened.open(member(f"bomb-{number}"), "w", force_zip64=True) as file:
            for _ in range(mib):
                file.write(bytes(2**20))


def many(opened: zipfile.ZipFile) -> None:
    """Names in its list of files, all of one empty file: writing that many files takes longer than reading them."""
    opened.writestr("0", b"")
    for number in range(1, limits.FILES + 1):
        listed = zipfile.ZipInfo(f"{number:x}")
        listed.header_offset, listed.CRC = opened.filelist[-1].header_offset, 0
        opened.filelist.append(listed)


def with_surprise(name: str) -> Callable[[zipfile.ZipFile], None]:
    return lambda opened: opened.writestr(member(name), b"x")


ARCHIVES = {
    "leads up": with_surprise("../../secret"),
    "leads to the root": with_surprise("/etc/passwd"),
    "has a dot": with_surprise("a/./b"),
    "has an empty folder": with_surprise("a//b"),
    "has a backslash": with_surprise("..\\..\\secret"),
    "has a line end": with_surprise("a\nb"),
    "has an escape": with_surprise("a\x1b[2J"),
    "has a long name": with_surprise("a" * 300),
    "is deep": with_surprise("/".join("d" * 40)),
    "has a file that is a folder too": lambda opened: [with_surprise(each)(opened) for each in ("a", "a/b")],
    "has a file twice": lambda opened: [with_surprise(each)(opened) for each in ("a", "a")],
    "has a link": lambda opened: opened.writestr(member("link", stat.S_IFLNK | 0o777), "/etc/passwd"),
    "has a device": lambda opened: opened.writestr(member("null", stat.S_IFCHR | 0o666), b""),
    "has a bzip2 file": lambda opened: opened.writestr("a", b"x", zipfile.ZIP_BZIP2),
    "has an lzma file": lambda opened: opened.writestr("a", b"x", zipfile.ZIP_LZMA),
    "has one file of 300 MiB": lambda opened: bombed(opened, 1, 300),
    "has 70 MiB in 70 KiB": lambda opened: bombed(opened, 10, 7),
    "has too many files": many,
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("what", ARCHIVES)
def test_a_hostile_archive_is_one_sentence(handed_over, tmp_path, what):
    with packed(handed_over, tmp_path / "given.zip") as opened:
        ARCHIVES[what](opened)
    begun, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for task in (tasks.report, tasks.verify, tasks.archive):
        said = answer(task, tmp_path / "given.zip", tmp_path / "runs")
        assert sentence(said) and "was not unpacked" in said, (task.name, said)
    assert time.process_time() - begun < SOON_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MEMORY_KIB
    assert not (tmp_path / "runs").exists()


def end_record(archive: Path, **fields: int) -> None:
    """Change fields of the end record of an archive, by their offsets in it."""
    content = bytearray(archive.read_bytes())
    at = content.rindex(b"PK\5\6")
    for field, value in fields.items():
        offset, form = {"count": (10, "<H"), "size": (12, "<L"), "start": (16, "<L")}[field]
        struct.pack_into(form, content, at + offset, value)
    archive.write_bytes(content)


def flags(archive: Path, value: int) -> None:
    content = bytearray(archive.read_bytes())
    struct.pack_into("<H", content, content.index(b"PK\1\2") + 8, value)
    archive.write_bytes(content)


BYTES = {
    "is cut": lambda archive: archive.write_bytes(archive.read_bytes()[:-40]),
    "is its beginning": lambda archive: archive.write_bytes(archive.read_bytes()[:500]),
    "is empty": lambda archive: archive.write_bytes(b""),
    "is text": lambda archive: archive.write_text("not a ZIP archive"),
    "says that it has another list": lambda archive: end_record(archive, start=0),
    "says that its list is huge": lambda archive: end_record(archive, size=0xFFFFFFF0),
    "is encrypted": lambda archive: flags(archive, 1),
    "says its names are UTF-8": lambda archive: archive.write_bytes(
        archive.read_bytes().replace(b"run.json", b"run\xff\xfeson")
    ),
    "has damaged bytes": lambda archive: archive.write_bytes(
        archive.read_bytes()[:200] + b"\0" * 400 + archive.read_bytes()[600:]
    ),
}


@pytest.mark.parametrize("what", BYTES)
def test_an_archive_of_damaged_bytes_is_one_sentence(handed_over, tmp_path, what):
    packed(handed_over, tmp_path / "given.zip").close()
    BYTES[what](tmp_path / "given.zip")
    for task in (tasks.report, tasks.verify):
        assert sentence(answer(task, tmp_path / "given.zip", tmp_path / "runs")), task.name


def test_an_archive_with_a_long_list_of_files_is_refused_while_it_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "given.zip", "w") as opened:
        for number in range(limits.DIRECTORY_BYTES // 60_000 + 1):
            opened.writestr(f"{number:060000}", b"")
    assert "its list of files has more than" in answer(tasks.verify, tmp_path / "given.zip", tmp_path / "runs")


HOSTILE_TEXTS = (
    "=1+1",
    "[a](https://x.invalid)",
    "<script>",
    "{0.__class__}",
    "\x1b[2J",
    "a\nb",
    "\ud800",
    "..",
    "/etc",
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10),
    st.sampled_from((10**12, -(10**12), 10**400, 2**63, -1, 0)),
    st.floats(),
    st.sampled_from(HOSTILE_TEXTS),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from(("name", "message", "values", "data")), st.integers(0, 3), max_size=2),
)


def places(value: object, path: tuple = ()) -> list[tuple]:
    """The path of every value in parsed JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, one in inner for each in places(one, (*path, key)))]


def put(root: list, path: tuple, value: object) -> None:
    """Replace the value at a path, or remove it if the new one is "gone"."""
    for key in path[:-1]:
        root = root[key]
    if value == "gone":
        del root[path[-1]]
    else:
        root[path[-1]] = value


@settings(
    max_examples=int(FUZZ or 60),
    derandomize=not FUZZ,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(data=st.data())
def test_fuzz_a_record_with_any_value_changed_is_read_or_is_one_sentence(original, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    run = without_manifest(Path(shutil.copytree(original, folder / "given"))).folder
    file = run / data.draw(st.sampled_from(("run.json", "attempts.jsonl", f"{ATTEMPT}/metrics-rank0.jsonl")))
    whole = [
        [json.loads(line) for line in file.read_text().splitlines()]
        if file.suffix == ".jsonl"
        else json.loads(file.read_text())
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        put(whole, (0, *data.draw(st.sampled_from(places(whole[0])))), data.draw(st.one_of(VALUES, st.just("gone"))))
        if not whole or not isinstance(whole[0], dict | list) or not whole[0]:
            break
    lines = whole[0] if whole and file.suffix == ".jsonl" and isinstance(whole[0], list) else whole
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    archive = folder / "given.zip"
    packed(run, archive).close()
    begun = time.process_time()
    for check in (require, lambda each: render(each, figures=True, folder=folder / "rendered")):
        with contextlib.suppress(ReproError), reading(archive):
            check(Run(archive))
    assert time.process_time() - begun < SOON_S
    shutil.rmtree(folder)


@settings(
    max_examples=int(FUZZ or 60),
    derandomize=not FUZZ,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_fuzz_an_archive_with_any_bytes_changed_is_read_or_is_one_sentence(original, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    archive = folder / "given.zip"
    packed(original, archive).close()
    content = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.one_of(st.integers(0, len(content) - 1), st.integers(len(content) - 2000, len(content) - 1)))
        content[at] = data.draw(st.integers(0, 255))
    archive.write_bytes(content)
    begun = time.process_time()
    answer(tasks.verify, archive, folder / "runs")
    assert time.process_time() - begun < SOON_S
    shutil.rmtree(folder)

"""Copies a run to where it is committed: paths of the machine rewritten, large files compressed.

`kept.json` in the copy names every recorded file that is not as it was, with the SHA-256 that it had, so that whoever
has the run itself can tell that the copy is one of it.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from repro.analysis.results import result_frame, results_csv, results_of, write_results_parquet
from repro.analysis.verdict import judge
from repro.planning.plan import Plan
from repro.report.run.kinds import shown
from repro.report.run.page import render
from repro.runs.files import KEPT, PACKED, opened
from repro.runs.manifest import ATTEMPT, DERIVED, MANIFEST, files, record, verify
from repro.runs.record import RecordError, Run, disk_error, write_json
from repro.utils.paths import REPORTS, ROOT, sha256

REPRODUCED = REPORTS / "reproduced"
HOST = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
PREFLIGHT = "preflight.json"
COMPRESSED_FROM = 4096
PLAIN = ("config.json", "command.json")
GLOG = re.compile(r".*/oneflow\.[^/]*\.log\.(INFO|WARNING|ERROR)\.[^/]+")
PROGRAM = re.compile(r"(/.+)/repro/(?:trainers|peers|baselines)/\w+\.py")
OF_CHECKOUT = re.compile(r"(/[^\s\":;,=`]+)/(?:\.cache/(?:cuda-|compat/)|\.venv-trainer/)")
ABSOLUTE = re.compile(rb"(?<![\w.:/-])(/[\w.-]+/[\w.-]+)/[\w.-]")


@dataclass(frozen=True)
class Kept:
    """The copy of a run or of a preflight: its folder, its files, and their size in bytes.

    `named` are the folders, two deep, of other files that it still names: libraries and interpreters, as evidence.
    """

    folder: Path
    files: int
    size: int
    named: tuple[str, ...]


def runs_of(host: str, reproduced: Path = REPRODUCED) -> Path:
    """The folder of a host's kept runs; RecordError unless the host's name can name one."""
    if not HOST.fullmatch(host):
        raise RecordError(f"HOST={host}: a name of small letters, digits and dashes, such as h200")
    return reproduced / host / "runs"


def keep(source: Path, target: Path) -> Kept:
    """Copy a run's folder, or that of a preflight, to `target`.

    What is measured is copied: with the paths of the checkout and of the run's own folder rewritten (`rewriting`),
    compressed from `COMPRESSED_FROM` bytes on below `units/`, and without glog's files of attempts that succeeded,
    which repeat what was printed. Reports, figures and tables are made anew from the copy.

    Raises
    ------
    RecordError
        The run is not as it was recorded, `target` is there already, or the copy does not say what the run says.
    """
    if target.exists():
        raise RecordError(f"{target} is there already; remove it to keep {source.name} anew")
    is_run = (source / "run.json").is_file()
    if not is_run and not (source / PREFLIGHT).is_file():
        raise RecordError(f"{source} holds neither run.json nor {PREFLIGHT}: it is neither a run nor a preflight")
    if is_run and not (found := verify(source)).holds:
        raise RecordError("\n".join((f"{source} is not as it was recorded; nothing was kept:", *found.lines())))
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _copy(source, partial)
        if is_run:
            _derive(Run(source), Run(partial))
        _refuse_paths(partial, rewriting(source))
        partial.rename(target)
    except OSError as error:
        raise disk_error(error, target) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    paths = files(target)
    named = {
        found.decode()
        for path in paths
        if not DERIVED.fullmatch(path) and path != MANIFEST
        for found in ABSOLUTE.findall(_content(target / path))
    }
    return Kept(target, len(paths), sum((target / path).stat().st_size for path in paths), tuple(sorted(named)))


def rewriting(source: Path) -> dict[str, str]:
    """Prefixes of paths that belong to machines, and what stands for each in a copy.

    The checkout, here and where the run was made, becomes the path relative to it; the run's folder, there and then,
    becomes `runs/<id>`; and the folder that it lay in, `runs`. Other paths are of installed libraries: evidence.
    """
    found = {str(ROOT): "."}
    if (source / "run.json").is_file():
        told = (source / "run.json").read_text(encoding="utf-8")
        found |= {prefix: "." for prefix in OF_CHECKOUT.findall(told)}
    for path in files(source):
        if path.endswith("command.json"):
            words = json.loads((source / path).read_text(encoding="utf-8"))
            programs = [PROGRAM.fullmatch(word) for word in words if isinstance(word, str)]
            found |= {each[1]: "." for each in programs if each}
        elif path.endswith("config.json"):
            output = json.loads((source / path).read_text(encoding="utf-8")).get("output", "")
            then = Path(output.removesuffix(f"/{Path(path).parent.as_posix()}"))
            if str(then) != output and then.is_absolute():
                found[str(then)] = f"runs/{source.name}"
                found |= {str(then.parent): "runs"} if len(then.parts) > 3 else {}
    return found


def _copy(source: Path, target: Path) -> None:
    pairs = rewriting(source)
    succeeded = _succeeded(source)
    changed: dict[str, dict] = {}
    for path in files(source):
        if path == MANIFEST or DERIVED.fullmatch(path) or (source / path).is_symlink():
            continue
        was = {"sha256": sha256(source / path)}
        attempt = ATTEMPT.match(path)
        if GLOG.fullmatch(path) and attempt and attempt[0] in succeeded:
            changed[path] = {**was, "left_out": True}
            continue
        before = (source / path).read_bytes()
        after = rewritten(before, pairs)
        large = "/" in path and Path(path).name not in PLAIN and len(after) >= COMPRESSED_FROM
        if after != before or large:
            changed[path] = {**was, "paths_rewritten": after != before, "compressed": large}
        place = target / (path + PACKED if large else path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(gzip.compress(after, mtime=0) if large else after)
    manifest = source / MANIFEST
    was = {"manifest_sha256": sha256(manifest)} if manifest.exists() else {}
    write_json(target / KEPT, {**was, "stands_for": sorted(set(pairs.values())), "changed": changed})


def _succeeded(source: Path) -> set[str]:
    """The folders of attempts that succeeded, with a slash at the end."""
    if not (source / "run.json").is_file():
        return set()
    return {f"{attempt['folder']}/" for attempt in Run(source).attempts() if attempt["status"] == "ok"}


def rewritten(content: bytes, pairs: dict[str, str]) -> bytes:
    """The content with each prefix replaced, the longest first; what merely begins like one stays."""
    for prefix, stands in sorted(pairs.items(), key=lambda pair: -len(pair[0])):
        begin = b"" if stands == "." else stands.encode() + b"/"
        content = content.replace(prefix.encode() + b"/", begin)
        content = re.sub(re.escape(prefix).encode() + rb"(?![\w.-])", stands.encode(), content)
    return content


def _derive(original: Run, copy: Run) -> None:
    """Reports, tables and record of a copy; RecordError unless the copy gives what the run itself gives."""
    if _says(original) != _says(copy):
        raise RecordError(f"{original.folder}: its copy gives other results or verdicts; nothing was kept")
    render(copy, figures=True)
    write_results_parquet(copy)
    record(copy)
    if not (found := verify(copy.folder)).holds:
        raise RecordError("\n".join((f"{original.folder}: its copy cannot be verified:", *found.lines())))


def _says(run: Run) -> tuple:
    """What a run's files give by today's code: results, verdicts, and what was shown of correctness."""
    plan, attempts = Plan.from_json(run.description()["plan"]), run.attempts()
    frame = result_frame(plan, attempts)
    verdicts = judge(run, plan, attempts, results_of(plan, frame)).as_json()
    found = shown(run, plan, attempts)
    return results_csv(frame), verdicts, found and found.summary()


def _refuse_paths(folder: Path, pairs: dict[str, str]) -> None:
    """No file of a copy may name a folder of the machine; RecordError names the first that does."""
    for path in files(folder):
        content = _content(folder / path)
        if rewritten(content, pairs) != content:
            raise RecordError(f"{path} of the copy still names a folder of this machine; nothing was kept")


def _content(path: Path) -> bytes:
    with opened(path) as file:
        return file.read()

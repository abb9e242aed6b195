"""Kept runs to bend: copies of two of them as a host keeps them, and what the tasks say once something was forged."""

import contextlib
import functools
import io
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro.analysis import verification
from repro.analysis.evidence import examine
from repro.cli import report as tasks
from repro.cli.settings import Exit, Invocation
from repro.report.host.results import load
from repro.runs import digests, history
from repro.runs.archive import write_archive
from repro.runs.digests import REPRODUCED, enter
from repro.runs.files import KEPT, names
from repro.runs.manifest import MANIFEST, OWN, manifest_text, record
from repro.runs.record import Run
from repro.utils.errors import ReproError
from repro.utils.paths import sha256, sha256_of

HOST = "h200"


class Scene:
    """Copies of two kept runs as a host keeps them, and of one of them as a run of one's own (`run`)."""

    def __init__(self, folder: Path, bent: str, another: str):
        self.runs = folder / "runs"
        self.hosts = folder / "reproduced"
        self.kept = self.hosts / HOST / "runs" / f"{bent}.zip"
        self.listed = self.hosts / digests.NAME
        self.kept.parent.mkdir(parents=True)
        for name in (bent, another):
            self.kept.with_name(f"{name}.zip").write_bytes(kept_archive(name))
            enter(self.kept.with_name(f"{name}.zip"), self.listed)
        self.run = self.unpacked("one-of-ones-own")
        (self.run / KEPT).unlink()
        (self.run / MANIFEST).unlink()
        edit(self.run / "run.json", lambda description: description.update(id=self.run.name))
        record(Run(self.run))

    def unpacked(self, name: str) -> Path:
        """The kept run, unpacked among one's own runs."""
        with zipfile.ZipFile(self.kept) as archive:
            archive.extractall(self.runs / name)
        return self.runs / name

    def packed(self, folder: Path, archive: Path) -> None:
        """An archive of a folder in the place of another."""
        archive.unlink(missing_ok=True)
        write_archive(archive, {path: folder / path for path in names(folder)})

    def attempts(self, unit: str) -> list[Path]:
        """The folders of the successful attempts at a unit, by the end of its name."""
        found = (each for each in Run(self.run).attempts() if each.status == "ok" and each.unit.endswith(unit))
        return [self.run / each.folder for each in found]

    def report(self, run: Path | None = None) -> str | None:
        return answer(lambda: tasks.report.body(Invocation("report", {}), str(run or self.run), self.runs))

    def verify(self, run: Path | None = None) -> str | None:
        return answer(lambda: tasks.verify.body(Invocation("verify", {}), str(run or self.run), self.runs))

    def both(self, run: Path | None = None) -> list[str | None]:
        """What both tasks say of a run."""
        return [self.report(run), self.verify(run)]

    def verify_figures(self, run: Run) -> str | None:
        """What contradicts a run's figures in its raw output."""
        return "\n".join(examine(run).lines()) or None

    def commit(self, message: str = "Keep") -> None:
        """Commit all of the hosts' folder, which is a checkout of its own."""
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", message]):
            self.git(*command)

    def git(self, *arguments: str) -> str:
        """What git prints in the hosts' folder."""
        command = ["git", "-C", str(self.hosts), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def verify_list(self) -> str | None:
        """What is wrong with the list, by itself and by the history of the hosts' folder."""
        history.history.cache_clear()
        return "\n".join(verification.verify_list(self.listed, root=self.hosts).faults) or None

    def page(self) -> str | None:
        """What writing the host's page says."""
        return answer(lambda: load(HOST, self.hosts))


@functools.cache
def kept_archive(name: str) -> bytes:
    """A kept run's archive, or that of one that was removed since."""
    archive = REPRODUCED / HOST / "runs" / f"{name}.zip"
    digest = str(digests.entered(archive, REPRODUCED / digests.NAME))
    found = (
        archive.read_bytes()
        if archive.is_file()
        else next((each for each in history.versions(archive) if sha256_of(each) == digest), None)
    )
    if found is None:
        pytest.skip(f"{archive} was removed, and this clone is shallow")
    return found


def answer(call: Callable[[], object]) -> str | None:
    """Why a task refused; None if it did not."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call()
    except Exit as refusal:
        return refusal.message
    except ReproError as refusal:
        return str(refusal)
    return None


def edit(file: Path, change: Callable[[dict], object]) -> None:
    """Change a JSON file."""
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def edit_lines(file: Path, change: Callable[[list[dict]], list[dict] | None]) -> None:
    """Change the lines of a JSON Lines file, in place or by others."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in change(lines) or lines))


def chain_again(listed: Path, text: str) -> None:
    """Write the list with chain lines that agree."""
    written = ""
    for line in text.splitlines():
        chain = f"# chain {sha256_of(written.encode())}"
        written += f"{chain if digests.CHAIN.fullmatch(line) else line}\n"
    listed.write_text(written)
    assert digests.chain_faults(listed) == []


def forge_manifest(run: Path) -> None:
    """The record that the files, as they are now, would have had from the beginning."""
    found = {path: sha256(run / path) for path in names(run) if path not in OWN}
    (run / MANIFEST).write_text(manifest_text({path: digest for path, digest in found.items() if digest}))


@dataclass(frozen=True)
class Attack:
    """What is tried, and a pattern that every answer must have."""

    title: str
    stopped_by: str
    attempt: Callable[[Scene], list[str | None]]


def listed_in(attacks: list[Attack]) -> Callable:
    """A decorator that adds an attack with its title, and what must stop it, to a list."""

    def attack(title: str, stopped_by: str) -> Callable:
        def added(function: Callable[[Scene], list[str | None]]) -> Callable:
            attacks.append(Attack(title, stopped_by, function))
            return function

        return added

    return attack


def check_stopped(answers: list[str | None], tried: Attack) -> None:
    """Fail unless every answer has the pattern."""
    assert answers
    for said in answers:
        assert said is not None, "nothing stopped it"
        assert re.search(tried.stopped_by, said), said


def print_table(attacks: list[Attack], scene_in: Callable[[Path], Scene]) -> None:
    """Try every attack and print the first line of the first answer that has the pattern."""
    for each in attacks:
        with tempfile.TemporaryDirectory() as folder:
            answers = each.attempt(scene_in(Path(folder)))
            lines = [line for said in answers for line in (said or "NOTHING STOPPED IT").splitlines()]
            shown = next((line for line in lines if re.search(each.stopped_by, line)), lines[0])
            print(f"{each.title:60} {shown.replace(folder, '…')[:150]}")

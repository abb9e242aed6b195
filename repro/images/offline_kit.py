"""The kit for one host without a network: this checkout with both environments and their interpreters, in parts.

`repro.images.kit_contents` says what the parts hold, `repro.images.kit_pieces` how they are written. Optional parts
may stay behind. `setup.sh`, which needs a shell and sha256sum, names what is damaged or missing.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repro import bootstrap
from repro.images import kit_contents
from repro.images.kernel_overlay import overlay_for
from repro.images.kit_contents import LEFT_OUT, Contents
from repro.images.kit_pieces import MB, Pieces, pack
from repro.images.oci_layout import is_complete, packed
from repro.images.offline_folder import SUMS, TEMPLATES, OfflineError, new_folder, write_readmes
from repro.images.recipes import LAYOUT
from repro.targets import groups_of
from repro.utils.paths import ROOT, sha256

NOTE = "kit.json"
OPTIONAL = ("libraries", "baselines", "tests", "images")
MIB = 2**20
LEVEL = 1
"""Of the compression by xz, 0 to 9."""


@dataclass
class Made:
    """What a kit became: what it holds, and the bytes of each part."""

    folder: Path
    contents: Contents
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the checksums, which vouches for every piece."""
        return sha256(self.folder / SUMS)


def make_kit(
    folder: Path,
    architectures: Sequence[int],
    part_mib: int,
    libraries: Sequence[Path] = (),
    datasets: Sequence[Path] = (),
    images: bool = False,
    tests: bool = False,
    baselines: bool = False,
) -> Made:
    """Write a kit into a folder that must not exist yet.

    Parameters
    ----------
    architectures : of the host's GPUs, such as 90; code for others is left out.
    part_mib : the largest size of a piece in MiB.
    libraries : folders with a newer cuBLAS and cuDNN to take along.
    datasets : folders in the cache with the data sets that models learn.
    images : whether to add what `make image` built last.
    tests : whether to add what `make test` needs.
    baselines : whether to add the pinned environment of the baselines.

    Raises
    ------
    OfflineError
        An environment is incomplete, an installed file is not as its wheel states, or the checkout has no commit.
    """
    if changed := _changed():
        raise OfflineError(f"a kit holds the last commit, and these files differ from it: {', '.join(changed)}")
    if images and not is_complete(LAYOUT):
        raise OfflineError("there are no images to take along; `make image` first")
    chosen = tuple(sorted(set(architectures)))
    contents = Contents(chosen, overlay_for(chosen[0]) if len(chosen) == 1 else None, datasets)
    made, size = Made(folder, contents), part_mib * MIB
    pythons = {
        bootstrap.CONTROLLER: _version(
            bootstrap.CONTROLLER, groups_of("kit") | (groups_of("test") if tests else set())
        ),
        bootstrap.TRAINER: _version(bootstrap.TRAINER),
    }
    if baselines:
        pythons[bootstrap.BASELINE] = _version(bootstrap.BASELINE)
    with new_folder(folder, "KIT") as partial:
        with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
            temporary = Path(scratch)
            made.parts["base"] = pack(partial, "base.tar.gz", kit_contents.base(temporary, pythons, contents), size, 6)
            parts = [("environments", kit_contents.environments(temporary, pythons, contents), _expected_mb())]
            if libraries:
                parts.append(("libraries", kit_contents.libraries(temporary, libraries, contents), _mb(libraries)))
            if baselines:
                of_baselines = bootstrap.NEEDED_MIB[bootstrap.BASELINE] * MIB / MB
                parts.append(("baselines", kit_contents.baselines(temporary, pythons, contents), of_baselines))
            if tests:
                of_tests = sum(bootstrap.NEEDED_MIB[group] for group in groups_of("test") - groups_of("kit")) * MIB / MB
                parts.append(("tests", kit_contents.tests(temporary, pythons), of_tests))
            for name, entries, expected_mb in parts:
                made.parts[name] = pack(partial, f"{name}.tar.xz", entries, size, LEVEL, expected_mb)
        if images:
            with Pieces(partial, "images.tar", size) as pieces:
                for data in packed(LAYOUT):
                    pieces.write(data)
            made.parts["images"] = pieces.total
        _describe(partial, made, pythons)
    return made


def _expected_mb() -> float:
    """About the size of both environments in MB."""
    controller = bootstrap.needed(bootstrap.NEEDED_MIB, bootstrap.CONTROLLER, groups_of("kit"))
    return (controller + bootstrap.NEEDED_MIB[bootstrap.TRAINER]) * MIB / MB


def _mb(folders: Sequence[Path]) -> float:
    """The size of the libraries in some folders in MB."""
    return (
        sum(path.stat().st_size for folder in folders for path in folder.glob("lib*.so.*") if not path.is_symlink())
        / MB
    )


def _changed() -> list[str]:
    """The files of the checkout that differ from its last commit, which is what a kit holds."""
    command = ["git", "--no-optional-locks", "-C", str(ROOT), "diff", "--name-only", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.split()


def _scratch() -> str:
    """A folder on a disk: the trainers' libraries take 2 GB, and /tmp may be in memory."""
    return "/var/tmp"


def _version(environment: Path, groups: Collection[str] = ()) -> str:
    """The Python of an environment, such as "3.10"; OfflineError unless it is complete with these groups."""
    if not bootstrap.is_ready(environment, groups):
        command = "python3 -m repro.bootstrap baseline" if environment == bootstrap.BASELINE else "make setup"
        raise OfflineError(f"{environment.name} is not complete; `{command}` completes it")
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return bootstrap.answer([environment / "bin" / "python", "-c", program]) or ""


def _describe(folder: Path, made: Made, pythons: dict[Path, str]) -> None:
    """The files beside the pieces: setup.sh, locks, kit.json and READMEs."""
    shutil.copy(TEMPLATES / "kit-setup.sh", folder / "setup.sh")
    locks = {bootstrap.INPUTS[environment][0].relative_to(ROOT).as_posix() for environment in pythons}
    for lock in (*sorted(locks), "docker/pins.toml"):
        shutil.copy(ROOT / lock, folder / Path(lock).name)
    content = {
        "commit": made.contents.commit,
        "architectures": list(made.contents.architectures),
        "overlay": made.contents.overlay.record() if made.contents.overlay else None,
        "pythons": {environment.name: version for environment, version in pythons.items()},
        "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
        "parts_bytes": made.parts,
        "left_out_bytes": made.contents.zeroed,
        "left_out_files": list(LEFT_OUT),
        "notes": made.contents.notes,
    }
    (folder / NOTE).write_text(json.dumps(content, indent=1) + "\n")
    architectures = " ".join(map(str, made.contents.architectures))
    (folder / "kit.conf").write_text(
        f"optional='{' '.join(OPTIONAL)}'\narchitectures='{architectures}'\n"
        f"controller_python='{pythons[bootstrap.CONTROLLER]}'\ntrainer_python='{pythons[bootstrap.TRAINER]}'\n"
        f"baseline_python='{pythons.get(bootstrap.BASELINE, '')}'\n"
    )
    write_readmes(folder, "kit", **content)


def summary(made: Made) -> Iterator[str]:
    """The sizes and the digest of a kit, one line each."""
    for name, size in made.parts.items():
        pieces = sum(1 for path in made.folder.glob(f"{name}.*"))
        yield f"{made.folder}/{name}.*: {size / 1e6:.0f} MB in {pieces} pieces{' (optional)' if name in OPTIONAL else ''}"
    left_out = sum(made.contents.zeroed.values())
    yield f"{left_out / 1e6:.0f} MB of GPU code for other architectures left out"
    if made.contents.overlay:
        yield made.contents.overlay.text()
    yield from made.contents.notes
    yield f"SHA-256 of {SUMS}: {made.digest}"

"""GPU code compiled ahead: what is compiled, with what, where it is put, and that the same input gives the same overlay."""

import dataclasses
import re
import subprocess
import sys

import pytest
from lz4.block import compress

from repro.images import kernel_compiler
from repro.images.fatbins import PTX, SASS, fatbins
from repro.images.kernel_compiler import ARCHITECTURES, Compiler, make_overlay
from repro.images.kernel_overlay import OverlayError
from repro.images.pins import load_pins
from repro.utils import progress
from repro.utils.paths import CACHE
from tests.support import tasks
from tests.support.fatbins import SEGMENT, elf, entry, fatbin_of, linked_at, wheel
from tests.support.patience import wait_until

TEXT = b".version 6.5\n.target sm_70\n.visible .entry one()\n"
OTHER = TEXT.replace(b"one", b"two")
PTXAS = """#!{python}
import pathlib, sys
arguments = sys.argv[1:]
target, source = arguments[arguments.index("-o") + 1:]
text = pathlib.Path(source).read_bytes()
with open(r"{log}", "a") as log:
    print(*arguments[:arguments.index("-o")], file=log)
if b"broken" in text:
    sys.exit("ptxas fatal: it is broken")
pathlib.Path(target).write_bytes(b"\\x7fELF code of " + text)
"""


class Fake(Compiler):
    """ptxas is a script, and linking puts one piece behind the other."""

    def link(self, cubins):
        return b"linked: " + b"; ".join(path.read_bytes() for path in cubins)

    @property
    def log(self):
        return self.ptxas.with_suffix(".log")

    @property
    def commands(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def compiler(tmp_path):
    script = tmp_path / "bin" / "ptxas"
    script.parent.mkdir()
    script.write_text(PTXAS.format(python=sys.executable, log=script.with_suffix(".log")))
    script.chmod(0o755)
    return Fake(script, tmp_path / "none", "ptxas 1, nvJitLink 1", 90)


def old(size=400):
    return entry(SASS, 70, b"\xee" * size)


def ptx(text=TEXT, options="", packed=False):
    return entry(PTX, 70, text + b"\0", options, compress(text + b"\0", store_size=False) if packed else b"")


@pytest.fixture
def site(tmp_path):
    """OneFlow's library with two equal fatbins, one for older GPUs only, relocatable ones and their link; cuDNN's with one."""
    plain = fatbin_of(old(), ptx(packed=True))
    for_older = fatbin_of(entry(SASS, 60, b"\xdd" * 100))
    link = fatbin_of(old(), old())
    relocatable = [fatbin_of(old(), ptx(text, "-maxrregcount=96 --compile-only ")) for text in (OTHER, OTHER, TEXT)]
    sections = {
        ".text": b"\xcc" * 64,
        ".nv_fatbin": plain + plain + for_older + link,
        "__nv_relfatbin": b"".join(relocatable),
    }
    at = 128 + 2 * len(plain) + len(for_older)
    sections[SEGMENT] = linked_at(at)
    libraries = {
        "liboneflow-1.so": elf(sections),
        "libcudnn-2.so.7": elf({".nv_fatbin": fatbin_of(old(), ptx(OTHER, "-maxrregcount=48"))}),
        "libprotobuf-3.so": b"\x7fELF",
    }
    return wheel(tmp_path / "site-packages", libraries)


def make(compiler, site, folder, say=lambda line: None):
    return make_overlay(compiler, 2, site, folder / "overlay", folder / "cubin", say)


def codes(path):
    data = path.read_bytes()
    return [
        [(code.kind, code.architecture, code.content(data).rstrip(b"\0")) for code in each.codes]
        for each in fatbins(data)
    ]


def test_compiled_code_takes_the_place_of_older_code_and_of_the_ptx(compiler, site, tmp_path):
    made = make(compiler, site, tmp_path)
    one, two = (b"\x7fELF code of " + text for text in (TEXT, OTHER))
    found = codes(made.folder / "oneflow.libs/liboneflow-1.so")
    assert found[0] == found[1] == [(SASS, 90, one)]
    assert found[2] == [(SASS, 60, b"\xdd" * 100)], "no GPU of this architecture has ever run it"
    assert found[3] == [(SASS, 90, b"linked: " + two + b"; " + one)]
    assert codes(made.folder / "oneflow.libs/libcudnn-2.so.7") == [[(SASS, 90, two)]]
    assert (made.compiled, made.left) == (4, 0)


def test_the_same_ptx_is_compiled_once_with_the_options_of_its_fatbin(compiler, site, tmp_path):
    make(compiler, site, tmp_path)
    relocatable = "-arch=sm_90 -maxrregcount=96 -c"
    assert sorted(compiler.commands) == sorted(
        ["-arch=sm_90", "-arch=sm_90 -maxrregcount=48", relocatable, relocatable]
    )


@pytest.mark.parametrize(("jobs", "time"), [(1, "133 min"), (2, "67 min")])
def test_how_long_it_takes_is_said_at_its_start(compiler, site, tmp_path, monkeypatch, jobs, time):
    monkeypatch.setattr(kernel_compiler, "_size", lambda piece: 1_000_000_000)
    monkeypatch.setattr(kernel_compiler.os, "sched_getaffinity", lambda pid: range(jobs))
    said = []
    make(compiler, site, tmp_path, said.append)
    assert said[0] == (
        f"compiling 4000 MB of PTX in 4 pieces for sm_90, 2 at a time: about {time} on {jobs} processors that do nothing else"
    )


def test_a_piece_that_takes_long_is_not_silent(compiler, site, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE_S", 0.01)
    said = []

    def slow(self, *piece):
        wait_until(lambda: len(said) > 1)
        Compiler.compile(self, *piece)

    monkeypatch.setattr(Fake, "compile", slow, raising=False)
    make(compiler, site, tmp_path, said.append)
    assert re.fullmatch(r"0 s: 0 of 0 MB of PTX", said[1]), "nothing is done yet"


def test_nothing_else_changes_and_nothing_moves(compiler, site, tmp_path):
    before = {path.name: path.read_bytes() for path in (site / "oneflow.libs").iterdir()}
    made = make(compiler, site, tmp_path)
    assert {path.name: path.read_bytes() for path in (site / "oneflow.libs").iterdir()} == before
    for name in ("liboneflow-1.so", "libcudnn-2.so.7"):
        content = (made.folder / "oneflow.libs" / name).read_bytes()
        assert len(content) == len(before[name])
        places = [each for each in fatbins(before[name]) if each.section == ".nv_fatbin"]
        start, end = places[0].offset, places[-1].offset + places[-1].length
        assert content[:start] == before[name][:start]
        assert content[end:] == before[name][end:], "relocatable code stays: it is no longer linked when it is loaded"
        assert [each.offset for each in fatbins(content)] == [each.offset for each in fatbins(before[name])]


def test_the_same_input_gives_the_same_overlay(compiler, site, tmp_path):
    made = [make(compiler, site, tmp_path / name) for name in ("1", "2")]
    assert made[0].digest == made[1].digest and made[0].folder.name == made[1].folder.name
    other = make(dataclasses.replace(compiler, version="ptxas 2"), site, tmp_path / "3")
    assert other.digest != made[0].digest


def test_a_stopped_compilation_goes_on_with_what_is_missing(compiler, site, tmp_path):
    made = make(compiler, site, tmp_path)
    compiler.log.unlink()
    next(path for path in (tmp_path / "cubin").iterdir() if OTHER in path.read_bytes()).unlink()
    assert make(compiler, site, tmp_path).digest == made.digest
    assert len(compiler.commands) == 1


def test_an_earlier_overlay_of_the_architecture_is_replaced(compiler, site, tmp_path):
    make(compiler, site, tmp_path)
    new = make(dataclasses.replace(compiler, version="ptxas 2"), site, tmp_path)
    assert [path.name for path in (tmp_path / "overlay").iterdir() if path.is_dir()] == [new.folder.name]


def test_what_ptxas_refuses_ends_the_compilation_and_leaves_no_overlay(compiler, tmp_path):
    broken = elf({".nv_fatbin": fatbin_of(old(), ptx(b"broken"))})
    site = wheel(tmp_path / "site-packages", {"liboneflow-1.so": broken})
    with pytest.raises(OverlayError, match="ptxas ended with status 1: ptxas fatal: it is broken"):
        make(compiler, site, tmp_path)
    assert not list((tmp_path / "overlay").glob("sm_*"))
    assert not list((tmp_path / "cubin").iterdir())


def test_code_is_compressed_where_it_does_not_fit_and_else_left_to_the_driver(compiler, tmp_path):
    long = TEXT + b"add.s32 %r1, %r1, %r1;\n" * 100
    library = elf({".nv_fatbin": fatbin_of(old(64), ptx(long, packed=True)) + fatbin_of(ptx(TEXT[:8]))})
    site = wheel(tmp_path / "site-packages", {"liboneflow-1.so": library})
    made = make(compiler, site, tmp_path)
    assert codes(made.folder / "oneflow.libs/liboneflow-1.so") == [
        [(SASS, 90, b"\x7fELF code of " + long)],
        [(PTX, 70, TEXT[:8])],
    ]
    assert (made.compiled, made.left) == (1, 1)


def test_a_library_that_is_not_the_wheels_is_refused(compiler, site, tmp_path):
    with open(site / "oneflow.libs/liboneflow-1.so", "ab") as file:
        file.write(b"x")
    with pytest.raises(OverlayError, match="is not as oneflow's wheel states"):
        make(compiler, site, tmp_path)


@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ("70,90", "ARCH=70: the wheel has the machine code for it"),
        ("9", "ARCH=9: the compute capability without its point"),
    ],
)
def test_an_architecture_that_needs_no_compilation_is_refused(arch, words):
    done = tasks.run("compile-kernels", ARCH=arch)
    assert done.returncode == 2
    assert words in done.stderr


def test_the_architectures_are_of_the_pinned_version():
    assert load_pins().artefact("ptxas").version == "12.9.86", (
        "correct ARCHITECTURES by `ptxas --help`, then this version"
    )


def test_the_architectures_are_those_of_the_pinned_ptxas():
    pin = load_pins().artefact("ptxas")
    ptxas = CACHE / "ptxas" / pin.version / "ptxas"
    if not ptxas.exists():
        pytest.skip("the pinned ptxas was not fetched")
    said = subprocess.run([ptxas, "--help"], capture_output=True, text=True).stdout
    assert {int(name) for name in re.findall(r"'sm_(\d+)'", said) if int(name) > 75} == set(ARCHITECTURES)

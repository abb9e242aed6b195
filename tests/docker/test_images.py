"""The images as `make image` builds them: what is in them, how they start, and that a second build is the same."""

import json
import subprocess
import time

import pytest

from repro.images.engine import Engine
from repro.images.layers import compare as compare_layers
from repro.images.oci_layout import read_layout
from repro.images.pins import load_pins
from repro.images.recipes import LAYOUT, RECIPES
from repro.images.stack import IMAGE_STACKS, tag_of
from repro.images.verify import compare, probe
from repro.launch.attempt import Limits
from repro.launch.local_attempt import LocalAttempt
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from tests.docker.surroundings import ROOT, SECRET

LAUNCHER = "/opt/venv/lib/python3.9/site-packages/oneflow/distributed/launch.py"
TRAINER = "/opt/repro/trainers/run.py"
SMOKE = [
    ("gpt", "smoke_gpt-3d-2021-05_1x2x1_recompute"),
    ("bert", "smoke_bert-2020-08-22_1x1x1"),
    ("resnet50", "smoke_resnet50-2020-08-08_1x1x1"),
]
TARGET_GB = 2.5
SAME = 1e-6  # relative: with the same wheel, the image's older C library changes the last digit of a float


@pytest.mark.parametrize("stack", IMAGE_STACKS)
def test_an_image_is_in_the_engine_under_its_digest_and_below_the_target(built, docker, stack):
    (described,) = json.loads(docker("image", "inspect", tag_of(stack)))
    assert described["Id"] == built[tag_of(stack)][0]
    assert described["Size"] < TARGET_GB * 1e9
    assert described["Config"]["User"] == "10001:10001"
    labels = described["Config"]["Labels"]
    assert labels["reproduction.stack"] == stack
    assert labels["reproduction.nccl"] == {"cu102": "2.7.8", "cu102-modern": "2.12.10, the wheel's own"}[stack]
    print(f"\n{stack}: {described['Size'] / 1e9:.2f} GB")


@pytest.mark.parametrize("stack", IMAGE_STACKS)
def test_the_layers_are_the_pinned_ones(built, stack):
    """On a base made here and now, with the mirrors of this machine."""
    (image,) = (each for each in read_layout(LAYOUT) if each.tag == tag_of(stack))
    found = compare_layers(image, stack, load_pins())
    assert found.known_base and found.problems == []


def test_image_check_holds(built, make):
    done = make("image-check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DIFFERS" not in done.stdout
    print(done.stdout)


def test_image_check_finds_another_nccl(built, engine, monkeypatch):
    """The library that answers is the one that is preloaded, not the one that is expected."""
    monkeypatch.setenv("DOCKER_HOST", engine["DOCKER_HOST"])
    probed = probe(Engine.connect(), "cu102", environment={"LD_PRELOAD": ""})
    findings = compare(probed, "cu102", load_pins().expected("cu102"))
    differing = {finding.what: finding.actual for finding in findings if finding.holds is False}
    assert differing == {"NCCL called": "2.12.10", "nccl calls": differing.get("nccl calls")}
    assert "ncclAllReduce" in differing["nccl calls"]


@pytest.mark.parametrize(("name", "function"), [("cublas", "cublasCreate_v2"), ("cudnn", "cudnnCreate")])
def test_without_a_newer_library_the_modern_image_says_what_to_do(built, docker, name, function):
    call = f"import ctypes; h = ctypes.c_void_p(); print(ctypes.CDLL(None).{function}(ctypes.byref(h)))"
    image = tag_of("cu102-modern")
    done = docker("run", "--rm", "--network", "host", "--read-only", image, "python", "-c", call, check=False)
    assert done.stdout.strip() == "1"
    assert f"holds one at /opt/{name}" in done.stderr


def test_it_starts_as_its_own_user_on_a_read_only_root(built, docker):
    started = time.monotonic()
    options = ("--rm", "--network", "host", "--read-only", "--cap-drop", "ALL")
    probed = json.loads(docker("run", *options, tag_of("cu102"), *RECIPES["cu102"].probe))
    print(f"\n{time.monotonic() - started:.2f} s from docker run to its end, import {probed['import_s']:.2f} s")
    assert probed["user"] == 10001
    assert probed["privileged_files"] == []
    assert not probed["root_writable"]


def losses_of(folder):
    events = [json.loads(line) for line in (folder / "metrics-rank0.jsonl").read_text().splitlines()]
    return [event["loss"] for event in events if event["event"] == "iteration"]


def train_in_container(unit, folder):
    """Train a unit in the image, its ranks in one container; returns the losses."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(unit.config.written(str(folder), str(folder)).as_json()))
    command = ["python", TRAINER, "--config", str(folder / "config.json")]
    if unit.world_size > 1:
        command[1:1] = [
            LAUNCHER,
            "--nproc_per_node",
            str(unit.world_size),
            "--master_port",
            "29517",
            "--redirect_stdout_and_stderr",
            "--logdir",
            str(folder / "logs"),
        ]
    output = Engine.connect().run(tag_of("cu102"), command, [f"{folder}:{folder}"], timeout_s=300)
    assert output.status == 0, output.stdout[-3000:] + output.stderr[-3000:]
    return losses_of(folder)


@pytest.mark.parametrize(("model", "name"), SMOKE)
def test_smoke_cases_have_the_losses_of_the_local_environment(built, engine, monkeypatch, tmp_path, model, name):
    """GPT also trains in the image, and in this machine's environment, in tests/e2e/test_runtimes.py, which compares both."""
    monkeypatch.setenv("DOCKER_HOST", engine["DOCKER_HOST"])
    plan = make_plan(load_catalogue().select(model, None), 0, Wanted(scale="smoke", repeats=1), processes=2)
    unit = next(unit for unit in plan.units if unit.name == name)
    (tmp_path / "local").mkdir()
    outcome = LocalAttempt(unit.config, tmp_path / "local", Limits()).run()
    assert outcome.failure is None, outcome
    local = losses_of(tmp_path / "local")
    assert len(local) == unit.config.iterations
    assert train_in_container(unit, tmp_path / "image") == pytest.approx(local, rel=SAME)


def test_the_build_secret_is_in_no_layer(built):
    """Nor in another file of the layout; most layers are in both images."""
    done = subprocess.run(["grep", "--quiet", "--recursive", "--text", "--fixed-strings", SECRET, LAYOUT / "blobs"])
    assert done.returncode == 1


@pytest.mark.long
def test_a_second_build_has_the_same_digests(built, docker, make):
    """The first one's layers but for the code's are those in docker/pins.toml already, or `built` would have failed."""
    docker("builder", "prune", "--all", "--force")  # the second build has no use for it, and it is large
    done = make("image-reproduce")
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    assert "both builds have the same digests" in done.stdout


def test_the_bill_of_materials_names_what_is_inside(built, make):
    done = make("sbom", STACK="cu102")
    assert done.returncode == 0 or "without the answer of the advisory database" in done.stderr, done.stderr
    document = json.loads((ROOT / ".cache/sbom/cu102.cdx.json").read_text())
    parts = {(part["name"], part.get("version")) for part in document["components"]}
    pins = load_pins()
    assert {(pin.name, pin.version) for pin in pins.packages_for(pins.python)} <= parts
    assert {("NCCL", "2.7.8"), ("cuDNN", "7.6.5")} <= parts
    assert any(name == "libibverbs1" for name, _ in parts)
    licences = (ROOT / ".cache/sbom/cu102.licences.csv").read_text()
    assert "pypi,oneflow,0.8.0,Apache-2.0" in licences
    print(done.stdout)

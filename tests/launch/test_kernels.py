"""Operators compared with the CPU: right ones hold, a wrong one and one that ends the process are found and named."""

import json
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from repro.images.stack import Stack
from repro.launch import kernels as kernel_check
from repro.launch.host_environment import capture
from repro.launch.kernels import (
    HALF,
    LIMITS,
    PROGRAM,
    SINGLE,
    KernelComparison,
    KernelError,
    Kernels,
    compare,
    kernels_here,
    precisions_of,
    processes_here,
)
from repro.launch.local_attempt import local_programs
from repro.models.programs import PUBLISHED, TUNED
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.run.environment import environment_section
from repro.runs.failures import Failure
from repro.runs.plan import Plan
from repro.utils.i18n import catalogue
from tests.support.paths import ROOT
from tests.support.paths import TRAINER_PYTHON as PYTHON
from tests.support.recorded import RecordedAttempt
from tests.support.synthetic import ran_on

H200 = {"name": "NVIDIA H200", "driver_version": "580.159.04"}
# Runs the program with the bias of a GELU doubled, and a layer norm that ends the process.
PLANTED = """
import os, sys
sys.path.insert(0, sys.argv.pop(1))
from repro.trainers.models import ops
gelu = ops.bias_gelu
ops.bias_gelu = lambda x, bias: gelu(x, 2 * bias)
ops.layer_norm = lambda *inputs: os.abort()
from repro.trainers.checks.accuracy import compare
from repro.trainers.config import load
from repro.trainers.checks.config import parse_comparison as parse
from repro.trainers.process import run
sys.exit(run(lambda path: load(path, parse), compare))
"""


@pytest.fixture(scope="module")
def python():
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing: `make setup` builds the trainer environment")
    return str(PYTHON)


@pytest.fixture(scope="module")
def of_gpt(python, tmp_path_factory):
    """GPT's operators, compared by one process."""
    return compare(local_programs(PROGRAM, LIMITS, {}, python), "cpu", tmp_path_factory.mktemp("gpt") / "k", ["gpt"])


@pytest.fixture(scope="module")
def of_all(python, tmp_path_factory):
    """The operators of all models, compared by one process."""
    return compare(local_programs(PROGRAM, LIMITS, {}, python), "cpu", tmp_path_factory.mktemp("all") / "k")


def test_all_operators_of_the_cpu_are_right(of_all):
    assert of_all.wrong == ()
    assert of_all.operators == 59
    assert of_all.largest["fp32"] < 1e-5
    assert {model for result in of_all.results for model in result.models} == {"bert", "gpt", "resnet50"}
    named = {result.operator for result in of_all.results}
    assert sum(name.startswith("convolution") for name in named) == 23, "one of each shape in ResNet50"
    parts = {result.part for result in of_all.results}
    assert {"forward", "data gradient", "weight gradient", "bias gradient", "query gradient"} <= parts
    assert of_all.versions["oneflow"] == "0.8.0"
    assert Kernels.from_json(json.loads(json.dumps(of_all.as_json()))) == of_all


def test_the_operators_of_one_model(of_gpt):
    assert of_gpt.results and all("gpt" in result.models for result in of_gpt.results)
    assert of_gpt.models == ("gpt",)


def test_processes_share_the_operators(tmp_path, python, of_gpt):
    """Several compare what one does, in its order, each from a start of its own."""
    attempt_of = local_programs(PROGRAM, LIMITS, {}, python)
    shared = compare(attempt_of, "cpu", tmp_path / "shared", ["gpt"], processes=2)
    assert [(each.operator, each.part) for each in shared.results] == [
        (each.operator, each.part) for each in of_gpt.results
    ]
    assert shared.wrong == ()
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == [f"share-{n}-part-1" for n in (1, 2)]


def test_a_share_that_fails_is_told(tmp_path):
    def attempt_of(config, folder):
        failure = STATUS if config.settings["share"] == [2, 2] else None
        return RecordedAttempt([START, error_event("a", 2e-7)], failure, "a\nlog: no GPU")

    with pytest.raises(KernelError, match="cannot be compared with the CPU: rank 0 exited with status 1; log: no GPU"):
        compare(attempt_of, "cuda", tmp_path / "k", processes=2)


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (7, 1), (8, 2), (16, 4), (128, 4)])
def test_a_process_has_four_cores(monkeypatch, cores, processes):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert processes_here() == processes


@pytest.mark.parametrize("processes", [1, 2])
def test_wrong_operators_are_found_and_cost_only_themselves(tmp_path, python, of_all, processes):
    """One computes wrongly, one ends the process: both are named, everything else is compared and right."""
    script = tmp_path / "planted.py"
    script.write_text(PLANTED)

    def attempt_of(config, folder):
        return replace(
            local_programs(PROGRAM, LIMITS, {}, python)(config, folder), trainer=(python, str(script), str(ROOT))
        )

    models = ["bert", "gpt"]
    kernels = compare(attempt_of, "cpu", tmp_path / "k", models, processes=processes)
    wrong = {result.operator for result in kernels.wrong}
    assert wrong == {f"{name}, {model} fp32" for name in ("bias, GELU", "layer norm") for model in ("bert", "gpt")}
    assert kernels.wrong_models == ("bert", "gpt")
    ended = [result.text() for result in kernels.wrong if result.reason]
    assert len(ended) == 2
    assert all("killed by SIGABRT" in text for text in ended)
    gelu = {result.part: result.error for result in kernels.wrong if result.operator == "bias, GELU, gpt fp32"}
    assert gelu["forward"] > 0.1
    assert kernels.operators == len({each.operator for each in of_all.results if set(models) & set(each.models)})
    assert len(list((tmp_path / "k").iterdir())) == processes + 2, "one more for each that was ended"


START = {"event": "start", "versions": {"cudnn": 91900}, "libraries": ["/x/libcudnn.so.9"]}
STATUS = Failure("rank {rank} exited with status {status}", {"rank": 0, "status": 1})


def error_event(operator, error, model="resnet50"):
    return {
        "event": "error",
        "operator": operator,
        "models": [model],
        "programs": ["published", "tuned"],
        "precision": "fp32",
        "part": "forward",
        "error": error,
        "tolerance": 1e-4,
    }


def test_a_program_that_does_not_come_to_its_operators_is_told(tmp_path):
    with pytest.raises(KernelError, match="cannot be compared with the CPU: rank 0 exited with status 1; log: no GPU"):
        compare(lambda config, folder: RecordedAttempt([START], STATUS, "a\nlog: no GPU"), "cuda", tmp_path / "k")


def test_versions_are_readable_and_no_number_is_wrong(tmp_path):
    events = [START, error_event("a", 2e-7), error_event("b", None)]
    kernels = compare(lambda config, folder: RecordedAttempt(events), "cuda", tmp_path / "k")
    assert kernels.versions["cudnn"] == "9.19.0"
    assert [result.text() for result in kernels.wrong] == ["b, forward: relative error not a number, tolerance 1e-04"]
    assert "not a number" in kernels.of("resnet50")[0].text()


@pytest.fixture
def wrong():
    """ResNet50's convolutions as cuDNN 7.6.5 computes them on an H200, and a product that is right."""
    names = ("convolution 3 to 64, 7x7", "convolution 64 to 64, 1x1", "product")
    results = [
        KernelComparison(name, (model,), "fp32", "forward", error, 1e-4)
        for name, model, error in zip(names, ("resnet50", "resnet50", "gpt"), (1.0, 2.7, 3e-7), strict=True)
    ]
    return Kernels("cuda", tuple(results), {}, (), 20.0, ("gpt", "resnet50"))


@pytest.fixture
def plan():
    return make_plan(load_catalogue().select(None, None), 1, Wanted(scale="published", repeats=1))


def test_cases_of_a_wrong_model_are_left_out(plan, wrong):
    wrong.refuse_wrong(plan, all_of_it=True)
    kept = wrong.without_wrong(plan)
    assert {unit.model for unit in kept.units} == {unit.model for unit in plan.units} - {"resnet50"}
    added = [skipped for skipped in kept.skipped if skipped not in plan.skipped]
    assert {skipped.case for skipped in added} == {unit.name for unit in plan.units if unit.model == "resnet50"}
    assert "relative error 2.7e+00" in added[0].reason.text()
    assert Plan.from_json(json.loads(json.dumps(kept.as_json()))) == kept


def test_a_wrong_model_alone_is_refused(plan, wrong):
    only = replace(plan, units=tuple(unit for unit in plan.units if unit.model == "resnet50"))
    with pytest.raises(KernelError) as caught:
        wrong.refuse_wrong(only, all_of_it=True)
    lines = str(caught.value).splitlines()
    assert lines[0] == "resnet50, PROGRAM=published: 2 of its operators' results are wrong on this GPU, the worst are"
    assert lines[1] == "  convolution 64 to 64, 1x1, forward: relative error 2.7e+00, tolerance 1e-04"
    assert "CUDNN=<folder>" in lines[-1]
    with pytest.raises(KernelError):
        wrong.refuse_wrong(plan)


def test_an_operator_of_the_tuned_program_alone_spares_the_published_one(wrong):
    cases = load_catalogue().select("gpt", "DP_1x1x1*")
    plan = make_plan(cases, 1, Wanted(scale="published", repeats=1, programs=(PUBLISHED, TUNED)))
    fused = KernelComparison("attention", ("gpt",), "fp16", "forward", 0.3, 5e-3, programs=(TUNED,))
    kernels = replace(wrong, results=(*wrong.results, fused))
    assert {unit.program for unit in plan.units} == {PUBLISHED, TUNED}
    kernels.refuse_wrong(plan, all_of_it=True)
    assert {unit.program for unit in kernels.without_wrong(plan).units} == {PUBLISHED}
    with pytest.raises(KernelError, match=r"^gpt, PROGRAM=tuned: 1 of its operators' results"):
        kernels.refuse_wrong(plan)


def test_operators_say_which_programs_compute_with_them(of_gpt):
    programs = {result.operator: result.programs for result in of_gpt.results}
    assert programs["causal attention in blocks, gpt fp32"] == (TUNED,)
    assert programs["bias, GELU, gpt fp32"] == (PUBLISHED, TUNED)


def test_right_models_are_started(plan, wrong):
    right = replace(wrong, results=wrong.results[-1:])
    right.refuse_wrong(plan)
    assert right.without_wrong(plan) == plan


def test_a_new_run_leaves_out_or_refuses_and_records(plan, wrong, monkeypatch):
    from repro.cli.session import Session
    from repro.cli.settings import Invocation
    from repro.launch import local

    stack = Stack("cu102-modern", {})
    session = Session(invocation=Invocation("bench", {}))
    monkeypatch.delenv("REPRO_TRAINER_COMMAND", raising=False)
    monkeypatch.setattr(local.LocalLauncher, "stack", lambda self, plan, recorded=None: stack)
    monkeypatch.setattr(local, "capture", lambda stack: ran_on())
    monkeypatch.setattr(local, "usable_gpus", lambda: [H200])
    monkeypatch.setattr(kernel_check, "kernels_here", lambda gpus, stack, attempt_of, models, image=None: wrong)
    kept, environment = session.on_this_machine(plan, leave_out=True)
    assert "resnet50" not in {unit.model for unit in kept.units}
    assert environment == ran_on(kernels=wrong.record())
    with pytest.raises(KernelError, match="resnet50, PROGRAM=published: 2 of its operators' results are wrong"):
        session.on_this_machine(plan)
    monkeypatch.setenv("REPRO_TRAINER_COMMAND", "stand-in")
    assert session.on_this_machine(plan) == (plan, ran_on())


def test_a_gpu_that_cannot_be_used_stops_before_a_run_is_made(task, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase "$1" in *compute_cap*) echo 9.0;; '
        '*) echo "NVIDIA H200, 0.0.0, 143771, 96.00, 1980, 3201, GPU-1";; esac\n'
    )
    tool.chmod(0o755)
    for name in ("libcublas.so.12", "libcudnn.so.9"):
        (tmp_path / name).touch()
    cache = kernel_check.CACHE / "kernels"
    before = set(cache.glob("*"))
    settings = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CUBLAS": tmp_path, "CUDNN": tmp_path, "REPEATS": 1}
    done = task("bench", MODEL="gpt", CASES="DP_1x1x1*", TRAINER_COMMAND="", CUDA_VISIBLE_DEVICES="0", **settings)
    for left in set(cache.glob("*")) - before:
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    assert done.returncode == 2
    assert "the operators cannot be compared with the CPU: rank 0" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_what_a_run_keeps(wrong):
    kept = wrong.record()
    assert kept["operators"] == 3
    assert kept["largest"] == {"fp32": 3e-7}
    assert len(kept["wrong"]) == 2
    assert kept["errors"]["product, forward"] == 3e-7


@pytest.mark.parametrize(
    ("language", "message"), [("en", "3, results and gradients"), ("zh", "3 个，含前向结果与梯度")]
)
def test_a_report_tells_what_was_compared(wrong, language, message):
    environment = replace(capture(), kernels=wrong.record())
    section = environment_section(catalogue(language).gettext, environment, {})
    text = str(section)
    assert message in text
    assert "3.0e-07 (fp32)" in text
    assert "convolution 64 to 64, 1x1, forward: relative error 2.7e+00" in text
    assert message not in str(environment_section(catalogue(language).gettext, capture(), {}))


def test_it_is_compared_once_for_a_gpu_driver_and_libraries(tmp_path, monkeypatch, wrong):
    library = tmp_path / "libcudnn.so.9"
    library.write_text("9.6")
    compared = []

    def count(attempt_of, device, folder, models, processes, precisions, stop=None):
        compared.append(models)
        return wrong.only(models)

    monkeypatch.setattr(kernel_check, "compare", count)
    stack = Stack("cu102-modern", {"CUDNN_FORWARD_LIBRARY": str(library), "CUDA_CACHE_PATH": "/a"})
    lines = []

    def here(gpu=H200, stack=stack, models=("gpt", "resnet50")):
        return kernels_here([gpu], stack, None, dict.fromkeys(models, SINGLE), tmp_path / "cache", lines.append)

    assert here() == here() == here(stack=replace(stack, environment={**stack.environment, "CUDA_CACHE_PATH": "/b"}))
    assert len(compared) == len(lines) == 1
    here({**H200, "driver_version": "590.1"})
    assert len(compared) == 2
    library.write_text("9.19")
    os.utime(library, (1, 1))
    here()
    assert len(compared) == 3
    for kept in (tmp_path / "cache").glob("*.json"):
        kept.write_text("{")
    assert here() == here()
    assert len(compared) == 4, "what cannot be read is made anew"


def test_only_models_that_are_not_compared_yet_are(tmp_path, monkeypatch, wrong):
    compared, lines = [], []

    def count(attempt_of, device, folder, models, processes, precisions, stop=None):
        compared.append(models)
        return wrong.only(models)

    def here(*models):
        wanted = dict.fromkeys(models, SINGLE)
        return kernels_here([H200], Stack("cu102-modern", {}), None, wanted, tmp_path / "cache", lines.append)

    monkeypatch.setattr(kernel_check, "compare", count)
    assert here("gpt") == wrong.only(["gpt"])
    assert here("resnet50").wrong == wrong.wrong
    assert here("gpt").wrong == (), "of the other model a run of this one records nothing"
    assert set(here("resnet50", "gpt").results) == set(wrong.results)
    assert compared == [["gpt"], ["resnet50"]]
    assert ["for gpt in fp32 with" in line for line in lines] == [True, False]


def test_precisions_are_compared_apart(tmp_path, monkeypatch, wrong):
    """One does not stand for another, and a model is compared in those that its units of a plan need."""
    compared = []

    def count(attempt_of, device, folder, models, processes, precisions, stop=None):
        compared.append((*models, *precisions))
        return wrong.only(models)

    monkeypatch.setattr(kernel_check, "compare", count)

    def here(**precisions):
        return kernels_here([H200], Stack("cu102-modern", {}), None, precisions, tmp_path / "cache", lambda text: None)

    assert set(here(resnet50=SINGLE, gpt=HALF).results) == set(wrong.results)
    for again in (SINGLE, HALF, ("tf32",), ("tf32",)):
        here(resnet50=again)
    assert compared == [
        ("resnet50", "fp32"),
        ("gpt", "fp32", "fp16"),
        ("resnet50", "fp32", "fp16"),
        ("resnet50", "tf32"),
    ]
    cases = load_catalogue().select(None, "bert_1n1g_bs96,DP_1x1x1*")
    assert precisions_of(make_plan(cases, 1)) == {"bert": SINGLE, "gpt": HALF}
    assert precisions_of(make_plan(cases, 1, Wanted(precision="amp"))) == {"bert": HALF, "gpt": HALF}
    assert precisions_of(make_plan(cases, 1, Wanted(precision="tf32"))) == {"bert": ("tf32",), "gpt": ("tf32",)}


def test_tf32_has_its_own_tolerance_and_reaches_the_process_by_its_environment(tmp_path, python):
    attempts = []

    def attempt_of(config, folder):
        attempts.append(local_programs(PROGRAM, LIMITS, {"A": "b"}, python)(config, folder))
        return attempts[-1]

    found = compare(attempt_of, "cpu", tmp_path / "k", ["resnet50"], precisions=("tf32",))
    assert {(each.precision, each.tolerance) for each in found.results} == {("tf32", 3e-3), ("tf32", 5e-3)}
    assert found.largest.keys() == {"tf32"} and found.operators > 23
    assert [each.environment for each in attempts] == [
        {"A": "b", "CUBLAS_FORWARD_TF32": "1", "CUDNN_FORWARD_TF32": "1"}
    ]
    assert compare(attempt_of, "cpu", tmp_path / "h", ["resnet50"], precisions=("fp16",)).results == ()
    assert attempts[-1].environment == {"A": "b"}


def test_all_models_are_compared_in_half_precision_on_cuda_too(python):
    code = (
        "from repro.trainers.checks.accuracy import operators\n"
        "for device in ('cuda', 'cpu'):\n"
        "    for each in operators('small', device):\n"
        "        print(device, *each.models, each.precision, each.name, sep=';')"
    )
    done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = [line.split(";") for line in done.stdout.splitlines() if line.startswith(("cuda;", "cpu;"))]
    half = [(device, model, name) for device, model, precision, name in listed if precision == "fp16"]
    assert {device for device, _, _ in half} == {"cuda"}
    assert {model for _, model, _ in half} == {"bert", "gpt", "resnet50"}
    resnet50 = [name for _, model, name in half if model == "resnet50"]
    assert sum(name.startswith("convolution") for name in resnet50) == 7
    assert sum(name.startswith("batch norm") for name in resnet50) == 5
    assert all(name.endswith("channels last, fp16") for name in resnet50)
    assert "masked attention, fused, bert fp16" in {name for _, _, name in half}


def test_who_asks_at_the_same_time_waits_for_the_comparison(tmp_path, monkeypatch, wrong):
    """As two benchmarks do that begin side by side, each on a GPU of its own."""
    begun = []

    def slow(attempt_of, device, folder, models, processes, precisions, stop=None):
        folder.mkdir(parents=True)
        begun.append(folder)
        time.sleep(0.5)
        return wrong

    monkeypatch.setattr(kernel_check, "compare", slow)
    stack, wanted = Stack("cu102-modern", {}), dict.fromkeys(wrong.models, SINGLE)
    with ThreadPoolExecutor(2) as pool:
        found = list(
            pool.map(lambda _: kernels_here([H200], stack, None, wanted, tmp_path / "c", lambda text: None), range(2))
        )
    assert found == [wrong, wrong]
    assert len(begun) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operators": "all"}, "operators: 'all' is not a list of names"),
        ({"models": [1]}, "models: [1] is not a list of names"),
        ({"precisions": ["fp64"]}, "precisions[0]: 'fp64' is not one of"),
        ({"precisions": ["tf32", "fp32"]}, "precisions: the libraries of a process compute in fp32 or in tf32"),
        ({"models": ["vgg"]}, "vgg: there is no such model"),
        ({"scale": "tiny"}, "scale: 'tiny' is not one of"),
        ({"layout": {"data": 2, "tensor": 1, "pipeline": 1}}, "layout: operators are compared in one process"),
        ({"operators": ["no such"]}, "no such: there is no such operator"),
        ({"share": [3, 2]}, "share: there is no part 3 of 2"),
        ({"share": [0, 2]}, "share[0]: 0 is not a whole number of at least 1"),
        ({"share": 2}, "share: 2 is not [k, n]"),
    ],
)
def test_a_wrong_configuration_names_its_key(tmp_path, python, change, message):
    config = {
        "device": "cpu",
        "layout": {"data": 1, "tensor": 1, "pipeline": 1},
        "scale": "small",
        "models": [],
        "precisions": ["fp32"],
        "operators": [],
        "share": [1, 1],
        "output": str(tmp_path),
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | change))
    command = [python, kernel_check.PROGRAM, "--config", path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode
    assert message in done.stderr

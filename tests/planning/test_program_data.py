"""What a bench's programs read: stand-ins by default, files that DATA names, and what is said of wrong ones."""

import pytest

from repro.planning.plan import Wanted, make_plan
from repro.planning.program_data import DataError, with_data
from repro.published.cases import load_catalogue
from repro.trainers.data.megatron import write_tokens
from tests.support.token_documents import documents

CATALOGUE = load_catalogue()


def planned(model: str | None = None, gpus: int = 8, **options):
    return make_plan(CATALOGUE.select(model, None), gpus, Wanted(**options))


def data_of(plan) -> dict[str, dict]:
    return {unit.name: unit.config.data.as_json() for unit in plan.units}


def reports_of(data: dict[str, dict]) -> dict[str, dict]:
    report = {case.name: case.report for case in CATALOGUE.cases}
    return {report[name]: each for name, each in data.items()}


def test_every_published_program_reads_its_stand_in():
    scale = {"scale": "published"}
    assert reports_of(data_of(with_data(planned()))) == {
        "resnet50-2020-08-08": {"kind": "ofrecord", "parts": 44, "standin": "images", **scale},
        "resnet50-2020-08-21": {"kind": "ofrecord", "parts": 32, "standin": "images", **scale},
        "bert-2020-08-22": {"kind": "ofrecord", "parts": 32, "standin": "features", **scale},
        "gpt2-small-2020-12": {"kind": "text", "standin": "text", **scale},
        "gpt-3d-2021-05": {"kind": "megatron", "standin": "tokens", **scale},
    }


def test_baselines_keep_synthetic_batches():
    plan = with_data(planned("bert", 1, baselines=("pytorch",)))
    assert {unit.config.data.kind for unit in plan.units if unit.baseline_of} == {"synthetic"}
    assert {unit.config.data.kind for unit in plan.units if not unit.baseline_of} == {"ofrecord"}


def test_files_of_ones_own(tmp_path):
    images, prefix = tmp_path / "images", tmp_path / "tokens"
    images.mkdir()
    for part in range(50):
        (images / f"part-{part:05d}").touch()
    write_tokens(str(prefix), documents(*[1000] * 90))
    found = reports_of(data_of(with_data(planned(), (f"resnet50={images}", f"gpt-3d-2021-05={prefix}"))))
    assert found["resnet50-2020-08-08"] == {"kind": "ofrecord", "path": str(images), "parts": 50}
    assert found["resnet50-2020-08-21"] == found["resnet50-2020-08-08"]
    assert found["gpt-3d-2021-05"] == {"kind": "megatron", "prefix": str(prefix)}
    assert found["bert-2020-08-22"]["standin"] == "features"
    assert reports_of(data_of(with_data(planned("resnet50"), (str(images),)))).popitem()[1]["path"] == str(images)


def test_synthetic_batches_can_be_asked_for():
    assert {each["kind"] for each in data_of(with_data(planned(), ("synthetic",))).values()} == {"synthetic"}
    found = reports_of(data_of(with_data(planned(), ("gpt=synthetic",))))
    assert found["gpt-3d-2021-05"] == found["gpt2-small-2020-12"] == {"kind": "synthetic"}
    assert found["bert-2020-08-22"]["kind"] == "ofrecord"


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("resnet50={0}", "there is no part 0; resnet50-2020-08-08 reads a folder with the parts of an OFRecord"),
        ("bert={0}/gap", "there is no part 1; bert-2020-08-22"),
        ("gpt-3d-2021-05={0}/x", "x.idx; gpt-3d-2021-05 reads the prefix of Megatron's token files"),
        ("gpt2-small-2020-12={0}", "encoder.json and vocab.bpe"),
        ("gpt={0}", "read different data; name one of them"),
        ("{0}", "read different data; name one of them"),
        ("vgg={0}", "there is no model or report vgg; it is for resnet50, bert, gpt"),
        ("=synthetic", "DATA==synthetic: it is a path or synthetic, or NAME=path with a model or report"),
        ("=", "DATA==: it is a path or synthetic"),
        ("gpt=", "DATA=gpt=: it is a path or synthetic"),
        ("vgg=synthetic", "there is no model or report vgg"),
    ],
)
def test_what_cannot_be_read_is_said_before_anything_starts(tmp_path, choice, message):
    (tmp_path / "gap").mkdir()
    for part in (0, 2):
        (tmp_path / "gap" / f"part-{part}").touch()
    with pytest.raises(DataError) as refused:
        with_data(planned(), (choice.format(tmp_path),))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((2000, 48), "2048 tokens in 2 of 2 documents are read for training, fewer than one sample of 2049"),
        ((5000, 0), "document 1 is empty"),
    ],
)
def test_token_files_that_are_too_short_are_refused_with_the_numbers(tmp_path, lengths, message):
    write_tokens(str(tmp_path / "text"), documents(*lengths))
    with pytest.raises(DataError) as refused:
        with_data(planned("gpt"), (f"gpt-3d-2021-05={tmp_path / 'text'}",))
    assert "DATA=" in str(refused.value) and message in str(refused.value)


def test_paths_on_nodes_are_not_looked_for_here():
    plan = with_data(planned("resnet50"), ("/nodes/imagenet",), here=False)
    assert reports_of(data_of(plan))["resnet50-2020-08-21"] == {
        "kind": "ofrecord",
        "path": "/nodes/imagenet",
        "parts": 32,
    }
    with pytest.raises(DataError, match="DATA=/other: not there"):
        with_data(planned("resnet50"), ("/other",), here=False, refusal=lambda path: "not there")


def test_a_smoke_run_reads_a_small_stand_in_beside_its_parity():
    plan = planned(gpus=0)
    found = with_data(plan)
    assert found.units[: len(plan.units)] == plan.units
    added = found.units[len(plan.units) :]
    assert {unit.name for unit in added} == {f"smoke_{report.id}_data" for report in CATALOGUE.reports}
    for unit in added:
        assert unit.world_size == 1 and unit.reference is None and not unit.stands_for
        assert unit.config.case == unit.name
        assert unit.config.data.scale == "small"
    assert with_data(plan, ("synthetic",)) == plan
    with pytest.raises(DataError, match="a smoke run reads a small stand-in"):
        with_data(plan, ("resnet50=/imagenet",))


@pytest.mark.parametrize("scale", ["smoke", "published"])
@pytest.mark.parametrize("model", ["resnet50", "bert", "gpt"])
def test_without_a_published_program_nothing_reads_data(model, scale):
    """The tuned program and the baselines have synthetic batches at each scale."""
    plan = planned(model, 0 if scale == "smoke" else 8, programs=("tuned",), baselines=("pytorch",))
    assert plan.scale == scale and with_data(plan) == with_data(plan, ("synthetic",)) == plan
    assert with_data(plan, (f"{model}=synthetic",)) == plan
    refusals = {
        "/data": "DATA=/data: no program of this run reads data; it is for published programs",
        f"{model}=/data": f"DATA={model}=/data: no program of {model} in this run reads data; it is for published programs",
    }
    for choice, message in refusals.items():
        with pytest.raises(DataError, match="a smoke run reads a small stand-in" if scale == "smoke" else message):
            with_data(plan, (choice,))


def test_data_of_cases_that_are_not_in_the_run_is_refused_with_the_reason():
    cases = CATALOGUE.select(None, "bert_1n1g_bs96,DP_32x1x1_64_1536x16")
    plan = make_plan(cases, 8, Wanted())
    reason = "no case of gpt is in this run, as DP_32x1x1_64_1536x16 needs 32 GPUs, 8 are here; it is for bert"
    with pytest.raises(DataError, match=f"DATA=gpt=/data: {reason}"):
        with_data(plan, ("gpt=/data",))
    with pytest.raises(DataError, match="DATA=resnet50=/data: no case of resnet50 is in this run; it is for bert"):
        with_data(plan, ("resnet50=/data",))


@pytest.mark.parametrize("choice", ["/data", "gpt=", "vgg=/data", "resnet50=/imagenet"])
def test_a_smoke_run_takes_no_data_whatever_it_names(choice):
    with pytest.raises(DataError, match="a smoke run reads a small stand-in"):
        with_data(planned(gpus=0), (choice,))

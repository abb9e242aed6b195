"""The section on what was read: stand-ins are called so, in both languages."""

from types import SimpleNamespace

import pytest

from repro.planning.plan import Wanted, make_plan
from repro.planning.program_data import with_data
from repro.published.cases import load_catalogue
from repro.report.document import Document, markdown
from repro.report.run.inputs import input_sections
from repro.utils.i18n import LANGUAGES, catalogue
from tests.support.attempts import recorded

IMAGES = {
    "kind": "ofrecord",
    "standin": "images",
    "records": 1408,
    "parts": 44,
    "mean_bytes": 107948.0,
    "mean_width": 464.8,
    "mean_height": 409.6,
    "sha256": "17b3f53687efb7b43016",
}
SAID = {
    "en": "stand-in, not ImageNet: 1408 JPEG images of noise in 44 parts, on average 108 kB and 465 x 410 pixels",
    "zh": "替代数据，不是 ImageNet：1408 张噪声 JPEG 图片，共 44 个分片，平均 108 kB、465 x 410 像素",
}


def page(data: dict[str, dict], language: str = "en", gpus: int = 1, **options) -> str:
    plan = with_data(make_plan(load_catalogue().select("resnet50", "*1n1g*"), gpus, Wanted(**options)))
    attempts = [recorded({"unit": unit, "data": facts}) for unit, facts in data.items()]
    sections = input_sections(catalogue(language).gettext, SimpleNamespace(plan=plan, attempts=attempts))
    return markdown(Document(language, "", "", tuple(sections)), None)


def units(gpus: int = 1) -> list[str]:
    return [unit.name for unit in make_plan(load_catalogue().select("resnet50", "*1n1g*"), gpus).units]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_stand_in_is_called_one(language):
    text = page({units()[0]: IMAGES}, language)
    assert SAID[language] in text
    assert "`17b3f53687ef`" in text


def test_other_data_are_named():
    first, second, *_ = units()
    text = page({first: {"kind": "ofrecord", "path": "/imagenet", "bytes": 3 * 2**20}, second: {"kind": "synthetic"}})
    assert "own files: `/imagenet`, 3 MiB" in text
    assert "synthetic batches, no files" in text
    assert "Baselines" not in text


def test_only_what_was_read_is_described():
    own = {"kind": "ofrecord", "path": "/imagenet", "bytes": 3 * 2**20}
    reads, stand_in = "Ports that read files", "a port reads stand-in data"
    for facts, said in (({"kind": "synthetic"}, set()), (own, {reads}), (IMAGES, {reads, stand_in})):
        text = page({units()[0]: facts}, baselines=("pytorch",))
        assert {each for each in (reads, stand_in) if each in text} == said, facts


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"baselines": ("pytorch",)}, "the baselines do not"),
        ({"programs": ("published", "tuned")}, "the tuned program do not"),
        ({"baselines": ("pytorch",), "programs": ("published", "tuned")}, "the tuned program and the baselines do not"),
        ({}, None),
    ],
)
def test_what_others_lack_is_said_of_those_in_the_run(options, said):
    text = page({units()[0]: IMAGES}, **options)
    begin = "Those of "
    assert (f"{begin}{said}: their data are synthetic batches" in text) if said else begin not in text
    assert begin not in page({units()[0]: {"kind": "synthetic"}}, **options)


def test_a_smoke_run_says_which_unit_reads():
    text = page({"smoke_resnet50-2020-08-08_data": IMAGES}, gpus=0)
    assert "reads small stand-in data through the published readers; its losses are not compared with anything" in text


def test_runs_that_recorded_nothing_have_no_section():
    plan = make_plan(load_catalogue().select("resnet50", "*1n1g*"), 1)
    attempts = [recorded({"unit": units()[0]})]
    assert input_sections(str, SimpleNamespace(plan=plan, attempts=attempts)) == []

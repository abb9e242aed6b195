"""The section on loss curves: only what the run has is described."""

import pytest

from repro.analysis.loss_curves import CurveComparison, Curves
from repro.planning.loss_curves import ERROR, LAYOUT, make_curve_plan
from repro.published.trainer_config import TrainingData
from repro.report.document import Document, markdown
from repro.report.run.loss_curves import curve_section
from repro.utils.i18n import LANGUAGES, catalogue

SENTENCES = {
    "shards": "Batch statistics of ResNet50 are computed per shard",
    "rate": "The learning rate is changed by 3e-05",
    "split": "The batch is split into micro-batches",
    "fp16": "AMP computes in fp16",
    "errors": "errors are injected on one device",
    "text": "The Python source of CPython is read byte by byte by GPT",
    "memorised": "A few random batches are memorised by",
}


def curves(model, gpus, *roles) -> Curves:
    units = make_curve_plan(gpus, TrainingData("tokens", "/tokens"), model=model).units
    chosen = [unit for unit in units if unit.reference and (not roles or unit.role in roles)]
    return Curves(tuple(map(CurveComparison, chosen)))


def page(found, language="en") -> str:
    section = curve_section(catalogue(language).gettext, found, ({"source": "CPython"},))
    return markdown(Document(language, "", "", (section,)), None)


@pytest.mark.parametrize(
    ("model", "gpus", "roles", "said"),
    [
        (None, 4, (), set(SENTENCES)),
        ("gpt", 4, (), set(SENTENCES) - {"shards", "memorised"}),
        ("bert", 0, (), {"rate", "split", "errors", "memorised"}),
        ("resnet50", 4, (), {"shards", "rate", "fp16", "errors", "memorised"}),
        ("gpt", 0, (LAYOUT,), {"text"}),
        ("gpt", 0, (LAYOUT, ERROR), {"text", "errors"}),
    ],
)
def test_only_what_the_run_has_is_described(model, gpus, roles, said):
    text = page(curves(model, gpus, *roles))
    assert {name for name, sentence in SENTENCES.items() if sentence in text} == said


@pytest.mark.parametrize("language", LANGUAGES)
def test_models_are_named_that_are_in_the_run(language):
    assert "BERT" in page(curves("bert", 0), language)
    assert not {"GPT", "ResNet50", "CPython"} & set(page(curves("bert", 0), language).replace("`", " ").split())

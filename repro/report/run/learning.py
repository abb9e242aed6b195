"""The section on training with real data: target loss, loss reached, and a figure."""

import math
from collections.abc import Iterable, Mapping

from repro.analysis.convergence import TAIL, Convergence, ConvergenceResult, learned
from repro.planning.convergence import KIND
from repro.report.charts.figure import FigureSpec
from repro.report.charts.lines import GridChart, Series
from repro.report.document import Section, Text
from repro.report.run.kinds import Kind, register
from repro.report.tables import Field, count, decimals, holds, percents, table
from repro.utils.i18n import N_, Translate

NAT = math.log(2)
"""Divisor to convert nats to bits."""


def learning_section(_: Translate, learning: Convergence, datasets: Iterable[Mapping]) -> Section:
    """The rule, the data, and the results."""
    rule = Text(
        _(
            "Each configuration is trained on one device from random weights. The criterion is the mean loss of the "
            "last {share:.0%} of iterations, in bits, of the worst repeat. It must be below a value derived from the "
            "data alone, before any training."
        ).format(share=1 / TAIL)
    )
    data = tuple(Text(_data(_, facts)) for facts in datasets)
    fields = (
        Field(_("Configuration"), lambda result: result.unit.name),
        Field(_("Must be below"), lambda result: result.goal.meaning.text(_)),
        Field(_("Iterations"), lambda result: result.unit.config.iterations, count),
        Field(_("Initial loss (bits)"), lambda result: _bits(_first(result)), decimals(3)),
        Field(_("Must be below (bits)"), lambda result: _bits(result.goal.limit), decimals(3)),
        Field(_("Reached (bits)"), lambda result: _bits(result.reached), decimals(3)),
        Field(_("Accuracy"), lambda result: result.top_1, percents(1)),
        Field(_("Converged"), lambda result: holds(_, result.holds)),
    )
    results = table("learning", learning.results, fields)
    return Section("learning", _("Training on real data converges"), (rule, *data, results))


def _data(_: Translate, facts: Mapping) -> str:
    if facts["kind"] == "text":
        entropies = ", ".join(f"{bits:.3f}" for bits in facts["entropies_bits"])
        message = _(
            "GPT reads the Python source of {source}: {files} files, {tokens} bytes and end-of-file tokens. No "
            "sample is seen twice, so every loss is on text that is new to the model. Entropy of a byte given the 0, "
            "1, 2 … bytes before it, in bits: {entropies}; a model that sees no more context than that cannot do "
            "better on this text."
        )
        return message.format(source=facts["source"], files=facts["files"], tokens=facts["tokens"], entropies=entropies)
    return _(
        "ResNet50 reads the {pictures} handwritten digits of UCI's test set, as in `{source}`, enlarged. As in the "
        "published training they are randomly cropped to 8% to 100% of their area and randomly mirrored, so some "
        "crops are unreadable for anyone. The trainers have no evaluation, so losses are on pictures seen before in "
        "other crops. Entropy of the labels: {bits:.3f} bits."
    ).format(pictures=facts["pictures"], source=facts["source"], bits=facts["label_entropy_bits"])


def _first(result: ConvergenceResult) -> float | None:
    return result.losses[0][0] if result.losses and result.losses[0] else None


def _bits(nats: float | None) -> float | None:
    return None if nats is None else nats / NAT


def learning_figures(learning: Convergence) -> list[FigureSpec]:
    """One figure with a field for each unit that has losses."""
    results = [result for result in learning.results if result.losses and result.losses[0]]
    if not results:
        return []

    def chart(_: Translate) -> GridChart:
        fields = tuple((result.unit.name, _series(_, result)) for result in results)
        return GridChart(_("Losses on real data"), _("bits over iterations; each panel has its own scale"), fields)

    return [
        FigureSpec(
            "learning",
            chart,
            lambda _: _(
                "First repeat of each configuration, and the loss it must stay below. The first tenth does not set the scale."
            ),
        )
    ]


def _series(_: Translate, result: ConvergenceResult) -> tuple[Series, ...]:
    losses = result.losses[0]
    limit = result.goal.limit / NAT
    points = tuple((iteration, loss / NAT) for iteration, loss in enumerate(losses, 1))
    return Series(_("loss"), points), Series(_("must be below"), ((1, limit), (len(losses), limit)))


register(
    Kind(
        KIND,
        N_("convergence: real data, trained to a stated loss on one device"),
        analyse=lambda run, plan, attempts, results: learned(plan, attempts, run.files, run.description().goals),
        sections=lambda _, data: [learning_section(_, data.findings, data.description.datasets)],
        figures=lambda data, files: learning_figures(data.findings),
        figures_after="learning",
        side_by_side=True,
    )
)

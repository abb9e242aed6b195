"""A run's verdicts in its report: outcomes, reasons against a verdict, and comparisons valid on any hardware."""

from dataclasses import replace

from repro.analysis.comparability import INSTALLABLE_ONEFLOW
from repro.analysis.conditions import MEANING, REPLACEMENT
from repro.analysis.cross_hardware import HardwareComparison, agreeing
from repro.analysis.independence import autocorrelation
from repro.analysis.verdict import DECIDED, GIVEN, Judgement, Tolerance, Verdict
from repro.published.claim_ids import MEMORY, SPEEDUP, THROUGHPUT, claim_id
from repro.report.document import Block, Cell, Items, Section, Table, Text
from repro.report.effects import gain_table, gain_text
from repro.report.independence import error_table, seen
from repro.report.run.baselines import interval
from repro.report.tables import Field, columns, count, figure, holds, percent, share, table, words
from repro.runs.plan import SMOKE
from repro.utils.i18n import N_, Counted, Translate

OUTCOMES = {
    "reproduced": (N_("reproduced"), "good"),
    "faster": (N_("faster"), "good"),
    "slower": (N_("slower"), "bad"),
    "inconclusive": (N_("inconclusive"), "bad"),
    "none": (N_("no verdict"), "muted"),
}
COMPARED = {
    "scaling": N_("scaling efficiency"),
    "memory": N_("memory (MiB)"),
    "layout": N_("throughput relative to another layout"),
    "sharding": N_("throughput relative to unsharded optimizer state"),
    "memory_sharding": N_("memory relative to unsharded optimizer state"),
}
CLAIMED = {"scaling": SPEEDUP, "memory": MEMORY}
"""The metric of the published figure that each kind of comparison is with; the others are with two figures' ratio."""
BASES = {
    "report": N_("published noise of the same report"),
    "model": N_("published noise of the same model"),
    "all": N_("published noise of all reports (this report repeats nothing of this size)"),
    GIVEN: N_("given by TOLERANCE"),
}
NAMED = 4
"""Most cases that are named where a tolerance's basis is given."""


def verdict_sections(_: Translate, judgement: Judgement) -> list[Section]:
    """The verdicts of a run, and comparisons valid on any hardware; for a smoke run, the reason why it has neither."""
    blocks = _nothing_to_judge(_, judgement) or (*_summary(_, judgement), *_verdicts(_, judgement))
    sections = [Section("verdicts", _("Verdicts"), tuple(blocks))]
    if judgement.comparisons or judgement.orders:
        sections.append(_relative(_, judgement))
    return sections


def _nothing_to_judge(_: Translate, judgement: Judgement) -> list[Block]:
    """Why no case of the run can have a verdict, if none can."""
    if judgement.scale == SMOKE:
        text = _("Smoke runs get no verdict on speed. Failed attempts: {failed}; interrupted: {interrupted}.")
    elif not judgement.verdicts:
        text = _(
            "No case ran with its published settings, only derived cases and baselines, so there is no speed to "
            "compare. Failed attempts: {failed}; interrupted: {interrupted}."
        )
    else:
        return []
    return [Text(text.format(failed=judgement.failed, interrupted=judgement.interrupted))]


def _summary(_: Translate, judgement: Judgement) -> list[Block]:
    rule = _(
        "Whether a case is eligible for a verdict is decided before its figures are read. Hardware, precision, "
        "configuration, libraries and transport must be as published; every repeat must have run the trainer as "
        "committed; the loss must fall; no attempt may be missing; missing information counts as a mismatch. The "
        "verdict then follows from the interval of measured / published, if its confidence is at least 95%: within "
        "the tolerance around 1 it is reproduced, entirely above faster, entirely below slower, otherwise "
        "inconclusive. The interval lies between order statistics of the repeats, widened by the rounding of the "
        "published figure; the confidence shown is the one reached. Unless set, the tolerance is three times the "
        "largest deviation between equal configurations in the published figures."
    )
    counts = _("; ").join(
        _("{outcome}: {n}").format(outcome=_(OUTCOMES[outcome][0]), n=n) for outcome, n in judgement.counts.items() if n
    )
    held = {
        0: _("Every comparable case was reproduced or is faster"),
        1: _("At least one case was not reproduced"),
        3: _("No case can be compared with its published speed"),
    }[judgement.status]
    tally = _("{held} ({counts}). Failed attempts: {failed}; interrupted: {interrupted}.").format(
        held=held, counts=counts, failed=judgement.failed, interrupted=judgement.interrupted
    )
    return [Text(tally), Text(meaning(_)), Text(rule), *_looks(_, judgement), *_chance(_, judgement)]


def meaning(_: Translate) -> str:
    """What a verdict says, and why the release of OneFlow rules none out while the libraries do."""
    return _("{text} {more}").format(text=_(MEANING).format(release=INSTALLABLE_ONEFLOW), more=_(REPLACEMENT))


def _looks(_: Translate, judgement: Judgement) -> list[Block]:
    """How the run decided when to stop repeating a case."""
    if not judgement.looks:
        return []
    text = _(
        "A case stopped repeating once its verdict was decided or could no longer be. The checks were fixed before "
        "the run: after {looks} repeats, with {trims} values trimmed from each end. The confidence covers all checks "
        "together, if repeats are independent."
    )
    looks, trims = (
        _(", ").join(str(number) for number in numbers)
        for numbers in zip(*((look.repeats, look.trim - 1) for look in judgement.looks), strict=True)
    )
    blocks: list[Block] = [Text(text.format(looks=looks, trims=trims))]
    correlation = autocorrelation({verdict.unit: verdict.throughputs for verdict in judgement.verdicts}.values())
    if correlation:
        text = _("The correlation of a repeat with the next one of the same case is {seen}.")
        blocks.append(Text(text.format(seen=seen(_, correlation))))
    return [*blocks, error_table(_, judgement.looks, correlation)]


def _chance(_: Translate, judgement: Judgement) -> list[Block]:
    """How many verdicts can be wrong by chance, as nothing is corrected for their number."""
    decided = [verdict for verdict in judgement.verdicts if verdict.outcome in DECIDED]
    if not decided:
        return []
    text = _(
        "Each verdict has the confidence of its own interval, without correction for judging several cases. Of {n} "
        "verdicts, at most {false} are expected to be wrong by chance."
    )
    return [Text(text.format(n=len(decided), false=f"{judgement.false_verdicts:.2f}"))]


def _verdicts(_: Translate, judgement: Judgement) -> list[Block]:
    def measured(verdict: Verdict) -> Cell:
        shown = figure(verdict.ratio.value if verdict.ratio else None, 4)
        return replace(shown, claim=claim_id(verdict.case, THROUGHPUT))

    def repeats(verdict: Verdict) -> Cell:
        done = len(verdict.throughputs)
        return Cell(f"{done}/{verdict.planned}", done, tone="" if verdict.complete else "bad")

    fields = (
        Field(_("Configuration"), lambda verdict: verdict.unit),
        Field(_("Verdict"), lambda verdict: _outcome(_, verdict)),
        Field(_("Measured / published"), measured, numeric=True),
        Field(_("Interval (confidence)"), lambda verdict: interval(_, verdict.ratio, 4), numeric=True),
        Field(_("Tolerance"), lambda verdict: verdict.tolerance and verdict.tolerance.value, percent),
        Field(_("Repeats"), repeats, numeric=True),
        Field(
            _("Failed attempts"),
            lambda verdict: replace(count(verdict.failed), tone="bad" if verdict.failed else ""),
            numeric=True,
        ),
    )
    blocks: list[Block] = [table("verdicts", judgement.verdicts, fields, _("Verdict of each case:"))]
    return [*blocks, *_gains(_, judgement), *_why(_, judgement), *_noted(_, judgement)]


def _gains(_: Translate, judgement: Judgement) -> list[Block]:
    """How much faster than the program of its time each judged case is expected to be, where kernels were measured."""
    case_gains = {verdict.unit: verdict.gain for verdict in judgement.verdicts if verdict.gain}
    return [gain_text(_, case_gains), gain_table(_, "verdict-gains", case_gains)] if case_gains else []


def _outcome(_: Translate, verdict: Verdict) -> Cell:
    name, tone = OUTCOMES[verdict.outcome]
    outcome = _(name)
    if verdict.tolerance and verdict.tolerance.basis == GIVEN:
        outcome = _("{outcome}, by TOLERANCE={tolerance}").format(
            outcome=outcome, tolerance=f"{100 * verdict.tolerance.value:g}%"
        )
    return Cell(outcome, tone=tone)


def _why(_: Translate, judgement: Judgement) -> list[Block]:
    """The reasons against a verdict, each with its cases."""
    return _grouped(_, judgement, "reasons", _("Why there is no verdict on speed:"))


def _noted(_: Translate, judgement: Judgement) -> list[Block]:
    noted = _grouped(_, judgement, "remarks", _("Other differences (not disqualifying):"))
    tolerances = {verdict.tolerance for verdict in judgement.verdicts if verdict.tolerance}
    if not tolerances:
        return noted
    items = tuple(
        _basis(_, tolerance)
        for tolerance in sorted(tolerances, key=lambda tolerance: (tolerance.value, tolerance.basis))
    )
    return [Text(_("Basis of the tolerances:")), Items(items), *noted]


def _basis(_: Translate, tolerance: Tolerance) -> str:
    """Where a tolerance comes from, and which cases it was estimated on."""
    value = f"{tolerance.value * 100:.2f}%"
    if not tolerance.estimated_on:
        return _("{value}: {basis}").format(value=value, basis=_(BASES[tolerance.basis]))
    cases = _("{n:case|cases}").format(n=Counted(len(tolerance.estimated_on)))
    if len(tolerance.estimated_on) <= NAMED:
        cases = ", ".join(tolerance.estimated_on)
    return _("{value}: {basis}, estimated on {cases}").format(value=value, basis=_(BASES[tolerance.basis]), cases=cases)


def _grouped(_: Translate, judgement: Judgement, what: str, title: str) -> list[Block]:
    groups: dict[str, list[Verdict]] = {}
    for verdict in judgement.verdicts:
        for reason in getattr(verdict, what):
            groups.setdefault(reason.text(_), []).append(verdict)
    if not groups:
        return []
    rows = tuple(words(text, _cases(_, verdicts, judgement)) for text, verdicts in groups.items())
    return [Table(f"verdict-{what}", columns(_("Reason"), _("Configurations")), rows, title)]


def _cases(_: Translate, verdicts: list[Verdict], judgement: Judgement) -> str:
    """The cases by name, or by report where these are all of a report's cases in this run."""
    parts = []
    for report in dict.fromkeys(verdict.report for verdict in verdicts):
        names = [verdict.unit for verdict in verdicts if verdict.report == report]
        every = sum(verdict.report == report for verdict in judgement.verdicts)
        whole = report and len(names) == every > 1
        parts.append(_("all {n} of {report}").format(n=every, report=report) if whole else ", ".join(names))
    return ", ".join(parts)


def _relative(_: Translate, judgement: Judgement) -> Section:
    good, of = agreeing((*judgement.comparisons, *judgement.orders))
    text = Text(
        _(
            "Ratios, sizes and orders can be compared with the published ones on any hardware. Within their tolerance: {good} of "
            "{of}; none of them is a verdict on speed."
        ).format(good=good, of=of)
    )
    return Section(
        "relative",
        _("Comparable on any hardware"),
        (text, *_comparisons(_, judgement), *_orders(_, judgement)),
    )


def _comparisons(_: Translate, judgement: Judgement) -> list[Block]:
    if not judgement.comparisons:
        return []

    def of_kind(comparison: HardwareComparison, value: float) -> Cell:
        return figure(value, 0 if comparison.kind == "memory" else 3)

    def published(comparison: HardwareComparison) -> Cell:
        shown = of_kind(comparison, comparison.published)
        claimed = CLAIMED.get(comparison.kind)
        return replace(shown, claim=claim_id(comparison.case, claimed)) if claimed else shown

    fields = (
        Field(_("Case"), lambda comparison: comparison.case),
        Field(_("Against"), lambda comparison: comparison.against or "–"),
        Field(_("What"), lambda comparison: _(COMPARED[comparison.kind])),
        Field(_("Published"), published, numeric=True),
        Field(_("Measured"), lambda comparison: of_kind(comparison, comparison.measured), numeric=True),
        Field(_("Difference"), lambda comparison: round(comparison.difference, 6) + 0.0, share),  # no "-0.0%"
        Field(_("Tolerance"), lambda comparison: comparison.tolerance, share),
        Field(_("Agrees"), lambda comparison: holds(_, comparison.agrees)),
    )
    return [table("comparisons", judgement.comparisons, fields)]


def _orders(_: Translate, judgement: Judgement) -> list[Block]:
    if not judgement.orders:
        return []
    items = []
    for order in judgement.orders:
        head = _("Order by throughput in {report} on {gpus} GPUs").format(report=order.report, gpus=order.gpus)
        published = _("published: {cases}").format(cases=" > ".join(order.published))
        measured = _("measured: {cases}").format(cases=" > ".join(order.measured))
        swapped = _("swapped: {pairs}").format(pairs=", ".join(" / ".join(pair) for pair in order.swapped))
        agrees = _("agrees, except for differences within {tolerance}").format(
            tolerance=f"{order.tolerance * 100:.1f}%"
        )
        items.append(
            _("{head}: {parts}.").format(
                head=head, parts=_("; ").join((published, measured, agrees if order.agrees else swapped))
            )
        )
    return [Items(tuple(items))]

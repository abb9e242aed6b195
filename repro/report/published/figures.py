"""The figure of a published report: what its cases vary, and who else ran them, one below the other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from repro.published.cases import Case, load_catalogue
from repro.published.figures import Peer, peers
from repro.report.charts.figure import (
    FigureSpec,
    batch_and_gpus,
    gpus_text,
    repeats_caption,
    repeats_chart,
    scaling_figures,
    stacked,
    write_figures,
)
from repro.report.charts.lines import LineChart, Series
from repro.report.charts.rows import BarChart, DotChart, Panel
from repro.report.charts.series import sharded, style, styles
from repro.report.document import Figure
from repro.report.numbers import short
from repro.utils.grouping import by_key
from repro.utils.i18n import LANGUAGES, N_, Translate

V100_MEMORY_MIB = 16 * 1024


def published_figures(folder: Path) -> dict[str, dict[str, list[Figure]]]:
    """Write the figures of all published reports into a folder; their blocks by report id and language."""
    specs = published_figure_specs(load_catalogue().cases)
    return {
        report: {language: write_figures([spec], folder, language) for language in LANGUAGES}
        for report, spec in specs.items()
    }


def published_figure_specs(cases: tuple[Case, ...]) -> dict[str, FigureSpec]:
    """The figure of each published report, from the catalogue's cases and other frameworks' figures."""
    by_report = by_key(cases, lambda case: case.report)
    return {report: stacked(report, _drawings(tuple(own))) for report, own in by_report.items()}


def _drawings(cases: tuple[Case, ...]) -> list[FigureSpec]:
    """The drawings of a report's figure: of what its cases vary, and of who else ran them."""
    if {case.name for case in cases} == {peer.case for peer in _peers_of(cases)}:
        return _layout_figures(cases)
    if any(case.optimizer_sharding for case in cases):
        return _sharding_figures(cases)
    return _scaling_figures(cases)


def _peers_of(cases: tuple[Case, ...]) -> tuple[Peer, ...]:
    """Other frameworks' figures that are compared with a report's."""
    of_model = peers(cases[0].model, precision=cases[0].precision)
    return tuple(peer for peer in of_model if cases[0].report in peer.reports)


def _scaling_figures(cases: tuple[Case, ...]) -> list[FigureSpec]:
    """Data-parallel scaling at one or several batch sizes: ResNet50 and BERT."""
    lines: dict[int, list[tuple[float, float]]] = {}
    for case in cases:
        lines.setdefault(case.micro_batch, []).append((case.layout.world_size, float(case.published.throughput)))
    repeated = [case for case in cases if case.published.repeats]
    repeats = [_published_repeats_figure(repeated)] if repeated else []
    compared = [_peers_figure(cases, batches) for batches in _compared_batches(cases)]
    return [*scaling_figures(_by_batch(cases[0].framework, lines)), *repeats, *compared]


def _by_batch(framework: str, lines: dict) -> Callable:
    return lambda _: [
        Series(_("batch size {n}").format(n=batch), tuple(points))
        if len(lines) > 1
        else Series(framework, tuple(points), style(framework))
        for batch, points in lines.items()
    ]


def _published_repeats_figure(cases: list[Case]) -> FigureSpec:
    def chart(_: Translate) -> DotChart:
        several = len({case.micro_batch for case in cases}) > 1
        rows = [
            (
                batch_and_gpus(_, case.micro_batch, case.layout.world_size)
                if several
                else gpus_text(_, case.layout.world_size),
                case.published.repeats,
            )
            for case in cases
        ]
        return repeats_chart(_, rows)

    return FigureSpec("repeats", chart, repeats_caption)


def _compared_batches(cases: tuple[Case, ...]) -> list[tuple[int, ...]]:
    """Batch sizes of the figures of other frameworks: the smallest that was compared, then all larger ones."""
    compared = sorted({peer.micro_batch for peer in _peers_of(cases)})
    groups = [tuple(compared[:1]), tuple(reversed(compared[1:]))]
    return [group for group in groups if any(case.micro_batch in group[:1] for case in cases)]


def _peers_figure(cases: tuple[Case, ...], batches: tuple[int, ...]) -> FigureSpec:
    """Other frameworks at each number of GPUs, at the first batch size or the largest of each."""
    others = [peer for peer in _peers_of(cases) if peer.micro_batch in batches]
    own = [case for case in cases if case.micro_batch == batches[0]]
    columns = [
        gpus
        for gpus in dict.fromkeys(case.layout.world_size for case in own)
        if any(peer.gpus == gpus for peer in others)
    ]
    largest = len(batches) > 1

    def chart(_: Translate) -> BarChart:
        here = _("{framework}, this report").format(framework=cases[0].framework) + (
            f" ({batches[0]})" if largest else ""
        )
        rows = [
            here,
            *dict.fromkeys(_peer_name(_, peer, largest) for peer in others),
        ]
        panels = []
        for gpus in columns:
            values = {_peer_name(_, peer, largest): float(peer.throughput) for peer in others if peer.gpus == gpus}
            values[here] = float(next(c for c in own if c.layout.world_size == gpus).published.throughput)
            panels.append(Panel(gpus_text(_, gpus), tuple((values[row] / gpus,) for row in rows)))
        title = (
            _("Compared with other frameworks, largest batch size of each")
            if largest
            else _("Compared with other frameworks, batch size {n}").format(n=batches[0])
        )
        subtitle = _("samples/s per GPU; batch size per GPU in parentheses") if largest else _("samples/s per GPU")
        own_style = style(cases[0].framework)
        return BarChart(
            title,
            subtitle,
            tuple(rows),
            tuple(panels),
            emphasis=frozenset({0}),
            decimals=0,
            styles=(own_style, replace(own_style, hatch="////")),
            one_scale=True,
        )

    return FigureSpec(
        "peers",
        chart,
        lambda _: _(
            "Comparisons: same cluster and precision; the figures but this report's own are from the comparison published in "
            "October 2020. The panels of a drawing have one scale."
        ),
    )


def _peer_name(_: Translate, peer: Peer, with_batch: bool) -> str:
    name = f"{peer.framework} {peer.version}" if peer.framework == "OneFlow" else peer.framework
    if peer.variant == "no clipping":
        name += _(", no clipping")
    return f"{name} ({peer.micro_batch})" if with_batch else name


def _sharding_figures(cases: tuple[Case, ...]) -> list[FigureSpec]:
    """GPT-2 small with and without sharded optimizer state, compared with DeepSpeed."""

    def name(_: Translate, framework: str, sharding: int) -> str:
        text = _("{framework}, sharded") if sharding else _("{framework}, not sharded")
        return text.format(framework=framework)

    def lines(_: Translate) -> tuple[Series, ...]:
        series = []
        for sharding in (0, 1):
            points = tuple(
                (case.layout.world_size, float(case.published.throughput))
                for case in cases
                if case.optimizer_sharding == sharding and case.micro_batch == 4
            )
            series.append(Series(name(_, "OneFlow", sharding), points, (style, sharded)[sharding]("OneFlow")))
        for sharding in (0, 1):
            points = tuple(
                (peer.gpus, float(peer.throughput))
                for peer in _deepspeed(cases[0].model)
                if peer.optimizer_sharding == sharding
            )
            series.append(Series(name(_, "DeepSpeed", sharding), points, (style, sharded)[sharding]("DeepSpeed")))
        return tuple(series)

    def throughput(_: Translate) -> LineChart:
        return LineChart(
            _("Throughput with and without sharding of the optimizer state"),
            _("samples/s, batch size 4 per GPU"),
            _("GPUs"),
            lines(_),
        )

    def memory(_: Translate) -> BarChart:
        series = tuple(name(_, framework, sharding) for framework in ("OneFlow", "DeepSpeed") for sharding in (0, 1))
        groups = list(dict.fromkeys((case.micro_batch, case.layout.world_size) for case in cases))
        rows = tuple(batch_and_gpus(_, *group) for group in groups)
        values = tuple(_sharding_memory(cases, *group) for group in groups)
        return BarChart(
            _("Memory with and without sharding of the optimizer state"),
            _("MiB per GPU"),
            rows=rows,
            panels=(Panel("", values),),
            series=series,
            limit=(_("16 GiB (V100)"), V100_MEMORY_MIB),
            decimals=0,
            styles=tuple(of(framework) for framework in ("OneFlow", "DeepSpeed") for of in (style, sharded)),
        )

    def caption(_: Translate) -> str:
        return _(
            "Both frameworks on the same cluster, fp16 mixed precision. With sharding, each GPU keeps only its part of the "
            "optimizer state (ZeRO stage 1). DeepSpeed was measured only at batch size 4."
        )

    return [FigureSpec(chart.__name__, chart, caption) for chart in (memory, throughput)]


def _deepspeed(model: str) -> tuple[Peer, ...]:
    return peers(model, framework="DeepSpeed")


def _sharding_memory(cases: tuple[Case, ...], batch: int, gpus: int) -> tuple[float | None, ...]:
    own = {
        case.optimizer_sharding: float(case.published.memory_mib)
        for case in cases
        if case.published.memory_mib and (case.micro_batch, case.layout.world_size) == (batch, gpus)
    }
    other = {
        peer.optimizer_sharding: float(peer.memory_mib)
        for peer in _deepspeed(cases[0].model)
        if peer.memory_mib and (peer.micro_batch, peer.gpus) == (batch, gpus)
    }
    return (own.get(0), own.get(1), other.get(0), other.get(1))


def _layout_figures(cases: tuple[Case, ...]) -> list[FigureSpec]:
    """GPT in data, tensor and pipeline layouts compared with Megatron-LM, case by case."""
    megatron = {peer.case: peer for peer in peers(cases[0].model, framework="Megatron-LM")}
    rows, frameworks = tuple(case.name for case in cases), ("OneFlow", "Megatron-LM")

    def scaling(_: Translate) -> list[Series]:
        chosen = [case for case in cases if case.published.printed["group"] == "DP"]
        own = tuple((case.layout.world_size, float(case.published.throughput)) for case in chosen)
        other = tuple((case.layout.world_size, float(megatron[case.name].throughput)) for case in chosen)
        return [Series(name, line, style(name)) for name, line in zip(frameworks, (own, other), strict=True)]

    def layouts(_: Translate) -> BarChart:
        chosen = [case for case in cases if case.published.printed["group"] == "2D" and case.layout.world_size == 8]
        names = tuple(_("data {data} × tensor {tensor}").format(**vars(case.layout)) for case in chosen)
        values = tuple((float(case.published.throughput), float(megatron[case.name].throughput)) for case in chosen)
        return BarChart(
            _("Throughput by layout: one model on 8 GPUs"),
            _("samples/s; hidden size 1536, 16 layers, global batch size 16"),
            rows=names,
            panels=(Panel("", values),),
            series=frameworks,
            decimals=2,
            styles=styles(frameworks),
        )

    def every(_: Translate) -> BarChart:
        values = tuple((float(case.published.throughput), float(megatron[case.name].throughput)) for case in cases)
        return BarChart(
            _("OneFlow compared with Megatron-LM, every case"),
            _("ratio of throughputs as bars; above each OneFlow / Megatron-LM in samples/s"),
            tuple(f"{name}  ·  {short(own)} / {short(other)}" for name, (own, other) in zip(rows, values, strict=True)),
            (Panel("", tuple((own / other,) for own, other in values)),),
            emphasis=frozenset(range(len(rows))),
            limit=(_("equal"), 1.0),
            decimals=2,
        )

    def memory(_: Translate) -> DotChart:
        both = {
            case.name: (float(own), float(other))
            for case in cases
            if (own := case.published.memory_mib) and (other := megatron[case.name].memory_mib)
        }
        return DotChart(
            _("Memory by layout"),
            _("MiB per GPU, largest of the node"),
            rows=tuple(both),
            values=tuple(both.values()),
            series=frameworks,
            limit=(_("16 GiB (V100)"), V100_MEMORY_MIB),
            decimals=0,
            styles=styles(frameworks),
        )

    named = N_("Case names: data x tensor x pipeline sizes, global batch size, hidden size x layers.")
    return [
        *scaling_figures(scaling),
        FigureSpec(
            "layouts",
            layouts,
            lambda _: _(
                "The layouts of one model on 8 GPUs have the same global batch size, so their figures can be compared directly."
            ),
        ),
        FigureSpec("every", every, lambda _: _(named)),
        FigureSpec(
            "memory",
            memory,
            lambda _: _("Memory: a single reading at iteration 10, not a peak; OneFlow needs less in most layouts."),
        ),
    ]

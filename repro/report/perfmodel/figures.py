"""The figures of the performance model's page: published and modelled figures, and the GPT projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from repro.perfmodel.hardware import describe
from repro.perfmodel.scaling_study import Point, Study
from repro.report.charts.canvas import GRID, MUTED, PAPER, SIZE, STYLES, WIDTH, Canvas, text_width
from repro.report.charts.figure import FigureSpec, write_figures
from repro.report.charts.lines import TOP, Series, sentence, spread_out
from repro.report.charts.rows import DotChart
from repro.report.document import Figure
from repro.utils.i18n import Translate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

HEIGHT, LEFT, GAP = 300, 42, 13


@dataclass(frozen=True)
class ShareChart:
    """Lines of shares over a number of GPUs that doubles from tick to tick, named at their ends."""

    title: str
    subtitle: str
    x_label: str
    series: tuple[Series, ...]

    def described(self) -> str:
        parts = (f"{line.label}: " + ", ".join(f"{y:.1%} ({x})" for x, y in line.points) for line in self.series)
        return sentence(f"{self.title} ({self.subtitle}; {self.x_label})", parts)

    def draw(self) -> Drawing:
        from matplotlib.ticker import FuncFormatter

        canvas = Canvas(HEIGHT, self.title, self.subtitle)
        width = WIDTH - LEFT - max(text_width(line.label) for line in self.series) - 14
        axes = canvas.axes(LEFT, TOP, width, HEIGHT - TOP - 38)
        axes.grid(axis="y", color=GRID.light, linewidth=0.8)
        axes.set_xscale("log", base=2)
        for line, style in zip(self.series, STYLES, strict=False):
            axes.plot(
                *zip(*line.points, strict=True),
                color=style.ink.light,
                linestyle=style.line,
                marker=style.marker,
                markersize=4.5,
                markeredgecolor=PAPER.light,
                markeredgewidth=0.6,
                clip_on=False,
            )
        ticks = sorted({x for line in self.series for x, _ in line.points})
        axes.set_xticks(ticks, [f"{x}" for x in ticks])
        axes.minorticks_off()
        axes.set_xlim(ticks[0], ticks[-1])
        axes.set_ylim(0, 1.05 * max(y for line in self.series for _, y in line.points))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.0f}%"))
        self._name_lines(axes)
        canvas.text(LEFT + width / 2, HEIGHT - 7, self.x_label, color=MUTED.light, ha="center")
        return canvas.figure

    def _name_lines(self, axes: Axes) -> None:
        height, top = HEIGHT - TOP - 38, axes.get_ylim()[1]
        ends = sorted((line.points[-1][1] / top * height, index) for index, line in enumerate(self.series))
        places = spread_out([at for at, _ in ends], GAP, height + 4)
        for (at, index), place in zip(ends, places, strict=True):
            axes.annotate(
                self.series[index].label,
                self.series[index].points[-1],
                (9, place - at - 3),
                textcoords="offset points",
                color=STYLES[index].ink.light,
                size=SIZE,
                annotation_clip=False,
            )


def figures(results: pd.DataFrame, study: Study, folder: Path, language: str) -> dict[str, Figure]:
    """Write the SVG files of one language into a folder; their blocks by id."""
    figure_specs = [*_beside(results), *_scale(study)]
    return {
        figure_spec.id: block
        for figure_spec, block in zip(
            figure_specs, write_figures(figure_specs, folder, language, "model-"), strict=True
        )
    }


def _beside(results: pd.DataFrame) -> list[FigureSpec]:
    held_out = results[~results["trained"]]
    printed = held_out[held_out["memory"].notna()]

    def throughput(_: Translate) -> DotChart:
        errors = held_out["model_throughput"] / held_out["throughput"] - 1
        return DotChart(
            _("Throughput, published and modelled"),
            _("modelled over published, deviation in per cent; held-out cases"),
            tuple(held_out["name"]),
            tuple((100 * float(error),) for error in errors),
            marks=(0.0,) * len(errors),
            decimals=1,
        )

    def memory(_: Translate) -> DotChart:
        return DotChart(
            _("Memory, published and modelled"),
            _("MiB per GPU; held-out cases"),
            tuple(printed["name"]),
            tuple(zip(printed["memory"], printed["model_memory"], strict=True)),
            (_("published"), _("modelled")),
            decimals=0,
        )

    return [
        FigureSpec("throughput", throughput, lambda _: _("None of these cases was used to fit the constants.")),
        FigureSpec("memory", memory, lambda _: _("Cases with published memory that were not used for the fit.")),
    ]


def _scale(study: Study) -> list[FigureSpec]:
    def weak(_: Translate) -> ShareChart:
        return ShareChart(
            _("Modelled: share of peak, batch size growing with the GPUs"),
            _("GPT 2304x24, 4 sequences per GPU; best layout at each size"),
            _("GPUs"),
            _shares(study.weak),
        )

    def strong(_: Translate) -> ShareChart:
        return ShareChart(
            _("Modelled: share of peak, fixed global batch size"),
            _("GPT 2304x24, global batch size 8192; best layout at each size"),
            _("GPUs"),
            _shares(study.strong),
        )

    caption = _modelled_caption
    return [FigureSpec("scale-weak", weak, caption), FigureSpec("scale-strong", strong, caption)]


def _modelled_caption(_: Translate) -> str:
    return _(
        "Modelled, not measured. The share is the model's own FLOPs, without recompute, divided by the tensor cores' "
        "peak. A missing point means that no layout fits into memory."
    )


def _shares(lines: dict[str, tuple[Point, ...]]) -> tuple[Series, ...]:
    return tuple(Series(node, _line(node, points)) for node, points in lines.items())


def _line(node: str, points: Sequence[Point]) -> tuple[tuple[int, float], ...]:
    peak = describe(f"{node}x1").gpu.tensor_tflops
    return tuple((point.gpus, point.best.tflops / peak) for point in points if point.best)

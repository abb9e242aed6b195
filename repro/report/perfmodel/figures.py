"""The figure of the performance model's page: published and modelled throughput."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from repro.report.charts.figure import FigureSpec, write_figures
from repro.report.charts.rows import DotChart
from repro.report.document import Figure
from repro.utils.i18n import Translate


def figures(results: pd.DataFrame, folder: Path, language: str) -> dict[str, Figure]:
    """Write the SVG files of one language into a folder; their blocks by id."""
    figure_spec = _errors(results)
    (block,) = write_figures([figure_spec], folder, language, "model-")
    return {figure_spec.id: block}


def _errors(results: pd.DataFrame) -> FigureSpec:
    held_out = results[~results["trained"]]

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

    return FigureSpec("throughput", throughput, lambda _: _("None of these cases was used to fit the constants."))

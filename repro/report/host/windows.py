"""The section of a host's page on the windows that the steady state leaves out: how the second differs from later ones."""

from __future__ import annotations

from collections import defaultdict

from repro.planning.unit import Unit
from repro.report.document import Section, Table
from repro.report.host.results import MeasuredHost
from repro.report.run.programs import PROGRAMS
from repro.report.tables import columns, count, figure, share, words
from repro.runs.attempts import Windows
from repro.utils.i18n import Translate
from repro.utils.stats import median


def windows(_: Translate, host: MeasuredHost) -> list[Section]:
    """The second window and what is left after the last row, by what may change them; nothing without such figures."""
    groups: dict[tuple, list[tuple[Unit, Windows]]] = defaultdict(list)
    for kept_run in host.measured:
        units = {unit.name: unit for unit in kept_run.plan.units}
        for attempt in kept_run.attempts:
            if attempt.windows and attempt.windows.after_last_row_s is not None:
                unit = units[attempt.unit]
                groups[_kind(unit)].append((unit, attempt.windows))
    if not groups:
        return []
    caption = _(
        "The steady state is the median of all windows between printed rows but the first two, then of the repeats; it is "
        "shown next to the figure of the report's rule and decides nothing. The first window contains the start of the "
        "program. This table shows how much longer the second takes than the median of the later ones (median over all "
        "successful attempts), and the time from the last row's timestamp to the end of the training, which is work that "
        "the device still had to do. On several GPUs PyTorch closes its connections in that time, so it has no value there."
    )
    titles = columns(
        _("Framework"),
        _("Training program"),
        _("Model"),
        _("Log generation"),
        numeric=(
            _("GPUs"),
            _("Attempts"),
            _("Second window"),
            _("Second window (ms)"),
            _("Second window (iterations)"),
            _("After the last row (iterations)"),
        ),
    )
    rows = []
    for kind in sorted(groups):
        framework, program, model, generation, gpus = kind
        group = groups[kind]
        iterations = [times.second_window_s * _rate(unit, times) for unit, times in group]
        shares = [n / unit.config["log_interval"] for n, (unit, _times) in zip(iterations, group, strict=True)]
        left = [(times.after_last_row_s or 0.0) * _rate(unit, times) for unit, times in group]
        closing = framework != "oneflow" and gpus > 1
        rows.append(
            (
                *words(
                    {"oneflow": "OneFlow", "pytorch": "PyTorch"}[framework], _(PROGRAMS[program]), model, generation
                ),
                count(gpus),
                count(len(group)),
                share(median(shares)),
                figure(1000 * median([times.second_window_s for _unit, times in group]), 0),
                figure(median(iterations), 2),
                figure(None if closing else median(left), 2),
            )
        )
    table = Table("windows", titles, tuple(rows), caption)
    return [Section("windows", _("Windows left out of the steady state"), (table,), folded=True)]


def _kind(unit: Unit) -> tuple:
    return unit.framework, unit.program, unit.model, unit.config["log_generation"], unit.world_size


def _rate(unit: Unit, times: Windows) -> float:
    """Iterations per second in the steady state."""
    return times.steady_samples_per_s / unit.global_batch

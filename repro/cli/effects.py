"""The task that measures what kernels of 2020, which OneFlow 0.8.0 no longer has, would cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro.cli.options import LibraryOptions
from repro.cli.settings import Exit, FolderThere, Invocation, OptionError, PathThere, task
from repro.runs.record import RUNS
from repro.utils.errors import FAILED
from repro.utils.output import TerminalColumn, print_table
from repro.utils.paths import named_by_time
from repro.utils.signals import heed_signals


@task(results="record what was timed elsewhere: the folder with its metrics and its trace")
def effects(
    invocation: Invocation,
    results: FolderThere | None = None,
    runs: Path = RUNS,
    cupti: PathThere | None = None,
    *,
    libraries: LibraryOptions,
) -> None:
    """Time kernels with the passes of those of 2020 against OneFlow's own on this GPU, and record both in repro/data/past.

    Verdicts and reports then say how much faster the port is for that reason. No training computes with these kernels.
    Exit status: 0 recorded; 1 operators failed or computed wrongly and were left out, or nothing could be recorded; 2
    wrong input, or no GPU.
    """
    from repro.analysis.past_kernels import reduced
    from repro.images.stack import stack_of
    from repro.launch.host_environment import gpus
    from repro.launch.past_kernels import time_kernels
    from repro.perfmodel.past_kernels import file_of, gain
    from repro.planning.past import subjects
    from repro.published.cases import load_catalogue
    from repro.runs.record import write_text

    cases = load_catalogue().ported
    folder = results or named_by_time(runs.absolute(), "effects-")
    if results is None:
        heed_signals()
        chosen, here = libraries.libraries(cupti), gpus()
        time_kernels(
            subjects(cases),
            here,
            stack=stack_of(here, libraries.stack or None, chosen),
            libraries=chosen,
            folder=folder,
        )
    measured = reduced(folder)
    path = file_of(measured.gpu)
    path.parent.mkdir(exist_ok=True)
    write_text(path, measured.text())
    columns = [
        *(TerminalColumn(title) for title in ("operator", "direction")),
        *(TerminalColumn(title, number=True) for title in ("passes", "2020 (ms)", "2020, cold (ms)", "0.8.0 (ms)")),
    ]
    rows = [
        [f"{operator.form} {operator.rows}x{operator.columns}", operator.direction, str(operator.passes)]
        + [f"{ms:.4f}" for ms in (operator.past_ms, operator.cold_ms, operator.present_ms)]
        for operator in measured.operators
    ]
    print_table(columns, rows)
    by_case = {case.name: gain(case, [measured]) for case in cases}
    gains = [
        [
            name,
            f"{case_gain.iteration_ms:.1f}",
            f"{100 * case_gain.faster.low:.1f}",
            f"{100 * case_gain.faster.high:.1f}",
        ]
        for name, case_gain in by_case.items()
        if case_gain
    ]
    gain_columns = [
        TerminalColumn("case"),
        *(TerminalColumn(title, number=True) for title in ("published iteration (ms)", "faster, from (%)", "to (%)")),
    ]
    print_table(gain_columns, gains)
    print(f"recorded in {path}")
    if measured.left_out:
        reasons = [f"{name}: {reason}" for name, reason in measured.left_out.items()]
        raise Exit("\n".join(["left out, as their kernels of 2020 failed or computed wrongly here:", *reasons]), FAILED)


@effects.checks
def _check_measurable(values: Mapping[str, Any]) -> None:
    """Refuse a folder that nothing was timed into and, where none is named, a machine without a GPU."""
    from repro.analysis.past_kernels import METRICS
    from repro.launch.host_environment import gpus
    from repro.launch.past_kernels import require_gpu

    if not (results := values["results"]):
        require_gpu(gpus())
    elif not (results / METRICS).is_file():
        raise OptionError(f"RESULTS={results}: no {METRICS} there, so nothing was timed into this folder")

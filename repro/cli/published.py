"""The tasks on published data: cases, audit, regenerated reports, and logs of any generation."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from repro.cli.session import chosen_cases
from repro.cli.settings import Exit, FileThere, FolderThere, Invocation, OptionError, exit_statuses, task
from repro.utils.errors import FAILED
from repro.utils.output import print_json, print_table, terminal_width

Format = Literal["table", "json"]


@task()
def cases(invocation: Invocation, model: str = "all", cases: str | None = None, format: Format = "table") -> None:
    """Print the catalogue of published cases.

    JSON: a list with an object per case, described in repro/data/output.schema.json. Exit status: 0, or 2 for a model
    or a case that there is not.
    """
    from repro.published.cases import cases_json, cases_table

    chosen = chosen_cases(model, cases)
    if format == "json":
        print_json(cases_json(chosen))
        return
    print_table(*cases_table(chosen), f"{len(chosen)} cases")


@task(
    logs="recompute the figures from the original logs in this folder instead",
    check="write nothing; exit 1 if the audit, or a figure from a log, is not the published one",
)
def audit(
    invocation: Invocation,
    logs: FolderThere | None = None,
    data: FolderThere | None = None,
    check: bool = False,
    format: Format = "table",
) -> None:
    """Print the errors in the published reports, and keep them as reports/published/audit.json.

    JSON: the content of audit.json, or with --logs one object per log file; described in repro/data/output.schema.json.
    Exit status: 0 done; 1 with --check, something differs; 2 wrong input.
    """
    if logs:
        _audit_logs(logs, check, format)
    else:
        _audit_data(data, check, format)


def _audit_logs(folder: Path, check: bool, format: Format) -> None:
    from repro.published.audit.logs import from_logs
    from repro.published.cases import load_catalogue

    comparison = from_logs(folder, load_catalogue())
    if format == "json":
        print_json(comparison.as_json())
    else:
        print("\n".join(comparison.lines()))
    if check and not comparison.agrees:
        raise Exit("not every figure is the published one", FAILED)
    if check and format != "json":
        print("up to date")


def _audit_data(data: Path | None, check: bool, format: Format) -> None:
    from repro.published.audit.engine import as_json, differences, register_faults
    from repro.published.audit.engine import audit as audited
    from repro.report.published.audit import terminal_lines
    from repro.report.published.page import FOLDER
    from repro.utils.paths import DATA

    kept_audit = FOLDER / "audit.json"
    result = audited(data or DATA)
    if format == "json":
        print(as_json(result).rstrip())
    else:
        print(*terminal_lines(result, terminal_width()), sep="\n")
    if check:
        if unregistered := [] if data else register_faults(result):
            raise Exit("\n".join(unregistered), FAILED)
        if apart := differences(result, kept_audit):
            raise Exit("\n".join((f"not as in {kept_audit.relative_to(FOLDER.parent.parent)}:", *apart)), FAILED)
        if format != "json":
            print("up to date")
    elif not data:
        kept_audit.write_text(as_json(result), encoding="utf-8")
        print(kept_audit, file=sys.stderr if format == "json" else sys.stdout)


@task(check="write nothing; exit 1 if a page is not what the data gives")
def published(invocation: Invocation, check: bool = False) -> None:
    """Regenerate the published reports with their audit in both languages: reports/published/.

    Exit status: 0 done; 1 with --check, a page differs from the data; 2 wrong data.
    """
    from repro.report.published.page import differing, render

    if not check:
        print("\n".join(map(str, render())))
    elif stale := differing():
        raise Exit("not as the data gives them: " + ", ".join(path.name for path in stale), FAILED)
    else:
        print("up to date")


@task(log="a log file")
def parse(invocation: Invocation, log: FileThere | None = None) -> None:
    """Print one JSON object for a log of any generation, from the published runs or this project's.

    Exit status: 0 done; 1 the file is not such a log; 2 wrong input.
    """
    from repro.published.log_summary import summary

    with exit_statuses(FAILED):
        print_json(summary(str(log)))


@parse.checks
def _check_log(values: Mapping[str, Any]) -> None:
    """Refuse a task without the log that it needs."""
    if not values["log"]:
        raise OptionError("LOG=FILE: name the log to read")

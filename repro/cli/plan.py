"""The tasks of the performance model: what to expect of cases, which layouts are quickest, and the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from repro.cli.session import chosen_cases
from repro.cli.settings import Exit, Invocation, exit_statuses, task
from repro.planning.programs import DEFAULT_PROGRAMS, Programs
from repro.utils.errors import FAILED
from repro.utils.output import print_json, print_table

Format = Literal["table", "json"]
CLUSTER = "a published cluster, an inventory by its name or folder, or NODExN for N nodes of a known kind"
PUBLISHED = "v100x32"


@task(
    cluster=CLUSTER,
    repeats="runs of each case (default: until its verdict is decided)",
    program="what trains: published, tuned or published,tuned; the duration is that of all",
)
def plan(
    invocation: Invocation,
    cluster: str = PUBLISHED,
    model: str = "all",
    cases: str | None = None,
    program: Programs = DEFAULT_PROGRAMS,
    repeats: int | None = None,
    iterations: int | None = None,
    format: Format = "table",
) -> None:
    """Print what to expect of each case before anything starts: speed, memory, duration; all modelled.

    JSON: an object with a row per case, described in repro/data/output.schema.json. Exit status: 0, or 2 for wrong
    input.
    """
    from repro.perfmodel.hardware import describe
    from repro.perfmodel.plan_table import plan_json, plan_rows, plan_summary, plan_table
    from repro.planning.plan import of_length

    chosen = chosen_cases(model, cases)
    described = describe(cluster)
    rows = plan_rows(of_length(chosen, iterations) if iterations else chosen, described, repeats, len(program))
    if format == "json":
        print_json(plan_json(rows, described, repeats))
        return
    print(f"expected on {described.name}" + ("; CLUSTER= names another" if cluster == PUBLISHED else "") + "\n")
    print_table(*plan_table(rows), plan_summary(rows, described, repeats))


@plan.checks
def _check_described(values: Mapping[str, Any]) -> None:
    """Refuse a cluster that there is not; an inventory is read once Ansible is installed."""
    from repro.cluster.inventory import is_inventory
    from repro.perfmodel.hardware import describe

    if not is_inventory(values["cluster"]):
        describe(values["cluster"])


@task(cluster=CLUSTER, shape="HIDDENxLAYERS or HIDDENxLAYERSxHEADS")
def explore(
    invocation: Invocation,
    cluster: str = PUBLISHED,
    shape: str = "2304x24",
    batch: int | None = None,
    format: Format = "table",
) -> None:
    """Print the ten quickest layouts for a GPT by the performance model.

    JSON: an object with a row per layout, described in repro/data/output.schema.json. Exit status: 0 printed; 1 no
    layout fits into the memory; 2 wrong input.
    """
    from repro.perfmodel.hardware import describe
    from repro.perfmodel.layout_search import SHOWN, candidates_json, candidates_table, search, shape_of

    described, sizes = describe(cluster), shape_of(shape)
    batch = batch or 4 * described.gpus
    layouts = search(sizes, described, batch)
    if not layouts:
        message = f"{described.name}: no layout of this shape with global batch {batch} fits into its memory"
        raise Exit(message, FAILED)
    if format == "json":
        print_json(candidates_json(layouts, described, batch))
        return
    shown = f"the best {min(SHOWN, len(layouts))} of {len(layouts)} layouts that fit"
    below = f"{described.name}, global batch {batch}: {shown}; all figures modelled"
    print_table(*candidates_table(layouts, described), below)


explore.checks(_check_described)


@explore.checks
def _check_shape(values: Mapping[str, Any]) -> None:
    """Refuse a shape that no model can have."""
    from repro.perfmodel.layout_search import shape_of

    shape_of(values["shape"])


@task()
def model(invocation: Invocation) -> None:
    """Fit the performance model and write its report and figures, reports/model/.

    Exit status: 0 written; 1 it could not be.
    """
    from repro.report.perfmodel.page import render

    with exit_statuses(FAILED):
        for path in render():
            print(path)

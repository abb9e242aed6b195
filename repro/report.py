"""Renders a run's report in Chinese and English from one template and the run's own files."""

import time
from dataclasses import dataclass
from pathlib import Path

from repro.cases import Rule, load_catalogue
from repro.failures import Failure
from repro.locales import LANGUAGES, catalogue
from repro.plan import PARITY_ITERATIONS, Plan
from repro.record import Run, write_text
from repro.results import parities, results_csv, summarise

TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class Rendered:
    """The files that a rendering wrote."""

    reports: tuple[Path, ...]
    results: Path


def render(run: Run) -> Rendered:
    """Write `report.zh.md`, `report.en.md` and `results.csv` into the run's folder."""
    description, attempts = run.description(), run.attempts()
    plan = Plan.from_json(description["plan"])
    results = summarise(plan, attempts)
    table = run.folder / "results.csv"
    write_text(table, results_csv(results))
    written = []
    for language in LANGUAGES:
        target = run.folder / f"report.{language}.md"
        write_text(target, _render_one(language, description, plan, results, attempts))
        written.append(target)
    return Rendered(tuple(written), table)


def _render_one(language: str, description: dict, plan: Plan, results: list, attempts: list[dict]) -> str:
    _ = catalogue(language).gettext
    failed = [attempt for attempt in attempts if attempt["status"] != "ok"]
    context = {
        "run": {
            "id": description["id"],
            "command": description["command"],
            "created": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(description["created"])),
        },
        "plan": plan,
        "results": results,
        "case_count": sum(len(unit.stands_for) for unit in plan.units),
        "environment": description["environment"],
        "environment_rows": environment_rows(_, description["environment"], attempts),
        "parities": parities(plan, attempts) if plan.scale == "smoke" else [],
        "parity_iterations": PARITY_ITERATIONS,
        "published": _published(plan) if plan.scale == "published" else {},
        "failures": [{**attempt, "reason": _reason(_, attempt)} for attempt in failed],
        "skipped": [{"case": s["case"], "reason": Failure.from_json(s).text(_)} for s in plan.skipped],
        "rules": _rules(_, plan),
    }
    return _template(_).render(_=_, **context)


def _template(translate):
    import jinja2

    cache = TEMPLATES.parent.parent / ".cache" / "jinja2"
    cache.mkdir(parents=True, exist_ok=True)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        bytecode_cache=jinja2.FileSystemBytecodeCache(str(cache)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(figure=figure, percent=percent, scientific=scientific)
    return environment.get_template("report.md.j2")


def figure(value: float | None, decimals: int) -> str:
    """A number with a fixed count of decimals, a dash where there is none."""
    return "–" if value is None or value == "" else f"{float(value):.{decimals}f}"


def percent(value: float | None) -> str:
    """A share as a percentage with two decimals."""
    return "–" if value is None else f"{value * 100:.2f}%"


def scientific(value: float | None) -> str:
    """A small number in scientific notation."""
    return "–" if value is None else f"{value:.1e}"


def environment_rows(_, environment: dict, attempts: list[dict]) -> list[tuple[str, str]]:
    """The environment as rows of a table; the trainer's versions are those that the processes reported."""
    versions = next((a["versions"] for a in attempts if a.get("versions")), {})
    gpus = [f"{gpu['name']} ({gpu['memory.total']} MiB)" for gpu in environment["gpus"]]
    rows = [
        (_("Host"), environment["host"]),
        (_("System"), f"{environment['system']}, Linux {environment['kernel']}"),
        (_("Processor"), _("{model}, {count} CPUs, {usable} usable").format(
            model=environment["cpu"], count=environment["cpu_count"], usable=environment["cpu_affinity"])),
        (_("Memory"), f"{environment['memory_mib']} MiB"),
        ("GPU", ", ".join(gpus) or _("none")),
        *((name, str(value)) for name, value in sorted(versions.items()) if value is not None),
        (_("Controller's Python"), environment["controller_python"]),
        *((f"SHA-256 {name}", f"`{value}`") for name, value in environment["locks_sha256"].items()),
    ]  # fmt: skip
    if environment["gpus"]:
        rows.insert(5, (_("Driver"), environment["gpus"][0]["driver_version"]))
    return rows


def _reason(_, attempt: dict) -> str:
    if attempt["status"] == "interrupted":
        return _("stopped by hand")
    return Failure.from_json(attempt["failure"]).text(_)


def _published(plan: Plan) -> dict:
    cases = {case.name: case.published for case in load_catalogue().cases}
    return {unit.name: cases[unit.stands_for[0]] for unit in plan.units}


def _rules(_, plan: Plan) -> list[dict]:
    rules = {}
    reports = {case.name: case.report for case in load_catalogue().cases}
    for unit in plan.units:
        for name in unit.stands_for:
            rules.setdefault(reports[name], Rule(**unit.rule))
    return [{"report": report, "text": rule_text(_, rule), "source": rule.source} for report, rule in rules.items()]


def rule_text(_, rule: Rule) -> str:
    """A measuring rule in words."""
    text = {
        "mean_rows": _("mean of the printed throughput of all rows after the first {skip_first}"),
        "stamps": _("samples between the time stamps of printed rows {first_row} and {last_row}, over the time between"),
        "last_rows": _("mean of the last {rows} printed rows, for throughput and latency"),
    }[rule.kind].format(**rule.parameters)
    if rule.repeats > 1:
        text += _("; median of {n} runs").format(n=rule.repeats)
    return text

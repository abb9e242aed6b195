"""The section of a bench's report on what its programs read: stand-ins, files of the reader's own, or synthetic batches."""

from repro.published.trainer_config import SYNTHETIC
from repro.report.document import Cell, Column, Section, Table, Text
from repro.report.names import listed
from repro.report.run.data import ReportData
from repro.report.tables import words
from repro.runs.plan import SMOKE
from repro.utils.i18n import Translate


def input_sections(_: Translate, data: ReportData) -> list[Section]:
    """The data that each configuration's first successful attempt reported; none for runs that did not record it."""
    data_by_unit = {
        attempt.unit: attempt.data for attempt in reversed(data.attempts) if attempt.status == "ok" and attempt.data
    }
    named: dict[tuple[str, str], list[str]] = {}
    for unit in data.plan.units:
        if unit.name in data_by_unit:
            facts = data_by_unit[unit.name]
            named.setdefault((described(_, facts), facts.get("sha256", "")[:12]), []).append(unit.name)
    if not named:
        return []
    rows = tuple(
        (*words(", ".join(f"`{name}`" for name in units), text), Cell(f"`{digest}`" if digest else "–"))
        for (text, digest), units in named.items()
    )
    columns = (Column(_("Configuration")), Column(_("Data")), Column("SHA-256"))
    reading = {name for name, facts in data_by_unit.items() if facts["kind"] != SYNTHETIC}
    texts = []
    if reading:
        texts.append(Text(_("Ports that read files read them as the published programs did.")))
    if any("standin" in facts for facts in data_by_unit.values()):
        texts.append(
            Text(
                _(
                    "Where DATA names no files, a port reads stand-in data, which the trainers generate once per machine: as "
                    "many parts, with similarly distributed sizes and lengths, but meaningless contents. The stand-in is small "
                    "and read repeatedly, so decoding costs the same, but there is no waiting for the disk."
                )
            )
        )
    compared = [unit for unit in data.plan.units if unit.follows in reading and unit.config.data.kind == SYNTHETIC]
    if compared:
        kinds = dict.fromkeys(_("the baselines") if unit.baseline_of else _("the tuned program") for unit in compared)
        text = _(
            "The port's figures include reading, decoding and moving data. Those of {programs} do not: their data are synthetic "
            "batches that stay on the device."
        )
        texts.append(Text(text.format(programs=listed(_, kinds))))
    if data.plan.scale == SMOKE and reading:
        texts.append(
            Text(
                _(
                    "In a smoke run, all layouts train on the same synthetic batches, because OneFlow's readers give "
                    "each layout different samples. For each program, the configuration `smoke_…_data` reads small "
                    "stand-in data through the published readers; its losses are not compared with anything."
                )
            )
        )
    return [Section("inputs", _("What was read"), (*texts, Table("inputs", columns, rows)))]


def described(_: Translate, facts: dict) -> str:
    """Description of a run's data, from the trainer's record."""
    if facts["kind"] == SYNTHETIC:
        return _("synthetic batches, no files")
    texts = {
        "images": _(
            "stand-in, not ImageNet: {records} JPEG images of noise in {parts} parts, on average {kb:.0f} kB and "
            "{mean_width:.0f} x {mean_height:.0f} pixels, all of the same class, as the published logs imply"
        ),
        "features": _(
            "stand-in, not Wikipedia: {records} samples of random words in {parts} parts, {full:.0f}% of them of "
            "full length"
        ),
        "text": _("stand-in, not Wikipedia: {records} random words, tokenised at the start"),
        "tokens": _("stand-in, not OpenWebText: {tokens} random tokens in {records} documents"),
    }
    if "standin" in facts:
        values = {**facts, "kb": facts.get("mean_bytes", 0) / 1000, "full": 100 * facts.get("full_share", 0)}
        return texts[facts["standin"]].format(**values)
    return _("own files: `{path}`, {mib:.0f} MiB").format(path=facts["path"], mib=facts["bytes"] / 2**20)

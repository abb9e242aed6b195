"""Rules on a report's wording: broken encodings, misspelt headings, wrong units, headings that rows do not follow."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from repro.findings import HOLDS, Finding, Findings, Place, Said, finding, unless
from repro.locales import N_

TERMS = (
    "throughput",
    "latency",
    "memory",
    "speedup",
    "sample",
    "batch",
    "layers",
    "hidden",
    "pipeline",
    "parallel",
    "accumulation",
    "attention",
    "software",
    "hardware",
    "configurations",
    "utilization",
    "主要硬软件配置",
)
UNITS = ("ms", "MiB", "MB", "GiB", "GB", "%", "samples/s", "sample/sec", "images/sec", "iterations")
LIKENESS = 0.82
"""How like a term a word must be to be taken for a misspelling of it (difflib's ratio)."""


def encodings(material) -> Findings:
    """No text is UTF-8 that was read as Windows-1252 or Latin-1."""
    for report in material.reports:
        for section, key, text in _texts(report):
            right = _decoded(text)
            rule = Said("its bytes are UTF-8, read in another encoding")
            yield unless(
                right is None,
                "encoding",
                report.id,
                Place(section, "", key),
                "editorial",
                text,
                right or "",
                rule,
                severity="note",
                note=Said("broken characters put right"),
            )


def _texts(report) -> Iterator[tuple[str, str, str]]:
    yield "title", "", report.title_printed
    for section, values in (("environment", report.environment), ("text", report.claims)):
        yield from ((section, key, text) for key, text in values.items() if isinstance(text, str))
    yield from (("text", entry["place"], entry["text"]) for entry in report.quoted)


def _decoded(text: str) -> str | None:
    """The text with its first wrongly decoded run put right, or None if there is none."""
    for run in re.findall(r"[\u0080-\u024f\u2010-\u2122]{2,}", text):
        for encoding in ("cp1252", "latin-1"):
            try:
                return text.replace(run, run.encode(encoding).decode("utf-8"))
            except (UnicodeEncodeError, UnicodeDecodeError):
                continue
    return None


def wordings(material) -> Findings:
    """Words of headings are spelt as the terms they resemble, units have their case, and rows follow patterns."""
    for report in material.reports:
        kept: dict[tuple, Finding] = {}
        for found in _wordings(material, report):
            if found is HOLDS:
                yield HOLDS
            elif kept.setdefault((found.printed, found.recomputed), found) is found:
                yield found


def _wordings(material, report) -> Findings:
    for heading in report.heading:
        for column in heading["columns"]:
            place = Place("heading", heading["table"], column)
            for word in re.findall(r"[A-Za-z]{5,}", column):
                yield _spelling(report.id, place, word)
            for unit in re.findall(r"\(([^)]+)\)", column):
                yield _unit(report.id, place, unit)
            if re.fullmatch(r"x[a-z]+(?:_x[a-z]+)+", column):
                yield _pattern(report.id, place, column, material.cases_of(report))
    for entry in report.quoted:
        for word in re.findall(r"[A-Za-z]{5,}|[\u4e00-\u9fff]+", entry["text"]):
            yield _spelling(report.id, Place("text", entry["place"], word), word)


def _spelling(report: str, place: Place, word: str) -> Finding | None:
    near = difflib.get_close_matches(word.lower(), TERMS, 1, LIKENESS)
    if not near or word.lower().removesuffix("s") == near[0].removesuffix("s"):
        return HOLDS
    rule = Said('"{word}" is a slip for "{term}"', word=word, term=near[0])
    return finding("spelling", report, place, "editorial", word, near[0], rule, severity="note")


def _unit(report: str, place: Place, unit: str) -> Finding | None:
    right = next((known for known in UNITS if known.lower() == unit.lower()), unit)
    rule = Said("the prefix m is milli, mega is M; nvidia-smi, by which memory is read, counts MiB")
    return unless(right == unit, "unit", report, place, "editorial", unit, f"{right} (MiB)", rule, severity="note")


def _pattern(report: str, place: Place, column: str, cases) -> Finding | None:
    """A heading such as "xn_xg_xbs" promises a number before each of its letters."""
    parts = [part[1:] for part in column.split("_")]
    form = re.compile("_".join(rf"\d+{part}" for part in parts))
    layouts = dict.fromkeys(case.published.printed.get("layout", "") for case in cases)
    wrong = [text for text in layouts if text and not form.fullmatch(text)]
    rule = Said("the heading promises {n} numbers, the rows do not follow it: {rows}", n=len(parts), rows=wrong)
    return unless(not wrong, "pattern", report, place, "editorial", ", ".join(wrong[:1]), "", rule, severity="note")


RULES = (
    ("encoding", N_("broken text"), encodings),
    ("spelling", N_("headings, units and spelling"), wordings),
)

"""The section on independence of a host's page: sessions, measured dependence, and the errors that follow from it."""

from dataclasses import replace

from repro.report.host.independence import independence
from repro.utils.i18n import catalogue

ENGLISH = catalogue("en").gettext


def again(kept, number, noise):
    """A run of the same plan number days later, whose repeats differ by this much as they go on."""
    attempts = [
        replace(each, throughput=each.throughput * (1 + noise * each.repeat)) if each.status == "ok" else each
        for each in kept.attempts
    ]
    created = kept.description.created + 86400 * number
    return replace(kept, description=replace(kept.description, created=created), attempts=attempts)


def told(host):
    (section,) = independence(ENGLISH, host)
    *texts, table = section.blocks
    return " ".join(each.text for each in texts), {(row[0].text, row[1].text): row[2].text for row in table.rows}


def test_the_section_says_what_was_measured_and_what_follows(host):
    text, errors = told(host)
    assert (
        "were made in one session ([what a session is, and what intervals hold](../../method.en.md#sessions))." in text
    )
    assert "The share of the variance" not in text, "one session shares nothing with another"
    assert errors["none: repeats are independent", "0"] == "3.4%"
    assert {size for _kind, size in errors} >= {"0.30", "0.50"}


def test_repeats_that_drift_are_seen_and_raise_the_error(host):
    kept = host.runs[0]
    text, errors = told(replace(host, runs=(again(kept, 0, 0.05),)))
    assert "which is more than chance explains" in text
    (measured,) = (share for (_kind, size), share in errors.items() if "measured" in size)
    assert float(measured.rstrip("%")) > 2 * 3.4


def test_nothing_is_said_without_a_measurement(host):
    assert independence(ENGLISH, replace(host, runs=())) == []

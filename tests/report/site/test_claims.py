"""The claims: every published figure once, under an id that stays, with what the data says of it."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from repro.analysis.ratio import Ratio
from repro.published.cases import load_catalogue
from repro.published.claim_ids import METRICS, anchor, claim_at, claim_concerned
from repro.report.site import claims_page
from repro.report.site.claims import AS_PUBLISHED, DERIVED, NOT_RUN, OTHERWISE, best, claims, csv, frame
from repro.report.site.comparisons import comparison_rows
from repro.utils.i18n import LANGUAGES
from repro.utils.paths import REPORTS

CASES = load_catalogue().cases


def test_every_published_figure_is_one_claim(content):
    ids = [claim.id for claim in content.claims]
    due = [
        f"{case.name}/{metric}"
        for case in CASES
        for metric, printed in zip(
            METRICS, (case.published.throughput, case.published.speedup, case.published.memory_mib), strict=True
        )
        if printed is not None and (metric != "speedup" or case.layout.world_size > 1)
    ]
    assert ids == due
    assert len(set(ids)) == len(ids)
    assert sum(claim.metric == "throughput" for claim in content.claims) == len(CASES) == 57


def test_a_claim_has_its_figure_as_printed_and_a_permanent_link(content):
    for claim in content.claims:
        assert f"/blob/{claim.report.source_commit}/" in claim.report.url
        assert len(claim.report.source_commit) == 40
    found = {claim.id: str(claim.published) for claim in content.claims}
    assert found["resnet50_0808_1n1g_bs128/throughput"] == "383.760"
    assert found["bert_4n8g_bs96/speedup"] == "29.75"
    assert found["DP_1x1x1_2_1536x16/memory"] == "11066"


def test_findings_of_the_audit_are_at_their_figure(content):
    marked = {claim.id for claim in content.claims for _ in claim.findings}
    at = {
        f"{each.place.row}/{metric}"
        for each in content.audit.findings
        for metric, column in (("throughput", "throughput"), ("speedup", "speedup"), ("memory", "memory_mib"))
        if each.place.column == column
    }
    assert marked <= at


def test_a_figure_that_was_withdrawn_makes_none_doubtful_that_stands(content):
    """The memory of another version of the table is off; what the report prints today is not."""
    another = [each for each in content.audit.findings if each.place.table == "figures of another version"]
    doubtful = {each.place.row for each in another if each.place.column == "memory_mib"}
    assert len(doubtful) == 2
    for claim in content.claims:
        if claim.case.name in doubtful and claim.metric == "memory":
            assert claim.findings == ()


def test_the_finding_at_a_figure_of_the_report_is_its_claims(content):
    marked = {claim.id for claim in content.claims for _ in claim.findings}
    assert "resnet50_0821_1n8g_bs128/speedup" in marked


def test_coverage_follows_from_the_kept_runs(content):
    states = {claim.case.name: claim.coverage for claim in content.claims}
    assert set(states.values()) <= {AS_PUBLISHED, OTHERWISE, DERIVED, NOT_RUN}
    own = {
        (case, unit.program or "published")
        for kept in [kept_run for host in content.hosts for kept_run in host.runs]
        for unit in kept.plan.units
        for case in unit.stands_for
        if kept.measures_speed and not unit.baseline_of
    }
    for case, state in states.items():
        assert (state == AS_PUBLISHED) <= ((case, "published") in own)
        assert (state == OTHERWISE) <= ((case, "tuned") in own)
    nothing = claims(content.audit, ())
    assert {claim.coverage for claim in nothing} == {NOT_RUN}
    assert all(claim.measured == () for claim in nothing)


def test_a_measurement_of_the_published_program_counts_more_than_a_newer_one_of_the_tuned(content):
    claim = next(claim for claim in content.claims if claim.measured)
    (tuned,) = [each for each in claim.measured if each.program == "tuned"][:1]
    published = replace(tuned, program="published", value=1.0)
    assert best(replace(claim, measured=(published, tuned))) is published
    assert best(replace(claim, measured=())) is None


def test_what_ran_beside_another_program_is_no_measurement(content):
    """As if the only run of bert_1n1g_bs32 on H100, and the newest ones of bs96 and of GPT on one GPU, had been such."""
    h100 = next(host for host in content.hosts if host.name == "h100")
    shared = {"20261127-202858-all-full-f9d2", "20261128-035208-all-full", "20261128-035235-all-full"}
    marked = replace(h100, notes=replace(h100.notes, shared=tuple(shared)))

    def shown(host):
        found = claims(content.audit, [host])
        rows = [*frame(found).to_dict("records"), *comparison_rows(content.audit, [host])]
        runs = {each.kept_run.run.id for claim in found for each in claim.measured} | {row["run"] for row in rows}
        return {claim.id: best(claim) for claim in found}, runs

    (before, all_runs), (after, runs) = shown(h100), shown(marked)
    assert shared <= all_runs and shared.isdisjoint(runs)
    assert before["bert_1n1g_bs32/throughput"].kept_run.run.id in shared
    assert after["bert_1n1g_bs32/throughput"] is None and after["bert_1n1g_bs96/throughput"].program == "published"


def test_a_run_on_synthetic_batches_is_no_claims_measurement_where_one_read_files(content):
    h100 = next(host for host in content.hosts if host.name == "h100")
    earlier = replace(h100, runs=tuple(kept for kept in h100.runs if kept.run.id < "20261128"))
    measured = next(claim for claim in claims(content.audit, [earlier]) if claim.id == "bert_1n1g_bs96/throughput")
    assert best(measured).kept_run.run.id == "20261127-200806-all-full"


def test_only_a_verdict_gives_an_outcome(content):
    for claim in content.claims:
        for each in claim.measured:
            assert (each.outcome == "none") == (each.verdict is None or each.verdict.outcome == "none")
            assert each.confidence is None or isinstance(each.verdict.ratio, Ratio)


def test_the_table_is_the_committed_one(content):
    compared = comparison_rows(content.audit, content.hosts)
    assert (REPORTS / "claims.csv").read_text(encoding="utf-8") == csv(content.claims, compared)
    table = pd.read_csv(REPORTS / "claims.csv", dtype=str)
    assert list(table.id) == [*(claim.id for claim in content.claims), *(each["id"] for each in compared)]
    assert table.notna()[["published", "source", "audit"]].all().all()
    assert table[: len(content.claims)].notna()[["check", "needs", "minutes"]].all().all()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_shows_every_row_of_the_file_and_says_how_many_it_has(content, language):
    compared = comparison_rows(content.audit, content.hosts)
    document = claims_page.build(language, content.claims, compared)
    shown = {
        block.id: len(block.rows) for section in document.sections for block in section.blocks if block.kind == "table"
    }
    rows = len(pd.read_csv(REPORTS / "claims.csv"))
    assert shown == {"claims": len(content.claims), "comparisons": len(compared)}
    assert sum(shown.values()) == rows
    assert {rows, *shown.values()} <= set(map(int, re.findall(r"\d+", document.lead)))


def test_a_measured_figure_has_four_digits_and_its_gpu_beside_it(content):
    """A phone shows neither the column of the hardware nor that of the GPUs."""
    (table,) = [
        block
        for section in claims_page.build("en", content.claims, ()).sections
        for block in section.blocks
        if getattr(block, "id", "") == "claims"
    ]
    place = [column.title for column in table.columns].index("Measured")
    assert not table.columns[place].minor
    shown = list(zip(content.claims, (row[place] for row in table.rows), strict=True))
    measured = [cell for claim, cell in shown if claim.measured]
    assert {cell.note for cell in measured} == {"H100", "H200"}
    assert all(len(cell.text.replace(".", "").lstrip("0")) == 4 for cell in measured if "." in cell.text)
    assert {cell.text for claim, cell in shown if not claim.measured} == {"–"}


def test_a_comparison_has_its_ratio_its_finding_and_how_to_check_it(content):
    rows = {each["id"]: each for each in comparison_rows(content.audit, content.hosts)}
    one = rows["DP_1x1x1_2_1536x16/over-megatron-lm"]
    assert (one["published"], one["audit"]) == ("1.142", "consistent")
    assert one["check"] == "make bench MODEL=gpt CASES=DP_1x1x1_2_1536x16 BASELINES=megatron-unfused"
    doubtful = [each["id"] for each in rows.values() if each["audit"] != "consistent"]
    assert doubtful == ["bert_8gpu_bs32/over-paddlepaddle"]
    assert set(one) <= set(frame(content.claims).columns)


def test_a_comparison_is_measured_by_the_runs_that_have_both_programs(content):
    """A kept run of GPT with the baseline's variant changed to the one that computes as Megatron-LM did."""
    name, kept, ours, other = next(
        (host.name, kept, ours, other)
        for host in content.hosts
        for kept in host.measured
        for other in kept.results
        for ours in kept.results
        if other.unit.baseline_of == ours.unit.name
        and ours.unit.stands_for
        and ours.unit.model == "gpt"
        and ours.throughputs
        and other.throughputs
    )
    as_megatron = replace(other, unit=replace(other.unit, variant="megatron-unfused"))
    run = SimpleNamespace(results=[ours, as_megatron], gpus=kept.gpus, run=kept.run)
    hosts = [SimpleNamespace(name=name, measured=[run], is_shared=lambda kept_run: False)]
    rows = {each["id"]: each for each in comparison_rows(content.audit, hosts)}
    row = rows[f"{ours.unit.stands_for[0]}/over-megatron-lm"]
    assert float(row["measured"]) == pytest.approx(ours.throughput / other.throughput, rel=1e-5)
    assert (row["row"], row["run"], row["verdict"]) == (ours.unit.name, kept.run.id, "none")
    assert {each["verdict"] for each in rows.values() if each is not row} == {"not-measured"}
    beside = [SimpleNamespace(name=name, measured=[run], is_shared=lambda kept_run: True)]
    hidden = {each["id"]: each for each in comparison_rows(content.audit, beside)}[row["id"]]
    assert (hidden["coverage"], hidden["measured"], hidden["verdict"]) == (row["coverage"], None, "not-measured")
    case = ours.unit.stands_for[0]
    run.results[0] = replace(ours, unit=replace(ours.unit, stands_for=(), derived_from=(case,)))
    shrunk = {each["id"]: each for each in comparison_rows(content.audit, hosts)}[row["id"]]
    assert (shrunk["coverage"], shrunk["measured"], shrunk["verdict"]) == ("derived", None, "not-measured")


def test_evidence_names_a_file_and_a_row_of_it(content):
    table = frame(content.claims)
    measured = table[table.run.notna()]
    assert len(measured)
    names = {
        kept.run.id: {unit.name for unit in kept.plan.units}
        for kept in [kept_run for host in content.hosts for kept_run in host.runs]
    }
    for row in measured.itertuples():
        assert (REPORTS.parent / row.evidence).is_file()
        assert row.row in names[row.run]


@pytest.mark.parametrize("metric", METRICS)
def test_an_expectation_is_near_what_was_published(content, metric):
    """The model's figures are for the published cluster: none is off by more than its worst case."""
    for claim in content.claims:
        if claim.metric == metric and claim.expected is not None:
            assert 0.5 < claim.expected / float(claim.published) < 2, claim.id


def test_a_claim_s_name_comes_from_its_case_and_metric_alone(content):
    """So that a claim that is added, or moved, renames no other."""
    found = {claim.id for claim in claims(content.audit, ())}
    for claim in content.claims:
        assert claim.id == f"{claim.case.name}/{claim.metric}"
        assert anchor(claim.id) == claim.anchor == f"{claim.case.name}.{claim.metric}"
    assert found == {claim.id for claim in content.claims}


def test_which_claim_a_column_has_or_concerns():
    assert claim_at("c", "memory_mib") == claim_concerned("c", "memory_mib") == "c/memory"
    assert (claim_at("c", "latency_ms"), claim_concerned("c", "latency_ms")) == ("", "c/throughput")
    assert claim_concerned("c", "heading") == ""


def test_a_claim_is_covered_by_what_has_its_own_figure(content):
    """A case whose throughput was measured on several GPUs only has no measured speed-up."""
    whole = claims(content.audit, [replace(host, notes=replace(host.notes, shared=())) for host in content.hosts])
    for claim, of_any_run in zip(content.claims, whole, strict=True):
        assert claim.coverage == of_any_run.coverage, claim.id
        assert (claim.coverage in (AS_PUBLISHED, OTHERWISE)) == bool(of_any_run.measured), claim.id
    by_case = {}
    for claim in content.claims:
        by_case.setdefault(claim.case.name, {})[claim.metric] = claim.coverage
    assert any(states["throughput"] == AS_PUBLISHED and states.get("speedup") == NOT_RUN for states in by_case.values())

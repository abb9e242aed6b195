"""The sections and figures of a host's page on loss curves, convergence and profiles."""

from dataclasses import replace

from repro.analysis.convergence import Convergence, ConvergenceResult
from repro.analysis.evidence import Evidence
from repro.analysis.kernel_trace import Kernel, Profile
from repro.analysis.loss_curves import CurveComparison, CurveDeviation, Curves, CurveTolerance
from repro.analysis.profiles import ProfileComparison, Profiled, Profiles
from repro.planning.loss_curves import CONTROL, ERROR, LAYOUT
from repro.published.cases import Layout
from repro.published.rules import MeanRows
from repro.report.document import Figure
from repro.report.host.correctness import shown, shown_figures
from repro.report.host.notes import Notes
from repro.report.host.results import MeasuredHost
from repro.report.host.run import KeptRun
from repro.runs.description import Goal
from repro.runs.failures import Failure
from repro.runs.plan import SkippedCase
from repro.runs.program_versions import Versions
from repro.runs.record import Run
from repro.runs.unit import Unit
from repro.utils.i18n import catalogue
from tests.support.attempts import recorded
from tests.support.kept import H200
from tests.support.pages import cells
from tests.support.runs import CONFIG
from tests.support.synthetic import NOTHING, described, ran_on

ENGLISH = catalogue("en").gettext


def units_of(findings) -> list[Unit]:
    if isinstance(findings, Profiles):
        return [profiled.unit for profiled in findings.every]
    return [each.unit for each in (findings.results if isinstance(findings, Convergence) else findings.comparisons)]


def host_of(tmp_path, *shown, codes=(), skipped=()) -> MeasuredHost:
    """A host with one run per finding; `codes` are the digests of their programs, `skipped` what each run left out."""

    def kept_run(number, findings):
        units = tuple(units_of(findings))
        description = described(
            replace(NOTHING, units=units, skipped=skipped) if units else NOTHING,
            created=1.79e9,
            command="make x",
            environment=ran_on(gpus=[H200], git_commit=None),
        )
        code = {"code": {"sha256": codes[number - 1]}} if codes else {}
        attempts = [recorded({"unit": each.name, **code}) for each in units]
        run = Run(tmp_path / f"run-{number}")
        return KeptRun(run, description, attempts, [], None, {}, findings, Versions(), Evidence(0, ()))

    runs = tuple(kept_run(number, findings) for number, findings in enumerate(shown, 1))
    return MeasuredHost("h200", tmp_path, runs, (), (), Notes({}))


def unit(name, role="", model="gpt", **more) -> Unit:
    config = replace(CONFIG, layout=Layout(4), iterations=20)
    return Unit(name, model, config, MeanRows(skip_first=1), 8, role=role, **more)


def test_curves_are_counted_from_their_comparisons(tmp_path):
    def comparison(name, role, apart):
        return CurveComparison(
            unit(name, role), ((1.0,),), (1.0,), CurveDeviation(apart, apart, apart), CurveTolerance(1e-4, 0.0)
        )

    curves = Curves(
        (
            comparison("a", LAYOUT, 1e-4),
            comparison("b", LAYOUT, 9e-4),
            comparison("c", CONTROL, 1e-4),
            comparison("d", ERROR, 1e-1),
        )
    )
    again = Curves((CurveComparison(unit("e", LAYOUT)),))
    skipped = tuple(SkippedCase.too_large(name, needed=4, present=2) for name in ("b", "dp4", "tp4"))
    short, detail = shown(ENGLISH, host_of(tmp_path, curves, again, skipped=skipped), [])
    assert short.blocks[0].caption == (
        "Loss curves that agree with their references: 1 of 3; that differ: 1; that did not run: 1. Configurations "
        "skipped for want of GPUs: 2. Injected errors that were detected: 1 of 1."
    )
    assert cells(short) == [["GPT fp32", "1 / 3", "1", "1", "300.0%"]]
    assert detail.folded and [block.text[:5] for block in detail.blocks] == ["Run [", "Run ["], "then their figures"


def curves_of(name, **more) -> Curves:
    return Curves((CurveComparison(unit(name, LAYOUT, **more)),))


def test_a_run_has_its_own_figures_also_where_another_of_the_same_second_has_a_longer_name(tmp_path):
    host = host_of(tmp_path, curves_of("a"), curves_of("b"))
    names = ("run-1", "run-1-9e0a")
    renamed = (replace(before, run=Run(tmp_path / name)) for before, name in zip(host.runs, names, strict=True))
    drawn = [Figure(f"figure-{name}-curves", tmp_path / name, "", ()) for name in names]
    _short, detail = shown(ENGLISH, replace(host, runs=tuple(renamed)), drawn)
    assert list(detail.blocks[1::2]) == drawn


def test_a_host_without_a_bench_has_the_code_of_its_other_runs(tmp_path):
    meaning = Failure("1/{divisor} of the entropy of the labels", {"divisor": 2})
    learned = Convergence((ConvergenceResult(unit("learn"), Goal(1.3863, meaning), ((0.6931,) * 20,), 0.9),))

    def notes(*codes):
        sections = shown(ENGLISH, host_of(tmp_path, curves_of("a"), learned, codes=codes), [])
        return [row[0].note for section in sections if not section.folded for row in section.blocks[0].rows]

    assert notes("b", "b") == ["", ""]
    assert notes("a", "b") == ["older code", ""], "of the newer run"


def test_learning_is_shown_in_bits(tmp_path):
    meaning = Failure("1/{divisor} of the entropy of the labels", {"divisor": 2})
    result = ConvergenceResult(unit("learn"), Goal(1.3863, meaning), (tuple([0.6931] * 20),), 0.9)
    host = host_of(tmp_path, Convergence((result,)), Convergence((result,)))
    short, detail = shown(ENGLISH, host, [])
    assert cells(short) == [["GPT fp32", "yes", "0.9999", "2.000", "90.0%"]] * 2
    assert [row[:3] for row in cells(detail)] == [["learn", "20", "1/2 of the entropy of the labels"]] * 2
    (spec,) = shown_figures(host)
    assert len(spec.chart(ENGLISH).fields) == 2, "one figure for all runs"


def test_a_profile_names_the_class_that_costs_most(tmp_path):
    def profiled(name, gemm, busy, baseline_of=None):
        variant = "pytorch" if baseline_of else None
        profile = Profile(10, busy + 1.0, busy, 3.0, "", (Kernel("volta_sgemm_128x64", 3.0, gemm),), ())
        return Profiled(unit(name, baseline_of=baseline_of, variant=variant), profile)

    pair = ProfileComparison(profiled("a", 8.0, 9.0), (profiled("a.pytorch", 5.0, 6.0, "a"),))
    older = ProfileComparison(profiled("a", 9.0, 9.5), (profiled("a.pytorch", 5.0, 6.0, "a"),))
    host = host_of(tmp_path, Profiles((older,)), Profiles((pair,)))
    short, detail = shown(ENGLISH, host, [])
    assert cells(short) == [["a", "pytorch", "10.00", "7.000", "Matrix products (+3.00 ms)"]], "the newest counts"
    assert len(cells(detail)) == 4
    (stacked,) = shown_figures(host)
    assert stacked.chart(ENGLISH).rows[2:] == ("a · 2026-09-21 14:13 · OneFlow", "a · 2026-09-21 14:13 · pytorch")


def test_a_profile_of_older_program_code_is_not_compared(tmp_path):
    profile = Profile(10, 9.0, 8.0, 3.0, "", (Kernel("volta_sgemm", 1.0, 8.0),), ())
    own, other = Profiled(unit("a"), profile), Profiled(unit("a.pytorch", baseline_of="a"), profile)
    older, newer = Profiles((ProfileComparison(own, (other,)),)), Profiles((ProfileComparison(own, ()),))
    (every,) = shown(ENGLISH, host_of(tmp_path, older, newer), [])
    assert len(cells(every)) == 3
    assert [spec.id for spec in shown_figures(host_of(tmp_path, older, newer))] == ["profile"]

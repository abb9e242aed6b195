"""The page on method: how figures are measured and compared, said once for all pages, which link to its sections."""

from __future__ import annotations

from repro.analysis.independence import student_coverage
from repro.published.audit.flops import VOCABULARY
from repro.report import numbers
from repro.report.document import Block, Document, Items, Section, Text
from repro.report.effects import how_timed
from repro.report.host.rows import APART, LEAST_SESSIONS
from repro.report.run.baselines import DESCRIPTIONS, descriptions
from repro.report.run.verdicts import meaning
from repro.runs.digests import NAME as DIGESTS
from repro.runs.program_versions import NAME as VERSIONS
from repro.runs.sessions import PAUSE_S
from repro.utils.i18n import Translate, catalogue
from repro.utils.paths import REPORTS

FOLDER = REPORTS
MOST_SESSIONS = 6
"""The largest number of sessions whose coverage is stated."""


def file_name(language: str) -> str:
    """The name of the page's file in the folder of reports."""
    return f"method.{language}.md"


def link(_: Translate, section: str, words: str = "", folder: str = "../../") -> str:
    """A link to a section of the page; `folder` is where the page is from the one that links, by default a host's."""
    shown, file = words or _("how to read it"), _("method.en.md")
    return f"[{shown}]({folder}{file}#{section})"


def build(language: str) -> Document:
    """The page in one language; the identifiers of its sections are what other pages link to."""
    _ = catalogue(language).gettext
    sections = (
        ("programs", _("What trains"), _programs(_)),
        ("throughput", _("How throughput is measured"), _throughput(_)),
        ("ratios", _("How ratios are formed"), _ratios(_)),
        ("sessions", _("Sessions and intervals"), _sessions(_)),
        ("memory", _("How memory is counted"), _memory(_)),
        ("peak", _("How model FLOPs utilization is counted"), _peak(_)),
        ("profiles", _("What a profile shows"), _profiles(_)),
        ("comparable", _("What can be compared with the published figures"), _comparable(_)),
        ("expectation", _("What is expected"), _expected(_)),
        ("kernels", _("How newer kernels were timed"), (how_timed(_),)),
        ("goals", _("Goals"), _goals(_)),
        ("audit", _("How the published figures are audited"), _audit(_)),
        ("evidence", _("How runs are kept and checked"), _evidence(_)),
    )
    lead = _("How the figures on these pages are measured, compared and checked. Other pages link here.")
    written = (Section(name, title, tuple(map(_block, blocks)), anchored=True) for name, title, blocks in sections)
    return Document(language, _("Method"), lead, tuple(written))


def _block(block: Block | str) -> Block:
    return Text(block) if isinstance(block, str) else block


def _programs(_: Translate) -> tuple[Block | str, ...]:
    ours = (
        _(
            "**Port**: the published program, ported operator by operator to oneflow 0.8.0. It is what a verdict is about. The "
            "page of each report lists where the port differs."
        ),
        _("**Tuned**: the same mathematics with faster operators and other options. It never affects a verdict."),
    )
    return (
        Items(ours),
        _("Baselines train the same model with the same shapes, batch size and precision, in turn with OneFlow:"),
        descriptions(_, DESCRIPTIONS),
    )


def _throughput(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "Throughput is read from the log of rank 0 by the rule of the published report, which its page states, and is the "
            "median over the repeats."
        ),
        _(
            "The steady state is the median of all windows between printed rows but the first two, then of the repeats. The "
            "first window contains the start of the program, and the timestamp of a log's first row is late, as the device is still computing."
        ),
        _(
            "“Steady” marks figures of the steady state. They are shown where the figure of the report's rule differs by more "
            "than {apart}."
        ).format(apart=numbers.percentage(APART, 0)),
        _(
            "PyTorch and the tuned program train on synthetic batches; where the port reads its input from files, that is "
            "included."
        ),
    )


def _ratios(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "A ratio is the throughput of OneFlow over that of a baseline that took turns with it in the same run; above 1 "
            "OneFlow is faster. A range is from the lowest to the highest of several configurations."
        ),
        _(
            "Scaling efficiency is throughput over that of one GPU times the number of GPUs, in the same run and with the same "
            "batch size per GPU."
        ),
        _("A layout is data x tensor x pipeline parallel sizes."),
    )


def _sessions(_: Translate) -> tuple[str, ...]:
    coverages = [student_coverage(n) for n in range(2, MOST_SESSIONS + 1)]
    return (
        _(
            "A session is a stretch of time on one machine, or on nodes that its runs share, whichever controller started "
            "them: another machine, a restart of it, or a pause of more than {hours} hours begins another session. Runs "
            "record an anonymous identity of their machine and of its last start; of older runs and of nodes, the recorded "
            "facts replace these."
        ).format(hours=f"{PAUSE_S / 3600:g}"),
        _(
            "There is one row per configuration, training program and baseline, under whatever name a run had the case. "
            "Its figure is the geometric mean over sessions; each session contributes the geometric mean of its runs, and "
            "each run the median of its repeats. Memory is the median over runs. The 95% interval is Student's t on "
            "the logarithms of the sessions, which all weigh the same, so it covers variation between "
            "machines and days as well as between repeats."
        ),
        _(
            "n is the number of sessions. A single session has no such interval, which a hollow mark shows in figures: "
            "another machine or day may give another ratio. It decides no goal; {least} sessions are needed."
        ).format(least=LEAST_SESSIONS),
        _(
            "Intervals over sessions are Student's t and hold 95% if the logarithms of the sessions' means are normally "
            "distributed. If they are skewed as exponential deviations are, with rare slow sessions, they hold {low} to "
            "{high} (simulated, 2 to {most} sessions)."
        ).format(low=numbers.percentage(min(coverages)), high=numbers.percentage(max(coverages)), most=MOST_SESSIONS),
        _(
            "For each configuration, only runs with the same program code as the newest one count; older ones are listed as "
            "superseded. Code is the same if the digests recorded with the runs are equal. For digests that counted more files, "
            "[{file}](reproduced/{file}) says which code is the same."
        ).format(file=VERSIONS),
    )


def _memory(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "Memory per GPU in MiB as the driver counts it: tensors, the allocator's reserve, the GPU's context and the "
            "libraries. It includes what each framework's allocator keeps in reserve, so a lower figure need not mean that less "
            "is needed. Newer libraries than the published ones take more of it, so a difference from a published figure is not "
            "the trainer's alone."
        ),
    )


def _peak(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "Model FLOPs utilization (MFU) is the floating-point operations a second and GPU that GPT's forward and backward pass "
            "need, over the dense fp16 peak of the GPU's data sheet. They are counted by the formula of arXiv 2104.04473, "
            "equation 3, with the vocabulary of {n} that the team counted with. What a program recomputes is not counted, so that "
            "programs compare which recompute more or less; the team's own shares of the peak count it, and are up to a third "
            "higher."
        ).format(n=VOCABULARY),
    )


def _profiles(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "A profile has one iteration on rank 0's GPU, every kernel traced. Tracing costs time, so it is not a throughput. "
            "Where OneFlow is compared with a baseline, the last column names the class of kernels in which OneFlow takes "
            "longest beyond the baseline. Profiles of older program code are in the list of all traced iterations only."
        ),
        _(
            "A kernel that torch.compile fuses has one class: normalisation if there is one in it, otherwise softmax and dropout, "
            "otherwise copies if it only moves or casts, otherwise elementwise."
        ),
    )


def _comparable(_: Translate) -> tuple[str, ...]:
    return (
        meaning(_),
        _(
            "A case has run in its published configuration if model, layout, precision, batch size and measuring rule are those "
            "of the report, on any GPU. It has run under the published conditions if GPUs, their number and libraries are too; only "
            "then can there be a verdict."
        ),
        _(
            "On other GPUs, the factor over the published throughput is one of hardware, libraries and program together; it does "
            "not say whether a published throughput is reproduced. What does not depend on how fast a GPU is can be compared: "
            "memory, scaling, and ratios. Measured and published agree if their relative difference is within the tolerance."
        ),
        _(
            "A case that needs more GPUs than were available is shrunk: its layout has smaller sizes, each rank the same work. Its "
            "ratios are shown with those of the original case, whose number of GPUs is then in parentheses; the two are not like for like."
        ),
        _(
            "Other frameworks' published figures are from the same cluster as OneFlow's. Versions and dates differ, so their ratio "
            "compares releases rather than frameworks as such."
        ),
    )


def _expected(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "Expected values are those of the [performance model](model/{file}). The launch cost and the efficiency of kernels "
            "are fitted on half of the trainings that were measured on such GPUs; only the other half is compared. There is no "
            "expectation for trainings that the model was fitted on, nor where it is too unsure to judge. A value above 1 shows "
            "the model wrong as much as one below."
        ).format(file=_("model.en.md")),
    )


def _goals(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "Goals are of whoever set them, not of the published reports. One is met if the 95% interval of a row over sessions "
            "is within it, missed if the interval is outside, and undecided otherwise."
        ),
    )


def _audit(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "“Recomputed” is calculated from the report's own figures and text, to the precision that it prints; "
            "values from elsewhere are in the next column, with their source. Error: wrong. Doubtful: contradicts "
            "another source or may mislead. Note: read with care. What was measured at all comes first, typing errors last."
        ),
    )


def _evidence(_: Translate) -> tuple[str, ...]:
    return (
        _(
            "Each run is kept under `runs/` of its host as one archive: the plan, every attempt with its logs and metrics, and a "
            "manifest; nothing in it is derived. `make report RUN=<archive>` writes its report in both languages, and "
            "`results.csv` has the results of all runs of a host. Host names and GPU UUIDs are replaced and paths are relative to "
            "the checkout; `kept.json` in the archive names every file changed in this way, with its original SHA-256."
        ),
        _(
            "Apart from the sections that say they were written by hand, every number and every statement on a host's page is "
            "generated from these files (`make host-reports`; with `CHECK=1` it only compares). Each time, throughput, latency, "
            "memory and losses of all successful attempts are recomputed from the logs and metrics in the archives; if one "
            "differed from what its run recorded, there would be no page. [{list}](reproduced/{list}) has the SHA-256 of every "
            "archive since it was kept. `make verify HOST=<host>` repeats this and looks up every run's commit in the history."
        ).format(list=DIGESTS),
        _(
            "Nor would there be a page if a row contradicted its own times or those of another rank; if operators, versions, "
            "libraries, data, precision or GPUs of an attempt were not those of its configuration; if a rule, a batch size or "
            "the order of attempts were not as planned; or if an attempt were a copy of another."
        ),
        _("`docs/trust.md` says what only a signature or a time stamp can rule out."),
    )

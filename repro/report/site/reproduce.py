"""How to reproduce: what to run on which hardware, how long it takes, what to expect. Also the artifact appendix."""

from __future__ import annotations

from collections.abc import Sequence

from repro.perfmodel.hardware import describe
from repro.perfmodel.plan_table import duration, plan_rows
from repro.planning.plan import make_plan, verdict_looks
from repro.planning.program_data import with_data
from repro.planning.rehearsal import make_rehearsal_plan
from repro.published.cases import load_catalogue
from repro.published.claim_ids import THROUGHPUT
from repro.report.document import Cell, Code, Column, Document, Items, Section, Table, Text
from repro.report.host.results import MeasuredHost
from repro.report.names import listed
from repro.report.site import speed
from repro.report.site.claims import PUBLISHED_CLUSTER, Claim, command
from repro.report.tables import figure, words
from repro.utils import last_lines
from repro.utils.i18n import Counted, Translate, catalogue

BENCH = "make bench MODEL=gpt"
REHEARSAL = "make rehearse MODEL=resnet50 MAX_RANKS=2 ITERATIONS=20"


def build(language: str, claims: Sequence[Claim], hosts: Sequence[MeasuredHost]) -> Document:
    """The page in one language; `hosts` are those whose ratios an owner of the same GPUs can expect."""
    _ = catalogue(language).gettext
    lead = _("What to run on the hardware you have, how long it takes, and what it should print.")
    own = [claim for claim in claims if claim.case.ported]
    sections = (
        _start(_),
        _without_gpu(_, hosts),
        _hardware(_, own),
        _ratios(_, hosts),
        _claims(_, own),
        _judge(_),
        _hand_over(_),
    )
    return Document(language, _("How to reproduce"), lead, tuple(section for section in sections if section))


def _start(_: Translate) -> Section:
    blocks = (
        Text(
            _(
                "Linux on x86-64 with `git`, `make`, Python 3.8 or newer with `venv`, a package index and 5 GB of disk. The "
                "controller needs CPython 3.11 or newer, the trainers 3.10 or 3.9; one that is missing is downloaded from "
                "GitHub, which no package index replaces. Each command installs what it needs, by hash:"
            )
        ),
        Code(f"{BENCH}\nmake test"),
    )
    return Section("start", _("Start"), blocks)


def _without_gpu(_: Translate, hosts: Sequence[MeasuredHost]) -> Section:
    """What a reviewer can check on any machine, the quickest first; `Takes` was seen on two CPU cores."""
    rows = [
        words(
            f"`{BENCH}`",
            _("3 minutes, its set-up included"),
            _(
                "the whole path from plan to report: every kind of GPT layout, tiny and on at most four processes, prints the losses of one process"
            ),
            _("the last line begins with `{line}`").format(line=_benched()),
        ),
        words(
            "`make audit CHECK=1`",
            _("seconds"),
            _("every published figure against its own report and the others; the findings, errors first"),
            _("`up to date`: the same findings as in the repository"),
        ),
        *(
            words(
                f"`make verify HOST={host.name}`",
                _("1 minute"),
                _(
                    "every kept run on {gpus}: its figures are recomputed from its raw logs, its files compared with their digests"
                ).format(gpus=speed.gpu(host)),
                _("the last line begins with `{line}`").format(
                    line=last_lines.verified(host.name, len(host.runs) + len(host.preflights))
                ),
            )
            for host in hosts
            if host.measured
        ),
        words(
            "`make host-reports CHECK=1`, `make site CHECK=1`",
            _("2 minutes"),
            _(
                "every ratio, interval and count on the hosts' pages, in claims.csv and in README's answer, from those runs"
            ),
            _("`up to date`, twice"),
        ),
        words(
            "`make test`",
            _("14 minutes, its set-up included"),
            _("the code: lint, types, and every test that needs neither root nor Docker"),
            _("the last line begins with `{line}`").format(line=last_lines.TESTED),
        ),
        words(
            f"`{REHEARSAL}`",
            _("1 minute"),
            _("every ResNet50 case from its data to its log and report, on processors with tiny widths"),
            _("the last line begins with `{line}`").format(line=_rehearsed()),
        ),
    ]
    columns = (
        Column(_("Run")),
        Column(_("Takes")),
        Column(_("Checks"), minor=True),
        Column(_("Expected result")),
    )
    caption = _("Times on two CPU cores; where set-up is not mentioned, once everything is installed.")
    return Section("without-gpu", _("Without a GPU"), (Table("without-gpu", columns, tuple(rows), caption),))


def _settings(command: str) -> dict[str, str]:
    """The variables that a command of make sets."""
    return dict(word.split("=") for word in command.split() if "=" in word)


def _benched() -> str:
    """How the last line of BENCH begins on a machine without GPUs."""
    plan = with_data(make_plan(load_catalogue().select(_settings(BENCH)["MODEL"]), gpus=0))
    return last_lines.benched(len(plan.units), len(plan.units))


def _rehearsed() -> str:
    """How that of REHEARSAL begins."""
    wanted = _settings(REHEARSAL)
    plan = make_rehearsal_plan(
        load_catalogue().select(wanted["MODEL"]),
        most_ranks=int(wanted["MAX_RANKS"]),
        iterations=int(wanted["ITERATIONS"]),
    )
    cases = sum(len(unit.stands_for) + len(unit.derived_from) for unit in plan.units)
    return last_lines.rehearsed(cases, cases)


def _ratios(_: Translate, hosts: Sequence[MeasuredHost]) -> Section | None:
    """What to run for ratios like those that were measured; None if there are none."""
    if not speed.comparisons(hosts):
        return None
    names = speed.short_names(hosts)
    text = _(
        "On a GPU of the same model, `make bench PROGRAM=published,tuned BASELINES=pytorch,pytorch-compiled,pytorch-unfused` "
        "gives ratios to compare with those of [the answer](index.html); `MODEL=gpt` takes `megatron,megatron-unfused` as "
        "well. The pages of {hosts} have every configuration, with an interval where there are several sessions. The "
        "runs behind these ratios have `REPEATS=1` and the PyTorch that each names, given by `BASELINE_PYTHON=`; without it the pinned one is "
        "installed, so a difference may come from PyTorch. No published figure is judged by this."
    ).format(hosts=listed(_, [f"[{names[host.name]}](host-{host.name}.html)" for host in hosts if host.measured]))
    return Section("ratios", _("If you have one of these GPUs"), (Text(text),))


def _hardware(_: Translate, claims: Sequence[Claim]) -> Section:
    """A row per kind of hardware, with the hours that the performance model expects."""
    every = [claim for claim in claims if claim.metric == THROUGHPUT]
    one_node = sum(claim.minutes or 0 for claim in every if claim.case.nodes == 1) / 60
    cluster, repeats = describe(PUBLISHED_CLUSTER), verdict_looks()[0].repeats
    all_cases = duration(plan_rows([claim.case for claim in every], cluster), cluster.nodes, repeats)
    rows = (
        words(
            _("no GPU"),
            "`make bench MODEL=all`",
            _("minutes"),
            _("the losses of every layout equal those of one process; nothing about speed"),
        ),
        words(
            _("1 to 8 GPUs newer than the V100"),
            "`make reproduce HOST=mine`",
            _("minutes per case"),
            _(
                "scaling, memory and, with `BASELINE_PYTHON=`, the ratio to PyTorch; with `MAX_GPUS=`, larger cases too, shrunk "
                "to that number of GPUs; no verdict on a published speed"
            ),
        ),
        words(
            _("1 node with 8 V100-SXM2-16GB"),
            "`make bench MODEL=all`",
            _("{hours} hours (modelled)").format(hours=f"{one_node:.0f}"),
            _("a verdict on each of {n} cases").format(n=sum(claim.case.nodes == 1 for claim in every)),
        ),
        words(
            _("4 nodes with 8 V100-SXM2-16GB and InfiniBand"),
            f"`make bench MODEL=all CLUSTER={PUBLISHED_CLUSTER}`",
            _("{hours} hours side by side, {alone} one at a time (modelled)").format(
                hours=f"{all_cases.side_by_side:.0f}", alone=f"{all_cases.alone:.0f}"
            ),
            _("a verdict on each of {n} cases").format(n=len(every)),
        ),
    )
    columns = (Column(_("You have")), Column(_("Run")), Column(_("Takes")), Column(_("You get")))
    caption = _(
        "Hours are for {n} repeats per case, after which a verdict can be reached. V100s with 32 GB run everything, but "
        "without a verdict."
    ).format(n=repeats)
    first = Text(
        _(
            "Before you rent or queue for GPUs, run `make rehearse`, on a cluster with `CLUSTER=`: every case with all its "
            "ranks, its data path and its log, on processors alone with tiny widths. What would end a run after hours ends it "
            "there after minutes; the report lists what it cannot see."
        )
    )
    template = Text(
        _(
            "`{cluster}` is a template: put your nodes' addresses into `ansible/inventories/{cluster}/hosts.yml`, or make an "
            "inventory with `make new-cluster` and use its name. Then `make provision CLUSTER=<name>` and "
            "`make preflight CLUSTER=<name>`."
        ).format(cluster=PUBLISHED_CLUSTER)
    )
    return Section("hardware", _("By hardware"), (first, Table("hardware", columns, rows, caption), template))


def _claims(_: Translate, claims: Sequence[Claim]) -> Section:
    """Claims grouped by report: command, resources, time, expected result."""
    rows = []
    for report in dict.fromkeys(claim.report for claim in claims):
        mine = [claim for claim in claims if claim.report == report and claim.metric == THROUGHPUT]
        for nodes in dict.fromkeys(claim.case.nodes for claim in mine):
            chosen = [claim for claim in mine if claim.case.nodes == nodes]
            least, most = (pick(float(claim.published) for claim in chosen) for pick in (min, max))
            allowed = max(claim.allowed for claim in chosen)
            gpus = max(claim.case.layout.world_size for claim in chosen)
            rows.append(
                (
                    Cell(_("{report}: {n:case|cases}").format(report=report.id, n=Counted(len(chosen)))),
                    Cell(f"`{command([claim.case for claim in chosen])}`"),
                    Cell(_("{nodes} × {gpus} V100").format(nodes=nodes, gpus=gpus // nodes)),
                    figure(sum(claim.minutes or 0 for claim in chosen), 0),
                    Cell(
                        (
                            _(
                                "Reproduced if the 95% interval of each throughput is within ± {share} of the published one ({least} "
                                "to {most} samples/s)"
                            )
                            if least < most
                            else _(
                                "Reproduced if the 95% interval of the throughput is within ± {share} of {least} samples/s"
                            )
                        ).format(least=f"{least:g}", most=f"{most:g}", share=f"{allowed:.1%}")
                    ),
                )
            )
    columns = (
        Column(_("Claim")),
        Column(_("Command")),
        Column(_("Resources"), minor=True),
        Column(_("Minutes (modelled)"), numeric=True, minor=True),
        Column(_("Expected result")),
    )
    text = Text(
        _(
            "A verdict needs the published hardware. ± is three times the largest published noise: of the report or the "
            "model if it was seen in cases of that kind, else of all reports. The [claims table](claims.html) has the command of each case."
        )
    )
    return Section("claims", _("Claims, commands, expected results"), (text, Table("artifact", columns, tuple(rows))))


def _judge(_: Translate) -> Section:
    items = (
        _(
            "`make report RUN=<id> CHECK=1` judges a run: reproduced, faster, slower or inconclusive. It ends with 0 if every "
            "comparable case is reproduced or faster, with 1 if one is not, and with 3 if nothing can be judged; make itself "
            "returns 2 for both."
        ),
        _("`make verify RUN=<id>` recomputes every figure from the raw logs and names whatever was changed."),
        _(
            "`make plan CLUSTER=<name>` prints expected throughput, memory and time of each case before anything starts."
        ),
    )
    return Section("judge", _("Judge"), (Items(items),))


def _hand_over(_: Translate) -> Section:
    text = Text(
        _("`make archive RUN=<id>` packs a run into one file with logs, metrics and a manifest that others can verify.")
    )
    return Section("hand-over", _("Hand over"), (text,))

"""Rules on the environment of a report: builds, drivers, commits, hardware and topology must be consistent."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

from repro.published.audit.findings import Finding, Findings, Place, unless
from repro.published.audit.material import Material
from repro.published.cases import Report
from repro.utils.i18n import N_, Message

DRIVERS = {"10.2": "440.33", "11": "450.80.02"}
"""Oldest Linux driver by CUDA version; one for all of 11.x by minor-version compatibility.

The source is `RELEASE_NOTES`.
"""
RELEASE_NOTES = Message("NVIDIA, CUDA Toolkit Release Notes, tables of driver versions")
COMMIT = re.compile(r"(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])")
NVLINKS = 6
"""NVLinks of a V100 (NVIDIA Tesla V100 GPU Architecture, WP-08608-001)."""
HARDWARE = ("cpu", "memory", "network")
CLUSTER = Message("the other reports on the same cluster")
SOFTWARE = ("cuda", "driver", "cudnn", "nccl", "python", "os")


def version(text: str) -> tuple[int, ...]:
    """The first dotted number in a text, as numbers that compare; () if there is none."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def cuda_of(text: str) -> str | None:
    """The CUDA version that a wheel's tag names: "cu112" is 11.2."""
    match = re.search(r"cu(\d\d)(\d)(?!\d)", text)
    return f"{match[1]}.{match[2]}" if match else None


def versions(material: Material) -> Findings:
    """OneFlow's build, CUDA, driver, Python and commit, as one report prints them, fit each other."""
    for report in material.reports:
        environment, wheel = report.environment, report.environment.get("wheel", "")
        built = cuda_of(wheel) or cuda_of(report.version)
        if built:
            yield from _cuda(report, built)
        if wheel:
            yield from _wheel(report, *wheel.split("-")[1:3])
        if commit := environment.get("oneflow_commit"):
            short = (COMMIT.findall(report.version) or [""])[-1]
            rule = Message("the version has commit {short}, the link {commit}", short=short, commit=commit)
            yield unless(
                short and commit.startswith(short),
                "commit",
                report.id,
                Place("environment", "", "oneflow"),
                printed=short,
                expected=commit[:7],
                rule=rule,
            )


def _cuda(report: Report, built: str) -> Findings:
    claimed, driver = report.environment["cuda"], report.environment["driver"]
    rule = Message(
        "the OneFlow build {build} is for CUDA {built}, but the environment table has {claimed}",
        build=report.version,
        built=built,
        claimed=claimed,
    )
    yield unless(
        built == claimed,
        "cuda",
        report.id,
        Place("environment", "", "cuda"),
        printed=claimed,
        expected=built,
        rule=rule,
    )
    needed = DRIVERS.get(built) or DRIVERS.get(built.split(".")[0], "0")
    rule = Message(
        "CUDA {built} needs driver {needed} or newer; {driver} is older", built=built, needed=needed, driver=driver
    )
    evidence = Message(
        "on this driver, such a build needs at least NVIDIA's forward-compatibility package, which the report does "
        "not mention: the driver or the build must have been different from what is printed"
    )
    yield unless(
        version(driver) >= version(needed),
        "driver",
        report.id,
        Place("environment", "", "driver"),
        printed=driver,
        expected=f">= {needed}",
        rule=rule,
        evidence=evidence,
        source=RELEASE_NOTES,
    )


def _wheel(report: Report, number: str, tag: str) -> Findings:
    match = re.search(r"\d+\.\d+\S*", report.version)
    printed = match[0] if match else report.version
    rule = Message("the report installs a wheel of version {number}", number=number)
    evidence = Message("wheel: {wheel}", wheel=report.environment["wheel"])
    yield unless(
        printed == number,
        "wheel",
        report.id,
        Place("environment", "", "oneflow"),
        printed=printed,
        expected=number,
        rule=rule,
        evidence=evidence,
        severity="warning",
    )
    python = report.environment.get("python", "")
    rule = Message("the wheel is for {tag}, but the report has Python {python}", tag=tag, python=python)
    yield unless(
        tag == "cp" + "".join(map(str, version(python)[:2])),
        "python",
        report.id,
        Place("environment", "", "python"),
        printed=python,
        expected=tag,
        rule=rule,
    )


def trainers(material: Material) -> Findings:
    """The trainer is named by commit, and reports of the same runs name the same one."""
    for report in material.reports:
        place, printed = Place("environment", "", "trainer"), report.trainer["printed"]
        commits = COMMIT.findall(printed)
        rule = Message("the report names a branch but no commit, so the code that was measured cannot be determined")
        yield unless(
            bool(commits),
            "trainer-commit",
            report.id,
            place,
            kind="missing",
            printed=printed,
            rule=rule,
            severity="note",
        )
        for commit in commits:
            trainer_commit = report.trainer["commit"]
            rule = Message("the detailed report of the same runs names commit {kept}", kept=trainer_commit)
            yield unless(
                commit.startswith(trainer_commit) or trainer_commit.startswith(commit),
                "trainer",
                report.id,
                place,
                printed=commit[:8],
                expected=trainer_commit,
                rule=rule,
                evidence=_repeated_reports(material, report),
                severity="warning",
                source=Message("the detailed report of the same runs"),
            )


def _repeated_reports(material: Material, report: Report) -> Message | None:
    """The other reports whose runs a report prints too, with the trainer that they name."""
    tables = [rows for owner, table, rows in material.also_printed() if owner is report and table.get("same_run")]
    others = {material.catalogue.case(row["case"]).report for rows in tables for row in rows} - {report.id}
    named = [f"{other} ({material.catalogue.report(other).trainer['printed']})" for other in sorted(others)]
    return Message("the reports whose runs it reprints name it too: {named}", named=named) if named else None


def environments(material: Material) -> Findings:
    """All reports of one cluster describe the same hardware and system, and use no more of it than there is."""
    for report in material.reports:
        cluster, printed = material.cluster(report), report.environment
        for key in (key for key in SOFTWARE if key in printed):
            mine, expected = version(printed[key]), version(cluster["software"][key])
            agrees = mine != () and mine == expected[: len(mine)]
            yield _environment(agrees, report.id, key=key, printed=printed[key], expected=cluster["software"][key])
        for key in (key for key in HARDWARE if key in printed):
            expected = cluster["hardware"][key]
            yield _environment(
                _same_words(printed[key], expected), report.id, key=key, printed=printed[key], expected=expected
            )
        yield _gpus(report.id, printed["gpus"], cluster["hardware"])
        if threads := re.match(r"(\d+) CPU", printed.get("cpu", "")):
            covered = _threads(cluster["topology"]["cpu_affinity"])
            rule = Message("the CPU affinities in the topology cover {n} CPUs", n=covered)
            yield unless(
                int(threads[1]) == covered,
                "threads",
                report.id,
                Place("environment", "", "cpu"),
                printed=threads[1],
                expected=covered,
                rule=rule,
                source=CLUSTER,
            )
        yield from _sizes(material, report, cluster["hardware"])


def _environment(agrees: bool, report: str, key: str, printed: str, expected: str) -> Finding | None:
    rule, place = (
        Message("the other reports on this cluster have {known}", known=expected),
        Place("environment", "", key),
    )
    return unless(agrees, "environment", report, place, printed=printed, expected=expected, rule=rule, source=CLUSTER)


def _same_words(printed: str, expected: str) -> bool:
    """Whether a text contains all words of another, consecutively.

    A comma with a broken encoding is not a word; `encodings` reports it.
    """
    mine, theirs = (re.findall(r"[A-Za-z0-9.]+", re.sub(r"[\u0080-\uffff]", " ", text)) for text in (printed, expected))
    return any(mine[start : start + len(theirs)] == theirs for start in range(len(mine)))


def _sizes(material: Material, report: Report, hardware: dict) -> Findings:
    """The nodes, GPUs and addresses that a report names are those of the cluster."""
    for key in (key for key in ("nodes", "gpus_per_node") if key in report.claims):
        rule = Message("the cluster has {n}", n=hardware[key])
        place = Place("text", "", key)
        stated = report.claims[key]
        yield unless(
            stated == hardware[key],
            "cluster",
            report.id,
            place,
            printed=stated,
            expected=hardware[key],
            rule=rule,
            source=CLUSTER,
        )
    if addresses := report.settings.get("node_addresses"):
        twice = [address for address, count in Counter(addresses).items() if count > 1]
        place = Place("text", "", "node_addresses")
        rule = Message("each node has an address of its own")
        yield unless(
            not twice, "same-address", report.id, place, printed=", ".join(twice), rule=rule, severity="warning"
        )
        unknown = [address for address in addresses if address not in hardware["addresses"]]
        rule = Message("the cluster's nodes have the addresses {known}", known=hardware["addresses"])
        yield unless(
            not unknown, "cluster", report.id, place, printed=", ".join(unknown), rule=rule, severity="warning"
        )
    for case in material.cases_of(report):
        limits = {"nodes": case.nodes, "gpus_per_node": case.gpus_per_node}
        for key, used in limits.items():
            rule = Message("the cluster has {n}", n=hardware[key])
            place = Place("cases", case.name, key)
            yield unless(
                used <= hardware[key],
                "cluster",
                report.id,
                place,
                printed=used,
                expected=hardware[key],
                rule=rule,
                source=CLUSTER,
            )


def _gpus(report: str, printed: str, hardware: dict) -> Finding | None:
    count, model = hardware["gpus_per_node"], hardware["gpu"]
    parts = (*re.findall(r"[A-Z]\d+", model)[:1], f"{hardware['gpu_memory_gb']}G")
    counted = re.findall(rf"\b(\d+)\s*x\b|\bx (\d+)\b|\b(\d+) {parts[0]}\b", printed)
    stated = [int("".join(number)) for number in counted]
    rule = Message("the cluster has {n} {model} GPUs per node", n=count, model=model)
    return unless(
        stated == [count] and all(word in printed for word in parts),
        "gpus",
        report,
        Place("environment", "", "gpus"),
        printed=printed,
        expected=f"{model} x {count}",
        rule=rule,
        source=CLUSTER,
    )


def _threads(affinities: list[str]) -> int:
    return len(set().union(*map(_cpus, affinities)))


def _cpus(affinity: str) -> set[int]:
    """The CPUs of an affinity such as "0-11,24-35"; none of an empty one."""
    ends = [tuple(map(int, span.split("-"))) for span in affinity.split(",") if span]
    return {cpu for low, high in ends for cpu in range(low, high + 1)}


def affinities(material: Material) -> Findings:
    """A CPU is in one NUMA node: two affinities of the topology are the same, or have no CPU in common."""
    for name in dict.fromkeys(report.cluster for report in material.reports):
        owner = next(report.id for report in material.reports if report.cluster == name)
        topology = material.clusters[name].get("topology", {})
        distinct = dict.fromkeys(filter(None, topology.get("cpu_affinity", ())))
        for one, other in combinations(distinct, 2):
            both = sorted(_cpus(one) & _cpus(other))
            rule = Message("{one} and {other} have CPUs in common: {cpus}", one=one, other=other, cpus=both)
            place = Place("topology", one, other)
            yield unless(not both, "affinity", owner, place, printed=other, rule=rule)


def topologies(material: Material) -> Findings:
    """The topology matrix is symmetric and shows all NVLinks of each GPU."""
    reports = [report for report in material.reports if report.environment.get("topology")]
    for name in dict.fromkeys(report.cluster for report in reports):
        owner = next(report.id for report in reports if report.cluster == name)
        devices, links = (material.clusters[name]["topology"][key] for key in ("devices", "links"))
        for row, device in enumerate(devices):
            for column in range(row):
                there, back = links[row][column], links[column][row]
                rule = Message("the matrix has {back} in the other direction", back=back)
                yield unless(
                    there == back,
                    "topology",
                    owner,
                    Place("topology", device, devices[column]),
                    printed=there,
                    expected=back,
                    rule=rule,
                )
            if device.startswith("GPU"):
                count = sum(int(link[2:]) for link in links[row] if link.startswith("NV"))
                rule = Message("a V100 has {n} NVLinks", n=NVLINKS)
                yield unless(
                    count == NVLINKS,
                    "nvlinks",
                    owner,
                    Place("topology", device, "NVLink"),
                    printed=count,
                    expected=NVLINKS,
                    rule=rule,
                    source=Message("NVIDIA Tesla V100 GPU Architecture, WP-08608-001"),
                )


RULES = (
    ("version", N_("versions of OneFlow, CUDA, driver and Python"), versions),
    ("trainer", N_("the trainer's commit"), trainers),
    ("environment", N_("the environment against the cluster"), environments),
    ("topology", N_("the topology matrix"), topologies),
    ("affinity", N_("CPU affinities"), affinities),
)

"""Plausibility rules: memory against the model's state, work against the peak, scaling, training progress.

Most bounds do not come from the report: each finding names the source of its bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from repro.models.registry import spec_of
from repro.published.audit.findings import PEERS, PROVENANCE, Finding, Findings, Place, slug, unless
from repro.published.audit.material import Material
from repro.published.cases import Case, Report
from repro.published.figures import Peer, PrintedNumber
from repro.published.noise import published_noise
from repro.utils.grouping import by_key
from repro.utils.i18n import N_, Message
from repro.utils.stats import median

MIB = 2**20
PARAMETER_BYTES = 4
"""A parameter in single precision, which AMP keeps too."""
OPTIMIZER_BYTES = {"adamw": 8, "sgd": 4}
"""State of an optimizer per parameter: two moments, or the momentum, in single precision."""
SHARDED_BYTES = 18
"""The most that sharding the optimizer can divide, per parameter: the parameter, two moments and the gradient in
single precision, and the half precision copy (Rajbhandari et al., arXiv 1910.02054, section 3.1, counts 16)."""
ZERO = Message("arXiv 1910.02054, section 3.1")
MEMORY_SPREAD = 0.03
"""How far the memory of a data-parallel rank may lie from that of other numbers of GPUs; in the five reports, 2 %."""
PEAK = Message("NVIDIA's V100 data sheet")
NOISE_SIGMAS = 3
PEER_STEP = 0.75
"""Least share of the other frameworks' median that a framework's gain by more GPUs is taken for plausible at."""
ENOUGH_PEERS = 3
TOP_1 = 0.80
"""More than a fully trained ResNet50 reaches: 0.7715 by `TRAINED`."""
TRAINED = Message("He et al. (CVPR 2016), table 4: top-1 error 22.85% after full training")
IMAGES = 1_281_167
"""Images of the training set of ImageNet 2012."""


def state_floor_mib(case: Case) -> float | None:
    """The least memory that a rank's parameters and optimizer state take, None if nobody has counted the parameters.

    Of a pipeline it is that of a stage without embedding; with sharding, every rank's share of all but the parameters,
    and under AMP, where only a half precision copy must be whole, of these too.
    """
    spec = spec_of(case.model)
    if spec.parameters is None:
        return None
    layout, shape = case.layout, _padded_shape(case)
    if layout.pipeline > 1:
        shape |= {"vocab_size": 0, "seq_length": 0}
    held = spec.parameters(shape) / (layout.tensor * layout.pipeline)
    sharing = layout.data if case.optimizer_sharding else 1
    weights = PARAMETER_BYTES / (sharing if case.precision == "amp" else 1)
    return held * (weights + OPTIMIZER_BYTES[case.training["optimizer"]["name"]] / sharing) / MIB


def _padded_shape(case: Case) -> dict[str, int]:
    spec, shape = spec_of(case.model), dict(case.shape)
    if spec.has_vocabulary:
        shape["vocab_size"] = spec.padded_vocab_size(shape["vocab_size"], case.layout.tensor)
    return shape


def memory_floors(material: Material) -> Findings:
    """A GPU needs at least the memory of its share of the parameters and the optimizer state."""
    for case in material.cases:
        yield from _floor(case, case.published.memory_mib, "memory-floor", case.report)
    for peer, case in _peer_cases(material):
        yield from _floor(case, peer.memory_mib, f"memory-floor-{peer.framework}", PEERS)


def _floor(case: Case, used: PrintedNumber | None, check: str, report: str) -> Findings:
    least = state_floor_mib(case)
    if used is not None and least is not None:
        rule = Message("parameters and optimizer state alone take {least} MiB per GPU", least=f"{least:.0f}")
        place = Place("results", case.name, "memory_mib")
        source = Message("the number of parameters, counted from the model's shape")
        yield unless(
            used >= least, check, report, place, printed=used, expected=f">= {least:.0f}", rule=rule, source=source
        )


def _peer_cases(material: Material) -> Iterator[tuple[Peer, Case]]:
    """Each peer's figure with a case of a report that has the same state per GPU and the same work per sample."""
    for peer in material.peers:
        for case in material.cases:
            same = (case.precision, case.layout.world_size) == (peer.precision, peer.gpus)
            if peer.case == case.name or (
                peer.case is None
                and same
                and case.report in peer.reports
                and peer.optimizer_sharding in (None, case.optimizer_sharding)
            ):
                yield peer, case
                break


def memory_siblings(material: Material) -> Findings:
    """The memory of a rank does not depend on the number of data-parallel ranks; with sharding it only falls."""
    for report, table, used in _memory_tables(material):
        for group in by_key(used, lambda pair: _rank(pair[0])).values():
            if group[0][0].optimizer_sharding:
                yield from _falling(report, table, group)
            else:
                yield from _alike(report, table, group)


def _siblings(table: str) -> str:
    """The name of the comparison: a case may be printed in several tables."""
    return "memory-siblings" if table == "results" else f"memory-siblings-{slug(table)}"


def _memory_tables(material: Material) -> Iterator[tuple[str, str, list[tuple[Case, PrintedNumber]]]]:
    for report in material.reports:
        used = [(case, case.published.memory_mib) for case in material.cases_of(report)]
        yield report.id, "results", [(case, memory) for case, memory in used if memory is not None]
    for report, table, rows in material.also_printed("memory_mib"):
        if not table.get("same_run"):
            figures = [(material.catalogue.case(row["case"]), PrintedNumber(str(row["memory_mib"]))) for row in rows]
            yield report.id, table["what"], figures


def _rank(case: Case) -> tuple:
    """All that the memory of a data-parallel rank depends on."""
    split = (case.layout.tensor, case.layout.pipeline, case.accumulation_steps, case.activation_checkpointing)
    return case.model, case.micro_batch, case.optimizer_sharding, split, tuple(sorted(case.shape.items()))


def _alike(report: str, table: str, group: list[tuple[Case, PrintedNumber]]) -> Findings:
    for case, used in group:
        others = [float(more) for other, more in group if other is not case and other.layout.data > 1]
        if not others:
            continue
        middle = median(others)
        off = used / middle - 1
        within = off <= MEMORY_SPREAD if case.layout.data == 1 else abs(off) <= MEMORY_SPREAD
        rule = Message(
            "the same work per GPU takes {middle} MiB (median) with other numbers of GPUs; this is {off}% off",
            middle=f"{middle:g}",
            off=f"{100 * off:+.1f}",
        )
        place = Place(table, case.name, "memory_mib")
        yield unless(within, _siblings(table), report, place, printed=used, rule=rule, severity="warning")


def _falling(report: str, table: str, group: list[tuple[Case, PrintedNumber]]) -> Findings:
    ordered = sorted(group, key=lambda pair: pair[0].layout.data)
    for (fewer, before), (more, after) in pairwise(ordered):
        rule = Message(
            "{fewer} takes only {before} MiB with fewer GPUs, although each holds a larger share of the state",
            fewer=fewer.name,
            before=before,
        )
        place = Place(table, more.name, "memory_mib")
        fits = after <= before * (1 + MEMORY_SPREAD)
        yield unless(fits, _siblings(table), report, place, printed=after, rule=rule, severity="warning")


def sharding_savings(material: Material) -> Findings:
    """Sharding frees memory, and no more than the share of the state that other ranks keep."""
    for case in material.cases:
        spec = spec_of(case.model)
        plain = next((other for other in material.cases if _differs_in_sharding(case, other)), None)
        if plain is None or spec.parameters is None:
            continue
        before, after = plain.published.memory_mib, case.published.memory_mib
        if before is None or after is None:
            continue
        parameters = spec.parameters(_padded_shape(case)) / (case.layout.tensor * case.layout.pipeline)
        most = parameters * SHARDED_BYTES * (1 - 1 / case.layout.data) / MIB
        rule = Message(
            "sharding frees {freed} MiB; the state allows for 0 to {most} MiB",
            freed=f"{before - after:g}",
            most=f"{most:.0f}",
        )
        place = Place("results", case.name, "memory_mib")
        fits = 0 < before - after <= most
        yield unless(
            fits,
            "sharding-saving",
            case.report,
            place,
            printed=after,
            expected=f">= {before - most:.0f}",
            rule=rule,
            severity="warning",
            source=ZERO,
        )


def _differs_in_sharding(case: Case, other: Case) -> bool:
    keys = ("report", "layout", "micro_batch", "accumulation_steps", "shape")
    sharded = case.optimizer_sharding > 0 and other.optimizer_sharding == 0
    return sharded and all(getattr(case, key) == getattr(other, key) for key in keys)


def implied_tflops(case: Case, throughput: float) -> float | None:
    """Matrix operations in TFLOP/s per GPU implied by a throughput, None if they have not been counted.

    The vocabulary counts as padded by the trainer.
    """
    spec = spec_of(case.model)
    if spec.training_flops is None:
        return None
    return (
        spec.training_flops(_padded_shape(case), case.activation_checkpointing)
        * throughput
        / case.layout.world_size
        / 1e12
    )


def peak_tflops(case: Case, hardware: Mapping) -> float:
    """The peak of one GPU in the case's precision."""
    return hardware["gpu_peak_tflops" if case.precision == "amp" else "gpu_peak_fp32_tflops"]


def peaks(material: Material) -> Findings:
    """No throughput implies more operations than the GPUs' peak."""
    for case in material.cases:
        yield from _below_peak(material, case, throughput=case.published.throughput, check="peak", report=case.report)
    for peer, case in _peer_cases(material):
        named = (peer.framework, peer.version, peer.variant, f"bs{peer.micro_batch}")
        name = "-".join(part for part in ("peak", *named) if part)
        yield from _below_peak(material, case, throughput=peer.throughput, check=name, report=PEERS)


def _below_peak(material: Material, case: Case, throughput: PrintedNumber, check: str, report: str) -> Findings:
    """A violation for a convolutional model is doubtful, not wrong: Winograd needs fewer operations than counted."""
    rate = implied_tflops(case, throughput)
    if rate is None:
        return
    peak = peak_tflops(case, material.cluster_of(case)["hardware"])
    rule = Message(
        "{throughput} samples/s on {gpus} GPUs are {rate} TFLOP/s per GPU; the peak in this precision is {peak}",
        throughput=throughput,
        gpus=case.layout.world_size,
        rate=f"{rate:.2f}",
        peak=f"{peak:g}",
    )
    severity = "warning" if spec_of(case.model).convolutional else "error"
    place, most = Place("results", case.name, "throughput"), f"<= {throughput * peak / rate:.2f}"
    yield unless(
        rate <= peak, check, report, place, printed=throughput, expected=most, rule=rule, severity=severity, source=PEAK
    )


def peer_scaling(material: Material) -> Findings:
    """Other frameworks gain by more GPUs too, at most in their proportion, and much as the others do."""
    tolerance = NOISE_SIGMAS * math.sqrt(2) * published_noise(material.cases).largest
    steps = list(_peer_steps(material))
    for key, smaller, larger in steps:
        growth, ratio = larger.gpus / smaller.gpus, larger.throughput / smaller.throughput
        place = Place(PEERS, larger.name, "throughput")
        rule = Message(
            "with {gpus} times the GPUs, throughput is {ratio} times as high; 1 to {most} is plausible given the "
            "published noise",
            gpus=f"{growth:g}",
            ratio=f"{ratio:.3f}",
            most=f"{growth * (1 + tolerance):.3f}",
        )
        fits = 1 <= ratio <= growth * (1 + tolerance)
        yield unless(fits, "peer-scaling", PEERS, place, printed=larger.throughput, rule=rule, severity="warning")
        others = [
            one.throughput / other.throughput
            for same, other, one in steps
            if same == key and one.framework != larger.framework
        ]
        if len(others) >= ENOUGH_PEERS:
            yield _peer_step(larger, smaller, ratio, median(others))


def _peer_step(larger: Peer, smaller: Peer, ratio: float, usual: float) -> Finding | None:
    rule = Message(
        "from {few} to {many} GPUs, throughput grows by a factor of {ratio}, for the other frameworks by {usual} "
        "(median)",
        few=smaller.gpus,
        many=larger.gpus,
        ratio=f"{ratio:.2f}",
        usual=f"{usual:.2f}",
    )
    evidence = Message("a comparison at this size may reflect a problem of that set-up rather than the frameworks")
    place = Place(PEERS, larger.name, "throughput")
    fits = ratio >= PEER_STEP * usual
    return unless(
        fits, "peer-step", PEERS, place, printed=larger.throughput, rule=rule, evidence=evidence, severity="warning"
    )


def _peer_steps(material: Material) -> Iterator[tuple[tuple, Peer, Peer]]:
    """Neighbouring numbers of GPUs of one framework, with a key that equal steps of one table share."""
    by_case = {peer.case: peer for peer in material.peers if peer.case}
    for first, second in material.scaling_steps():
        if first.name in by_case and second.name in by_case:
            yield (first.name, second.name), by_case[first.name], by_case[second.name]
    others = (peer for peer in material.peers if not peer.case)
    columns = by_key(others, lambda peer: (peer.source, peer.framework, peer.version, peer.variant))
    for (source, *_), column in columns.items():
        for smaller, larger in pairwise(sorted(column, key=lambda peer: peer.gpus)):
            yield (source, smaller.gpus, larger.gpus), smaller, larger


def accuracies(material: Material) -> Findings:
    """The accuracy in a log is one that a network can have after so few images."""
    for report in material.reports:
        for table in report.also_printed:
            if {"iteration", "top_1"} <= set(table["columns"]):
                yield _accuracy(report, table["what"], report.also(table["what"]), material.cases_of(report))


def _accuracy(report: Report, table: str, rows: Iterable[dict], cases: Iterable[Case]) -> Finding | None:
    highest = max(rows, key=lambda row: row["top_1"])  # the first of equal ones
    images = max(case.global_batch for case in cases) * highest["iteration"]
    rule = Message(
        "top-1 is {value} at iteration {n}, after at most {images} images, or {share} epochs of ImageNet; a fully "
        "trained ResNet50 stays below that",
        value=highest["top_1"],
        n=highest["iteration"],
        images=images,
        share=f"{images / IMAGES:.2f}",
    )
    evidence = Message("all labels must have been identical, so the data was not ImageNet")
    place = Place(table, "", "top_1")
    return unless(
        highest["top_1"] <= TOP_1,
        "accuracy",
        report.id,
        place,
        kind=PROVENANCE,
        printed=highest["top_1"],
        expected=f"<= {TOP_1:.2f}",
        rule=rule,
        evidence=evidence,
        source=TRAINED,
    )


def schedules(material: Material) -> Findings:
    """A run is long enough for its learning-rate schedule to begin, and its decay does not end before the run."""
    for report in material.reports:
        seen = {}
        for case in material.cases_of(report):
            schedule = case.training["schedule"]
            seen[case.iterations, schedule["warmup_iterations"], schedule.get("decay_iterations")] = case
        for (iterations, warmup, decay), case in seen.items():
            yield _warmup(report, case, iterations, warmup)
            if decay is not None:
                yield _decay(report, iterations, decay)


def _warmup(report: Report, case: Case, iterations: int, warmup: int) -> Finding | None:
    rule = Message(
        "the run of {iterations} iterations ends within the warm-up of {warmup}, at {share}% of the learning rate {lr}",
        iterations=iterations,
        warmup=warmup,
        share=f"{100 * iterations / max(warmup, 1):.1f}",
        lr=f"{case.training['optimizer']['lr']:g}",
    )
    evidence = Message("no effect on throughput; losses and accuracies reflect almost no training")
    place = Place("settings", f"{iterations} iterations", "warmup_iterations")
    return unless(
        iterations >= warmup,
        "warm-up",
        report.id,
        place,
        kind="editorial",
        printed=iterations,
        expected=f">= {warmup}",
        rule=rule,
        evidence=evidence,
        severity="note",
        source=_settings(report),
    )


def _decay(report: Report, iterations: int, decay: int) -> Finding | None:
    rule = Message(
        "the learning-rate decay ends at iteration {decay}, the run at {iterations}", decay=decay, iterations=iterations
    )
    place = Place("settings", f"{iterations} iterations", "decay_iterations")
    return unless(
        iterations <= decay,
        "decay",
        report.id,
        place,
        kind="editorial",
        printed=iterations,
        expected=f"<= {decay}",
        rule=rule,
        severity="warning",
        source=_settings(report),
    )


def _settings(report: Report) -> Message | None:
    """Where the schedule is from, if the report does not print it."""
    reasons = (entry["reason"] for entry in report.unstated if entry["key"] in ("training", "training.schedule"))
    reason = next(reasons, None)
    return Message(reason) if reason else None


RULES = (
    ("memory-floor", N_("memory against parameters and optimizer state"), memory_floors),
    ("memory-siblings", N_("memory across numbers of GPUs"), memory_siblings),
    ("sharding-saving", N_("memory freed by sharding, against the optimizer state"), sharding_savings),
    ("peak", N_("implied FLOP/s against the peak"), peaks),
    ("peer-scaling", N_("scaling of other frameworks"), peer_scaling),
    ("accuracy", N_("accuracies in sample logs"), accuracies),
    ("schedule", N_("iterations against the learning-rate schedule"), schedules),
)

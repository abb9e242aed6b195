"""Holds what a plan says that an attempt ran against what the attempt's processes left.

The program is known by the operators of its compiled job and the switches of its process, the framework by its versions
and libraries, data, precision, device and GPU by the start event and the operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from repro.analysis.difference import Difference, Unrecorded
from repro.models.programs import PUBLISHED, TUNED, TUNING
from repro.published.census import operators
from repro.published.logs import Log
from repro.published.trainer_config import TrainerConfig
from repro.runs.metrics import METRICS
from repro.runs.unit import Unit
from repro.utils.i18n import N_

ONEFLOW, PYTORCH = "oneflow", "pytorch"
LIBRARIES = {ONEFLOW: ("oneflow", "liboneflow"), PYTORCH: ("torch", "libtorch")}
"""By framework: what its versions name, and how its library is called."""
OTHER_OPERATORS = 0.05
"""The largest share of its operators by which a published program's job differs from the census.

Releases changed the ports: 0.0124 is the most of 113 kept attempts. Tuned programs differ by 0.31 at least, in 238.
"""
OF_AMP = "dynamic_loss_scale_schedule"
"""The operator that every job in half precision has, and no other."""
CAST, SCALED, FUSED = "cast", "scalar_mul_by_tensor", "fused_cast_scale"
"""What AMP adds to a job on a GPU, where it also fuses each cast with what scales its result, by a tensor or a constant."""
BY_CONSTANT = "scalar_mul"
"""What divides a gradient by the number of accumulation steps: 197 in a pipeline in fp32, fused under AMP."""
OF_LOSS_SCALING = (
    "add_n",
    "assign",
    "assign_if_not",
    "count_not_finite",
    OF_AMP,
    "identity",
    "multi_count_not_finite",
    "reciprocal",
    BY_CONSTANT,
    SCALED,
)
"""What loss scaling adds to a job and replaces in it, which a census has for the published precision alone."""
MEGATRON = "megatron_core"
"""What the versions of a baseline name that Megatron-Core trains."""
SWITCHES = frozenset(f"ONEFLOW_{name}" for name in TUNING["switches"])
PLAN = "the plan"

FRAMEWORK, DATA, TF32 = N_("framework"), N_("kind of data"), N_("whether OneFlow computed in TF32")
OPERATORS, SETTINGS, AMP = N_("operators"), N_("settings of PyTorch"), N_("whether PyTorch computed in half precision")
"""Facts that early releases did not record."""

Found = Iterator[Difference | Unrecorded]


def contradictions(
    unit: Unit, where: str, gpus: Sequence[Mapping], log: Log, ranks: Sequence[Sequence[Mapping]]
) -> Found:
    """What contradicts that an attempt ran its unit, and which facts nothing proves.

    `gpus` are those of the run's record, empty if they are not those of the ranks; `ranks` the events of each rank.
    """
    generation = unit.config.log_generation
    if log.generation != generation:
        yield Difference(where, "generation of the log", ((PLAN, generation), ("its rows", log.generation)))
    starts = [[event for event in events if event["event"] == "start"] for events in ranks]
    for rank, own in enumerate(starts):
        if len(own) != 1:
            yield Difference(where, "start events", ((METRICS.format(rank), len(own)), ("a rank", 1)))
        for start in own[:1]:
            yield from _of_start(unit, where, gpus, start, rank)
    for start in starts[0][:1]:
        if unit.framework == ONEFLOW:
            yield from _of_job(unit, where, start, ranks[0])
        else:
            yield from _of_settings(unit, where, start)


def _of_start(unit: Unit, where: str, gpus: Sequence[Mapping], start: Mapping, rank: int) -> Found:
    source = METRICS.format(rank)
    versions, libraries = start.get("versions") or {}, " ".join(start.get("libraries") or ())
    frameworks = [name for name, (version, _) in LIBRARIES.items() if version in versions]
    if not versions:
        yield Unrecorded(FRAMEWORK)
    elif frameworks != [unit.framework]:
        yield Difference(where, "framework", ((PLAN, unit.framework), (source, ", ".join(frameworks) or "none")))
    if others := [name for name, (_, library) in LIBRARIES.items() if library in libraries and name != unit.framework]:
        what = "framework whose library was loaded"
        yield Difference(where, what, ((PLAN, unit.framework), (source, ", ".join(others))))
    for name, planned in (("rank", rank), ("world_size", unit.world_size), ("device", unit.config.device)):
        if start.get(name, planned) != planned:
            yield Difference(where, name, ((PLAN, planned), (source, start[name])))
    names = {gpu["name"] for gpu in gpus}
    if names and start.get("gpu") and start["gpu"] not in names:
        yield Difference(where, "GPU", (("run.json", ", ".join(sorted(names))), (source, start["gpu"])))


def _of_job(unit: Unit, where: str, start: Mapping, of_rank_0: Sequence[Mapping]) -> Found:
    """A unit of OneFlow: its data, and on GPUs its program and precision; on processors both programs have other operators."""
    source, planned = METRICS.format(0), unit.config.data.kind
    data = start.get("data")
    if data is None:
        yield Unrecorded(DATA)
    elif data.get("kind") != planned:
        yield Difference(where, "kind of data", ((PLAN, planned), (source, data.get("kind"))))
    if unit.config.device != "cuda":
        return
    tf32 = start.get("tf32")
    if tf32 is None:
        yield Unrecorded(TF32)
    elif tf32 != unit.tf32:
        yield Difference(where, "TF32", ((PLAN, unit.tf32), (source, tf32)))
    switched = bool(SWITCHES & (start.get("switches") or {}).keys())
    if "switches" in start and switched != (unit.program == TUNED):
        says = (PLAN, unit.program), (source, TUNED if switched else PUBLISHED)
        yield Difference(where, "program whose switches were on", says)
    job = next((event["operators"] for event in of_rank_0 if event["event"] == "census"), None)
    if not job:
        yield Unrecorded(OPERATORS)
        return
    amp = OF_AMP in job
    if amp != (unit.config.precision == "amp"):
        says = (PLAN, unit.config.precision), ("its operators", "amp" if amp else "no amp")
        yield Difference(where, "precision", says)
    if unit.case is None and not unit.unknown_case:
        return  # the census has what was published: trainings of other kinds leave dropout out, or accumulate gradients
    share = other_operators(unit.report, unit.config, job)
    if share is not None and (share <= OTHER_OPERATORS) != (unit.program == PUBLISHED):
        text = f"{share:.1%} other ones than those of the published program"
        yield Difference(where, "operators", ((PLAN, f"the {unit.program} program's"), (source, text)))


def other_operators(report: str, config: TrainerConfig, job: Mapping[str, int]) -> float | None:
    """The share of a compiled job's operators that are not those of a report's program with its configuration.

    None for a report without a census. Casts are left out, since the census has none, and in another precision than the
    published one what scales the loss.
    """
    expected: Counter = Counter()
    for part in operators(report, config).values():
        expected.update(part)
    if not expected:
        return None
    other_precision = (OF_AMP in job) != (OF_AMP in expected)
    expected, counted = (_without_amp(part, job, other_precision) for part in (expected, job))
    return sum(abs(counted[name] - expected[name]) for name in counted | expected) / expected.total()


def _without_amp(part: Mapping[str, int], job: Mapping[str, int], other_precision: bool) -> Counter:
    """Operators without those that differ by whether the compiled `job` is in half precision."""
    counts = Counter(part)
    del counts[CAST]
    counts[SCALED] += counts.pop(FUSED, 0)
    if FUSED in job:
        del counts[BY_CONSTANT]
    for name in OF_LOSS_SCALING if other_precision else ():
        del counts[name]
    return counts


def _of_settings(unit: Unit, where: str, start: Mapping) -> Found:
    """A unit of PyTorch: the settings of its variant and its precision, as PyTorch itself has them."""
    settings, source = start.get("settings"), METRICS.format(0)
    if settings is None:
        yield Unrecorded(SETTINGS)
        return
    planned = {**unit.config.switches, "amp": unit.config.precision == "amp"}
    if unit.config.device == "cuda":
        planned |= dict.fromkeys(("tf32_matmul", "tf32_cudnn"), planned.get("tf32", False))
    for name in sorted(planned.keys() & settings.keys()):
        if settings[name] != planned[name]:
            yield Difference(where, f"setting {name} of PyTorch", ((PLAN, planned[name]), (source, settings[name])))
    if "amp" not in settings:
        yield Unrecorded(AMP)
    megatron = MEGATRON in (start.get("versions") or {})
    if megatron != bool(planned.get("megatron")):
        yield Difference(where, MEGATRON, ((PLAN, bool(planned.get("megatron"))), (source, megatron)))

"""What the units of one run say of each other: against their peers, on one GPU, and in other layouts."""

from collections.abc import Iterable
from dataclasses import dataclass

from repro.analysis.ratio import Ratio, repeated_ratio
from repro.analysis.results import Result, is_base_of
from repro.planning.plan import Unit


@dataclass(frozen=True)
class Relation:
    """A result, the one it is measured against, and the ratio of their throughputs.

    For scaling, the ratio is divided by that of the numbers of GPUs: the efficiency.
    """

    result: Result
    base: Result
    ratio: Ratio


def baseline_relations(results: Iterable[Result]) -> list[Relation]:
    """Each unit of OneFlow over each of its peers, where both succeeded."""
    measured = _measured(results)
    return [
        Relation(measured[baseline.unit.baseline_of], baseline, _ratio(measured[baseline.unit.baseline_of], baseline))
        for baseline in measured.values()
        if baseline.unit.baseline_of in measured
    ]


def scaling_relations(results: Iterable[Result]) -> list[Relation]:
    """Data parallel units over the same training on one GPU."""
    measured = _measured(results)
    found = []
    for result in measured.values():
        gpus = result.unit.world_size
        if 1 < gpus == result.unit.config["layout"]["data"]:
            base = next((other for other in measured.values() if is_base_of(other.unit, result.unit)), None)
            if base:
                found.append(Relation(result, base, _ratio(result, base).over(gpus)))
    return found


def layout_relations(results: Iterable[Result]) -> list[Relation]:
    """OneFlow's other layouts of a model over the data parallel one on equally many GPUs; batches may differ."""
    measured = [result for result in _measured(results).values() if not result.unit.baseline_of]
    found = []
    for result in measured:
        bases = (other for other in measured if _is_data_parallel(other.unit) and _kin(other.unit) == _kin(result.unit))
        base = None if _is_data_parallel(result.unit) else next(bases, None)
        if base:
            found.append(Relation(result, base, _ratio(result, base)))
    return found


def variant(unit: Unit) -> str:
    """What of a peer's name is not its unit's: which kind of peer it is."""
    return unit.name.removeprefix(f"{unit.baseline_of}.")


def layout_text(unit: Unit) -> str:
    """A unit's layout as data x tensor x pipeline parallel sizes."""
    return "x".join(str(unit.config["layout"][axis]) for axis in ("data", "tensor", "pipeline"))


def _measured(results: Iterable[Result]) -> dict[str, Result]:
    return {result.unit.name: result for result in results if result.throughputs}


def _ratio(result: Result, base: Result) -> Ratio:
    return repeated_ratio(result.throughputs, base.throughputs)


def _is_data_parallel(unit: Unit) -> bool:
    return unit.world_size == unit.config["layout"]["data"] and not unit.config["optimizer_sharding"]


def _kin(unit: Unit) -> tuple:
    config = unit.config
    return (
        unit.world_size,
        config["model"],
        config["precision"],
        config["activation_checkpointing"],
        sorted(config["shape"].items()),
    )

"""The figures of a run's own comparisons: OneFlow over its peers, and scaling that was not published so."""

from repro.charts import LineChart, Series
from repro.drawing import STYLES
from repro.plates import Plate
from repro.results import Result
from repro.row_charts import BarChart, Panel
from repro.within_run import Relation, peer_relations, scaling_relations, variant


def peer_plates(results: list[Result]) -> list[Plate]:
    """OneFlow's throughput over its peers', a row a unit and a bar a kind of peer; no plate without peers."""
    relations = peer_relations(results)
    if not relations:
        return []
    kinds = tuple(dict.fromkeys(variant(each.base.unit) for each in relations))[: len(STYLES)]
    rows: dict[str, dict[str, float]] = {}
    for each in relations:
        rows.setdefault(each.result.unit.name, {})[variant(each.base.unit)] = each.ratio.value
    values = tuple(tuple(found.get(kind) for kind in kinds) for found in rows.values())

    def chart(_):
        said = _("throughput of OneFlow over that of PyTorch in the same run")
        return BarChart(
            _("OneFlow beside PyTorch"),
            f"{said}: {kinds[0]}" if len(kinds) == 1 else said,
            tuple(rows),
            (Panel("", values),),
            kinds,
            emphasis=frozenset(range(len(rows))),
            limit=(_("equal"), 1.0),
            decimals=2,
        )

    return [Plate("peers", chart, lambda _: _("Ratios of medians; beyond the line OneFlow is faster."))]


def own_scaling_plates(results: list[Result]) -> list[Plate]:
    """Efficiency of what scales here and was not published so: shrunk layouts, and peers beside OneFlow."""
    lines: dict[str, dict[str, list[Relation]]] = {}
    for relation in scaling_relations(results):
        base = relation.base.unit
        label = variant(base) if base.peer_of else "OneFlow"
        lines.setdefault(base.peer_of or base.name, {}).setdefault(label, []).append(relation)
    unpublished = [
        (base, several)
        for base, several in lines.items()
        if len(several) > 1 or any(each.result.unit.derived_from for each in next(iter(several.values())))
    ]
    return [_efficiency_plate(base, several, number) for number, (base, several) in enumerate(unpublished, 1)]


def _efficiency_plate(base: str, lines: dict[str, list[Relation]], number: int) -> Plate:
    series = []
    for label, relations in list(lines.items())[: len(STYLES)]:
        points = sorted({each.result.unit.world_size: each.ratio.value for each in relations}.items())
        series.append(Series(label, ((1, 1.0), *points)))
    last = max(x for each in series for x, _y in each.points)

    def chart(_):
        return LineChart(
            _("Scaling efficiency from {unit} on").format(unit=base),
            _("share of the throughput that one GPU promises"),
            _("GPUs"),
            tuple(series),
            Series(_("ideal"), ((1, 1.0), (last, 1.0))),
            percent=True,
        )

    return Plate(
        f"own-efficiency-{number}", chart, lambda _: _("Measured in this run, with the same batch on each GPU.")
    )

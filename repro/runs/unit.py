"""A unit: one configuration that a run trains, and what it is; its form in a record, its one reader and its one writer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from repro.models.programs import PUBLISHED as PUBLISHED_PROGRAM
from repro.published import trainer_config
from repro.published.cases import Case, load_catalogue
from repro.published.rules import Rule, kinds, rule_of
from repro.published.trainer_config import COUNT, ITERATIONS, NAME, SYNTHETIC, TrainerConfig
from repro.published.validators import bounded, one_of, optional, several, table, text
from repro.runs.form import FLAG, REPEATS, UNITS

TF32 = "tf32"
"""The precision of a training in fp32 whose libraries may compute products and convolutions in TF32; none was published."""
RULE = table(
    {
        "kind": lambda value: one_of(*kinds())(value),
        "repeats": bounded(1, REPEATS),
        "stated": FLAG,
        "source": text(r"(?s).*"),
    },
    ("kind",),
    other=optional(bounded(0, ITERATIONS)),
)


def _rule(value: object) -> str | None:
    if fault := RULE(value):
        return fault
    keys = kinds()[value["kind"]].keys  # type: ignore[index]
    return next((f"has no {key}" for key in keys if value.get(key) is None), None)  # type: ignore[attr-defined]


FORM = table(
    {
        "name": NAME,
        "model": NAME,
        "config": trainer_config.FORM,
        "rule": _rule,
        "global_batch": bounded(1, COUNT),
        **dict.fromkeys(("stands_for", "derived_from"), several(NAME, UNITS)),
        **dict.fromkeys(("reference", "baseline_of", "peer_of", "tuned_of", "variant"), optional(NAME)),
        **dict.fromkeys(("report", "case"), lambda value: None if value == "" else NAME(value)),
        **dict.fromkeys(("framework", "program"), NAME),
        "role": text(r"[a-z]*", "a role"),
        "tf32": FLAG,
    }
)
"""A unit in `run.json` of any release."""


@dataclass(frozen=True)
class Unit:
    """One configuration to run as often as its plan repeats.

    Parameters
    ----------
    config : the trainer's configuration, without its output folder.
    rule : how throughput is read off its logs.
    global_batch : samples per iteration of all ranks together.
    stands_for : the published cases that it represents: one at the published scale; at the smoke scale all that shrink
        to this configuration, none if it is only a reference for parity.
    reference : the unit whose losses it must print.
    derived_from : at the published scale, the published cases whose layout, precision or measured iterations were
        changed to this unit's.
    report : the published report whose program and rule it follows.
    case : the published case that it runs, whole or changed; None for a baseline, and if it runs none.
    unknown_case : the name of the case that a record gives it, if the catalogue has no such case.
    variant : which variant of the baseline it is, such as "pytorch-compiled"; None for a unit of OneFlow.
    framework : what trains, "oneflow" or "pytorch".
    program : which training program it runs, of `repro.models.programs.KINDS`; a baseline follows that of its unit.
    baseline_of : for a baseline, the unit whose configuration and rule it shares.
    tuned_of : for a unit of the tuned program that runs in turn with the published one, the unit of the latter.
    role : what it is for in a run that compares loss curves.
    tf32 : whether the libraries may compute its fp32 products and convolutions in TF32.
    """

    name: str
    model: str
    config: TrainerConfig
    rule: Rule
    global_batch: int
    stands_for: tuple[str, ...] = ()
    reference: str | None = None
    derived_from: tuple[str, ...] = ()
    report: str = ""
    case: Case | None = None
    unknown_case: str = ""
    variant: str | None = None
    framework: str = "oneflow"
    program: str = PUBLISHED_PROGRAM
    baseline_of: str | None = None
    tuned_of: str | None = None
    role: str = ""
    tf32: bool = False

    @property
    def precision(self) -> str:
        """The precision that it trains in: "fp32", "tf32" or "amp"; a baseline has that of its unit."""
        return TF32 if self.tf32 else self.config.precision

    @property
    def published_case(self) -> Case | None:
        """Its case, if it trains that as it was published."""
        return self.case if self.case and self.case.name in self.stands_for else None

    @property
    def case_in_precision(self) -> Case | None:
        """Its case, if it trains in the precision that was published."""
        return self.case if self.case and self.case.precision == self.precision else None

    @property
    def reads_files(self) -> bool:
        """Whether its input is read from files, as that of every published program was, or from a stand-in for them."""
        return self.config.data.kind != SYNTHETIC

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.config.layout.world_size

    @property
    def follows(self) -> str | None:
        """The unit that this one is interleaved with and compared to; None if it follows no unit."""
        return self.baseline_of or self.tuned_of

    @property
    def label(self) -> str:
        """Label for tables: "OneFlow", "OneFlow (tuned)", or the variant of the baseline."""
        return self.variant or ("OneFlow" if self.program == PUBLISHED_PROGRAM else f"OneFlow ({self.program})")

    @property
    def cost(self) -> int:
        """A rough relative duration, so that short units can run first."""
        return self.world_size * (2 if self.config.layout.pipeline > 1 else 1)

    @classmethod
    def from_json(cls, content: dict) -> Unit:
        """A unit of a run's record, in the terms of `repro.runs.translation`."""
        values: dict[str, Any] = {key: tuple(content.get(key, ())) for key in ("stands_for", "derived_from")}
        config, rule = TrainerConfig.from_json(content["config"]), rule_of(content["rule"])
        name = content.get("case", "")
        case = load_catalogue().by_name.get(name)
        values |= {"config": config, "rule": rule, "case": case, "unknown_case": "" if case else name}
        return cls(**{**content, **values})

    def as_json(self) -> dict:
        """The unit as a run's record has it."""
        values = {name: value for name, value in vars(self).items() if name != "unknown_case"}
        case = self.case.name if self.case else self.unknown_case
        return {**values, "config": self.config.as_json(), "rule": asdict(self.rule), "case": case}


def configuration(unit: Unit) -> list:
    """A unit's configuration without the name of its case and without the switches that its variant implies.

    A baseline trains the same beside the published and the tuned program, unless it computes as its program does, as
    PyTorch's unfused one.
    """
    left_out, program = {"case", "baseline"}, unit.program
    switches = unit.config.switches
    if unit.baseline_of and (not switches.get("unfused") or switches.get("megatron")):
        left_out, program = left_out | {"program"}, ""
    config = {name: value for name, value in unit.config.as_json().items() if name not in left_out}
    measured_by = [unit.rule.kind, unit.rule.parameters]
    return [config, unit.precision, unit.framework, program, unit.variant, measured_by]

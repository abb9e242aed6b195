"""Whether models learn real data: what is trained, which loss each must reach, and which it reached."""

import math
from dataclasses import asdict, dataclass

from repro.analysis.loss_curves import read_losses
from repro.planning.datasets import Dataset
from repro.planning.loss_curves import ADAMW, GENERATIONS, RULE, SINGLE
from repro.planning.plan import Plan, PlanError, Unit
from repro.planning.trainer_config import SEED
from repro.runs.failures import Failure
from repro.runs.files import RunPath
from repro.utils.i18n import N_

SCALE = "learn"
TAIL = 10
"""The loss that counts is the mean over the last iterations, one in TAIL of all."""
LEAST_ITERATIONS = 20
TEXT_GOAL = N_("the entropy of a byte given the {order} before it: a model must use more of the context")
DIGITS_GOAL = N_("1/{divisor} of the entropy of the labels")
SETTINGS = {
    "cpu": {
        "gpt": {
            "iterations": 400,
            "global_batch": 32,
            "lr": 5e-3,
            "order": 1,
            "shape": {"seq_length": 64, "vocab_size": 257, "layers": 2, "hidden_size": 64, "attention_heads": 4},
        },
        "resnet50": {
            "iterations": 400,
            "global_batch": 64,
            "lr": 0.1,
            "divisor": 2,
            "shape": {"image_size": 32, "classes": 10, "width": 8},
        },
    },
    "cuda": {
        "gpt": {
            "iterations": 800,
            "global_batch": 16,
            "lr": 1e-3,
            "order": 2,
            "shape": {"seq_length": 512, "vocab_size": 257, "layers": 8, "hidden_size": 512, "attention_heads": 8},
        },
        "resnet50": {
            "iterations": 1200,
            "global_batch": 128,
            "lr": 0.1,
            "divisor": 3,
            "shape": {"image_size": 64, "classes": 10},
        },
    },
}


@dataclass(frozen=True)
class Goal:
    """The loss, in nats, that a unit's last iterations must be below on average; `meaning` says what that is."""

    limit: float
    meaning: Failure

    @classmethod
    def from_json(cls, content: dict) -> "Goal":
        """The goal that run.json keeps."""
        return cls(content["limit"], Failure.from_json(content["meaning"]))


@dataclass(frozen=True)
class ConvergenceResult:
    """What a unit learned: the losses of each successful repeat, in nats, and the shares of right labels if any."""

    unit: Unit
    goal: Goal
    losses: tuple[tuple[float, ...], ...] = ()
    top_1: float | None = None

    @property
    def reached(self) -> float | None:
        """Mean loss of the last iterations in the worst repeat; None without a repeat of all iterations."""
        if not self.losses or min(map(len, self.losses)) < self.unit.config["iterations"]:
            return None
        return max(tail_mean(each) for each in self.losses)

    @property
    def holds(self) -> bool:
        return self.reached is not None and self.reached < self.goal.limit


@dataclass(frozen=True)
class Convergence:
    """What all units of a run learned, in the plan's order."""

    results: tuple[ConvergenceResult, ...]

    @property
    def problems(self) -> list[str]:
        """A line for each unit that did not learn what it must."""
        return [
            f"{each.unit.name}: "
            + (
                "no repeat ran to its end"
                if each.reached is None
                else f"its last losses are {each.reached:.3f} on average, they must be below {each.goal.limit:.3f}"
            )
            for each in self.results
            if not each.holds
        ]

    def summary(self) -> str:
        """A line for each unit."""
        held = [
            f"{each.unit.name}: last losses {each.reached:.3f} on average, must be below {each.goal.limit:.3f}"
            for each in self.results
            if each.holds
        ]
        return "\n".join((*held, *self.problems))


def make_learning_plan(
    gpus: int, datasets: dict[str, Dataset], repeats: int = 1, iterations: int | None = None
) -> tuple[Plan, dict]:
    """Plan what is learned on one device, and the goal of each unit, for run.json.

    Parameters
    ----------
    corpora : by model, "gpt" or "resnet50"; models without one are left out.
    iterations : fewer than usual, for a quick look.

    Raises
    ------
    PlanError
        There are too few iterations to tell, or more than the text has fresh samples for.
    """
    device = "cuda" if gpus else "cpu"
    units, goals = [], {}
    for model, dataset in datasets.items():
        for precision in ("fp32", "amp") if gpus else ("fp32",):
            unit = _unit(model, device, precision, dataset, iterations)
            units.append(unit)
            goals[unit.name] = _goal(SETTINGS[device][model], dataset)
    return Plan(SCALE, device, repeats, tuple(units)), goals


def _unit(model: str, device: str, precision: str, dataset: Dataset, wanted: int | None) -> Unit:
    setting = SETTINGS[device][model]
    count, name = wanted or setting["iterations"], f"learn_{model}_{precision}"
    if count < LEAST_ITERATIONS:
        raise PlanError(f"{name}: {count} iterations are too few to tell, at least {LEAST_ITERATIONS} are needed")
    if model == "gpt":
        fresh = (dataset.facts["tokens"] - 1) // setting["shape"]["seq_length"]
        if count * setting["global_batch"] > fresh:
            raise PlanError(
                f"{name}: {count} iterations need more than the {fresh} samples that the text has; a loss "
                "on text that was seen before says nothing about what was learned"
            )
    optimizer = {"name": "sgd", "momentum": 0.875, "weight_decay": 1 / 32768} if model == "resnet50" else ADAMW
    config = {
        "case": name,
        "model": model,
        "device": device,
        "seed": SEED,
        "layout": asdict(SINGLE),
        "micro_batch": setting["global_batch"],
        "accumulation_steps": 1,
        "precision": precision,
        "activation_checkpointing": False,
        "optimizer_sharding": 0,
        "dropout": 0.0,
        "iterations": count,
        "log_interval": 1,
        "log_generation": GENERATIONS[model],
        "shape": setting["shape"],
        "optimizer": {**optimizer, "lr": setting["lr"]},
        "schedule": {
            "kind": "cosine",
            "warmup_iterations": count // 20,
            "decay_iterations": count,
            "min_lr": setting["lr"] / 100,
        },
        "label_smoothing": 0.0,
        "data": dataset.data,
    }
    return Unit(name, model, config, RULE, setting["global_batch"])


def _goal(setting: dict, dataset: Dataset) -> dict:
    """The goal, from the data's own entropy; trainers print nats, entropies are in bits."""
    if dataset.facts["kind"] == "text":
        order = setting["order"]
        bits, meaning = dataset.facts["entropies_bits"][order], Failure(TEXT_GOAL, {"order": order})
    else:
        divisor = setting["divisor"]
        bits, meaning = dataset.facts["label_entropy_bits"] / divisor, Failure(DIGITS_GOAL, {"divisor": divisor})
    return {"limit": bits * math.log(2), "meaning": meaning.as_json()}


def learned(plan: Plan, attempts: list[dict], files: RunPath, goals: dict) -> Convergence:
    """What each unit of a run learned.

    Parameters
    ----------
    files : the run's; losses are read from the metrics of rank 0 there.
    goals : by unit, as run.json keeps them.
    """
    results = []
    for unit in plan.units:
        folders = [files / each["folder"] for each in attempts if each["unit"] == unit.name and each["status"] == "ok"]
        losses = tuple(map(read_losses, folders))
        shares = [share for each in folders if (share := _top_1(each)) is not None]
        results.append(ConvergenceResult(unit, Goal.from_json(goals[unit.name]), losses, min(shares, default=None)))
    return Convergence(tuple(results))


def tail_mean(values: tuple[float, ...]) -> float:
    """Mean of the last values, one in TAIL of all, at least one."""
    tail = values[-max(1, len(values) // TAIL) :]
    return math.fsum(tail) / len(tail)


def _top_1(attempt: RunPath) -> float | None:
    shares = read_losses(attempt, "top_1")
    return tail_mean(shares) if shares else None

"""Plans the trainings that show convergence on real data, and the loss each must reach."""

import math

from repro.models.registry import spec_of
from repro.models.spec import Convergence, ConvergenceTraining, ModelSpec
from repro.planning.datasets import Dataset
from repro.planning.loss_curves import RULE
from repro.planning.programs import DEFAULT_PROGRAMS, in_programs
from repro.planning.trainer_config import small_config
from repro.runs.description import Goal, PlannedRun
from repro.runs.failures import Failure
from repro.runs.plan import REDUCED, Plan
from repro.runs.unit import Unit
from repro.utils.errors import PlanError
from repro.utils.i18n import N_

KIND = "convergence"
LEAST_ITERATIONS = 20
TEXT_GOAL = N_("the entropy of a byte given the {order} before it: a model must use more of the context")
DIGITS_GOAL = N_("1/{divisor} of the entropy of the labels")


def make_convergence_plan(
    gpus: int,
    datasets: dict[str, Dataset],
    repeats: int = 1,
    iterations: int | None = None,
    programs: tuple[str, ...] = DEFAULT_PROGRAMS,
) -> PlannedRun:
    """Plan the trainings on one device, with the goal of each unit.

    Parameters
    ----------
    datasets : by model; models without one are left out.
    iterations : fewer than usual, for a quick look.
    programs : which training programs train each model, of `repro.models.programs.KINDS`.

    Raises
    ------
    PlanError
        There are too few iterations to tell, or more than the text has fresh samples for.
    """
    device = "cuda" if gpus else "cpu"
    units, goals = [], {}
    for model, dataset in datasets.items():
        spec, convergence, training = training_of(model, device)
        for precision in ("fp32", "amp") if gpus else ("fp32",):
            published = _unit(
                spec,
                convergence,
                training=training,
                device=device,
                precision=precision,
                dataset=dataset,
                iterations=iterations,
            )
            for unit in in_programs(published, programs):
                units.append(unit)
                goals[unit.name] = _goal(training, dataset)
    plan = Plan(REDUCED, device, repeats, tuple(units), kind=KIND)
    return PlannedRun(plan=plan, datasets=tuple(dataset.facts for dataset in datasets.values()), goals=goals)


def training_of(model: str, device: str) -> tuple[ModelSpec, Convergence, ConvergenceTraining]:
    """How a model shows on "cpu" or "cuda" that it learns; PlanError if it does not."""
    spec = spec_of(model)
    if spec.convergence is None:
        raise PlanError(f"{model}: its specification does not say what it learns; give it `convergence`")
    return spec, spec.convergence, spec.convergence.cuda if device == "cuda" else spec.convergence.cpu


def _unit(
    spec: ModelSpec,
    convergence: Convergence,
    training: ConvergenceTraining,
    device: str,
    precision: str,
    dataset: Dataset,
    iterations: int | None,
) -> Unit:
    count, name = iterations or training.iterations, f"learn_{spec.name}_{precision}"
    if count < LEAST_ITERATIONS:
        raise PlanError(f"{name}: {count} iterations are too few to tell, at least {LEAST_ITERATIONS} are needed")
    if dataset.facts["kind"] == "text":
        fresh = (dataset.facts["tokens"] - 1) // training.shape["seq_length"]
        if count * training.global_batch > fresh:
            raise PlanError(
                f"{name}: {count} iterations need more than the {fresh} samples that the text has; a loss "
                "on text that was seen before says nothing about what was learned"
            )
    config = small_config(
        spec,
        training,
        convergence.optimizer,
        name=name,
        device=device,
        precision=precision,
        iterations=count,
        warmup_iterations=count // 20,
        min_lr=training.lr / 100,
        label_smoothing=0.0,
        data=dataset.data,
    )
    return Unit(
        name, spec.name, config=config, rule=RULE, global_batch=training.global_batch, report=spec.programs[-1].report
    )


def _goal(training: ConvergenceTraining, dataset: Dataset) -> Goal:
    """The goal, from the data's own entropy; trainers print nats, entropies are in bits."""
    if dataset.facts["kind"] == "text":
        bits, meaning = dataset.facts["entropies_bits"][training.goal], Failure(TEXT_GOAL, {"order": training.goal})
    else:
        bits = dataset.facts["label_entropy_bits"] / training.goal
        meaning = Failure(DIGITS_GOAL, {"divisor": training.goal})
    return Goal(bits * math.log(2), meaning)

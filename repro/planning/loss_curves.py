"""What is trained to compare loss curves: every layout and precision, harmless changes, and errors made on purpose."""

from dataclasses import asdict, replace
from fnmatch import fnmatchcase

from repro.planning.plan import REDUCED, Plan, PlanError, Unit
from repro.planning.trainer_config import SEED
from repro.published.cases import Layout, Rule
from repro.utils.i18n import N_

KIND = "curves"
CPU_PROCESSES = 4
REFERENCE, LAYOUT, HARMLESS, ERROR = "reference", "layout", "harmless", "error"
RULE = asdict(Rule("mean_rows", skip_first=1))
GLOBAL_BATCH = {"cuda": {"gpt": 8, "bert": 32, "resnet50": 64}, "cpu": {"gpt": 8, "bert": 8, "resnet50": 16}}
ITERATIONS = {"cuda": 200, "cpu": 40}
SHAPES = {
    "cuda": {
        "gpt": {"seq_length": 512, "vocab_size": 257, "layers": 8, "hidden_size": 1024, "attention_heads": 16},
        "bert": {
            "seq_length": 128,
            "max_predictions": 20,
            "vocab_size": 8192,
            "layers": 4,
            "hidden_size": 512,
            "attention_heads": 8,
        },
        "resnet50": {"image_size": 64, "classes": 100},
    },
    "cpu": {
        "gpt": {"seq_length": 32, "vocab_size": 257, "layers": 4, "hidden_size": 64, "attention_heads": 4},
        "bert": {
            "seq_length": 32,
            "max_predictions": 4,
            "vocab_size": 512,
            "layers": 2,
            "hidden_size": 64,
            "attention_heads": 4,
        },
        "resnet50": {"image_size": 32, "classes": 100, "width": 8},
    },
}
ADAMW = {"name": "adamw", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "clip_norm": 1.0}
STEADY = {**ADAMW, "eps": 1e-6}
"""With an epsilon that counts where a gradient is next to nothing: there AdamW makes a whole step of a rounding."""
OPTIMIZERS = {
    "gpt": STEADY,
    "bert": STEADY,
    "resnet50": {"name": "sgd", "momentum": 0.875, "weight_decay": 1 / 32768},
}
RATES = {"cuda": {"gpt": 1e-4, "bert": 1e-4, "resnet50": 0.02}, "cpu": {"gpt": 2e-3, "bert": 2e-3, "resnet50": 0.02}}
LOSS_SCALE = 256.0
"""The first one under AMP, so low that no gradient overflows.

Published is 2^20, from which it comes down by iterations that are skipped: a few of GPT and of BERT on an H200, more
where gradients are accumulated. So layouts that compute the same would have different curves.
"""
GENERATIONS = {"gpt": "E", "bert": "C", "resnet50": "B"}
SINGLE = Layout(1, 1, 1)
RECOMPUTE = {"activation_checkpointing": True}
GPT_LAYOUTS = (
    ("dp2", Layout(2, 1, 1), 1, {}),
    ("dp4", Layout(4, 1, 1), 1, {}),
    ("tp2", Layout(1, 2, 1), 1, {}),
    ("tp4", Layout(1, 4, 1), 1, RECOMPUTE),
    ("dp2_tp2", Layout(2, 2, 1), 1, {}),
    ("pp2", Layout(1, 1, 2), 4, {}),
    ("pp4", Layout(1, 1, 4), 8, RECOMPUTE),
    ("tp2_pp2", Layout(1, 2, 2), 4, RECOMPUTE),
    ("dp2_pp2", Layout(2, 1, 2), 4, {}),
    ("zero1_dp2", Layout(2, 1, 1), 1, {"optimizer_sharding": 1}),
    ("zero1_dp4", Layout(4, 1, 1), 1, {"optimizer_sharding": 1}),
    ("zero1_dp2_tp2", Layout(2, 2, 1), 2, {"optimizer_sharding": 1}),
)
"""Name, layout, accumulation steps and what else it needs; together they use everything that a published case does."""
DATA_PARALLEL = (("dp2", Layout(2, 1, 1), 1, {}), ("dp4", Layout(4, 1, 1), 1, {}))
ROUNDING = 2.0**-15
"""How far a harmless learning rate is off.

Steps are no better defined than the factor by which gradients are clipped. On the CPU that factor was measured to be
lower by about 4e-5 where parameters are spread over two ranks (tensor, pipeline, ZeRO) than on one rank or with plain
data parallelism; why, is not known. Without clipping, pipeline and ZeRO agreed with one rank to 5e-7.
"""
RATE_ERROR = 1.1


def make_curve_plan(
    gpus: int, text: dict, repeats: int = 1, model: str | None = None, names: str | None = None
) -> Plan:
    """Plan the loss curves for this machine: fp32 and AMP on GPUs; tiny models in fp32 on the CPU if there is none.

    Parameters
    ----------
    text : the trainer's `data` setting for GPT; BERT and ResNet50 learn a few synthetic batches by heart, since
        OneFlow deals real records over the ranks and no two layouts would see the same order.
    model, names : only this model, or layouts whose names match one of these patterns, separated by commas; what
        they are compared with is always there.

    Raises
    ------
    PlanError
        Nothing is left to run, or a model is unknown.
    """
    device = "cuda" if gpus else "cpu"
    if model not in (None, *GENERATIONS):
        raise PlanError(f"MODEL={model}: it is {', '.join(GENERATIONS)} or all")
    every = [unit for each in GENERATIONS if model in (None, each) for unit in _units(each, device, text)]
    fitting = [unit for unit in every if unit.world_size <= (gpus or CPU_PROCESSES)]
    chosen = _chosen(fitting, names)
    if not chosen:
        raise PlanError(f"CASES={names}: no layout of that name; there are {', '.join(unit.name for unit in fitting)}")
    skipped = tuple(
        {
            "case": unit.name,
            "model": unit.model,
            "message": N_("needs {needed} GPUs, {present} are here"),
            "values": {"needed": unit.world_size, "present": gpus},
        }
        for unit in every
        if unit.world_size > (gpus or CPU_PROCESSES)
    )
    return Plan(REDUCED, device, repeats, tuple(chosen), skipped, KIND)


def _chosen(units: list[Unit], names: str | None) -> list[Unit]:
    """Layouts that match, and of their models and precisions everything that they are judged by."""
    if not names:
        return units
    patterns = [name.strip() for name in names.split(",")]
    wanted = {unit.name for unit in units if unit.role == LAYOUT and any(fnmatchcase(unit.name, p) for p in patterns)}
    kinds = {(unit.model, unit.config["precision"]) for unit in units if unit.name in wanted}
    kinds |= {(model, "fp32") for model, _precision in kinds}
    judges = {unit.name for unit in units if unit.role != LAYOUT and (unit.model, unit.config["precision"]) in kinds}
    named = {unit.name: unit for unit in units}
    references = {named[name].reference for name in wanted | judges}
    references |= {named[name].reference for name in references if name}
    return [unit for unit in units if unit.name in wanted | judges | references]


def _units(model: str, device: str, text: dict) -> list[Unit]:
    """A model's units: references first, then what says how far curves may differ, then the layouts."""
    precisions = ("fp32", "amp") if device == "cuda" else ("fp32",)
    make = _Maker(model, device, text)
    return [
        unit
        for precision in precisions
        for unit in (make.per_shard(precision) if model == "resnet50" else make.per_batch(precision))
    ]


class _Maker:
    """Makes the units of one model on one kind of device."""

    def __init__(self, model: str, device: str, text: dict):
        self._model, self._device, self._text = model, device, text

    def per_batch(self, precision: str) -> list[Unit]:
        """GPT and BERT: a loss is that of the whole batch, so all layouts have one process as their reference."""
        first = self._unit(precision, "1x1x1", REFERENCE)
        if precision == "amp":
            first = replace(first, role=LAYOUT, reference=self._name("fp32", "1x1x1"))
        harmless = [self._unit(precision, f"1x1x1_acc{count}", HARMLESS, count, first) for count in (2, 4)]
        layouts = GPT_LAYOUTS if self._model == "gpt" else DATA_PARALLEL
        judged = replace(first, name=self._name("fp32", "1x1x1"))
        return [
            first,
            *harmless,
            *self._changed(precision, "1x1x1", first),
            *(
                self._unit(precision, name, LAYOUT, accumulation, judged, layout, **changes)
                for name, layout, accumulation, changes in layouts
            ),
        ]

    def per_shard(self, precision: str) -> list[Unit]:
        """ResNet50: BatchNorm normalises a shard, so n ranks are compared with one process that keeps n apart.

        Under AMP none keeps them apart, since OneFlow 0.8.0 cannot (see `check_resnet`); references are fp32 anyway.
        """
        units = []
        for shards in (1, 2, 4):
            name = f"1x1x1_shards{shards}"
            first = self._unit(precision, name, REFERENCE, shards)
            judged = replace(first, name=self._name("fp32", name))
            if precision == "amp":
                first = replace(first, role=LAYOUT, reference=judged.name)
            if precision == "fp32" or shards == 1:
                units += [first, *self._changed(precision, name, first, errors=shards == 1)]
            if shards > 1:
                units.append(self._unit(precision, f"dp{shards}", LAYOUT, 1, judged, Layout(shards, 1, 1)))
        return units

    def _changed(self, precision: str, name: str, first: Unit, errors: bool = True) -> list[Unit]:
        """The same training with a setting off by a rounding; in fp32 also with errors that a comparison must see."""
        optimizer, stem = first.config["optimizer"], f"{precision}_{name}"
        units = [self._with(first, f"{stem}_rounding", HARMLESS, lr=optimizer["lr"] * (1 + ROUNDING))]
        if precision == "fp32" and errors:
            units += [
                self._with(first, f"{stem}_rate", ERROR, lr=optimizer["lr"] * RATE_ERROR),
                self._with(first, f"{stem}_seed", ERROR, SEED + 1),
            ]
        return units

    def _with(self, first: Unit, name: str, role: str, seed: int = SEED, **optimizer) -> Unit:
        full = f"{self._model}_{name}"
        config = {**first.config, "case": full, "seed": seed, "optimizer": first.config["optimizer"] | optimizer}
        return replace(first, name=full, config=config, role=role, reference=first.name)

    def _name(self, precision: str, name: str) -> str:
        return f"{self._model}_{precision}_{name}"

    def _unit(
        self,
        precision: str,
        name: str,
        role: str,
        accumulation: int = 1,
        reference: Unit | None = None,
        layout: Layout = SINGLE,
        **changes,
    ) -> Unit:
        full = self._name(precision, name)
        config = self._config(full, precision, layout, accumulation) | changes
        batch = GLOBAL_BATCH[self._device][self._model]
        return Unit(full, self._model, config, RULE, batch, reference=reference and reference.name, role=role)

    def _config(self, name: str, precision: str, layout: Layout, accumulation: int) -> dict:
        model, device = self._model, self._device
        iterations, rate = ITERATIONS[device], RATES[device][model]
        return {
            "case": name,
            "model": model,
            "device": device,
            "seed": SEED,
            "layout": asdict(layout),
            "micro_batch": GLOBAL_BATCH[device][model] // (layout.data * accumulation),
            "accumulation_steps": accumulation,
            "precision": precision,
            "activation_checkpointing": False,
            "optimizer_sharding": 0,
            "dropout": 0.0,
            "iterations": iterations,
            "log_interval": 1,
            "log_generation": GENERATIONS[model],
            "shape": SHAPES[device][model],
            "optimizer": {**OPTIMIZERS[model], "lr": rate},
            "schedule": {
                "kind": "cosine",
                "warmup_iterations": iterations // 5,
                "decay_iterations": iterations,
                "min_lr": rate / 10,
            },
            "label_smoothing": 0.1 if model == "resnet50" else 0.0,
            "loss_scale": LOSS_SCALE,
            "data": self._text if model == "gpt" else {"kind": "synthetic"},
        }

"""The variants of a baseline, by PyTorch or by Megatron-Core, and which of them can run a configuration."""

from __future__ import annotations

from collections.abc import Callable

from repro.models.registry import spec_of
from repro.models.spec import Baseline

MEGATRON = ("megatron", "megatron-unfused")
"""The variants by Megatron-Core, which run every layout of GPT."""
VARIANTS = (
    "pytorch",
    "pytorch-unfused",
    "pytorch-tf32",
    "pytorch-channels-last",
    "pytorch-compiled",
    *MEGATRON,
)
"""`repro.report.run.baselines.DESCRIPTIONS` says what each is."""
DEFAULT = ("pytorch", "pytorch-unfused", "pytorch-tf32")


def baseline_configs(config: dict, names: tuple, tf32: bool = False) -> dict:
    """The baselines' configurations by variant, of those variants that `refusal` has nothing against.

    With tensor cores (AMP and TF32), a model with channels uses channels-last, which is faster. `tf32` says whether the
    unit of `config` computes in TF32; `pytorch-compiled` and Megatron-Core's variants then do too.
    """
    return {name: make_baseline_config(config, name, tf32) for name in names if refusal(config, name) is None}


def make_baseline_config(config: dict, name: str, tf32: bool = False) -> dict:
    """The configuration of a variant for a trainer's `config`, with these switches in its table `baseline`:

    tf32 : fp32 matrix products and convolutions may use TF32.
    channels_last : images and weights are stored in channels-last format.
    compile : the model is compiled by torch.compile instead of running eagerly.
    unfused : the variant computes as the published program does, or as Megatron-LM did in 2021.
    megatron : Megatron-Core trains.

    Raises
    ------
    ValueError
        If the variant cannot run it; `refusal` gives the reason beforehand.
    """
    reason = refusal(config, name)
    if reason:
        raise ValueError(reason)
    exact = config["precision"] == "fp32"
    tf32 = name == "pytorch-tf32" or (tf32 and name in ("pytorch-compiled", *MEGATRON))
    switches = {
        "tf32": tf32,
        "channels_last": _baseline(config).channels_last
        and name not in ("pytorch-unfused", *MEGATRON)
        and (not exact or tf32 or name == "pytorch-channels-last"),
        "compile": name == "pytorch-compiled",
        "unfused": name.endswith("-unfused"),
        "megatron": name in MEGATRON,
    }
    return {**config, "baseline": switches}


def refusal(config: dict, name: str) -> str | None:
    """Why a variant cannot run a trainer's configuration, or would repeat another; None if it can.

    One line that begins with the key of the configuration.
    """
    if spec_of(config["model"]).baseline is None:
        return f"model: {config['model']} has no baseline"
    if config["data"]["kind"] in ("ofrecord", "megatron"):
        return f"data.kind: only OneFlow reads {config['data']['kind']} files here, give synthetic data"
    of_kind = _megatron_refusal if name in MEGATRON else _pytorch_refusal
    return of_kind(config) or OF_VARIANT.get(name, lambda config: None)(config)


def _baseline(config: dict) -> Baseline:
    baseline = spec_of(config["model"]).baseline
    assert baseline is not None
    return baseline


def _pytorch_refusal(config: dict) -> str | None:
    layout = config["layout"]
    for axis in ("tensor", "pipeline"):
        if layout[axis] > 1:
            return f"layout.{axis}: PyTorch's baselines are data parallel only, {axis} is {layout[axis]}"
    if config["optimizer_sharding"] and layout["data"] > 1:
        return (
            f"optimizer_sharding: PyTorch's baselines do not shard the optimizer, it is {config['optimizer_sharding']}"
        )
    return None


def _megatron_refusal(config: dict) -> str | None:
    layers, stages = config["shape"].get("layers", 0), config["layout"]["pipeline"]
    if not _baseline(config).megatron:
        return f"model: Megatron-Core's baselines train GPT alone, not {config['model']}"
    if config["device"] != "cuda":
        return "device: Megatron-Core computes on GPUs only; on the CPU there are the baselines of PyTorch"
    if layers % stages:
        return f"layout.pipeline: Megatron-Core divides layers equally, {layers} of them not over {stages} stages"
    return None


def _unfused_refusal(config: dict) -> str | None:
    if not _baseline(config).attention:
        return f"model: {config['model']} has no attention that could be unfused; `pytorch` computes the same"
    return None


def _tf32_refusal(config: dict) -> str | None:
    if config["precision"] != "fp32":
        return f"precision: TF32 is for fp32, it is {config['precision']}"
    return None if config["device"] == "cuda" else "device: TF32 needs a GPU"


def _channels_last_refusal(config: dict) -> str | None:
    if not _baseline(config).channels_last:
        return f"model: {config['model']} has no channels"
    return (
        None if config["precision"] == "fp32" else "precision: under AMP `pytorch` is in channels-last format already"
    )


OF_VARIANT: dict[str, Callable[[dict], str | None]] = {
    "pytorch-unfused": _unfused_refusal,
    "pytorch-tf32": _tf32_refusal,
    "pytorch-channels-last": _channels_last_refusal,
}

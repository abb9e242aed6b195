"""The variants of a PyTorch baseline, and which of them apply to a configuration."""

from __future__ import annotations

from repro.models.registry import spec_of

VARIANTS = ("pytorch", "pytorch-unfused", "pytorch-tf32", "pytorch-channels-last", "pytorch-compile")
"""`repro.report.run.baselines.DESCRIPTIONS` says what each is."""
DEFAULT = ("pytorch", "pytorch-unfused", "pytorch-tf32")


def baseline_configs(config: dict, names: tuple) -> dict:
    """The baselines' configurations by variant, without duplicates.

    With tensor cores (AMP and TF32), a model with channels uses channels-last, which is faster. TF32 applies only to
    fp32 on a GPU. Without attention, PyTorch has nothing to fuse: in the published precision, `pytorch` then computes
    the same as the published program. The result is empty if `refusal` gives a reason.
    """
    if refusal(config):
        return {}
    baseline, exact = spec_of(config["model"]).baseline, config["precision"] == "fp32"
    channels = baseline is not None and baseline.channels_last
    options = {"pytorch": {"tf32": False, "channels_last": channels and not exact}}
    options["pytorch-compile"] = {**options["pytorch"], "compile": True}
    if baseline is not None and baseline.attention:
        options["pytorch-unfused"] = {"tf32": False, "unfused": True}
    if exact and config["device"] == "cuda":
        options["pytorch-tf32"] = {"tf32": True, "channels_last": channels}
    if exact and channels:
        options["pytorch-channels-last"] = {"tf32": False, "channels_last": True}
    return {name: make_baseline_config(config, **options[name]) for name in names if name in options}


def make_baseline_config(
    config: dict, tf32: bool, channels_last: bool = False, compile: bool = False, unfused: bool = False
) -> dict:
    """The baseline's configuration for a trainer's `config`.

    Parameters
    ----------
    tf32 : fp32 matrix products and convolutions may use TF32; OneFlow 0.8.0 never does.
    channels_last : images and weights are stored in channels-last format.
    compile : the model is compiled by torch.compile instead of running eagerly.
    unfused : attention, half precision, clipping and update follow the published program's steps.

    Raises
    ------
    ValueError
        If no baseline can run it; `refusal` gives the reason beforehand.
    """
    reason = refusal(config)
    if reason:
        raise ValueError(reason)
    variant = {"tf32": tf32, "channels_last": channels_last, "compile": compile, "unfused": unfused}
    return {**config, "baseline": variant}


def refusal(config: dict) -> str | None:
    """Why no baseline can run a trainer's configuration, as one line that names the key; None if one can."""
    layout, kind = config["layout"], config["data"]["kind"]
    if spec_of(config["model"]).baseline is None:
        return f"model: {config['model']} has no baseline"
    for axis in ("tensor", "pipeline"):
        if layout[axis] > 1:
            return f"layout.{axis}: baselines are data parallel only, {axis} is {layout[axis]}"
    if config["optimizer_sharding"] and layout["data"] > 1:
        return f"optimizer_sharding: baselines do not shard the optimizer, it is {config['optimizer_sharding']}"
    if kind in ("ofrecord", "megatron"):
        return f"data.kind: only OneFlow reads {kind} files here, give synthetic data"
    return None

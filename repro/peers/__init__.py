"""PyTorch programs that train the published models as the trainers do, to be measured beside them; they are optional.

`python repro/peers/run.py --config FILE` takes a trainer's configuration, writes its metrics and prints its log lines.
This module imports nothing, so that a controller without PyTorch can plan peers.
"""


def make_peer_config(config: dict, tf32: bool, channels_last: bool = False, compile: bool = False) -> dict:
    """The configuration of the peer that is to be measured beside a trainer with `config`.

    Parameters
    ----------
    tf32 : fp32 matrix products and convolutions may use TF32; OneFlow 0.8.0 never does.
    channels_last : ResNet50's images and weights are stored with the channels last.
    compile : the model is compiled by torch.compile, not run eagerly.

    Raises
    ------
    ValueError
        If no peer can run it; `refusal` says so beforehand.
    """
    reason = refusal(config)
    if reason:
        raise ValueError(reason)
    return {**config, "peer": {"tf32": tf32, "channels_last": channels_last, "compile": compile}}


def refusal(config: dict) -> str | None:
    """Why no peer can run a trainer's configuration, in one line that names the key; None if one can."""
    layout, kind = config["layout"], config["data"]["kind"]
    for axis in ("tensor", "pipeline"):
        if layout[axis] > 1:
            return f"layout.{axis}: peers are data parallel only, {axis} is {layout[axis]}"
    if config["optimizer_sharding"] and layout["data"] > 1:
        return f"optimizer_sharding: peers do not shard the optimizer, it is {config['optimizer_sharding']}"
    if kind == "ofrecord":
        return "data.kind: peers do not read OFRecord files, give synthetic data"
    return None

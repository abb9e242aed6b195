"""The ways in which PyTorch is run beside a trainer, each with a name that is put after the trainer's."""

from __future__ import annotations

from repro.peers import make_peer_config, refusal

VARIANTS = {
    "pytorch": "eager, fused attention, true fp32",
    "pytorch-tf32": "the same with TF32",
    "pytorch-channels-last": "ResNet50 in fp32 with the channels last",
    "pytorch-compile": "true fp32, compiled by torch.compile",
}
DEFAULT = ("pytorch", "pytorch-tf32")


def peer_configs(config: dict, names: tuple) -> dict:
    """Configurations by name of the peers to be measured beside a trainer's; those that would say nothing are left out.

    With the channels last ResNet50 is faster where tensor cores compute, in AMP and TF32, so there it runs so. TF32 is
    a matter of fp32 on a GPU. No peer runs what `repro.peers.refusal` refuses.
    """
    if refusal(config):
        return {}
    images, exact = config["model"] == "resnet50", config["precision"] == "fp32"
    options = {"pytorch": {"tf32": False, "channels_last": images and not exact}}
    options["pytorch-compile"] = {**options["pytorch"], "compile": True}
    if exact and config["device"] == "cuda":
        options["pytorch-tf32"] = {"tf32": True, "channels_last": images}
    if exact and images:
        options["pytorch-channels-last"] = {"tf32": False, "channels_last": True}
    return {name: make_peer_config(config, **options[name]) for name in names if name in options}

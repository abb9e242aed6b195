"""Lets Megatron-Core, which computes on GPUs alone, run on the CPU: `run.py` after replacing what it asks of CUDA.

Megatron-Core allocates on `torch.cuda.current_device()` and "cuda", keeps the state of CUDA's random numbers, and tells
types of tensors by CUDA's names. Here these are the CPU's; collectives are gloo's. What Megatron-Core has compiled on
GPUs runs as it is written. Nothing is drawn, so no test trains with dropout. Usage: as run.py.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


def on_cpu(value):
    """A device of CUDA's, by any of its names, as the CPU."""
    is_cuda = isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda"
    return CPU if is_cuda else value


class OnCPU(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        if function is torch.Tensor.cuda:
            return arguments[0]
        result = function(*map(on_cpu, arguments), **{name: on_cpu(value) for name, value in (options or {}).items()})
        if function is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.", 1)
        return result


def replace_cuda() -> None:
    from megatron.core.tensor_parallel import random

    torch.cuda.current_device = lambda: CPU
    torch.cuda.synchronize = lambda *arguments: None
    torch.cuda.get_rng_state = lambda *arguments: torch.get_rng_state()
    random._set_cuda_rng_state = lambda *arguments, **options: None
    random._get_cuda_rng_state = lambda *arguments, **options: torch.get_rng_state()


if __name__ == "__main__":
    from repro.baselines import config, run

    config.refusal = lambda values, name: None
    replace_cuda()
    with OnCPU():
        sys.exit(run.run(run.load, run.train))

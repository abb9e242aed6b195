"""Which software a baseline process really runs with."""

from __future__ import annotations

import ctypes
import platform
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

from repro.trainers.libraries import libraries


def versions(device: str) -> dict:
    """Versions by name; those of CUDA's libraries only where the device is one."""
    by_name = {
        "torch": torch.__version__,
        "torch_commit": torch.version.git_version,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    if "megatron.core" in sys.modules:
        by_name["megatron_core"] = metadata.version("megatron-core")
    if device == "cuda":
        by_name["cuda"] = torch.version.cuda
        by_name["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        by_name["cudnn"] = cudnn_version(torch.backends.cudnn.version())
        by_name["cublas"] = cublas_version()
    return by_name


def cublas_version() -> str | None:
    """Version of the cuBLAS that this process has loaded, None if it has none; the properties are those of CUDA."""
    path = next((path for path in libraries() if Path(path).name.startswith("libcublas.so")), None)
    if path is None:
        return None
    library, numbers = ctypes.CDLL(path), [ctypes.c_int() for _ in range(3)]
    for kind, number in enumerate(numbers):
        library.cublasGetProperty(kind, ctypes.byref(number))
    return ".".join(str(number.value) for number in numbers)


def cudnn_version(number: int) -> str:
    """Version from cuDNN's own number, whose scale changed with cuDNN 9 (cudnn_version.h): 8907 or 91002."""
    major = 10_000 if number >= 90_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"

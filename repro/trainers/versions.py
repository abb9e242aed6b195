"""Which software this process really runs with."""
from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import numpy as np
import oneflow as flow

from repro.trainers.libraries import libraries


def versions(device: str) -> dict:
    """Versions by name; those of CUDA's libraries only where the device is one."""
    found = {
        "oneflow": flow.__version__,
        "oneflow_commit": flow.__git_commit__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    if device == "cuda":
        found["cuda"] = oneflow_library().cublasGetCudartVersion()
        found["nccl"] = nccl_version()
        found["cudnn"] = oneflow_library().cudnnGetVersion()
    return found


def nccl_version() -> int:
    """NCCL's version number, of a preloaded library before the one within OneFlow; 21210 is 2.12.10."""
    preloaded = ctypes.CDLL(None)
    library = preloaded if hasattr(preloaded, "ncclGetVersion") else oneflow_library()
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    return number.value


def oneflow_library() -> ctypes.CDLL:
    return ctypes.CDLL(next(path for path in libraries() if Path(path).name.startswith("liboneflow")))

"""Versions of the software that this process actually uses."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import numpy as np
import oneflow as flow

from repro.trainers.libraries import libraries


def versions(device: str) -> dict:
    """Versions by name; those of CUDA libraries only on a CUDA device."""
    by_name = {
        "oneflow": flow.__version__,
        "oneflow_commit": flow.__git_commit__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    if device == "cuda":
        by_name["cuda"] = oneflow_library().cublasGetCudartVersion()
        by_name["nccl"] = nccl_version()
        by_name["cudnn"] = cudnn_version()
    return by_name


def nccl_version() -> int:
    """NCCL's version number, such as 21210 for 2.12.10."""
    number = ctypes.c_int()
    called("ncclGetVersion")(ctypes.byref(number))
    return number.value


def cudnn_version() -> int:
    """Version number of the cuDNN in use, the wheel's or the one that replaces it, such as 90600 for 9.6.0."""
    function = called("cudnnGetVersion")
    function.restype = ctypes.c_size_t
    return function()


def called(name: str):
    """The function that OneFlow's calls resolve to: a preloaded library's takes precedence over OneFlow's own."""
    preloaded = ctypes.CDLL(None)
    return getattr(preloaded if hasattr(preloaded, name) else oneflow_library(), name)


def oneflow_library() -> ctypes.CDLL:
    return ctypes.CDLL(next(path for path in libraries() if Path(path).name.startswith("liboneflow")))

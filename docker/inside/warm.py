"""Compiles the GPU code of a trainer environment into the driver's cache, on all cores, and leaves a note of it there.

A GPU younger than the wheel's machine code runs its PTX, which the driver compiles at the first start and keeps in
CUDA_CACHE_PATH. Left to itself it compiles one module after the other. Here each fatbin is loaded in a process of
its own; then OneFlow is started once, for the step that only it can do: linking NCCL's device code. It runs with the
standard library and OneFlow alone.
"""

import ctypes
import json
import mmap
import multiprocessing
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

FATBIN_MAGIC = 0xBA55ED50
SUCCESS, INVALID_IMAGE, NO_BINARY = 0, 200, 209
NOTE = "warm.json"
FORWARD = "libcudnn_forward"
FIRST_START = "import oneflow; print(oneflow.ones(2).to('cuda').numpy().sum())"
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
_driver = None


class DriverError(Exception):
    """The NVIDIA driver is not here, or will not do what it was asked; the message says which."""


def sections(data):
    """Name -> (offset, size) of the sections of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", data, 40)
    width, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * width) for i in range(count)]
    strings = headers[names][4]
    return {bytes(data[strings + h[0] : data.find(b"\0", strings + h[0])]).decode(): (h[4], h[5]) for h in headers}


def fatbins(path):
    """(path, offset, length) of each fatbin of a library; an empty list for one without GPU code."""
    found = []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        at, size = sections(data).get(".nv_fatbin", (0, 0))
        end = at + size
        while at <= end - 16:
            magic, _, header, body = struct.unpack_from("<IHHQ", data, at)
            if magic == FATBIN_MAGIC:
                found.append((str(path), at, header + body))
            at += header + body if magic == FATBIN_MAGIC else 8
    return found


def driver():
    """The NVIDIA driver with GPU 0's context current in this process."""
    global _driver
    if _driver is None:
        try:
            cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError(f"no NVIDIA driver here ({error}): there is nothing to compile for") from None
        device, context = ctypes.c_int(), ctypes.c_void_p()
        for step, code in (
            ("cuInit", cuda.cuInit(0)),
            ("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0)),
            ("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)),
            ("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context)),
        ):
            if code:
                raise DriverError(f"{step} fails with CUDA error {code}")
        _driver = cuda
    return _driver


def load(task):
    """Load one fatbin, which compiles it and puts it into the cache; returns the driver's result code."""
    path, at, length = task
    cuda = driver()
    with open(path, "rb") as file:
        file.seek(at)
        image = file.read(length)
    module = ctypes.c_void_p()
    code = cuda.cuModuleLoadData(ctypes.byref(module), image)
    if code == SUCCESS:
        cuda.cuModuleUnload(module)
    return code


def describe_gpu():
    """Name, compute capability and driver of GPU 0: what compiled code is good for."""
    cuda = driver()
    name, number, device = ctypes.create_string_buffer(100), ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, len(name), device)
    capability = []
    for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR):
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        capability.append(number.value)
    cuda.cuDriverGetVersion(ctypes.byref(number))
    return {"gpu": name.value.decode(), "capability": capability, "driver_cuda": number.value}


def say(text):
    """A line of progress, at once."""
    print("warm: " + text, file=sys.stderr, flush=True)


def compile_all(tasks, processes):
    """Load every fatbin, the largest first; returns result code -> count."""
    codes, started, shown = {}, time.monotonic(), 0.0
    total = sum(length for _, _, length in tasks)
    tasks = sorted(tasks, key=lambda task: -task[2])
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, code in enumerate(pool.imap_unordered(load, tasks), 1):
            codes[code] = codes.get(code, 0) + 1
            elapsed = time.monotonic() - started
            if elapsed - shown > 5 or done == len(tasks):
                shown = elapsed
                say(f"{done}/{len(tasks)} modules of {total / 2**20:.0f} MiB in {elapsed:.0f} s")
    return codes


def libraries():
    """The libraries of the environment whose GPU code is used.

    The wheel's cuDNN, with two thirds of the PTX, is left out where a newer one is called in its place.
    """
    import importlib.util

    folder = Path(importlib.util.find_spec("oneflow").origin).parent.parent / "oneflow.libs"
    forwarded = FORWARD in os.environ.get("LD_PRELOAD", "")
    return sorted([*folder.glob("liboneflow-*"), *(() if forwarded else folder.glob("libcudnn-*"))])


def main():
    """Compile, start OneFlow once, and write the note; exit status 1 without a GPU."""
    cache = Path(os.environ.setdefault("CUDA_CACHE_PATH", str(Path.home() / ".nv" / "ComputeCache")))
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", "4000000000")
    try:
        gpu = describe_gpu()
    except DriverError as error:
        sys.exit(f"warm: {error}")
    files = libraries()
    tasks = [task for file in files for task in fatbins(file)]
    processes = max(1, min(40, len(os.sched_getaffinity(0)) - 1))
    say("{} modules of {} for {} on {} processes".format(len(tasks), len(files), gpu["gpu"], processes))
    started = time.monotonic()
    codes = compile_all(tasks, processes)
    bad = {code: count for code, count in codes.items() if code not in (SUCCESS, INVALID_IMAGE, NO_BINARY)}
    if bad:
        sys.exit(f"warm: CUDA errors (code: modules) {bad}")
    compiled = time.monotonic()
    say("first start of OneFlow, which links NCCL's code on one core: about two minutes on a Hopper")
    subprocess.run([sys.executable, "-c", FIRST_START], check=True, stdout=subprocess.DEVNULL)
    linked = time.monotonic()
    note = dict(
        gpu,
        libraries=[file.name for file in files],
        modules=codes.get(SUCCESS, 0),
        compile_s=compiled - started,
        first_start_s=linked - compiled,
        finished=time.time(),
    )
    (cache / NOTE).write_text(json.dumps(note, indent=1) + "\n")
    say("{:.0f} s to compile, {:.0f} s for the first start".format(note["compile_s"], note["first_start_s"]))


if __name__ == "__main__":
    main()

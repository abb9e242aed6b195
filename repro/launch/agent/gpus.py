"""What decides which kernels run on this node: its GPUs and libraries, and what it compiles; needs Python 3.8 alone."""

from __future__ import annotations

import glob
import os
import subprocess

from repro.launch.agent.patience import captured, limit

QUERY_S = 30
COMPILE_S = 120
FIELDS = ("name", "driver_version", "uuid")
NONE_HERE = "No devices were found"


class UnreadableGpus(RuntimeError):
    """nvidia-smi succeeded, and printed something else than the GPUs; the message says what, and what to do."""


def gpus(fields: tuple[str, ...] = FIELDS) -> list[dict]:
    """The GPUs that nvidia-smi shows, each with these fields; none without the tool or without a GPU.

    UnreadableGpus if it prints anything else.
    Drivers before 2021 do not report the compute capability; then `compute_cap` is missing.
    """
    devices = query(fields)
    for gpu, capability in zip(devices, query(("compute_cap",))):
        gpu.update(capability)
    return devices


def query(fields: tuple[str, ...]) -> list[dict]:
    """A row for each GPU; none without the tool, without a GPU, or if the driver does not know a field.

    UnreadableGpus if it prints anything else.
    """
    argv = ["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
    try:
        done = captured(argv, QUERY_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or lines == [NONE_HERE]:
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    for line, row in zip(lines, rows):
        if len(row) != len(fields):
            raise UnreadableGpus(
                "{} printed {!r}, which is no GPU: run `{}` by hand and repair what it says, or take nvidia-smi out of "
                "PATH to train on processors".format(argv[0], line[:120], " ".join(argv))
            )
    return [dict(zip(fields, row)) for row in rows]


def failure() -> str:
    """What nvidia-smi says where it fails, on one line; empty without the tool, or where it tells whether there are GPUs."""
    try:
        done = captured(["nvidia-smi", "--list-gpus"], QUERY_S)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"no answer within {limit(QUERY_S):.0f} s"
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if not done.returncode or NONE_HERE in lines:
        return ""
    return lines[0][:200] if lines else f"status {done.returncode}"


def files(patterns: list[str]) -> dict:
    """{path: [bytes, time of its last change in ns]} of the files that match."""
    by_path = {}
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern)):
        try:
            about = os.stat(path)
        except OSError:
            continue
        by_path[path] = [about.st_size, about.st_mtime_ns]
    return by_path


def make_libraries(commands: dict[str, list[str]]) -> None:
    """Make each library that is not there yet: {path: command that writes PATH.partial}; OSError if that fails."""
    for path, argv in commands.items():
        if os.path.exists(path):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        own = f"{path}.{os.uname().nodename}.{os.getpid()}"
        argv = [own if word == f"{path}.partial" else word for word in argv]
        try:
            done = captured(argv, COMPILE_S)
        except FileNotFoundError:
            raise OSError(f"there is no {argv[0]}, which compiles {path}: install it there") from None
        except subprocess.TimeoutExpired:
            raise OSError(f"{path} cannot be compiled within {limit(COMPILE_S):.0f} s") from None
        if done.returncode:
            raise OSError(f"{path} cannot be compiled: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        os.replace(own, path)

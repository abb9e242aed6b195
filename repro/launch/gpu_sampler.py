"""Samples a machine's GPUs with nvidia-smi while an attempt runs; the samples are kept in its folder and shown."""

import csv
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from repro.runs.files import GPU_EVERY_S, GPU_FIELDS, GPU_FILE


def sample_command() -> list[str]:
    """Prints a line for each GPU every 5 s: index, UUID, utilisation in %, memory in MiB, clock in MHz, °C."""
    return [
        "nvidia-smi",
        f"--query-gpu={','.join(GPU_FIELDS)}",
        "--format=csv,noheader,nounits",
        f"--loop={GPU_EVERY_S}",
    ]


def events_of(text: str, visible: str = "") -> list[dict]:
    """The samples in whole lines of that output as events; other lines are skipped.

    `visible` is CUDA_VISIBLE_DEVICES of the ranks: an event's `index` counts the GPUs that they see.
    """
    chosen = [name.strip() for name in visible.split(",")] if visible else None
    events = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != len(GPU_FIELDS) or not row[0].isdigit() or not row[2].isdigit():
            continue
        index, uuid = row[:2]
        position: int | None = int(index)
        if chosen is not None:
            position = next((i for i, name in enumerate(chosen) if name in (index, uuid)), None)
        if position is not None:
            events.append({"event": "gpu", "index": position, "utilisation": int(row[2])})
    return events


class Sampler:
    """Samples the GPUs of this machine into a file of `folder`, if it is `enabled` and there is nvidia-smi.

    `visible` is CUDA_VISIBLE_DEVICES of the ranks; `preexec` runs in the new process before nvidia-smi does.
    """

    def __init__(self, folder: Path, enabled: bool, visible: str = "", preexec: Callable[[], object] | None = None):
        self._path, self._offset, self._visible = folder / GPU_FILE, 0, visible
        self._enabled, self._preexec = enabled and shutil.which("nvidia-smi") is not None, preexec

    def __enter__(self) -> "Sampler":
        if self._enabled:
            with open(self._path, "wb") as file:
                self._process = subprocess.Popen(
                    sample_command(),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.DEVNULL,
                    preexec_fn=self._preexec,
                )
        return self

    def __exit__(self, *error: object) -> None:
        if self._enabled:
            self._process.kill()
            self._process.wait()

    def read(self) -> list[dict]:
        """The events since the last read."""
        if not self._enabled:
            return []
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return events_of(whole.decode(), self._visible)

"""Times the kernels of 2020 against OneFlow's own on this machine's first GPU (`repro/trainers/past_kernels.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from repro.images.past_kernels import past_kernels
from repro.images.stack import TRACER, Libraries, Stack, StackError, build_forward, find_cupti
from repro.launch.agent.ranks import TRACE_NAME
from repro.launch.attempt import Limits
from repro.launch.check_programs import CheckConfig
from repro.launch.local_attempt import local_programs
from repro.models.past import Subject
from repro.utils.errors import FAILED, ReproError
from repro.utils.paths import TRAINERS

PROGRAM = TRAINERS / "past_kernels.py"
LIMITS = Limits(stall_timeout_s=900.0, total_s=1800.0)
CALLS = 20


class TimingError(ReproError):
    """The kernels could not be timed; the message says why."""

    status = FAILED


def require_gpu(gpus: list[dict]) -> None:
    """StackError unless there is a GPU to time kernels on."""
    if not gpus or not gpus[0].get("compute_cap"):
        raise StackError(
            "kernels are timed on a GPU, and none was found here; RESULTS=<folder> takes what was timed elsewhere"
        )


def time_kernels(
    subjects: Iterable[Subject], gpus: list[dict], stack: Stack, libraries: Libraries, folder: Path
) -> None:
    """Leave metrics and a trace of these operators in a folder, which must not exist yet.

    Raises
    ------
    StackError
        There is no GPU, or a library is missing.
    CompileError, PinError
        The kernels of 2020 cannot be compiled for it.
    TimingError
        The program failed.
    """
    require_gpu(gpus)
    tracing = {
        "CUDA_INJECTION64_PATH": str(build_forward(TRACER)),
        "KERNEL_TRACE_CUPTI": str(find_cupti(libraries)),
        "KERNEL_TRACE_FILE": str(folder.resolve() / TRACE_NAME),
    }
    settings = {
        "code": str(past_kernels(round(float(gpus[0]["compute_cap"]) * 10))),
        "calls": CALLS,
        "subjects": [asdict(subject) for subject in subjects],
    }
    program_of = local_programs(PROGRAM, LIMITS, stack.environment | tracing)
    outcome = program_of(CheckConfig("cuda", 1, settings), folder).run(lambda event: None)
    if outcome.failure:
        raise TimingError(f"{outcome.failure.text()}\n{outcome.log_tail}\nits logs are in {folder / 'logs'}")

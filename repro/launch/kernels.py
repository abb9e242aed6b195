"""Whether a GPU computes a model's operators as the CPU does: once per model, driver, GPU and set of libraries."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from repro.analysis.process_info import readable
from repro.images.stack import Stack, StackError
from repro.launch.attempt import Limits, Outcome, interruptible
from repro.launch.check_programs import CheckConfig, ProgramOf
from repro.models.extensions import folders_of
from repro.models.programs import KINDS
from repro.models.registry import specs
from repro.runs.failures import Failure
from repro.runs.plan import Plan, SkippedCase
from repro.runs.unit import TF32
from repro.utils.filelock import exclusive
from repro.utils.i18n import N_
from repro.utils.paths import CACHE, TRAINER_PYTHON, TRAINERS, named_by_time, sha256

PROGRAM = TRAINERS / "kernels.py"
SOURCES = (
    "checks/accuracy.py",
    "checks/dropout.py",
    "checks/one_step.py",
    "kernels.py",
    "models/operators.py",
    "models/ops.py",
)
LIMITS = Limits(stall_timeout_s=900.0, total_s=1800.0)
SHOWN = 3
CORES_EACH, MOST_PROCESSES = 4, 4
SCALES = {"cuda": "published", "cpu": "small"}
SINGLE, HALF = ("fp32",), ("fp32", "fp16")
"""The precisions of operators that are compared for trainings in fp32 alone, and for those under AMP."""
FIX = (
    "CUDNN=<folder> and CUBLAS=<folder> name newer libraries; `make bench` takes the pinned ones without them "
    "(STACK=cu102-modern on GPUs after Turing)"
)


class KernelError(StackError):
    """Nothing could be compared, or operators compute wrongly; the message says which, and what to do."""


@dataclass(frozen=True)
class KernelComparison:
    """One comparison: the relative error of an operator's result or of a gradient, the `part`.

    `programs` are those that compute with the operator. `error` is None where the device gave no number, or where
    `reason` says what ended the process; `node` is the node of a cluster that it was made on.
    """

    operator: str
    models: tuple[str, ...]
    precision: str
    part: str = ""
    error: float | None = None
    tolerance: float = 0.0
    reason: str = ""
    node: str = ""
    programs: tuple[str, ...] = KINDS

    @property
    def holds(self) -> bool:
        return self.error is not None and self.error <= self.tolerance

    def text(self) -> str:
        where = f"{self.node}: " if self.node else ""
        if self.reason:
            return f"{where}{self.operator}: {self.reason}"
        error = "not a number" if self.error is None else f"{self.error:.1e}"
        return f"{where}{self.operator}, {self.part}: relative error {error}, tolerance {self.tolerance:.0e}"


@dataclass(frozen=True)
class Kernels:
    """What was compared on a device, with the versions and libraries that the process reported.

    `models` are those whose operators were compared; `nodes` are those of a cluster that were compared, empty for this
    machine; `fix` is what helps if something is wrong.
    """

    device: str
    results: tuple[KernelComparison, ...]
    versions: dict
    libraries: tuple[str, ...]
    seconds: float
    models: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    fix: str = FIX

    @property
    def wrong(self) -> tuple[KernelComparison, ...]:
        return tuple(result for result in self.results if not result.holds)

    @property
    def wrong_models(self) -> tuple[str, ...]:
        """Models that have an operator which computes wrongly."""
        return tuple(sorted({model for result in self.wrong for model in result.models}))

    @property
    def operators(self) -> int:
        return len({result.operator for result in self.results})

    def of(self, model: str, program: str = "") -> tuple[KernelComparison, ...]:
        """What is wrong for a model, or for one of its programs: the largest errors first; no number at all is worst."""
        wrong = [
            result for result in self.wrong if model in result.models and (not program or program in result.programs)
        ]
        return tuple(sorted(wrong, key=lambda result: -(result.error or float("inf"))))

    @property
    def largest(self) -> dict[str, float]:
        """The largest error that is within its tolerance, by precision."""
        largest: dict[str, float] = {}
        for result in self.results:
            if result.error is not None and result.holds:
                largest[result.precision] = max(result.error, largest.get(result.precision, 0.0))
        return largest

    def refuse_wrong(self, plan: Plan, all_of_it: bool = False) -> None:
        """KernelError if a program of the plan has operators that compute wrongly; with `all_of_it`, if all have."""
        programs = list(dict.fromkeys((unit.model, unit.program) for unit in plan.units))
        wrong = {pair: results for pair in programs if (results := self.of(*pair))}
        if not wrong or (all_of_it and len(wrong) < len(programs)):
            return
        lines = []
        for (model, program), results in wrong.items():
            lines += [
                f"{model}, PROGRAM={program}: {len(results)} of its operators' results are wrong on this GPU, the worst are",
                *(f"  {result.text()}" for result in results[:SHOWN]),
            ]
        raise KernelError("\n".join([*lines, self.fix]))

    def without_wrong(self, plan: Plan) -> Plan:
        """The plan less the units whose program would compute wrongly, which it lists as skipped."""
        wrong = [unit for unit in plan.units if self.of(unit.model, unit.program)]
        message = N_("its operators compute wrongly on this GPU: {example}")
        left_out = [
            SkippedCase(unit.name, Failure(message, {"example": self.of(unit.model, unit.program)[0].text()}))
            for unit in wrong
        ]
        kept_units = tuple(unit for unit in plan.units if unit not in wrong)
        return replace(plan, units=kept_units, skipped=(*plan.skipped, *left_out))

    def record(self) -> dict:
        """The comparison as a run's record keeps it."""
        errors = {f"{result.operator}, {result.part}": result.error for result in self.results if not result.reason}
        return {
            "operators": self.operators,
            "largest": self.largest,
            "wrong": [result.text() for result in self.wrong],
            "errors": errors,
            "versions": self.versions,
            "libraries": list(self.libraries),
            **({"nodes": list(self.nodes)} if self.nodes else {}),
        }

    def as_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict) -> Kernels:
        results = tuple(
            KernelComparison(**{**entry, "models": tuple(entry["models"]), "programs": tuple(entry["programs"])})
            for entry in content["results"]
        )
        texts = {name: tuple(content.get(name, ())) for name in ("libraries", "models", "nodes")}
        return cls(**{**content, **texts, "results": results})

    def only(self, models: Collection[str]) -> Kernels:
        """What of it is about these models."""
        results = tuple(result for result in self.results if set(models).intersection(result.models))
        return replace(self, results=results, models=tuple(sorted(models)))

    def added(self, other: Kernels) -> Kernels:
        """Both as one, of the same device; an operator of both has what the other found."""
        results = {(result.operator, result.part): result for result in (*self.results, *other.results)}
        models = tuple(sorted({*self.models, *other.models}))
        return replace(other, results=tuple(results.values()), models=models, seconds=self.seconds + other.seconds)

    @classmethod
    def together(cls, by_node: Mapping[str, Kernels], fix: str) -> Kernels:
        """The comparisons of several nodes as one: of each result the worst, with its node."""
        worst: dict[tuple[str, str], KernelComparison] = {}
        for node, kernels in by_node.items():
            for result in kernels.results:
                key, there = (result.operator, result.part), replace(result, node=node)
                if key not in worst or _badness(there) > _badness(worst[key]):
                    worst[key] = there
        first = next(iter(by_node.values()))
        seconds = max(kernels.seconds for kernels in by_node.values())
        return replace(first, results=tuple(worst.values()), seconds=seconds, nodes=tuple(by_node), fix=fix)


def _badness(result: KernelComparison) -> tuple[bool, float]:
    """What orders results, the worst last; no number at all is worst."""
    return not result.holds, float("inf") if result.error is None else result.error


def processes_here() -> int:
    """How many processes compare at a time on this machine: the reference on the CPU takes longest, on one core."""
    return max(1, min(MOST_PROCESSES, len(os.sched_getaffinity(0)) // CORES_EACH))


def compare(
    attempt_of: ProgramOf,
    device: str,
    folder: Path,
    models: Sequence[str] = (),
    processes: int = 1,
    precisions: Sequence[str] = HALF,
    stop: threading.Event | None = None,
) -> Kernels:
    """Compare the operators of these models, of all if none is given, in these precisions on "cuda" or "cpu".

    The operators are divided among `processes`, which run at the same time. Files stay in `folder`, which must not exist
    yet.

    An operator that ends its process is noted, and the rest of the share is compared in a new one.

    Raises
    ------
    KernelError
        The program failed before or after its operators.
    KeyboardInterrupt
        `stop` was set, or a signal has come.
    """
    started = time.monotonic()
    settings = {"scale": SCALES[device], "models": list(models), "precisions": list(precisions)}
    config = CheckConfig(device, 1, settings)

    def share(number: int) -> _Share:
        named = f"share-{number}-part" if processes > 1 else "part"
        return _compare_share(attempt_of, config.with_settings(share=[number, processes]), folder, named, stop)

    with interruptible(), ThreadPoolExecutor(processes, "kernels") as threads:
        shares = list(threads.map(share, range(1, processes + 1)))
    seconds, start = time.monotonic() - started, shares[0].start
    results = tuple(result for part in shares for result in part.results)
    return Kernels(
        device,
        results,
        versions=readable(start["versions"]),
        libraries=tuple(start["libraries"]),
        seconds=seconds,
        models=tuple(sorted(models)),
    )


@dataclass
class _Share:
    """What the processes of one share found, and what the first of them said at its start."""

    results: list[KernelComparison]
    start: dict


def _compare_share(
    attempt_of: ProgramOf, config: CheckConfig, folder: Path, named: str, stop: threading.Event | None
) -> _Share:
    """Compare the operators of one share; of each process a folder of this name with a number."""
    share = _Share([], {})
    names: list[str] = []
    number = 0
    while True:
        number += 1
        part = folder / f"{named}-{number}"
        part.mkdir(parents=True)
        events: list[dict] = []
        outcome = attempt_of(config.with_settings(operators=names), part).run(events.append, stop)
        share.start = share.start or next(_of_kind(events, "start"), {})
        share.results += map(_result, _of_kind(events, "error"))
        if outcome.failure is None:
            return share
        begun = next(_of_kind(reversed(events), "begin"), None)
        if begun is None:
            raise KernelError(f"the operators cannot be compared with the CPU: {_reason(outcome)}")
        share.results = [result for result in share.results if result.operator != begun["operator"]]
        share.results.append(replace(_result(begun), reason=_reason(outcome)))
        names = next(_of_kind(events, "operators"))["names"]
        names = names[names.index(begun["operator"]) + 1 :]
        config = config.with_settings(share=[1, 1])
        if not names:
            return share


def _of_kind(events: Iterable[dict], kind: str) -> Iterator[dict]:
    return (event for event in events if event["event"] == kind)


def _result(event: dict) -> KernelComparison:
    values = {name: event[name] for name in ("operator", "precision", "part", "error", "tolerance") if name in event}
    return KernelComparison(models=tuple(event["models"]), programs=tuple(event["programs"]), **values)


def _reason(outcome: Outcome) -> str:
    failure = outcome.failure.text() if outcome.failure else ""
    return "; ".join((failure, *outcome.log_tail.splitlines()[-1:]))


def precisions_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The precisions in which the operators of each of a plan's models are compared, by the model."""
    by_model: dict[str, tuple[str, ...]] = {}
    for model in plan.models:
        trained = {unit.precision for unit in plan.units if unit.model == model}
        by_model[model] = (TF32,) if TF32 in trained else HALF if "amp" in trained else SINGLE
    return by_model


def kernels_here(
    gpus: list[dict],
    stack: Stack,
    attempt_of: ProgramOf,
    precisions: Mapping[str, tuple[str, ...]],
    cache: Path = CACHE / "kernels",
    say: Callable[[str], None] = print,
    image: dict | None = None,
) -> Kernels:
    """The comparison for this machine's GPUs and libraries, and the image that holds them if any, as `compared`."""
    subject = f"what {gpus[0]['name']} computes"
    return compared(
        _identity(gpus, stack, image),
        precisions,
        attempt_of=attempt_of,
        subject=subject,
        cache=cache,
        say=say,
        processes=processes_here(),
    )


def compared(
    identity: dict,
    precisions: Mapping[str, tuple[str, ...]],
    attempt_of: ProgramOf,
    subject: str,
    cache: Path,
    say: Callable[[str], None],
    processes: int = 1,
    stop: threading.Event | None = None,
) -> Kernels:
    """The comparison of models' operators for everything that decides which kernels run, in `processes` at a time.

    `precisions` are those of each model, as `precisions_of` gives them. Only models that none is kept of in `cache` are
    compared. Of several that want it at the same time one makes it, and the others wait. KernelError where nothing can be
    compared.
    """

    def compared_in(precision_set: tuple[str, ...]) -> Kernels:
        models = [model for model in precisions if precisions[model] == precision_set]
        own_identity = {**identity, "precisions": precision_set}
        digest = hashlib.sha256(json.dumps(own_identity, sort_keys=True).encode()).hexdigest()[:12]
        file = cache / f"{digest}.json"
        kernels = _kept(file)
        if missing := _missing(kernels, models):
            say(
                f"comparing {subject} for {', '.join(missing)} in {', '.join(precision_set)} with the CPU; this is done "
                "once for its driver and libraries"
            )
            with exclusive(cache / digest):
                kernels = _kept(file)
                if missing := _missing(kernels, models):
                    folder = named_by_time(cache / digest)
                    new = compare(attempt_of, "cuda", folder, missing, processes, precision_set, stop)
                    kernels = kernels.added(new) if kernels else new
                    content = {"created": time.time(), "identity": own_identity, "kernels": kernels.as_json()}
                    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        assert kernels
        return kernels.only(models)

    return functools.reduce(Kernels.added, map(compared_in, dict.fromkeys(precisions.values())))


def _kept(path: Path) -> Kernels | None:
    try:
        return Kernels.from_json(json.loads(path.read_text())["kernels"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _missing(kernels: Kernels | None, models: Collection[str]) -> list[str]:
    """The models that were not compared yet, sorted."""
    return sorted(set(models).difference(kernels.models if kernels else ()))


def sources() -> list[Path]:
    """The programs whose change makes a kept comparison worthless: what compares, and the models' operators."""
    folders = [TRAINERS / "models", *map(Path, folders_of("trainers/models"))]
    own = [path for spec in specs() for folder in folders if (path := folder / f"{spec.name}.py").is_file()]
    return [*(TRAINERS / name for name in SOURCES), *own, *sorted((TRAINERS / "tuning").glob("*.py"))]


def _identity(gpus: list[dict], stack: Stack, image: dict | None) -> dict:
    """Everything that decides which kernels run: GPUs, driver, libraries and the programs that call them."""
    named = {name: value for name, value in stack.environment.items() if not name.startswith("CUDA_CACHE_")}
    files = [Path(part) for value in named.values() for part in value.split(":") if part.startswith("/")]
    wheel = TRAINER_PYTHON.parent.parent.glob("lib/python3*/site-packages/oneflow.libs/liboneflow-*")
    return {
        "gpus": sorted({gpu["name"] for gpu in gpus}),
        "driver": gpus[0]["driver_version"],
        "environment": named,
        "files": {
            str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in (*files, *wheel) if path.is_file()
        },
        "programs": program_digests(),
        **({"image": image} if image else {}),
    }


def program_digests() -> dict[str, str | None]:
    """The SHA-256 of each of `sources`."""
    return {f"{path.parent.name}/{path.name}": sha256(path) for path in sources()}

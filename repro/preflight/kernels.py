"""Compares the models' operators on a GPU with the CPU, once per driver, GPU and set of libraries."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

from repro.analysis.process_info import readable
from repro.cluster.cluster import Cluster, ClusterError
from repro.images.stack import Stack, StackError
from repro.launch.attempt import Limits, Outcome
from repro.models.extensions import folders_of
from repro.models.registry import specs
from repro.planning.plan import Plan
from repro.preflight.collectives import AttemptOf, attempts, local_attempts
from repro.preflight.framework import Check, Finding, Machine, failed, ok
from repro.preflight.gpu import query
from repro.utils.filelock import exclusive
from repro.utils.i18n import N_, Message
from repro.utils.paths import CACHE, TRAINER_PYTHON, TRAINERS, sha256

PROGRAM = TRAINERS / "kernels.py"
SOURCES = ("checks/accuracy.py", "kernels.py", "models/operators.py", "models/ops.py")
LIMITS = Limits(stall_timeout_s=900.0, total_s=1800.0)
SHOWN = 3
SCALES = {"cuda": "published", "cpu": "small"}
FIX = (
    "CUDNN=<folder> and CUBLAS=<folder> name newer libraries; `make bench` takes the pinned ones without them "
    "(STACK=cu102-modern on GPUs after Turing)"
)


class KernelError(StackError):
    """The comparison failed, or operators compute wrongly; the message says which and what to do."""


@dataclass(frozen=True)
class Result:
    """One comparison: the relative error of an operator's result or of a gradient (`part`).

    `error` is None if the device returned no number or the process ended; then `reason` says why.
    """

    operator: str
    models: tuple[str, ...]
    precision: str
    part: str = ""
    error: float | None = None
    tolerance: float = 0.0
    reason: str = ""

    @property
    def holds(self) -> bool:
        return self.error is not None and self.error <= self.tolerance

    def text(self) -> str:
        if self.reason:
            return f"{self.operator}: {self.reason}"
        found = "not a number" if self.error is None else f"{self.error:.1e}"
        return f"{self.operator}, {self.part}: relative error {found}, tolerance {self.tolerance:.0e}"


@dataclass(frozen=True)
class Kernels:
    """All comparisons on a device, with the versions and libraries reported by the process."""

    device: str
    results: tuple[Result, ...]
    versions: dict
    libraries: tuple[str, ...]
    seconds: float

    @property
    def wrong(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if not result.holds)

    @property
    def wrong_models(self) -> tuple[str, ...]:
        """Models with an operator that computes wrongly."""
        return tuple(sorted({model for result in self.wrong for model in result.models}))

    @property
    def operators(self) -> int:
        return len({result.operator for result in self.results})

    def of(self, model: str) -> tuple[Result, ...]:
        """Wrong results of a model, largest errors first; a missing number is worst."""
        found = [result for result in self.wrong if model in result.models]
        return tuple(sorted(found, key=lambda result: -(result.error or float("inf"))))

    @property
    def largest(self) -> dict[str, float]:
        """The largest error within its tolerance, by precision."""
        largest: dict[str, float] = {}
        for result in self.results:
            if result.error is not None and result.holds:
                largest[result.precision] = max(result.error, largest.get(result.precision, 0.0))
        return largest

    def refuse_wrong(self, plan: Plan, all_of_it: bool = False) -> None:
        """KernelError if a model of the plan has operators that compute wrongly; with `all_of_it`, only if all models have."""
        models = sorted({unit.model for unit in plan.units})
        wrong = [model for model in models if model in self.wrong_models]
        if not wrong or (all_of_it and wrong != models):
            return
        lines = []
        for model in wrong:
            found = self.of(model)
            lines += [
                f"{model}: {len(found)} results of its operators are wrong on this GPU; the worst:",
                *(f"  {result.text()}" for result in found[:SHOWN]),
            ]
        raise KernelError("\n".join([*lines, FIX]))

    def without_wrong(self, plan: Plan) -> Plan:
        """The plan without units of models that would compute wrongly; these are listed as skipped."""
        wrong = [unit for unit in plan.units if unit.model in self.wrong_models]
        left_out = [
            {
                "case": unit.name,
                "model": unit.model,
                "message": N_("its operators compute wrongly on this GPU: {example}"),
                "values": {"example": self.of(unit.model)[0].text()},
            }
            for unit in wrong
        ]
        kept = tuple(unit for unit in plan.units if unit not in wrong)
        return replace(plan, units=kept, skipped=(*plan.skipped, *left_out))

    def record(self) -> dict:
        """The comparison for a run's record."""
        errors = {f"{result.operator}, {result.part}": result.error for result in self.results if not result.reason}
        return {
            "operators": self.operators,
            "largest": self.largest,
            "wrong": [each.text() for each in self.wrong],
            "errors": errors,
            "versions": self.versions,
            "libraries": list(self.libraries),
        }

    def lines(self) -> list[str]:
        """The comparison as lines of text."""
        marks = {True: "ok   ", False: "WRONG"}
        wrong = f"{len(self.wrong)} wrong" if self.wrong else "all right"
        return [
            *(f"{marks[result.holds]} {result.text()}" for result in self.results),
            f"{self.operators} operators, {len(self.results)} comparisons in {self.seconds:.0f} s: {wrong}",
        ]

    def as_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict) -> Kernels:
        results = tuple(Result(**{**each, "models": tuple(each["models"])}) for each in content["results"])
        return cls(**{**content, "results": results, "libraries": tuple(content["libraries"])})


def compare(attempt_of: AttemptOf, device: str, folder: Path) -> Kernels:
    """Compare all operators on "cuda" or "cpu"; files stay in `folder`, which must not exist yet.

    If an operator ends the process, that is recorded, and the rest is compared in a new process.

    Raises
    ------
    KernelError
        The program failed before or after its operators.
    """
    started = time.monotonic()
    results: list[Result] = []
    start: dict = {}
    names: list[str] = []
    for number in count(1):
        config = {
            "device": device,
            "layout": {"data": 1, "tensor": 1, "pipeline": 1},
            "scale": SCALES[device],
            "operators": names,
        }
        part = folder / f"part-{number}"
        part.mkdir(parents=True)
        events: list[dict] = []
        outcome = attempt_of(config, part).run(events.append)
        start = start or next((event for event in events if event["event"] == "start"), {})
        results += [_result(event) for event in events if event["event"] == "error"]
        if outcome.failure is None:
            break
        begun = next((event for event in reversed(events) if event["event"] == "begin"), None)
        if begun is None:
            raise KernelError(f"the operators cannot be compared with the CPU: {_reason(outcome)}")
        results = [result for result in results if result.operator != begun["operator"]]
        results.append(replace(_result(begun), reason=_reason(outcome)))
        names = next(event["names"] for event in events if event["event"] == "operators")
        names = names[names.index(begun["operator"]) + 1 :]
        if not names:
            break
    return Kernels(
        device, tuple(results), readable(start["versions"]), tuple(start["libraries"]), time.monotonic() - started
    )


def _result(event: dict) -> Result:
    known = {name: event[name] for name in ("operator", "precision", "part", "error", "tolerance") if name in event}
    return Result(models=tuple(event["models"]), **known)


def _reason(outcome: Outcome) -> str:
    failure = outcome.failure.text() if outcome.failure else ""
    return "; ".join((failure, *outcome.log_tail.splitlines()[-1:]))


def kernels_here(
    gpus: list[dict], stack: Stack, cache: Path = CACHE / "kernels", say: Callable[[str], None] = print
) -> Kernels:
    """The comparison for this machine's GPUs and libraries, from `cache` if it is there.

    If several processes need it at the same time, one makes it and the others wait. KernelError if the comparison
    fails.
    """
    identity = _identity(gpus, stack)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    kept = cache / f"{digest}.json"
    if found := _kept(kept):
        return found
    say(f"comparing the operators on {gpus[0]['name']} with the CPU (once per driver and set of libraries)")
    with exclusive(cache):
        if found := _kept(kept):
            return found
        folder = cache / f"{digest}-{time.strftime('%Y%m%d-%H%M%S')}"
        found = compare(local_attempts(PROGRAM, LIMITS, stack.environment), "cuda", folder)
        content = {"created": time.time(), "identity": identity, "kernels": found.as_json()}
        kept.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return found


def _kept(path: Path) -> Kernels | None:
    try:
        return Kernels.from_json(json.loads(path.read_text())["kernels"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def sources() -> list[Path]:
    """The files that invalidate a cached comparison when they change: the comparison and the models' operators."""
    folders = [TRAINERS / "models", *map(Path, folders_of("trainers/models"))]
    own = [path for spec in specs() for folder in folders if (path := folder / f"{spec.name}.py").is_file()]
    return [*(TRAINERS / name for name in SOURCES), *own]


def _identity(gpus: list[dict], stack: Stack) -> dict:
    """Everything that determines which kernels run: GPUs, driver, libraries and the programs that call them."""
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
        "programs": {path.name: sha256(path) for path in sources()},
    }


@dataclass(frozen=True)
class Computations:
    """Runs the comparison on this machine or on the nodes of a cluster, and writes into a folder.

    One GPU per machine is enough, since its GPUs share driver and libraries.
    """

    folder: Path
    environment: dict
    cluster: Cluster | None = None

    def checks(self) -> tuple[Check]:
        return (Check("kernels", "kernels compute correctly", self.check),)

    def check(self, machine: Machine) -> Finding:
        query(machine, "index", "name")
        name = re.sub(r"\W+", "-", machine.name)
        folder = self.folder / f"kernels-{name}"
        if self.cluster is None:
            return self._judge(local_attempts(PROGRAM, LIMITS, self.environment), folder)
        node = next(node for node in self.cluster.nodes if node.name == machine.name)
        try:
            with attempts(replace(self.cluster, nodes=(node,)), PROGRAM, "kernels", LIMITS) as attempt_of:
                return self._judge(attempt_of, folder)
        except ClusterError as error:
            return failed(str(error), "`make bench` cannot start either.", "follow the message")

    def _judge(self, attempt_of: AttemptOf, folder: Path) -> Finding:
        try:
            kernels = compare(attempt_of, "cuda", folder)
        except (KernelError, OSError) as error:
            return failed(str(error), "Trainers cannot start on this GPU.", f"read the logs in {folder}")
        content = json.dumps(kernels.as_json(), indent=1)
        (folder / "kernels.json").write_text(content + "\n", encoding="utf-8")
        return judge(kernels)


def judge(kernels: Kernels) -> Finding:
    """The finding of a comparison."""
    if kernels.wrong:
        worst = [kernels.of(model)[0].text() for model in kernels.wrong_models]
        shown = "; ".join(dict.fromkeys(worst))
        count = len({result.operator for result in kernels.wrong})
        return failed(
            Message("{n} of {of} operators compute wrongly: {shown}", n=count, of=kernels.operators, shown=shown),
            "Training would run at full speed with wrong results, or fail.",
            FIX,
        )
    largest = [
        Message("{error:.0e} in {precision}", error=error, precision=precision)
        for precision, error in kernels.largest.items()
    ]
    message = N_("{n} operators agree with the CPU; largest relative error {largest}")
    return ok(Message(message, n=kernels.operators, largest=largest))

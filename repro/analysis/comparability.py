"""Decides whether a measured unit may be compared in speed with its published case, and says every reason why not."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from repro.analysis.process_info import ProcessInfo
from repro.models.programs import PUBLISHED, TUNED
from repro.planning.derived import same_window
from repro.planning.trainer_config import config_of
from repro.published.cases import Case, Report
from repro.published.deviations import MEMORY, SPEED, deviations_of
from repro.published.trainer_config import SYNTHETIC as SYNTHETIC_DATA
from repro.runs.attempts import AttemptRecord
from repro.runs.environment import Environment
from repro.runs.unit import Unit
from repro.utils.i18n import N_

INSTALLABLE_ONEFLOW = "0.8.0"
MEMORY_TOLERANCE = 0.05
FREE_KEYS = {"case", "data", "seed"}
ASPECT_OF = {"precision": "precision", "device": "hardware.device", "program": "program"}
"""Aspects of a configuration's keys that have one of their own."""

DECIDING = (SPEED, MEMORY)
"""Subject of a verdict or a comparison, which determines the deviations it names."""

GPU_MODEL = "hardware.gpu_model"
ASPECTS = {
    "scale": N_("scale"),
    "case": N_("case"),
    "measurement": N_("measurement"),
    "hardware.device": N_("device"),
    GPU_MODEL: N_("GPU model"),
    "hardware.gpu_memory": N_("GPU memory"),
    "hardware.nodes": N_("nodes"),
    "hardware.gpu_count": N_("GPUs"),
    "program": N_("program"),
    "precision": N_("precision"),
    "stack.oneflow": "OneFlow",
    "stack.cuda": "CUDA",
    "stack.cudnn": "cuDNN",
    "stack.nccl": "NCCL",
    "transport": N_("transport between GPUs"),
    "configuration": N_("configuration"),
    "driver": N_("driver"),
    "input": N_("input data"),
    "iterations": N_("iterations"),
    "code": N_("code"),
    "deviations:speed": N_("deviations that may affect speed"),
    "deviations:memory": N_("deviations that may affect memory"),
    "loss": N_("loss"),
    "repeats": N_("repeats"),
    "published_stack": N_("published stack"),
}
CLAUSE = N_("{aspect}: {detail}")
SMOKE_RUN = N_("a smoke run measures tiny models and never gets a verdict on speed")
NO_SUCH_CASE = N_("the catalogue has no case with this name")
NO_SUCCESS = N_("no repeat succeeded")
DIFFERS = N_("published {expected}, here {measured}")
MISSING = N_("published {expected}, not known here (read from {source})")
OTHER_RELEASE = N_("the release used in place of the published one should be {expected}, here {measured}")
UNKNOWN_RELEASE = N_(
    "the release used in place of the published one should be {expected}, not known here (read from {source})"
)
START = N_("the start event in every rank's metrics")
GPU_SOURCE = N_("the start events, or nvidia-smi on the hosts of the ranks")
ASKED = N_("the inventory asks for {expected}, and NCCL's log says {measured}: the environment is not as described")
WITHOUT_VERBS = N_(
    "{expected} is needed, and NCCL used {measured} because it could not open libibverbs.so where the ranks ran"
)
NCCL_LOG = N_("a log written with NCCL_DEBUG=INFO")
OLD_ONEFLOW = N_("published with {expected}, which can no longer be installed; here {measured}")
OTHER_DRIVER = N_("published {expected}, here {measured}: newer drivers run the same CUDA 10.2 libraries")
SYNTHETIC = N_("published with real data, here synthetic: excludes loading and decoding")
STANDIN = N_(
    "the report names {expected}; here stand-in data of the same format: similar decoding, hardly any reading from disk"
)
OTHER_LENGTH = N_("published {expected}, here {measured}: the rule covers the same ones")
CHANGED = N_("{measured} files differ from commit {expected}")
PROGRAM_NAMES = {PUBLISHED: N_("published program"), TUNED: N_("tuned program")}
OTHER_PROGRAM = N_("the published figure is the {expected}'s; this run used the {measured}, which never gets a verdict")
DEVIATES = N_("{measured}, explained below")
BESIDE = N_("{measured} of {expected} repeats ran while other attempts ran on other nodes")
CONTRADICTION = N_("the report states CUDA {expected}, its wheel was built for {measured}")


@dataclass(frozen=True)
class Reason:
    """Why two figures are not comparable (kind "differs" or "missing"), or what else differed (kind "remark")."""

    aspect: str
    kind: str
    message: str
    expected: str | None = None
    measured: str | None = None
    source: str = ""

    def text(self, translate: Callable[[str], str] = lambda message: message) -> str:
        """The reason as a clause that opens with its aspect."""
        source = self.source and translate(self.source)
        names = PROGRAM_NAMES if self.aspect == "program" else {}
        expected, measured = (value and translate(names.get(value, value)) for value in (self.expected, self.measured))
        values = {"expected": expected, "measured": measured, "source": source}
        head, _, key = self.aspect.partition(":")
        name = translate(ASPECTS.get(self.aspect) or ASPECTS[head] + f" `{key}`")
        return translate(CLAUSE).format(aspect=name, detail=translate(self.message).format(**values))

    def as_json(self) -> dict:
        """The form in which verdicts keep it, with its English text."""
        return {
            "aspect": self.aspect,
            "kind": self.kind,
            "expected": self.expected,
            "measured": self.measured,
            "text": self.text(),
        }


def reasons(case: Case, unit: Unit, environment: Environment, cluster: dict, info: ProcessInfo) -> tuple[Reason, ...]:
    """All differences between the run and the published case; an empty tuple if there are none.

    Parameters
    ----------
    environment : what the run recorded of the machine.
    cluster : the published cluster, from `repro.published.figures.load_published_cluster`.
    """
    candidates = [
        *configuration_reasons(case, unit),
        *_hardware(case, environment, cluster["hardware"], info),
        *_stack(case, cluster["software"], info),
        *_transport(case, environment.cluster or {}, info),
    ]
    return tuple(reason for reason in candidates if reason)


def remarks(
    case: Case,
    report: Report,
    unit: Unit,
    environment: Environment,
    cluster: dict,
    info: ProcessInfo,
    attempts: Sequence[AttemptRecord] = (),
) -> tuple[Reason, ...]:
    """Differences that do not rule out a verdict, because they are unavoidable or not part of the measurement.

    `attempts` are those of the unit.
    """
    succeeded = [attempt for attempt in attempts if attempt.status == "ok"]
    beside = sum(bool(attempt.beside) for attempt in succeeded)
    software, wheel, data = cluster["software"], _wheel_cuda(report), unit.config.data
    releases = _joined(info.version("oneflow"))
    drivers = _joined({gpu["driver_version"] for gpu in environment.gpus})
    iterations = unit.config.iterations
    commit, changed = environment.commit, environment.git_changed_files
    candidates = (
        (releases, "stack.oneflow", OLD_ONEFLOW, report.version, releases),
        (drivers not in ("", software["driver"]), "driver", OTHER_DRIVER, software["driver"], drivers),
        (data.kind == SYNTHETIC_DATA, "input", SYNTHETIC, str(report.settings.get("data", "?")), "synthetic"),
        (data.standin is not None, "input", STANDIN, str(report.settings.get("data", "?")), "stand-in"),
        (iterations != case.iterations, "iterations", OTHER_LENGTH, str(case.iterations), str(iterations)),
        (changed, "code", CHANGED, commit[:12], str(changed)),
        (beside, "measurement", BESIDE, str(len(succeeded)), str(beside)),
        (wheel not in ("", "cu102"), "published_stack", CONTRADICTION, software["cuda"], wheel),
    )
    deviating = (
        (f"deviations:{what}", [deviation.id for deviation in deviations_of(unit.report, unit.config, what)])
        for what in DECIDING
    )
    return (
        *(
            Reason(aspect, "remark", message, expected, measured)
            for holds, aspect, message, expected, measured in candidates
            if holds
        ),
        *(Reason(aspect, "remark", DEVIATES, measured=", ".join(ids)) for aspect, ids in deviating if ids),
    )


def _wheel_cuda(report: Report) -> str:
    """The CUDA release that a wheel's version names, "cu112" in 0.3.5+cu112; empty if it names none."""
    match = re.search(r"\+(cu\d+)", report.version)
    return match[1] if match else ""


def configuration_reasons(case: Case, unit: Unit) -> Iterable[Reason]:
    """Where a unit's configuration or rule is not the published case's; iterations not measured do not count."""
    published, own = config_of(case, "cuda").as_json(), unit.config.as_json()
    free = FREE_KEYS | ({"iterations"} if same_window(case, unit.config.iterations) else set())
    for key in sorted((published.keys() | own.keys()) - free):
        if published.get(key) != own.get(key):
            aspect = ASPECT_OF.get(key, f"configuration:{key}")
            reason = _differs(aspect, published.get(key), own.get(key))
            yield replace(reason, message=OTHER_PROGRAM) if key == "program" else reason
    printed, used = ((rule.kind, rule.parameters) for rule in (case.rule, unit.rule))
    if printed != used:
        yield _differs("configuration:rule", *(f"{kind} {parameters}" for kind, parameters in (printed, used)))


def _hardware(case: Case, environment: Environment, hardware: dict, info: ProcessInfo) -> Iterable[Reason | None]:
    yield _one("hardware.device", "cuda", _device_kinds(info), START)
    models, memories = _gpus(environment, info)
    yield _one(GPU_MODEL, hardware["gpu"], measured=models, source=GPU_SOURCE, same=_same_gpu)
    yield _one(
        "hardware.gpu_memory",
        f"{hardware['gpu_memory_gb']} GB",
        measured=memories,
        source=GPU_SOURCE,
        same=_same_memory,
    )
    yield _one("hardware.nodes", str(case.nodes), _texts(info.nodes), START)
    yield _one("hardware.gpu_count", str(case.layout.world_size), _texts(info.ranks), START)


def _device_kinds(info: ProcessInfo) -> frozenset[str]:
    return frozenset(device.partition(":")[0] for device in info.devices)


def _gpus(environment: Environment, info: ProcessInfo) -> tuple[frozenset[str], frozenset[str]]:
    """Models and memory of the GPUs, as the ranks reported them; nvidia-smi's output counts only for the hosts it ran on."""
    hosts = set(environment.hosts)
    gpus = environment.gpus if info.hosts and info.hosts <= hosts else ()
    models = info.gpus or _texts(gpu["name"] for gpu in gpus)
    memories = info.gpu_memories_mib or _texts(gpu["memory.total"] for gpu in gpus)
    return models, _texts(f"{memory} MiB" for memory in memories)


def _same_gpu(expected: str, measured: str) -> bool:
    return measured.removeprefix("NVIDIA ") == expected


def _same_memory(expected: str, measured: str) -> bool:
    ratio = float(measured.split()[0]) / (1024 * float(expected.split()[0]))
    return abs(ratio - 1) <= MEMORY_TOLERANCE


def _stack(case: Case, software: dict, info: ProcessInfo) -> Iterable[Reason | None]:
    release = _one(
        "stack.oneflow", INSTALLABLE_ONEFLOW, measured=info.version("oneflow"), source=START, same=_same_release
    )
    if release:
        yield replace(release, message=OTHER_RELEASE if release.measured else UNKNOWN_RELEASE)
    yield _one("stack.cuda", software["cuda"], measured=info.version("cuda"), source=START, same=_same_series)
    yield _one("stack.cudnn", software["cudnn"], measured=info.version("cudnn"), source=START, same=_same_series)
    if case.layout.world_size > 1:
        yield _one("stack.nccl", software["nccl"], measured=info.version("nccl"), source=START, same=_same_series)


def _same_release(expected: str, measured: str) -> bool:
    return measured.partition("+")[0] == expected


def _same_series(expected: str, measured: str) -> bool:
    """Equal in the first two numbers: NCCL 2.7.8, which is still available, counts as 2.7.3."""
    return measured.partition("+")[0].split(".")[:2] == expected.split(".")[:2]


def _transport(case: Case, cluster: Mapping, info: ProcessInfo) -> Iterable[Reason | None]:
    """NCCL has to reach GPUs of its node directly and others by InfiniBand, wherever a collective leaves the node.

    If the run's inventory asks for InfiniBand and NCCL did not use it, that alone is the reason: the environment was
    not as described.
    """
    if case.layout.world_size == 1:
        return
    if info.lacks_verbs and "NET/Socket" in info.transports:
        asked = f"InfiniBand ({cluster['hca']})" if cluster.get("hca") else "NET/IB"
        yield Reason("transport", "differs", WITHOUT_VERBS, asked, "NET/Socket")
        return
    if cluster.get("hca") and "NET/Socket" in info.transports:
        yield Reason("transport", "differs", ASKED, f"InfiniBand ({cluster['hca']})", "NET/Socket")
        return
    leaves_node = case.layout.data * case.layout.tensor > case.gpus_per_node
    needed = {"P2P", "NET/IB"} if leaves_node else {"P2P"}
    wrong = {transport for transport in info.transports if transport.startswith("NET/") and transport != "NET/IB"}
    if not info.transports:
        yield Reason("transport", "missing", message=MISSING, expected=_joined(needed), measured=None, source=NCCL_LOG)
    elif wrong or needed - info.transports:
        yield _differs("transport", _joined(needed), _joined(info.transports))


def _one(
    aspect: str, expected: str, measured: frozenset[str], source: str, same: Callable[[str, str], bool] = operator.eq
) -> Reason | None:
    """A reason unless every value that was seen is the expected one."""
    if not measured:
        return Reason(aspect, "missing", message=MISSING, expected=expected, measured=None, source=source)
    if all(same(expected, value) for value in measured):
        return None
    return _differs(aspect, expected, _joined(measured))


def _differs(aspect: str, expected: object, measured: object) -> Reason:
    return Reason(aspect, "differs", DIFFERS, str(expected), str(measured))


def _texts(values: Iterable) -> frozenset[str]:
    return frozenset(map(str, values))


def _joined(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))

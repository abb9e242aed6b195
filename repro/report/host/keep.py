"""Packs a run into the small archive that is committed: raw files, without anything that identifies the machine.

Paths of the machine, its host name, its addresses and the UUIDs of its GPUs are replaced. `kept.json` in the archive lists every
recorded file that was changed, with its original SHA-256, so that the archive can be traced to the run.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro.analysis import steady
from repro.analysis.evidence import examine
from repro.analysis.results import result_frame, results_csv, results_of
from repro.analysis.verdict import judge
from repro.report.run.kinds import kind_of
from repro.runs.archive import write_archive
from repro.runs.attempts import parse
from repro.runs.digests import enter, entered, kept_before, list_of
from repro.runs.files import (
    ARCHIVE,
    KEPT,
    PREFLIGHT,
    SIGNATURE,
    RecordError,
    RunPath,
    content,
    names,
    open_files,
    read_json,
)
from repro.runs.manifest import DERIVED, MANIFEST, OWN, manifest_text, verify
from repro.runs.record import ATTEMPT, Run
from repro.runs.signature import Key, sign
from repro.utils.paths import ROOT, sha256_of

THIS_MACHINE = "this machine"
"""How a preflight names the machine that it was started on."""
NEXT = "make model, make host-reports and make site bring the pages up to date"
"""What is left to do once kept runs were added."""
GLOG = re.compile(r".*/oneflow\.[^/]*\.log\.(INFO|WARNING|ERROR)\.[^/]+")
METRICS = re.compile(r".*/metrics-rank\d+\.jsonl")
OF_NODES = re.compile(r"units/.*/fingerprints\.json")
PROGRAM = re.compile(r"(/.+)/repro/(?:trainers|peers|baselines)/\w+\.py")
OF_CHECKOUT = re.compile(r"(/[^\s\":;,=`]+)/(?:\.cache/(?:cuda-|compat/)|\.venv-(?:trainer|baseline|baseline-cu102)/)")
ABSOLUTE = re.compile(rb"(?<![\w.:/-])(/[\w.-]+/[\w.-]+)/[\w.-]")
NO_FIELD = rb'(?!":\s*[^{\s])'
"""Not followed by a value, as the name of a field is in JSON, even if a host has the same name."""
ADDRESSES = (
    re.compile(rb"(?<![\w.])((?:\d{1,3}\.){3}\d{1,3})\]?[:<]\d"),
    re.compile(rb"(?<!\S)(?:\[\d+\])?[\w.@-]+:([0-9a-f]*:[0-9a-f:.]+)(?:%[\w.-]+)?<\d"),
    re.compile(rb"\[([0-9a-f]*:[0-9a-f:.]+)(?:%[\w.-]+)?\]:\d"),
    re.compile(rb'"--master_addr",\s*"([0-9a-f.:]+)'),
)
"""What finds addresses, with the port behind them: in logs, in NCCL's `eth0:fe80::1%eth0<0>`; and in commands."""
DOCUMENTATION = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")))
"""Networks of no machine that others could reach (RFC 5737, RFC 3849)."""
UUID = re.compile(rb"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Kept:
    """The archive of a run or of a preflight, how many files it holds, and its size in bytes.

    `named` are the folders, two deep, of other files that it still names: libraries and interpreters, as evidence.
    """

    path: Path
    files: int
    size: int
    named: tuple[str, ...]


@dataclass(frozen=True)
class Replacements:
    """What is replaced in a run's files, and by what: prefixes of paths, names of hosts, UUIDs of GPUs, addresses."""

    paths: Mapping[str, str]
    hosts: Mapping[str, str]
    gpus: Mapping[str, str]
    addresses: Mapping[str, str] = field(default_factory=dict)

    def apply(self, text: bytes) -> bytes:
        """The text with all of it replaced, longer prefixes first; what merely begins like a prefix or a name stays."""
        for prefix, placeholder in sorted(self.paths.items(), key=lambda pair: -len(pair[0])):
            begin = b"" if placeholder == "." else placeholder.encode() + b"/"
            text = text.replace(prefix.encode() + b"/", begin)
            text = re.sub(re.escape(prefix).encode() + rb"(?![\w.-])", placeholder.encode(), text)
        if self.hosts:
            either = b"|".join(re.escape(name).encode() for name in sorted(self.hosts, key=len, reverse=True))
            pattern = rb"(?<!\w)(?:" + either + rb")(?![\w-])" + NO_FIELD
            text = re.sub(pattern, lambda match: self.hosts[match[0].decode()].encode(), text)
        if self.addresses:
            either = b"|".join(re.escape(address).encode() for address in sorted(self.addresses, key=len, reverse=True))
            pattern = rb"(?<![\w.])(?:" + either + rb")(?!\w|\.\d)"
            text = re.sub(pattern, lambda match: self.addresses[match[0].decode()].encode(), text)
        return UUID.sub(lambda match: self.gpus.get(match[0].decode(), "GPU").encode(), text)


def keep(
    source: Path, target: Path, key: Key | None = None, signer: str | None = None, at_terminal: bool = False
) -> Kept:
    """Pack a run, or a preflight, from its folder or archive into `target`, the archive to be committed.

    What is measured is packed with what identifies the machine replaced, without glog's files of attempts that
    succeeded, which repeat what was printed. Reports, figures and tables are not packed: they can be made from it.
    An archive among a host's kept runs is entered in their list (`repro.runs.digests`).

    Parameters
    ----------
    key : what signs the archive, if anything does.
    signer : what the list says from here on of the host's signer, if that is another.
    at_terminal : whether a person can be asked for the key's passphrase.

    Raises
    ------
    RecordError
        The run is not as it was recorded, its figures are not those of its raw output, `target` is there already or
        was kept before, the archive does not give the results and verdicts that the run gives, or it cannot be signed.
    """
    listed = list_of(target)
    if listed and (before := entered(target, listed)):
        raise RecordError(kept_before(target, before))
    if target.exists():
        raise RecordError(f"{target} is there already, and a kept run is never recorded anew")
    root = open_files(source)
    is_run = (root / "run.json").is_file()
    if not is_run and not (root / PREFLIGHT).is_file():
        raise RecordError(f"{source} holds neither run.json nor {PREFLIGHT}: it is neither a run nor a preflight")
    if is_run and not (verification := verify(root)).holds:
        raise RecordError("\n".join((f"{source} is not as it was recorded; nothing was kept:", *verification.lines())))
    if is_run and not (evidence := examine(Run(source))).holds:
        raise RecordError(
            "\n".join((f"{source} is not what its raw output gives; nothing was kept:", *evidence.lines()))
        )
    packed = _packed(root, source.name.removesuffix(ARCHIVE))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_archive(target, packed)
    try:
        if is_run and _statements(Run(source)) != _statements(Run(target)):
            raise RecordError(f"{source}: what would be kept gives other results or verdicts; nothing was kept")
        if key:
            sign(target, key, at_terminal)
        if listed:
            enter(target, listed, signer)
    except BaseException:
        for file in (target, target.with_name(f"{target.name}{SIGNATURE}")):
            file.unlink(missing_ok=True)
        raise
    named = {
        absolute.decode() for path, text in packed.items() if path != MANIFEST for absolute in ABSOLUTE.findall(text)
    }
    return Kept(target, len(packed), target.stat().st_size, tuple(sorted(named)))


def replacements(files: Mapping[str, bytes], name: str) -> Replacements:
    """What to replace in the files of a run of this name, found in the files themselves.

    The checkout, here and where the run was made, becomes the path relative to it; the run's folder, there and then,
    becomes `runs/<name>`, and the folder that it was in, `runs`. Other paths are of installed libraries: evidence.
    Hosts become host1, host2 …, addresses address1, address2 …, and GPUs GPU-0, GPU-1 …, in the order in which the
    run names them.
    """
    hosts = dict.fromkeys(_hosts(files))
    uuids = (uuid for path in ("run.json", *files) for uuid in UUID.findall(files.get(path, b"")))
    return Replacements(
        _paths(files, name),
        {host: f"host{number}" for number, host in enumerate(hosts, 1)},
        {uuid.decode(): f"GPU-{number}" for number, uuid in enumerate(dict.fromkeys(uuids))},
        {address: f"address{number}" for number, address in enumerate(dict.fromkeys(_addresses(files)), 1)},
    )


def _paths(files: Mapping[str, bytes], name: str) -> dict[str, str]:
    replaced = {str(ROOT): "."}
    replaced |= {prefix: "." for prefix in OF_CHECKOUT.findall(files.get("run.json", b"").decode())}
    for path, text in files.items():
        if path.endswith("command.json"):
            programs = [PROGRAM.fullmatch(word) for word in json.loads(text) if isinstance(word, str)]
            replaced |= {match[1]: "." for match in programs if match}
        elif path.endswith("config.json"):
            output = json.loads(text).get("output", "")
            then = Path(output.removesuffix(f"/{Path(path).parent.as_posix()}"))
            if str(then) != output and then.is_absolute():
                replaced[str(then)] = f"runs/{name}"
                replaced |= {str(then.parent): "runs"} if len(then.parts) > 3 else {}
    return replaced


def _hosts(files: Mapping[str, bytes]) -> Iterable[str]:
    """Every host that a run or preflight names: the controller, the nodes, and those of the ranks."""
    environment = json.loads(files.get("run.json", b"{}")).get("environment", {})
    cluster = environment.get("cluster") or {}
    of_ranks = (
        json.loads(line).get("host")
        for path, text in files.items()
        if METRICS.fullmatch(path) and (line := text.partition(b"\n")[0])
    )
    fingerprints = [
        cluster.get("fingerprints", {}),
        *(json.loads(files[path]) for path in files if OF_NODES.fullmatch(path)),
    ]
    nodes = [node for fingerprint in fingerprints for node in fingerprint.get("nodes", {})]
    findings = json.loads(files.get(PREFLIGHT, b"{}")).get("findings", ())
    machines = (finding["machine"] for finding in findings if finding["machine"] != THIS_MACHINE)
    return filter(None, (environment.get("host"), *nodes, *cluster.get("hosts", ()), *machines, *of_ranks))


def _addresses(files: Mapping[str, bytes]) -> Iterable[str]:
    """Every address of a machine that a log or command names; not those that mean any machine, or the same one."""
    for path in ("run.json", *sorted(files)):
        for pattern in ADDRESSES:
            for candidate in pattern.findall(files.get(path, b"")):
                try:
                    address = ipaddress.ip_address(candidate.decode())
                except ValueError:
                    continue
                documented = any(address in network for network in DOCUMENTATION)
                if not (address.is_loopback or address.is_unspecified or documented):
                    yield candidate.decode()


def _packed(root: RunPath, name: str) -> dict[str, bytes]:
    """What the archive holds, by path."""
    raw = [path for path in names(root) if path not in (*OWN, KEPT) and not DERIVED.fullmatch(path)]
    files = {path: content(root / path) for path in raw if not _is_link(root / path)}
    replaced = replacements(files, name)
    succeeded = _succeeded(files.get("attempts.jsonl", b""))
    before = read_json(root / KEPT) if (root / KEPT).is_file() else {}
    changed = {replaced.apply(path.encode()).decode(): digest for path, digest in before.get("changed", {}).items()}
    packed: dict[str, bytes] = {}
    for old_path, old_text in files.items():
        path, text = replaced.apply(old_path.encode()).decode(), replaced.apply(old_text)
        recorded = changed.get(path, {}).get("sha256") or sha256_of(old_text)
        attempt = ATTEMPT.match(old_path)
        if GLOG.fullmatch(old_path) and attempt and attempt[0] in succeeded:
            changed[path] = {"sha256": recorded, "skipped": True}
            continue
        if (path, text) != (old_path, old_text):
            changed[path] = {"sha256": recorded, "replaced": True}
        packed[path] = text
    stands_for = sorted({*before.get("stands_for", ()), *replaced.paths.values()})
    record = {**before, "stands_for": stands_for, "changed": dict(sorted(changed.items()))}
    if not before and (root / MANIFEST).is_file():
        record["manifest_sha256"] = sha256_of(content(root / MANIFEST))
    packed[KEPT] = (json.dumps(record, indent=1, sort_keys=True) + "\n").encode()
    packed[MANIFEST] = manifest_text({path: sha256_of(text) for path, text in packed.items()}).encode()
    return packed


def _is_link(path: RunPath) -> bool:
    return isinstance(path, Path) and path.is_symlink()


def _succeeded(attempts: bytes) -> set[str]:
    """The folders of attempts that succeeded."""
    recorded = (parse(line.decode()) for line in attempts.split(b"\n")[:-1])
    return {attempt.folder for attempt in recorded if attempt.status == "ok"}


def _statements(run: Run) -> tuple:
    """What a run's files give by today's code: results, verdicts, and what its kind's analysis found."""
    plan, attempts = run.description().plan, steady.attempts(run)
    frame = result_frame(plan, attempts)
    results = results_of(plan, frame)
    verdicts = judge(run, plan, attempts, results).as_json()
    return results_csv(frame), verdicts, kind_of(plan).analyse(run, plan, attempts, results).summary()

"""Describes a run as an RO-Crate with rocrate: files with their SHA-256, command, code, software and hardware.

Only an archive to hand over has one (`repro.runs.archive`). It follows the profile Process Run Crate,
https://w3id.org/ro/wfrun/process/0.5.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from repro.runs.attempts import AttemptRecord
from repro.runs.description import RunDescription
from repro.runs.environment import Environment
from repro.runs.files import RecordError

if TYPE_CHECKING:
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

METADATA = "ro-crate-metadata.json"
PROCESS_RUN = "https://w3id.org/ro/wfrun/process/0.5"
NO_LICENCE = "Whoever made this run keeps the rights in it and has stated no licence."
FORMATS = {
    ".csv": "text/csv",
    ".gz": "application/gzip",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}


def metadata(description: RunDescription, attempts: list[AttemptRecord], files: Mapping[str, tuple[str, int]]) -> bytes:
    """The crate's JSON-LD; RecordError without rocrate.

    Parameters
    ----------
    files : path to SHA-256 and size in bytes of every file but the crate's own and the manifest.
    """
    try:
        from rocrate.rocrate import ROCrate
    except ImportError:
        raise RecordError(
            "packing a run needs rocrate: install the group `export` (`uv sync --group export`)"
        ) from None
    crate, created = ROCrate(version="1.1"), _iso(description.created)
    crate.metadata.extra_terms["sha256"] = "https://schema.org/sha256"
    licence = _add(crate, "#license", "CreativeWork", name="No licence stated", description=NO_LICENCE)
    profile = _add(crate, PROCESS_RUN, "CreativeWork", name="Process Run Crate", version="0.5")
    about = {
        "identifier": description.id,
        "name": f"OneFlow benchmark reproduction: run {description.id}",
        "description": f"Configurations, logs, metrics and results of `{description.command}`",
        "datePublished": created,
        "dateCreated": created,
        "conformsTo": profile,
        "license": licence,
    }
    for name, value in about.items():
        crate.root_dataset[name] = value
    parts = {path: _file(crate, path, digest, size) for path, (digest, size) in files.items()}
    action = crate.add_action(
        _software(crate, description.environment, attempts),
        "#run",
        parts["run.json"],
        [part for path, part in parts.items() if path != "run.json"],
        _action(description, attempts),
    )
    crate.root_dataset["mentions"] = [action, *_hardware(crate, description.environment)]
    return (json.dumps(crate.metadata.generate(), ensure_ascii=False, indent=1) + "\n").encode()


def _add(crate: ROCrate, identifier: str, kind: str, **properties: Any) -> ContextEntity:
    from rocrate.model.contextentity import ContextEntity

    return crate.add(ContextEntity(crate, identifier, {"@type": kind, **properties}))


def _file(crate: ROCrate, path: str, digest: str, size: int) -> Any:
    kind = PurePosixPath(path)
    properties = {
        "name": kind.name,
        "contentSize": str(size),
        "encodingFormat": FORMATS.get(kind.suffix, "text/plain"),
        "sha256": digest,
    }
    return crate.add_file(dest_path=quote(path), properties=properties)


def _action(description: RunDescription, attempts: list[AttemptRecord]) -> dict[str, str]:
    ends = [attempt.ended for attempt in attempts]
    succeeded = [attempt.unit for attempt in attempts if attempt.status == "ok"]
    failed = len(attempts) - len(succeeded)
    every = {unit.name for unit in description.plan.units} <= set(succeeded)
    return {
        "name": description.command,
        "description": f"{len(attempts)} attempts, of which {failed} did not succeed",
        "startTime": _iso(description.created),
        **({"endTime": _iso(max(ends))} if ends else {}),
        "actionStatus": f"http://schema.org/{'Completed' if every else 'Failed'}ActionStatus",
    }


def _software(crate: ROCrate, environment: Environment, attempts: list[AttemptRecord]) -> ContextEntity:
    """The bundle itself with its properties, and every version that a trainer's process reported."""
    commit = environment.git_commit or "unknown"
    name = "OneFlow benchmark reproduction bundle"
    bundle = _add(crate, "#repro", "SoftwareApplication", name=name, softwareVersion=commit)
    properties = {
        "changed files": environment.git_changed_files,
        "Python": environment.controller_python,
        **{f"SHA-256 of {name}": digest for name, digest in environment.locks_sha256.items()},
    }
    bundle["additionalProperty"] = _properties(crate, bundle.id, properties)
    reported = [attempt.versions or {} for attempt in attempts]
    versions = {
        (name, str(value)) for by_library in reported for name, value in by_library.items() if value is not None
    }
    bundle["softwareRequirements"] = [
        _add(crate, f"#{quote(f'{name}-{value}')}", "SoftwareApplication", name=name, softwareVersion=value)
        for name, value in sorted(versions)
    ]
    return bundle


def _hardware(crate: ROCrate, environment: Environment) -> Iterable[ContextEntity]:
    """The machine and each of its GPUs."""
    names = {
        "processor": "cpu",
        "logical processors": "cpu_count",
        "memory in MiB": "memory_mib",
        "system": "system",
        "kernel": "kernel",
    }
    machine = {name: getattr(environment, key) for name, key in names.items()}
    products: list[tuple[str, str, Mapping[str, Any]]] = [("#machine", environment.host, machine)]
    products += [(f"#gpu{number}", gpu["name"], gpu) for number, gpu in enumerate(environment.gpus)]
    for identifier, title, properties in products:
        product = _add(crate, identifier, "Product", name=title)
        product["additionalProperty"] = _properties(crate, identifier, properties)
        yield product


def _properties(crate: ROCrate, owner: str, values: Mapping[str, Any]) -> list[ContextEntity]:
    return [
        _add(crate, f"{owner}-{quote(name)}", "PropertyValue", name=name, value=value)
        for name, value in values.items()
        if value is not None
    ]


def _iso(stamp: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(stamp))

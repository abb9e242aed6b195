"""Describes a run as an RO-Crate 1.1: files with their SHA-256, command, code, software and hardware.

Only an archive to hand over has one (`repro.runs.archive`), where rocrate reads it back.
https://w3id.org/ro/crate/1.1 and https://w3id.org/ro/wfrun/process/0.5.
"""

import json
import time
from collections.abc import Iterable
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from repro.runs.files import RunPath, content

METADATA = "ro-crate-metadata.json"
CRATE = "https://w3id.org/ro/crate/1.1"
PROCESS_RUN = "https://w3id.org/ro/wfrun/process/0.5"
DESCRIPTOR = {"@id": METADATA, "@type": "CreativeWork", "conformsTo": {"@id": CRATE}, "about": {"@id": "./"}}
PROFILE = {"@id": PROCESS_RUN, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
LICENSE = {
    "@id": "#license",
    "@type": "CreativeWork",
    "name": "No licence stated",
    "description": "Whoever made this run keeps the rights in it and has stated no licence.",
}
TERMS = {"sha256": "https://schema.org/sha256"}
FORMATS = {
    ".csv": "text/csv",
    ".gz": "application/gzip",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
URLS = {
    "oneflow": "https://github.com/Oneflow-Inc/oneflow",
    "python": "https://www.python.org/",
    "numpy": "https://numpy.org/",
    "cuda": "https://developer.nvidia.com/cuda-toolkit",
    "cudnn": "https://developer.nvidia.com/cudnn",
    "nccl": "https://developer.nvidia.com/nccl",
}


def metadata(description: dict, attempts: list[dict], files: dict[str, tuple[str, int]]) -> dict:
    """The crate's JSON-LD.

    Parameters
    ----------
    description : the content of `run.json`.
    files : path to SHA-256 and size in bytes of every file but the crate's own two.
    """
    software = _software(description["environment"], attempts)
    hardware = _hardware(description["environment"])
    root = _root(description, files, hardware)
    action = _action(description, attempts, files)
    graph = [DESCRIPTOR, root, LICENSE, PROFILE, *_files(files), action, *software, *hardware]
    return {"@context": [f"{CRATE}/context", TERMS], "@graph": graph}


def crate_faults(root: RunPath, entries: dict[str, str]) -> list[str]:
    """Where the metadata, if a run has any, cannot be read or disagree with its manifest (path to SHA-256)."""
    if not (root / METADATA).is_file():
        return []
    try:
        listed = _recorded_files(json.loads(content(root / METADATA)))
    except (ValueError, LookupError, TypeError) as error:
        return [f"{METADATA} is no valid RO-Crate: {error!r}"]
    expected = {path: digest for path, digest in entries.items() if path != METADATA}
    return [] if listed == expected else [f"{METADATA} and the manifest list different files"]


def _recorded_files(crate: dict) -> dict[str, str]:
    """Path to SHA-256 of every file that the metadata lists with one; KeyError without a descriptor."""
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    if entities[METADATA]["about"]["@id"] not in entities:
        raise KeyError(entities[METADATA]["about"]["@id"])
    return {
        unquote(name): entity["sha256"]
        for name, entity in entities.items()
        if entity["@type"] == "File" and "sha256" in entity
    }


def _root(description: dict, files: dict, hardware: list[dict]) -> dict:
    created = _iso(description["created"])
    return {
        "@id": "./",
        "@type": "Dataset",
        "identifier": description["id"],
        "name": f"OneFlow benchmark reproduction: run {description['id']}",
        "description": f"Configurations, logs, metrics and results of `{description['command']}`",
        "datePublished": created,
        "dateCreated": created,
        "conformsTo": {"@id": PROCESS_RUN},
        "license": {"@id": "#license"},
        "hasPart": _references(map(quote, files)),
        "mentions": _references(["#run", *_things(hardware)]),
    }


def _files(files: dict[str, tuple[str, int]]) -> list[dict]:
    return [
        {
            "@id": quote(path),
            "@type": "File",
            "name": PurePosixPath(path).name,
            "contentSize": str(size),
            "encodingFormat": _format(path),
            "sha256": digest,
        }
        for path, (digest, size) in files.items()
    ]


def _format(path: str) -> str:
    return FORMATS.get(PurePosixPath(path).suffix, "text/plain")


def _action(description: dict, attempts: list[dict], files: dict) -> dict:
    ends = [attempt["started"] + attempt["wall_s"] for attempt in attempts]
    failed = sum(attempt["status"] != "ok" for attempt in attempts)
    units = {unit["name"] for unit in description["plan"]["units"]}
    every = units <= {attempt["unit"] for attempt in attempts if attempt["status"] == "ok"}
    return {
        "@id": "#run",
        "@type": "CreateAction",
        "name": description["command"],
        "description": f"{len(attempts)} attempts, of which {failed} did not succeed",
        "startTime": _iso(description["created"]),
        **({"endTime": _iso(max(ends))} if ends else {}),
        "actionStatus": f"http://schema.org/{'Completed' if every else 'Failed'}ActionStatus",
        "instrument": {"@id": "#repro"},
        "object": {"@id": "run.json"},
        "result": _references(quote(path) for path in files if path != "run.json"),
    }


def _software(environment: dict, attempts: list[dict]) -> list[dict]:
    """The bundle itself with its properties, then every version that a trainer's process reported."""
    values = [
        ("changed files", environment["git_changed_files"]),
        ("Python", environment["controller_python"]),
        *((f"SHA-256 of {name}", digest) for name, digest in environment["locks_sha256"].items()),
    ]
    bundle = {
        "@id": "#repro",
        "@type": "SoftwareApplication",
        "name": "OneFlow benchmark reproduction bundle",
        "softwareVersion": environment["git_commit"] or "unknown",
    }
    reported = [attempt.get("versions") or {} for attempt in attempts]
    versions = {(name, str(value)) for each in reported for name, value in each.items() if value is not None}
    releases = [_release(name, value) for name, value in sorted(versions)]
    bundle["softwareRequirements"] = _references(_ids(releases))
    return [*_with_properties(bundle, values), *releases]


def _release(name: str, version: str) -> dict:
    url = {"url": URLS[name]} if name in URLS else {}
    return {
        "@id": f"#{quote(f'{name}-{version}')}",
        "@type": "SoftwareApplication",
        "name": name,
        "softwareVersion": version,
        **url,
    }


def _hardware(environment: dict) -> list[dict]:
    values = [
        ("processor", environment["cpu"]),
        ("logical processors", environment["cpu_count"]),
        ("memory in MiB", environment["memory_mib"]),
        ("system", environment["system"]),
        ("kernel", environment["kernel"]),
    ]
    entities = _with_properties({"@id": "#machine", "@type": "Product", "name": environment["host"]}, values)
    for number, gpu in enumerate(environment["gpus"]):
        product = {"@id": f"#gpu{number}", "@type": "Product", "name": gpu["name"]}
        entities += _with_properties(product, sorted(gpu.items()))
    return entities


def _with_properties(entity: dict, values: list[tuple]) -> list[dict]:
    """An entity and its properties, which are separate entities because a crate's graph is flat."""
    properties = [
        {"@id": f"{entity['@id']}-{quote(name)}", "@type": "PropertyValue", "name": name, "value": value}
        for name, value in values
        if value is not None
    ]
    return [{**entity, "additionalProperty": _references(_ids(properties))}, *properties]


def _things(entities: list[dict]) -> list[str]:
    return [entity["@id"] for entity in entities if entity["@type"] != "PropertyValue"]


def _ids(entities: list[dict]) -> list[str]:
    return [entity["@id"] for entity in entities]


def _references(identities: Iterable[str]) -> list[dict]:
    return [{"@id": identity} for identity in identities]


def _iso(stamp: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(stamp))

"""Records a container's requests in /var/log/sim-runc.jsonl, and drops from them what this kernel refuses.

Refused are CAP_SYS_RESOURCE and limits above the node's own: a test machine may have no right to grant them.
Nothing else of the container changes.
"""

import itertools
import json
import resource
import sys
import time

RECORD = "/var/log/sim-runc.jsonl"


def requests_of(config: dict, container: str) -> dict:
    process, linux = config["process"], config["linux"]
    capabilities = process.get("capabilities") or {}
    return {
        "time": time.time(),
        "id": container,
        "args": process["args"],
        "user": process["user"],
        "rlimits": {limit["type"]: limit["hard"] for limit in process.get("rlimits") or []},
        "capabilities": capabilities.get("bounding", []),
        "no_new_privileges": process.get("noNewPrivileges", False),
        "environment": process["env"],
        "gpu_hooks": [hook["path"] for hook in (config.get("hooks") or {}).get("prestart", [])],
        "devices": [device["path"] for device in linux.get("devices") or []],
        "mounts": {mount["destination"]: mount.get("source", "") for mount in config["mounts"]},
        "read_only_mounts": [mount["destination"] for mount in config["mounts"] if "ro" in mount.get("options", [])],
        "namespaces": [namespace["type"] for namespace in linux["namespaces"] if not namespace.get("path")],
        "read_only_root": config["root"].get("readonly", False),
    }


def drop_refused(process: dict) -> None:
    for names in (process.get("capabilities") or {}).values():
        if "CAP_SYS_RESOURCE" in names:
            names.remove("CAP_SYS_RESOURCE")
    for limit in process.get("rlimits") or []:
        _, hardest = resource.getrlimit(getattr(resource, limit["type"]))
        if hardest != resource.RLIM_INFINITY:
            limit["hard"] = min(limit["hard"], hardest)
            limit["soft"] = min(limit["soft"], hardest)


def main(argv: list[str]) -> None:
    bundle = next(value for option, value in itertools.pairwise(argv) if option in ("--bundle", "-b"))
    path = f"{bundle}/config.json"
    with open(path) as file:
        config = json.load(file)
    with open(RECORD, "a") as record:
        record.write(json.dumps(requests_of(config, argv[-1])) + "\n")
    drop_refused(config["process"])
    with open(path, "w") as file:
        json.dump(config, file)


if __name__ == "__main__":
    main(sys.argv[1:])

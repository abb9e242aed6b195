"""The Docker engine of the node that this runs on; needs Python 3.8 and nothing else."""

from __future__ import annotations

import subprocess
import time

DOCKER_S = 30
ROUNDS = 5


def docker(*words: str) -> subprocess.CompletedProcess:
    """Run the Docker client; OSError without one, TimeoutExpired if the engine hangs."""
    return subprocess.run(
        ("docker", *words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOCKER_S, check=False
    )


def remove_containers(match: str) -> list[str]:
    """Remove the containers that a filter of `docker ps` matches, until none is left; gives their names."""
    removed: list[str] = []
    for _ in range(ROUNDS):
        lines = docker("ps", "--all", "--filter", match, "--format", "{{.ID}} {{.Names}}").stdout.splitlines()
        if not lines:
            break
        removed += [line.partition(" ")[2] for line in lines]
        docker("rm", "--force", "--volumes", *(line.partition(" ")[0] for line in lines))
        time.sleep(0.2)
    return list(dict.fromkeys(removed))


def first_process(container: str) -> int:
    """The process number, as the node sees it, of what runs in a container; 0 if it has not started."""
    told = docker("inspect", "--format", "{{.State.Pid}}", container).stdout.strip()
    return int(told) if told.isdigit() else 0


def image_ids(names: list[str]) -> dict:
    """`found`: the ID of each image by name or ID, None if it is not here; or `error`: why the engine does not say."""
    found = {}
    for name in names:
        try:
            told = docker("image", "inspect", "--format", "{{.Id}}", name)
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": str(error)}
        if told.returncode and "no such image" not in told.stderr.lower():
            return {"error": (told.stderr.strip().splitlines() or ["?"])[-1]}
        found[name] = told.stdout.strip() or None
    return {"found": found}

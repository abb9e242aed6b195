"""Asks the agent of a node, over SSH, what it answers at once: what the node is, and who holds it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from repro.cluster.ssh import Remote, RemoteError


def ask_agent(remote: Remote, argv: Sequence[str], order: dict, timeout_s: float) -> dict:
    """The answer to an order of the agent that a command starts; RemoteError with the agent's own reason if it has none."""
    done = remote.run(argv, stdin=json.dumps(order) + "\n", timeout=timeout_s, check=False)
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = done.stderr.strip().splitlines() or [f"it ended with status {done.status}"]
        raise RemoteError(remote.node.name, f"its agent gave no answer: {said[-1]}") from None
    if "error" in answer:
        raise RemoteError(remote.node.name, answer["error"])
    return answer

"""The messages of agents, and what one answers over SSH at once: what the node is, and who holds it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from repro.cluster.ssh import Remote, RemoteError, no_process


def message_of(line: str) -> dict:
    """The message in a line of an agent's output; a line that is none is an error with that text."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    return message if isinstance(message, dict) else {"error": line}


def ask_agent(remote: Remote, argv: Sequence[str], order: dict, timeout_s: float) -> dict:
    """The answer to an order of the agent that a command starts; RemoteError with the agent's own reason if it has none."""
    given = json.dumps({**order, "patience": remote.cluster.patience}) + "\n"
    done = remote.run(argv, stdin=given, timeout=timeout_s, check=False)
    line = (done.stdout.strip().splitlines() or [""])[-1]
    if (answer := message_of(line)) == {"error": line}:
        said = done.stderr.strip().splitlines() or [f"it ended with status {done.status}"]
        raise RemoteError(remote.node.name, f"its agent gave no answer: {said[-1]}{no_process(said[-1])}")
    if "error" in answer:
        raise RemoteError(remote.node.name, answer["error"])
    return answer

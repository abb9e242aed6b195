"""The command of several ranks on one machine: a launcher, OneFlow's or this project's own, around that of a rank."""

from __future__ import annotations

from collections.abc import Sequence

LOCALHOST = "127.0.0.1"


def launched(
    launcher: Sequence[str],
    rank: Sequence[str],
    folder: str,
    *,
    ranks: int,
    port: str,
    nodes: int = 1,
    node_rank: int = 0,
    master: str = LOCALHOST,
) -> list[str]:
    """The command that starts `ranks` times `rank` on this node, which is number `node_rank` of `nodes`.

    Ranks meet at `port` of `master`, and each one's output is in `folder`/logs. `launcher` is an interpreter and a script
    with the options of oneflow.distributed.launch: as a module that would import oneflow first, 0.4 s for nothing.
    """
    options = {
        "--nnodes": nodes,
        "--node_rank": node_rank,
        "--nproc_per_node": ranks,
        "--master_addr": master,
        "--master_port": port,
        "--logdir": f"{folder}/logs",
    }
    words = [word for option, value in options.items() for word in (option, str(value))]
    return [*launcher, *words, "--redirect_stdout_and_stderr", "--no_python", *rank]

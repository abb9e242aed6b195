"""The launcher of a baseline's ranks: what each rank is told, where it prints, and how all of them end."""

import json
import subprocess
import sys

import pytest

from repro.launch.agent import rank_launcher
from tests.support.patience import patience, wait_until

SHOW = "import json, os; print(json.dumps({name: os.environ[name] for name in %r}))"
NAMES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")


def start(folder, program, ranks=2, nodes=2, node=1):
    options = {
        "--nnodes": nodes,
        "--node_rank": node,
        "--nproc_per_node": ranks,
        "--master_addr": "10.0.0.1",
        "--master_port": 29500,
        "--logdir": folder / "logs",
    }
    words = [str(word) for option in options.items() for word in option]
    return subprocess.Popen([sys.executable, rank_launcher.__file__, *words, sys.executable, "-c", program])


def test_each_rank_is_told_which_it_is_and_prints_to_a_folder_of_its_own(tmp_path):
    assert start(tmp_path, SHOW % (NAMES,)).wait(patience()) == 0
    for rank in range(2):
        told = json.loads((tmp_path / f"logs/local_rank_{rank}/stdout").read_text())
        assert told == dict(zip(NAMES, ("10.0.0.1", "29500", "4", str(2 + rank), str(rank)), strict=True))


@pytest.mark.parametrize(("end", "status"), [("os._exit(5)", 5), ("os.kill(os.getpid(), 9)", 137)])
def test_a_rank_that_fails_ends_the_others(tmp_path, end, status):
    program = f"import os, time\nif os.environ['LOCAL_RANK'] == '1': {end}\ntime.sleep(600)"
    assert start(tmp_path, program).wait(patience(20)) == status, "the others would sleep for longer"


def test_a_launcher_that_is_ended_takes_its_ranks_along(tmp_path):
    process = start(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    logs = [tmp_path / f"logs/local_rank_{rank}/stdout" for rank in range(2)]
    wait_until(lambda: all(log.exists() and log.read_text().strip() for log in logs))
    process.terminate()
    assert process.wait(patience()) == 143
    for log in logs:
        assert subprocess.run(["kill", "-0", log.read_text().strip()], capture_output=True).returncode != 0

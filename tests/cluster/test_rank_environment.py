"""What an inventory adds for ranks: names that have an effect, and lines that run before the agent."""

import os
import subprocess
import tomllib
from dataclasses import replace

import pytest

from repro.cluster.rank_environment import NCCL_SOURCE, after_prologue, nccl_variables, wrong_environment
from repro.launch.nodes.commands import network_environment
from tests.support.clusters import V100


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"NCCL_IB_TIMEOUT": 22, "UCX_TLS": "rc", "ONEFLOW_COMM_NET_IB_HCA": "mlx5_0"}, ""),
        ({"NCCL_IB_TIMEOUTS": "22"}, "NCCL has no such variable; did you mean NCCL_IB_TIMEOUT?"),
        ({"LD_PRELOAD": "/x.so"}, "LD_PRELOAD: a run sets this itself"),
        ({"RANK": "0"}, "RANK: a run sets this itself"),
        ({"A B": "0"}, "A B: it is no name of a variable"),
        ({"UCX_TLS": True}, "UCX_TLS is True; it is text or a number"),
        ({"UCX_TLS": "a\nb"}, "it is text or a number"),
    ],
)
def test_names_and_values_are_checked(values, why):
    assert (why in wrong_environment(values)) if why else not wrong_environment(values)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_ranks_get_it_and_it_wins(device):
    cluster = replace(V100, environment=(("NCCL_IB_HCA", "=mlx5_1"), ("UCX_TLS", "rc")))
    found = network_environment(cluster, device, 2, 16)
    assert (found["NCCL_IB_HCA"], found["UCX_TLS"]) == ("=mlx5_1", "rc")


def test_a_prologue_changes_the_environment_and_prints_nothing_to_the_output(tmp_path):
    lines = ["module() { export LOADED=$2; echo loaded; }", "module load 'a b'"]
    argv = after_prologue(lines, ["sh", "-c", 'echo "$LOADED $1"', "sh", "c d"])
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("a b c d\n", 0)
    assert "loaded" in done.stderr
    assert after_prologue([], ["true"]) == ["true"]


def test_what_the_shell_before_a_prologue_prints_is_no_output_either(tmp_path):
    (tmp_path / ".bash_profile").write_text("echo welcome; echo '{}'\n")
    argv = after_prologue(["echo loaded"], ["cat"])
    done = subprocess.run(
        argv, capture_output=True, text=True, input="given", env={**os.environ, "HOME": str(tmp_path)}
    )
    assert (done.stdout, done.returncode) == ("given", 0)
    assert "welcome" in done.stderr and "loaded" in done.stderr


def test_a_prologue_that_fails_starts_nothing():
    done = subprocess.run(after_prologue(["false"], ["echo", "started"]), capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 1)


def test_every_variable_that_a_run_sets_is_one_that_nccl_reads():
    """In the list from NCCL's source, which an inventory's names are checked against."""
    modern = replace(V100, stack="cu102-modern", gid_index=3)
    ours = {name for cluster in (V100, modern) for name in network_environment(cluster, "cuda", 2, 16)}
    assert {name for name in ours if name.startswith("NCCL_")} <= set(nccl_variables())
    assert len(ours) > 5
    versions = tomllib.loads(NCCL_SOURCE.read_text())
    assert all(names == sorted(set(names)) and len(names) > 40 for names in versions.values())

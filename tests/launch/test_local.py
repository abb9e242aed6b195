"""This machine as a launcher: what it would start."""

import shlex

from repro.launch.attempt import free_port
from repro.launch.base import LaunchOptions
from repro.launch.local import LocalLauncher
from repro.planning.plan import Wanted
from repro.published.cases import load_catalogue


def test_a_dry_run_shows_a_command_per_unit_and_starts_nothing(tmp_path, standin):
    launcher = LocalLauncher.of(LaunchOptions(trainer=standin))
    plan = launcher.plan(load_catalogue().select("bert", None), Wanted("smoke"))
    lines = list(launcher.dry_run(plan))
    assert lines[0] == f"# {plan.units[0].name}: 1 ranks"
    assert lines[1] == shlex.join([standin[0], "-u", standin[1], "--config", "<attempt>/config.json"])
    assert "--nproc_per_node 4 --master_port '<a free port>'" in lines[3]
    assert len(lines) == 2 * len(plan.units)


def test_make_bench_prints_its_commands_on_one_machine_too(task, tmp_path):
    done = task("bench", MODEL="bert", DRY_RUN=1, PORT=free_port())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--config") == 3
    assert not (tmp_path / "runs").exists()

"""The nodes of a cluster over SSH as a launcher."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from repro.cluster.ssh import Remote
from repro.launch.attempt import Limits
from repro.launch.base import AttemptOf, LaunchSession, Places
from repro.launch.check_programs import ProgramOf
from repro.launch.kernels import LIMITS, PROGRAM, Kernels, precisions_of
from repro.launch.nodes.baselines import versions_on
from repro.launch.nodes.datasets import bring
from repro.launch.nodes.kernels import compared_on_nodes
from repro.launch.nodes.places import NodePlaces
from repro.launch.nodes.target import ClusterLauncher, ClusterTarget, Fingerprints, spread, unreadable, unreadable_argv
from repro.launch.nodes.work import dry_lines
from repro.launch.select import register
from repro.launch.ssh.attempt import programs_on, ssh_attempts
from repro.launch.ssh.nodes import NodePool
from repro.planning.datasets import Dataset
from repro.planning.program_data import own_files
from repro.runs.description import BaselineProgram
from repro.runs.environment import Environment
from repro.runs.plan import Plan
from repro.runs.record import Run


@register
@dataclass(frozen=True)
class SshLauncher(ClusterLauncher):
    """Starts an agent on each node of a cluster, which starts the node's ranks."""

    name = "ssh"

    def dry_run(self, plan: Plan) -> Iterator[str]:
        """Every command of every node."""
        return dry_lines(
            self.target.cluster, self.target.code, units=plan.units, spread=spread(plan), port=self.target.port
        )

    @contextmanager
    def open(self, command: str) -> Iterator[SshSession]:
        """The nodes connected, locked, checked and compared; a message on stderr for each leftover that was removed."""
        with NodePool(self.target.cluster, self.target.code, command, self.target.port) as pool:
            for name, member in pool.members.items():
                if member.removed:
                    print(f"{name}: removed what an earlier run left: {', '.join(member.removed)}", file=sys.stderr)
            for said in pool.namesakes():
                print(f"note: {said}", file=sys.stderr)
            yield SshSession(self.target, pool, self.target.fingerprints(pool.over))


@dataclass(frozen=True)
class SshSession(LaunchSession):
    """A cluster whose nodes are locked for a run."""

    target: ClusterTarget
    pool: NodePool
    fingerprints: Fingerprints

    def attempts(self, run: Run, plan: Plan, limits: Limits) -> AttemptOf:
        self.pool.announce(run.id)
        return ssh_attempts(self.pool, run.id, limits, spread(plan))

    def side_by_side(self, plan: Plan) -> Places:
        def is_lost(name: str) -> bool:
            return name not in self.pool.members or self.pool.members[name].lost

        return NodePlaces(self.target.cluster, spread(plan), is_lost)

    def environment(self, plan: Plan) -> Environment:
        hosts = [member.facts["host"] for member in self.pool.members.values()]
        return self.target.environment(SshLauncher.name, hosts, self.fingerprints)

    def kernels(self, plan: Plan, recorded: Environment | None) -> Kernels | None:
        """Of every node that is held, by the agents that would start its ranks."""
        if plan.device != "cuda":
            return None

        def attempts_on(name: str) -> ProgramOf:
            return programs_on(self.pool, self.pool.members[name].node, program=PROGRAM, limits=LIMITS)

        facts = {name: member.facts for name, member in self.pool.members.items()}
        return compared_on_nodes(self.target.cluster, facts, precisions_of(plan), attempts_on)

    def baselines(self, plan: Plan) -> BaselineProgram:
        """With the versions that every node has; ClusterError if they differ, or if they do not start."""
        users = {name: member.host.user for name, member in self.pool.members.items()}
        asked = not self.target.baseline_replaced
        versions_by_node = (
            self.pool.on_each(lambda remote: versions_on(remote, users[remote.node.name])) if asked else {}
        )
        return self.target.baseline_program(plan.variants, versions_by_node)

    def bring(self, plan: Plan, datasets: Sequence[Dataset]) -> None:
        """To every node; ClusterError with a line for each that did not get them."""

        def work(remote: Remote) -> None:
            for dataset in datasets:
                bring(remote, dataset)

        self.pool.on_each(work)

    def missing_data(self, plan: Plan) -> list[str]:
        """With one command on each node, on many nodes at a time."""
        if not (paths := own_files(plan)):
            return []
        return unreadable(self.pool.on_each(lambda remote: remote.run(unreadable_argv(paths)).stdout))

    def check_unchanged(self, environment: Environment) -> None:
        self.target.check_unchanged(environment, self.fingerprints)

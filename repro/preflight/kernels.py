"""The check of kernels: whether GPUs compute the models' operators as the CPU does (`repro.launch.kernels`)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from repro.cluster.cluster import Cluster, ClusterError
from repro.launch.check_programs import ProgramOf
from repro.launch.kernels import FIX, LIMITS, PROGRAM, KernelError, Kernels, compare
from repro.launch.local import local_programs
from repro.preflight.collectives import attempts
from repro.preflight.framework import Check, Finding, Machine, failed, ok
from repro.preflight.gpu import query


@dataclass(frozen=True)
class Computations:
    """Compares with an environment for this machine's GPUs, or on a cluster's nodes, into a folder.

    One GPU of a machine is enough: they share driver and libraries.
    """

    folder: Path
    environment: dict
    cluster: Cluster | None = None

    def checks(self) -> tuple[Check]:
        return (Check("kernels", "kernels compute what they should", self.check),)

    def check(self, machine: Machine) -> Finding:
        query(machine, "index", "name")
        name = re.sub(r"\W+", "-", machine.name)
        folder = self.folder / f"kernels-{name}"
        if self.cluster is None:
            return self._judge(local_programs(PROGRAM, LIMITS, self.environment), folder)
        node = next(node for node in self.cluster.nodes if node.name == machine.name)
        try:
            with attempts(replace(self.cluster, nodes=(node,)), PROGRAM, "kernels", LIMITS) as attempt_of:
                return self._judge(attempt_of, folder)
        except ClusterError as error:
            return failed(str(error), "`make bench` cannot start either.", "do what the message says")

    def _judge(self, attempt_of: ProgramOf, folder: Path) -> Finding:
        try:
            kernels = compare(attempt_of, "cuda", folder)
        except (KernelError, OSError) as error:
            return failed(str(error), "No trainer starts on this GPU.", f"read the logs in {folder}")
        content = json.dumps(kernels.as_json(), indent=1)
        (folder / "kernels.json").write_text(content + "\n", encoding="utf-8")
        return judge(kernels)


def judge(kernels: Kernels) -> Finding:
    """A comparison's finding."""
    if kernels.wrong:
        worst = [kernels.of(model)[0].text() for model in kernels.wrong_models]
        shown = "; ".join(dict.fromkeys(worst))
        count = len({result.operator for result in kernels.wrong})
        return failed(
            f"{count} of {kernels.operators} operators compute wrongly: {shown}",
            "Training would run at full speed with wrong numbers, or end.",
            FIX,
        )
    largest = ", ".join(f"{error:.0e} in {precision}" for precision, error in kernels.largest.items())
    return ok(f"{kernels.operators} operators agree with the CPU; largest relative error {largest}")

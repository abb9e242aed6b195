"""The check of kernels: whether GPUs compute the models' operators as the CPU does (`repro.launch.kernels`)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from repro.cluster.cluster import Cluster, ClusterError
from repro.launch.check_programs import ProgramOf
from repro.launch.kernels import FIX, LIMITS, PROGRAM, KernelError, Kernels, compare, processes_here
from repro.launch.local_attempt import local_programs
from repro.preflight.collectives import attempts
from repro.preflight.framework import CheckResult, Machine, PreflightCheck, failed, ok
from repro.preflight.gpu import query
from repro.utils.i18n import N_, Message


@dataclass(frozen=True)
class Computations:
    """Runs the comparison on this machine or on the nodes of a cluster, and writes into a folder.

    One GPU per machine is enough, since its GPUs share driver and libraries.
    """

    folder: Path
    environment: dict
    cluster: Cluster | None = None

    def checks(self) -> tuple[PreflightCheck]:
        return (PreflightCheck("kernels", "kernels compute correctly", self.check),)

    def check(self, machine: Machine) -> CheckResult:
        query(machine, "index", "name")
        name = re.sub(r"\W+", "-", machine.name)
        folder = self.folder / f"kernels-{name}"
        if self.cluster is None:
            return self._judge(local_programs(PROGRAM, LIMITS, self.environment), folder, processes_here())
        node = next(node for node in self.cluster.nodes if node.name == machine.name)
        try:
            with attempts(replace(self.cluster, nodes=(node,)), PROGRAM, "kernels", LIMITS) as attempt_of:
                return self._judge(attempt_of, folder)
        except ClusterError as error:
            return failed(str(error), "`make bench` cannot start either.", "follow the message")

    def _judge(self, attempt_of: ProgramOf, folder: Path, processes: int = 1) -> CheckResult:
        try:
            kernels = compare(attempt_of, "cuda", folder, processes=processes)
        except (KernelError, OSError) as error:
            return failed(str(error), "Trainers cannot start on this GPU.", f"read the logs in {folder}")
        content = json.dumps(kernels.as_json(), indent=1)
        (folder / "kernels.json").write_text(content + "\n", encoding="utf-8")
        return judge(kernels)


def judge(kernels: Kernels) -> CheckResult:
    """The finding of a comparison."""
    if kernels.wrong:
        worst = [kernels.of(model)[0].text() for model in kernels.wrong_models]
        shown = "; ".join(dict.fromkeys(worst))
        count = len({result.operator for result in kernels.wrong})
        return failed(
            Message("{n} of {of} operators compute wrongly: {shown}", n=count, of=kernels.operators, shown=shown),
            "Training would run at full speed with wrong results, or fail.",
            FIX,
        )
    largest = [
        Message("{error:.0e} in {precision}", error=error, precision=precision)
        for precision, error in kernels.largest.items()
    ]
    message = N_("{n} operators agree with the CPU; largest relative error {largest}")
    return ok(Message(message, n=kernels.operators, largest=largest))

"""The rule of NVIDIA's benchmark: the batch over the mean time of an iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from repro.published.logs import Log
from repro.published.rules import Rule, positive, require_rows
from repro.published.validators import Check, whole


@dataclass(frozen=True, kw_only=True)
class MeanTime(Rule):
    """Samples per iteration over the mean time of the iterations after the first `skip_first`.

    With a row for each iteration this is the harmonic mean of the printed throughputs.
    """

    kind: str = field(default="mean_time", init=False)
    skip_first: int

    keys: ClassVar[Mapping[str, Check]] = {"skip_first": whole(0)}
    words = "batch size over the mean time of all iterations except the first {skip_first}"
    reads = "a row after the first {skip_first}"

    @property
    def least_rows(self) -> int:
        return self.skip_first + 1

    def throughput(self, log: Log, global_batch: int | None = None) -> float:
        require_rows(log, self, self.least_rows)
        rows = log.rows[self.skip_first :]
        return positive(log, self, len(rows) / math.fsum(1 / row.samples_per_s for row in rows), "throughput")

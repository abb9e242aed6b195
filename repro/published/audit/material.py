"""The published data that the rules of the audit read, as one object."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from repro.published.cases import Case, CaseError, Catalogue, Report, load_catalogue
from repro.published.figures import Peer, load_peers, load_published_cluster
from repro.published.history import HistoryEntry, load_history
from repro.utils.grouping import by_key
from repro.utils.paths import DATA


@dataclass(frozen=True, eq=False)
class Material:
    """All published data that the rules read."""

    catalogue: Catalogue
    peers: tuple[Peer, ...]
    clusters: dict[str, dict]
    history: tuple[HistoryEntry, ...] = ()

    @classmethod
    def load(cls, data: Path = DATA) -> Material:
        """Read a folder with the structure of `repro/data`; CaseError for missing or inconsistent data."""
        catalogue = load_catalogue(data / "cases")
        names = dict.fromkeys(report.cluster for report in catalogue.reports)
        try:
            clusters = {name: load_published_cluster(name, data / "clusters") for name in names}
            peers = load_peers(data / "peers.toml")
            return cls(catalogue, peers, clusters, load_history(catalogue, data / "history.toml"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise CaseError(f"{data}: {error}; it is laid out as repro/data is") from error

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.catalogue.cases

    @property
    def reports(self) -> tuple[Report, ...]:
        return self.catalogue.reports

    def cases_of(self, report: Report) -> tuple[Case, ...]:
        """The cases of one report, in published order."""
        return tuple(case for case in self.cases if case.report == report.id)

    def cluster(self, report: Report) -> dict:
        """The cluster a report ran on."""
        return self.clusters[report.cluster]

    def cluster_of(self, case: Case) -> dict:
        """The cluster a case ran on."""
        return self.cluster(self.catalogue.report(case.report))

    def also_printed(self, *columns: str) -> Iterator[tuple[Report, dict, tuple[dict, ...]]]:
        """Each report's further tables of cases that have these columns: report, table, its rows by column."""
        for report in self.reports:
            for table in report.also_printed:
                if {"case", *columns} <= set(table["columns"]):
                    yield report, table, report.also(table["what"])

    def scaling_steps(self) -> Iterator[tuple[Case, Case]]:
        """Pairs of cases with the same data-parallel work per GPU, each with the next larger number of GPUs."""

        def work(case: Case) -> tuple:
            same = (case.report, case.micro_batch, case.accumulation_steps, case.optimizer_sharding)
            return *same, tuple(sorted(case.shape.items()))

        parallel = (case for case in self.cases if case.layout.data == case.layout.world_size)
        for group in by_key(parallel, work).values():
            by_size = {case.layout.world_size: case for case in reversed(group)}
            yield from pairwise(by_size[size] for size in sorted(by_size))

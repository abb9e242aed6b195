"""What a run's report is made from, with as little in it as its figures need."""

import json
from dataclasses import replace
from types import SimpleNamespace

from repro.published.cases import load_catalogue
from repro.published.rules import MeanRows
from repro.runs.unit import Unit
from tests.support.attempts import recorded
from tests.support.metrics import row
from tests.support.runs import CONFIG


def measured(name, throughputs, memory=600.0, case=""):
    """A unit of the report of 21 August with these throughputs; it stands for `case`, if there is one."""
    config = replace(CONFIG, case=name, model="resnet50", log_generation="B", shape={"image_size": 32})
    published = load_catalogue().case(case) if case else None
    identity = {"report": "resnet50-2020-08-21", "case": published, "stands_for": (case,) if case else ()}
    unit = Unit(name, "resnet50", config, MeanRows(skip_first=1), 128, **identity)
    middle = sorted(throughputs)[len(throughputs) // 2] if throughputs else None
    return SimpleNamespace(unit=unit, throughputs=throughputs, throughput=middle, memory_mib=memory)


def report_data(tmp_path, results, scale="smoke", latencies=(10.0, 11.0)):
    attempts = []
    for each in results:
        folder = tmp_path / each.unit.name
        folder.mkdir()
        events = [{"event": "start"}]
        events += [row(n, latency_ms=ms) for n, ms in enumerate(latencies, 1)]
        lines = "".join(json.dumps(event) + "\n" for event in events)
        (folder / "metrics-rank0.jsonl").write_text(lines + '{"event": "it', encoding="utf-8")
        attempts.append(recorded({"unit": each.unit.name, "folder": each.unit.name}))
    plan = SimpleNamespace(scale=scale, kind="bench", device="cpu")
    return SimpleNamespace(results=results, attempts=attempts, plan=plan)

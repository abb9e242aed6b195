"""Errors that an auditor would look for, each planted in a copy of the data: the audit finds every one of them."""

import shutil

import pytest

from repro.published.audit.engine import audit
from repro.utils.paths import DATA
from tests.support.audited import audited

R08, R21, BERT, SMALL, GPT = (
    f"cases/{name}.toml"
    for name in (
        "resnet50-2020-08-08",
        "resnet50-2020-08-21",
        "bert-2020-08-22",
        "gpt2-small-2020-12",
        "gpt-3d-2021-05",
    )
)
PEERS, CLUSTER = "peers.toml", "clusters/v100x32.toml"
KNOWN = {found.id for found in audited().findings}

# what is wrong, the rule that finds it, the file, the printed text, and what is planted in its place
PLANTED = [
    (
        "two configurations, one set of figures (GPT)",
        "copied-row",
        GPT,
        "published = { throughput = 24.92, latency_ms = 642.134, memory_mib = 6264 }",
        "published = { throughput = 38.28, latency_ms = 417.952, memory_mib = 12404 }",
    ),
    (
        "group of repeats equal to another",
        "copied-repeats",
        BERT,
        "repeats = [1135.6, 1135.4, 1141.5, 1138.9, 1143.6, 1138.9, 1135.6]",
        "repeats = [1160.4, 1158.3, 1159.0, 1157.9, 1157.3, 1159.7, 1158.5]",
    ),
    (
        "larger batch much slower",
        "larger-batch",
        R08,
        "published = { throughput = 1494.733, speedup = 3.91, memory_mib = 15881 }",
        "published = { throughput = 1294.733, speedup = 3.39, memory_mib = 15881 }",
    ),
    (
        "peer: larger batch much slower",
        "larger-batch",
        PEERS,
        'variant = "no clipping", batch = 64, throughput = [156.76',
        'variant = "no clipping", batch = 64, throughput = [116.76',
    ),
    (
        "peer memory above card",
        "card",
        PEERS,
        "memory_mib = [15387, 15336, 15336]",
        "memory_mib = [17387, 15336, 15336]",
    ),
    (
        "peer memory just above usable",
        "card",
        PEERS,
        "memory_mib = [15387, 15336, 15336]",
        "memory_mib = [16300, 15336, 15336]",
    ),
    (
        "peer utilisation above 100",
        "utilisation",
        PEERS,
        "gpu_utilisation = [92, 94, 95]",
        "gpu_utilisation = [92, 104, 95]",
    ),
    ("peer rows swapped", "peer-scaling", PEERS, "throughput = [198.6, 269, 533]", "throughput = [269, 198.6, 533]"),
    (
        "peer sharded above unsharded",
        "sharded-peer",
        PEERS,
        "memory_mib = [14199, 14005, 13975]",
        "memory_mib = [15499, 14005, 13975]",
    ),
    ("sign inside a cell", "sign", SMALL, 'memory = "9547(-1754,↓15.5%)"', 'memory = "9547(+1754,↓15.5%)"'),
    ("arrow inside a cell", "sign", SMALL, 'memory = "9547(-1754,↓15.5%)"', 'memory = "9547(-1754,↑15.5%)"'),
    ("arrow of a throughput", "sign", SMALL, 'throughput = "235(↓1.7%)"', 'throughput = "235(↑1.7%)"'),
    (
        "memory of a duplicate",
        "same-memory",
        GPT,
        "latency_ms = 417.902, memory_mib = 12396",
        "latency_ms = 417.902, memory_mib = 11396",
    ),
    ("memory of a duplicate peer (12684, 1268)", "same-memory", PEERS, "12684", "1268"),
    (
        "memory between usable and 16*1024",
        "memory",
        R08,
        "published = { throughput = 1494.733, speedup = 3.91, memory_mib = 15881 }",
        "published = { throughput = 1494.733, speedup = 3.91, memory_mib = 16200 }",
    ),
    ("unit of a column: memory in %", "column-unit", SMALL, '"gpu_mem(mB)"', '"gpu_mem(%)"'),
    ("unit of a column: throughput in ms", "column-unit", GPT, '"throuthput(sample/sec)"', '"throuthput(ms)"'),
    ("unit of a peers' table", "column-unit", PEERS, 'unit = "images/s"', 'unit = "sentences/s"'),
    (
        "sample log: loss rises",
        "sample-row",
        R08,
        "[60, 4.274485, 0.817969, 386.264]",
        "[60, 42.74485, 0.817969, 386.264]",
    ),
    (
        "sample log: accuracy above 1",
        "sample-row",
        R08,
        "[60, 4.274485, 0.817969, 386.264]",
        "[60, 4.274485, 8.17969, 386.264]",
    ),
    (
        "sample log: speed of a row",
        "sample-row",
        R08,
        "[60, 4.274485, 0.817969, 386.264]",
        "[60, 4.274485, 0.817969, 486.264]",
    ),
    (
        "rows of a log: order",
        "sample-row",
        R21,
        "[120, 1.050499, 1.000000, 5917.583]",
        "[12, 1.050499, 1.000000, 5917.583]",
    ),
    ("later run far off", "later-run", BERT, "[1, 8, 24, 985.10]", "[1, 8, 24, 885.10]"),
    ("later run scales too far", "later-scaling", BERT, "[4, 8, 48, 4090.99]", "[4, 8, 48, 5090.99]"),
    ("later run falls", "later-scaling", BERT, "[2, 8, 48, 2078.66]", "[2, 8, 48, 1078.66]"),
    ("one address twice", "same-address", R08, '"10.11.0.2", "10.11.0.3"', '"10.11.0.2", "10.11.0.2"'),
    (
        "a CPU in two NUMA affinities",
        "affinity",
        CLUSTER,
        '"12-23,36-47", "12-23,36-47", "12-23,36-47", "12-23,36-47"',
        '"11-23,36-47", "11-23,36-47", "11-23,36-47", "11-23,36-47"',
    ),
    ("date of the text", "date", R08, 'date = "Aug 8 2020"', 'date = "Aug 8 2021"'),
    ("date that no calendar has", "date", BERT, 'date = "2020-8-22"', 'date = "2020-8-32"'),
    (
        "date of a row",
        "date",
        SMALL,
        'printed = { date = "20201208", test = "test-10-1"',
        'printed = { date = "20191208", test = "test-10-1"',
    ),
    ("named statistic", "statistic", BERT, 'statistic = "median"', 'statistic = "mean"'),
    ("number of repeats", "repeats", BERT, "repeats = 7\nstatistic", "repeats = 5\nstatistic"),
    ("speed-up digit", "speed-up", BERT, "speedup = 15.07", "speedup = 15.70"),
    ("latency digit", "latency", GPT, "latency_ms = 642.134", "latency_ms = 624.134"),
    ("peer latency digit", "latency-Megatron-LM", PEERS, "464.12, 480.96", "464.12, 408.96"),
    (
        "peer throughput of DeepSpeed rows",
        "peer-scaling",
        PEERS,
        "throughput = [195.8, 261, 506]",
        "throughput = [195.8, 261, 1506]",
    ),
    ("driver", "environment", R08, "440.33", "410.33"),
]


@pytest.mark.parametrize(
    ("rule", "file", "printed", "planted"), [error[1:] for error in PLANTED], ids=[error[0] for error in PLANTED]
)
def test_a_planted_error_is_found(tmp_path, rule, file, printed, planted):
    copy = shutil.copytree(DATA, tmp_path / "data")
    text = (copy / file).read_text(encoding="utf-8")
    assert printed in text
    (copy / file).write_text(text.replace(printed, planted, 1), encoding="utf-8")
    new = [finding for finding in audit(copy).findings if finding.id not in KNOWN]
    assert rule in {finding.id.split("/")[1] for finding in new if not finding.hint}

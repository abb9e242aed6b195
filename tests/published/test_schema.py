"""Each kind of bad case is refused with its file, its place, its key and the reason."""

import copy
import tomllib

import pytest

from repro.published.cases import CASES, CaseError, load_catalogue
from repro.published.schema import check_file

GOOD = """
[report]
id = "small"
model = "gpt"
date = "2021-05-12"
language = "en"
title_printed = "A report"
title = { en = "A report", zh = "报告" }
precision = "amp"
log_generation = "E"
cluster = "v100x32"
framework = "OneFlow"
version = "0.3.5"
trainer = { repository = "owner/name", path = "GPT", commit = "8da0250", printed = "master" }
source = "owner/name:report.md"
settings_source = ["report"]
environment = { cuda = "10.2" }
claims = { nodes = 4 }
settings = { seed = 1 }

[rule]
kind = "last_rows"
rows = 5
repeats = 1
stated = false
source = "report"

[defaults]
accumulation_steps = 1
activation_checkpointing = true
optimizer_sharding = 0
iterations = 100
log_interval = 10
shape = { seq_length = 2048, vocab_size = 50257 }

[defaults.training]
dropout = 0.1
optimizer = { name = "adamw", lr = 1.5e-4, betas = [0.9, 0.999], eps = 1e-8, weight_decay = 0.01, clip_norm = 1.0 }
schedule = { kind = "cosine", warmup_iterations = 1, decay_iterations = 100, min_lr = 1e-5 }

[[case]]
name = "one"
nodes = 1
gpus_per_node = 8
layout = [2, 4, 1]
micro_batch = 8
global_batch = 16
shape = { hidden_size = 1536, attention_heads = 16, layers = 16 }
published = { throughput = 29.65, latency_ms = 539.696, memory_mib = 6366 }
source = "table, row 1"

[[case]]
name = "two"
nodes = 4
gpus_per_node = 8
layout = [2, 4, 4]
micro_batch = 8
accumulation_steps = 32
global_batch = 512
shape = { hidden_size = 2304, attention_heads = 24, layers = 24 }
published = { throughput = 39.03, repeats = [39.03] }
printed = { group = "PP" }
source = "table, row 2"

[[also_printed]]
what = "summary"
source = "another report"
columns = ["case", "throughput"]
rows = [["one", 29.65], ["two", 39.03]]
"""

# what to replace, by what, the place and key of the fault that must be reported, and the beginning of its reason
HEADS, ROWS = "hidden_size = 1536, attention_heads = 16", "rows = 5"
BATCH, LAYOUT = "micro_batch = 8\nglobal", "layout = [2, 4, 1]"
REPEATS, SPEED = "repeats = [39.03]", "throughput = 29.65, l"
BAD = [
    (BATCH, "micro_bach = 8\nglobal", "case one: micro_bach", "unknown key; allowed: name, source, layout"),
    (BATCH, "global", "case one: micro_batch", "missing"),
    (BATCH, 'micro_batch = "8"\nglobal', "case one: micro_batch", "is '8'; must be a whole number of at least 1"),
    (BATCH, "micro_batch = true\nglobal", "case one: micro_batch", "is True; must be a whole number of at least 1"),
    (LAYOUT, "layout = [2, 2, 1]", "case one: layout", "2x2x1 is 4 ranks, but nodes x gpus_per_node is 8"),
    (LAYOUT, "layout = [2, 4]", "case one: layout", "is [2, 4]; must be a list of 3 values"),
    (LAYOUT, "layout = [8, 0, 1]", "case one: layout", "value 2 is 0; must be a whole number of at least 1"),
    (
        "global_batch = 16",
        "global_batch = 32",
        "case one: global_batch",
        "is 32; must be micro_batch x data parallel size x accumulation_steps, 16",
    ),
    (
        "layers = 24",
        "layers = 22",
        "case two: shape.layers",
        "is 22; must be a multiple of the pipeline parallel size, 4",
    ),
    (
        HEADS,
        "hidden_size = 1536, attention_heads = 6",
        "case one: shape.attention_heads",
        "is 6; must be a multiple of the tensor parallel size, 4",
    ),
    (
        "hidden_size = 1536",
        "hidden_size = 1530",
        "case one: shape.hidden_size",
        "is 1530; must be a multiple of attention_heads, 16",
    ),
    ("hidden_size = 1536, ", "", "case one: shape.hidden_size", "missing"),
    (
        "hidden_size = 1536",
        "width = 1, hidden_size = 1536",
        "case one: shape.width",
        "unknown key; allowed: seq_length",
    ),
    ('name = "two"', 'name = "one"', "case one: name", "is the name of case number 1 of small.toml too"),
    ('name = "two"', 'name = "t w o"', "case t w o: name", "is 't w o'; must be letters, digits"),
    ('name = "two"\n', "", "case number 2: name", "missing"),
    ('model = "gpt"', 'model = "nope"', "report: model", "is 'nope'; allowed: bert, gpt, resnet50"),
    ('log_generation = "E"', 'log_generation = "F"', "report: log_generation", "is 'F'; allowed: A, B, C, D, E"),
    ('precision = "amp"', 'precision = "fp16"', "report: precision", "is 'fp16'; allowed: fp32, amp"),
    ('date = "2021-05-12"', 'date = "May 2021"', "report: date", "is 'May 2021'; must be a date, YYYY-MM-DD"),
    ('zh = "报告"', 'de = "Bericht"', "report: title.zh", "missing"),
    (REPEATS, "repeats = []", "case two: published.repeats", "is []; must be a list of one or more values"),
    (
        REPEATS,
        "repeats = [39.03, 39.1]",
        "case two: published.repeats",
        "has 2 values; must have 1, as rule.repeats says",
    ),
    (SPEED, "throughput = 0.0, l", "case one: published.throughput", "is 0.0; must be a number above 0"),
    (SPEED, "throughput = nan, l", "case one: published.throughput", "is nan; must be a number above 0"),
    (SPEED, "l", "case one: published.throughput", "missing"),
    ('kind = "last_rows"', 'kind = "mean"', "rule: kind", "is 'mean'; allowed: mean_rows, stamps, last_rows"),
    (ROWS, "first_row = 5", "rule: first_row", "unknown key; allowed: kind, repeats, stated, source, rows"),
    (ROWS, "rows = 50", "case one: iterations", "give 10 printed rows; the rule last_rows needs at least 51"),
    (
        'kind = "last_rows"\nrows = 5',
        'kind = "stamps"\nfirst_row = 6\nlast_row = 6',
        "rule: last_row",
        "is 6; must be above first_row, 6",
    ),
    ("\niterations = 100", "\niterations = 0", "defaults: iterations", "is 0; must be a whole number of at least 1"),
    ("sharding = 0", "sharding = 4", "defaults: optimizer_sharding", "is 4; allowed: 0, 1, 2, 3"),
    ('"adamw"', '"adam"', "defaults: training.optimizer.name", "is 'adam'; allowed: adamw, sgd"),
    (", eps = 1e-8", "", "defaults: training.optimizer.eps", "missing"),
    ('kind = "cosine"', 'kind = "constant"', "defaults: training.schedule.decay_iterations", "unknown key"),
    ("dropout = 0.1", "dropout = 10", "defaults: training.dropout", "is 10; must be a number from 0 to 1"),
    (
        '["two", 39.03]',
        '["too", 39.03]',
        "also_printed summary: case",
        "no case 'too'; did you mean two? There are: one",
    ),
    ('["two", 39.03]', '["two"]', "also_printed number 1: rows", "each must have 2 values"),
    ("[[case]]\n", "[[cas]]\n", "file: case", "missing"),
    ("\nnodes = 1\n", "\nnodes = \n", "not TOML", "Invalid value (at line"),
]


def load(folder, **files):
    for name, content in files.items():
        (folder / f"{name}.toml").write_text(content, encoding="utf-8")
    return load_catalogue(folder)


def faults(folder, **files):
    with pytest.raises(CaseError) as caught:
        load(folder, **files)
    return caught.value.problems


def test_the_good_file_is_good(tmp_path):
    one, two = load(tmp_path, small=GOOD).cases
    assert (one.shape["layers"], two.shape["layers"], one.shape["seq_length"]) == (16, 24, 2048)
    assert (one.accumulation_steps, two.accumulation_steps) == (1, 32)
    assert (one.published.printed, two.published.printed) == ({}, {"group": "PP"})
    assert one.training == two.training and one.training["optimizer"]["clip_norm"] == 1.0


@pytest.mark.parametrize(("old", "new", "place", "reason"), BAD)
def test_a_bad_case_is_refused(tmp_path, old, new, place, reason):
    assert old in GOOD
    problems = faults(tmp_path, small=GOOD.replace(old, new))
    assert any(problem.startswith(f"small.toml: {place}: {reason}") for problem in problems), problems


def test_a_resnet50_is_data_parallel(tmp_path):
    text = (CASES / "resnet50-2020-08-21.toml").read_text(encoding="utf-8")
    problems = faults(tmp_path, bad=text.replace("layout = [8, 1, 1]", "layout = [4, 2, 1]"))
    assert any("bs128: layout: 4x2x1: resnet50 is data parallel only, allowed: 8x1x1" in each for each in problems)


def test_all_faults_of_all_files_are_collected(tmp_path):
    first = GOOD.replace("layout = [2, 4, 1]", "layout = [2, 8, 1]").replace("\niterations = 100", "")
    second = GOOD.replace('log_generation = "E"', 'log_generation = "Z"').replace("memory_mib", "memory")
    assert faults(tmp_path, first=first, second=second) == (
        "first.toml: case one: iterations: missing",
        "first.toml: case one: layout: 2x8x1 is 16 ranks, but nodes x gpus_per_node is 8; both must be equal",
        "first.toml: case two: iterations: missing",
        "second.toml: report: log_generation: is 'Z'; allowed: A, B, C, D, E",
        "second.toml: case one: published.memory: unknown key; allowed: throughput, latency_ms, memory_mib, speedup, "
        "gpu_utilisation, repeats",
    )


def test_a_fault_of_the_defaults_is_said_once(tmp_path):
    problems = faults(tmp_path, small=GOOD.replace("log_interval = 10", "log_interval = 1.5"))
    assert problems == ("small.toml: defaults: log_interval: is 1.5; must be a whole number of at least 1",)


def test_names_differ_across_files(tmp_path):
    problems = faults(tmp_path, first=GOOD, second=GOOD.replace('id = "small"', 'id = "other"'))
    taken = "is the name of case number 1 of first.toml too; names must differ"
    assert problems[0] == f"second.toml: case one: name: {taken}"
    assert "is the id of first.toml too" in faults(tmp_path, first=GOOD, second=GOOD)[0]


def test_an_empty_folder_is_an_error(tmp_path):
    assert faults(tmp_path) == (f"{tmp_path}: no case files (*.toml) there",)


def leaves(value, path=()):
    yield path
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(below, (*path, key))


def replaced(data, path, value):
    changed = copy.deepcopy(data)
    target = changed
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return changed


ODD = ["", "x", 0, -1, 10**400, 0.5, float("nan"), True, [], ["x"], {}, {"x": 1}]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:9])
def test_odd_values_never_break_the_check(odd):
    data = tomllib.loads(GOOD)
    for path in leaves(data):
        if path:
            assert isinstance(check_file("odd.toml", replaced(data, path, odd)), list)

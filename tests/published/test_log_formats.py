"""How settings of a log are read, and what batch size and length of an epoch they state."""

import math

import pytest

from repro.published.log_formats import (
    FORMATS,
    OTHER_STARTS,
    generation_of,
    stated_global_batch,
    stated_iterations_per_epoch,
    typed,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        (" False ", False),
        ("None", None),
        ("true", "true"),
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("1" * 18, int("1" * 18)),
        ("1" * 19, 1e18 * 10 / 9),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("inf", "inf"),
        ("nan", "nan"),
        ("1e9999", "1e9999"),
        ("[1, 2.5, 'a']", [1, 2.5, "a"]),
        ("[]", []),
        ("[1, 2", "[1, 2"),
        ("1, 2]", "1, 2]"),
        ("2]", "2]"),
        ("[", "["),
        ("[not json]", "[not json]"),
        ("[{}]", "[{}]"),
        ("[null]", "[null]"),
        ("[NaN]", "[NaN]"),
        ("[1e999]", "[1e999]"),
        ("/a path", "/a path"),
    ],
)
def test_a_setting_is_what_it_reads_as(text, value):
    found = typed(text)
    assert found == (pytest.approx(value) if isinstance(value, float) else value)
    assert type(found) is type(value)


def test_lists_too_deep_to_read_stay_text():
    text = "[" * 100_000 + "]" * 100_000
    assert typed(text) == text


PARTS = {"micro_batch_size": 4, "data_parallel_size": 8, "num_accumulation_steps": 2}
DEVICES = {"batch_size_per_device": 24, "gpu_num_per_node": 8, "num_nodes": 1}


@pytest.mark.parametrize(
    ("settings", "batch"),
    [
        ({"global_batch_size": 1}, 1),
        ({"global_batch_size": 512, **PARTS}, 512),
        (PARTS, 64),
        (DEVICES, 192),
        ({**PARTS, **DEVICES}, 64),
        ({"global_batch_size": 0, **PARTS}, 64),
        ({"global_batch_size": -1, **PARTS}, 64),
        ({"global_batch_size": "512"}, None),
        ({**PARTS, "data_parallel_size": 0}, None),
        ({**PARTS, "data_parallel_size": 8.0}, None),
        ({"micro_batch_size": 4, "data_parallel_size": 8}, None),
        ({}, None),
    ],
)
def test_the_global_batch_is_what_all_parts_of_one_naming_state(settings, batch):
    assert stated_global_batch(settings) == batch


@pytest.mark.parametrize(
    ("settings", "iterations"),
    [
        ({"iterations_per_epoch": 1}, 1),
        ({"iterations_per_epoch": 100, "num_examples": 7, "global_batch_size": 2}, 100),
        ({"iterations_per_epoch": 0, "num_examples": 7, "global_batch_size": 2}, 4),
        ({"iterations_per_epoch": -1}, None),
        ({"iterations_per_epoch": 1.5}, None),
        ({"num_examples": 8, "global_batch_size": 2}, 4),
        ({"num_examples": 1, "global_batch_size": 2}, 1),
        ({"num_examples": 0, "global_batch_size": 2}, None),
        ({"num_examples": -8, "global_batch_size": 2}, None),
        ({"num_examples": 8}, None),
        ({}, None),
    ],
)
def test_an_epoch_is_as_long_as_printed_or_as_its_samples_take(settings, iterations):
    assert stated_iterations_per_epoch(settings) == iterations


def test_generations_a_and_b_differ_by_the_stamp():
    letters = {(generation_of(form, False), generation_of(form, True)) for form in FORMATS}
    assert letters == {("A", "B"), ("C", "C"), ("D", "D"), ("E", "E")}
    assert [form.steps_before for form in FORMATS] == [0, 1, 0, 0], "C alone counts from 0"


def test_readings_of_memory_begin_with_any_digit():
    starts = {start.decode() for start in OTHER_STARTS}
    assert starts == {"validation:", "[N/A],", *"0123456789"}


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7.0), ("7.25", 7.25), ("-1e-3", -0.001), ("inf", math.inf), ("", None)]
)
def test_numbers_in_rows(text, value):
    (form,) = [each for each in FORMATS if each.generations == "D"]
    match = form.pattern.fullmatch(f"step: 10, loss: {text}, throughput: 1.0".encode())
    assert (match and float(match[2])) == value

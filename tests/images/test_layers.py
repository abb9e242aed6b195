"""Whether an image's layers are the pinned ones: on the base that `make base` makes, on another, and with a change."""

from dataclasses import replace

import pytest

from repro.images.layers import CODE, OF_ANY_BASE, compare
from repro.images.oci_layout import LayoutImage
from repro.images.pins import load_pins
from repro.images.recipes import BASELINE, RECIPES
from repro.images.stack import IMAGE_STACKS, tag_of

PINS = load_pins()
SAME = ("folder", "baseline-folder")
"""Layers of two recipes that hold the same: an empty folder."""


def image(stack, bases=(PINS.layers["base"],), **changed):
    """An image as pinned but for these layers; its code is anything."""
    above = {name: PINS.layers[name] for name in RECIPES[stack].layers[1:]} | {CODE: "f" * 64} | changed
    return LayoutImage(tag_of(stack), "sha256:a", "sha256:b", (*bases, *above.values()), 1)


def test_every_layer_but_the_code_is_pinned():
    named = {name for recipe in RECIPES.values() for name in recipe.layers}
    assert set(PINS.layers) == named
    assert len({digest for name, digest in PINS.layers.items() if name not in SAME[1:]}) == len(PINS.layers) - 1
    assert len({PINS.layers[name] for name in SAME}) == 1
    assert set(RECIPES) == {*IMAGE_STACKS, BASELINE}


@pytest.mark.parametrize("stack", IMAGE_STACKS)
def test_what_is_as_pinned_has_no_problem(stack):
    found = compare(image(stack), stack, PINS)
    assert found.problems == []
    assert found.line() == f"as pinned: {', '.join(RECIPES[stack].layers)}; not pinned: code"


@pytest.mark.parametrize("name", RECIPES["cu102"].layers[1:])
def test_a_layer_that_differs_is_named(name):
    found = compare(image("cu102", **{name: "e" * 64}), "cu102", PINS)
    (line,) = found.problems
    assert line == (
        f"oneflow-reproduction:cu102: layer '{name}' is eeeeeeeeeeee…, and docker/pins.toml has {PINS.layers[name][:12]}…"
    )
    assert f"NOT as pinned: {name}" in found.line()


@pytest.mark.parametrize("bases", [("d" * 64,), ("d" * 64, PINS.layers["base"])])
def test_on_another_base_only_what_holds_nothing_of_it_is_compared(bases):
    changed = {name: "c" * 64 for name in ("packages", "user", "folder")}
    found = compare(image("cu102-modern", bases, **changed), "cu102-modern", PINS)
    assert found.problems == []
    assert found.line().startswith("as pinned: environment, compat; not pinned, as the base is not that of `make base`")
    other = compare(image("cu102-modern", bases, compat="e" * 64), "cu102-modern", PINS)
    assert len(other.problems) == 1 and "layer 'compat'" in other.problems[0]
    assert {each.name for each in other.layers if each.pinned} == set(OF_ANY_BASE) - {"nccl"}


def test_another_nccl_is_another_layer():
    built = image("cu102", nccl="e" * 64)
    assert compare(built, "cu102", PINS, "2.7.3").problems == []
    assert compare(built, "cu102", PINS, "2.7.8").problems != []
    assert compare(built, "cu102", replace(PINS, layers=PINS.layers | {"nccl": "e" * 64})).problems == []

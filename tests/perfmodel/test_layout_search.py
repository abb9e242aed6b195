"""The search for layouts."""

import pytest

from repro.perfmodel.hardware import HardwareError, describe
from repro.perfmodel.layout_search import candidates_table, jobs, reasons, search, shape_of

V100 = describe("v100x32")


def test_shapes():
    assert shape_of("2304x24")["attention_heads"] == 18
    assert shape_of("1536x16x16")["attention_heads"] == 16
    assert shape_of("12288x96")["attention_heads"] == 96


@pytest.mark.parametrize("text", ["2304", "x24", "2304x0", "2304x24x7", "100x4", "2304x24;"])
def test_bad_shapes_are_named(text):
    with pytest.raises(HardwareError, match=f"SHAPE={text}"):
        shape_of(text)


def test_every_layout_uses_all_gpus_and_the_batch():
    for job in jobs(shape_of("2304x24"), 32, 64):
        assert job.layout.world_size == 32
        assert job.global_batch == 64


def test_best_first_and_all_fit():
    found = search(shape_of("2304x24"), V100, 64)
    speeds = [each.prediction.throughput for each in found]
    assert speeds == sorted(speeds, reverse=True)
    assert max(each.prediction.memory.total_mib for each in found) <= V100.gpu.memory_mib
    assert not any(each.job.layout.tensor > 8 for each in found[:10])


def test_nothing_fits():
    assert search(shape_of("12288x96"), V100, 64) == []


def test_reasons_name_what_costs():
    found = search(shape_of("2304x24"), V100, 64)
    deep = next(each for each in found if each.job.layout.pipeline == 8)
    assert "pipeline bubble" in reasons(deep, V100)
    titles, rows = candidates_table(found, V100)
    assert len(rows) == 10
    assert {len(row) for row in rows} == {len(titles)}

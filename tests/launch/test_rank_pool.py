"""Which attempts on the CPU run at the same time: by processors and by memory."""

import pytest

from repro.launch.rank_pool import RankPool, free_mib
from repro.planning.rehearsal import make_rehearsal_plan
from repro.published.cases import load_catalogue

MIB = {1: 300, 2: 700, 4: 1500, 32: 20_000}


def test_a_rank_for_each_processor():
    pool = RankPool(4, 10_000, MIB)
    assert [pool.take(ranks) for ranks in (1, 2, 2, 1, 1)] == [("0",), ("0", "1"), None, ("0",), None]
    pool.give_back(("0", "1"))
    assert pool.take(2) == ("0", "1")


def test_memory_limits_as_well():
    pool = RankPool(64, 2000, MIB)
    assert pool.take(4)
    assert pool.take(2) is None
    assert pool.take(1)


def test_what_needs_more_than_there_is_runs_alone():
    pool = RankPool(2, 10_000, MIB)
    names = pool.take(32)
    assert names is not None and len(names) == 32
    assert pool.take(1) is None
    pool.give_back(names)
    assert pool.take(1)


def test_the_number_of_attempts_can_be_limited():
    pool = RankPool(4, 10_000, MIB, jobs=1)
    assert pool.take(1)
    assert pool.take(1) is None


def test_a_plan_gives_the_largest_need_of_each_size():
    plan = make_rehearsal_plan(load_catalogue().select("resnet50", "resnet50_0808_1n?g_bs128"))
    pool = RankPool.of_this_machine(plan)
    assert pool.take(2)


def test_free_memory_is_what_the_kernel_says(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       24684000 kB\nMemFree:         1000000 kB\nMemAvailable:   20480000 kB\n")
    assert free_mib(meminfo) == 20_000
    with pytest.raises(FileNotFoundError):
        free_mib(tmp_path / "none")

"""Initial values: the same for a seed and a name however many rows of padding follow, normal, and independent."""

import numpy as np

from repro.trainers.models.initial import BLOCK, normal_values

ROWS, COLUMNS = 5, BLOCK // 2


def test_values_depend_on_seed_and_name_alone():
    values = normal_values(1, "table", (ROWS, COLUMNS), 0.02)
    assert np.array_equal(values, normal_values(1, "table", (ROWS, COLUMNS), 0.02))
    padded = normal_values(1, "table", (ROWS + 2, COLUMNS), 0.02, rows=ROWS)
    assert np.array_equal(padded[:ROWS], values) and not padded[ROWS:].any()
    for seed, name in ((2, "table"), (1, "other")):
        assert not np.isclose(normal_values(seed, name, (ROWS, COLUMNS), 0.02), values).any(axis=0).all()


def test_values_are_normal_and_no_block_repeats_another():
    blocks = normal_values(1, "table", (2 * BLOCK + BLOCK // 2,), 0.02)
    assert blocks.dtype == np.float32
    assert abs(blocks.std() / 0.02 - 1) < 0.01 and abs(blocks.mean()) < 0.0001
    first, second, rest = np.split(blocks, [BLOCK, 2 * BLOCK])
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01 and abs(np.corrcoef(first[: rest.size], rest)[0, 1]) < 0.01

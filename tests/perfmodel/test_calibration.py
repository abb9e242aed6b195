"""The fit sees its training cases alone, and gives the constants in the repository."""

from dataclasses import replace

import pytest

from repro.perfmodel.calibration import PULL, fit, minimum, target
from repro.perfmodel.constants import BOUNDS, as_toml, load_calibration
from repro.perfmodel.hardware import describe
from repro.perfmodel.training import kind_of, training_cases
from repro.published.cases import load_catalogue
from repro.published.figures import PrintedNumber

CASES = load_catalogue().cases
CLUSTER = describe("v100x32")
CALIBRATION = load_calibration()


def disturbed(case, factor: float):
    """The same case as if other figures had been published."""
    published = case.published
    memory = None if published.memory_mib is None else PrintedNumber(published.memory_mib * factor)
    return replace(
        case, published=replace(published, throughput=PrintedNumber(published.throughput * factor), memory_mib=memory)
    )


def test_training_cases_are_single_gpu_or_data_parallel_over_nodes():
    trained = training_cases(CASES)
    assert len(trained) == 15
    for case in trained:
        assert case.layout.tensor == case.layout.pipeline == 1
        assert case.optimizer_sharding == 0
        assert case.layout.world_size == 1 or case.nodes > 1
    batches = {(case.report, tuple(sorted(case.shape.items()))): set() for case in trained}
    for case in trained:
        batches[case.report, tuple(sorted(case.shape.items()))].add(case.micro_batch)
    assert all(len(each) == 1 for each in batches.values())


def test_constants_come_from_training_cases_alone():
    """With every held-out figure changed beyond recognition the fit gives the repository's constants to the bit."""
    names = {case.name for case in training_cases(CASES)}
    others = [case if case.name in names else disturbed(case, 3.0) for case in CASES]
    again = fit([target(case) for case in training_cases(others)], CLUSTER)
    assert again == CALIBRATION.constants


def test_a_training_figure_does_change_them():
    targets = [target(case) for case in training_cases(CASES)]
    targets[0] = replace(targets[0], throughput=1.1 * targets[0].throughput)
    assert fit(targets, CLUSTER) != CALIBRATION.constants


def test_constants_lie_within_their_bounds():
    for name, (low, high) in BOUNDS.items():
        assert low <= getattr(CALIBRATION.constants, name) <= high


def test_the_constants_without_a_family_come_from_the_others():
    """BERT's own figures do not matter for the constants that BERT is predicted with."""
    others = [case if case.family != "bert" else disturbed(case, 3.0) for case in training_cases(CASES)]
    again = fit([target(case) for case in others if case.family != "bert"], CLUSTER)
    assert again == CALIBRATION.without["bert"]


def test_families_are_reports_without_their_date():
    assert list(dict.fromkeys(case.family for case in CASES)) == list(CALIBRATION.without)
    assert len({each.report for each in CASES}) == len(CALIBRATION.without) + 1, "ResNet50 has two reports"


def test_a_shape_or_a_precision_that_was_not_trained_is_told_apart():
    case = next(case for case in CASES if case.name == "DP_8x1x1_16_1536x16")
    assert kind_of(case) == "data"
    assert kind_of(replace(case, precision="fp32")) == "untrained"
    assert kind_of(replace(case, shape={**case.shape, "layers": 24})) == "untrained"
    assert kind_of(replace(case, optimizer_sharding=1)) == "sharded"


def test_the_file_holds_all_of_a_calibration(tmp_path):
    (tmp_path / "calibration.toml").write_text(as_toml(CALIBRATION), encoding="utf-8")
    assert load_calibration(tmp_path / "calibration.toml") == CALIBRATION


@pytest.mark.parametrize("ends", [(0.3, 0.7), (-0.4, 0.7), (0.3, 1.6), (-0.4, 1.6)])
def test_least_squares_beyond_an_end_settle_at_it(ends):
    """Errors of one direction that depend on the other; what is left inside is the best for the end, and soon found."""
    asked = []

    def errors(point):
        asked.append(point)
        first, second = (value - end for value, end in zip(point, ends, strict=True))
        return [2 * first + 1.5 * second, second - first, first * second]

    found = minimum(2, PULL, errors)
    assert len(asked) < 100 and all(0 <= value <= 1 for value in found)

    def squares(point):
        return sum(error**2 for error in [*errors(point), *(PULL * (value - 0.5) for value in point)])

    for index in range(2):
        for moved in (-1e-3, 1e-3):
            near = [min(1.0, max(0.0, value + moved * (index == at))) for at, value in enumerate(found)]
            assert squares(near) >= squares(found)

"""Simulates benches that stop by looks, and by a fixed number of repeats: how often verdicts are wrong, and the repeats.

`python -m tests.support.stopping` prints the table; the seed is fixed.
"""

import random
from dataclasses import dataclass, replace

from repro.analysis.stopping import enough
from repro.analysis.verdict import DECIDED, case_ratio, outcome, tolerance
from repro.planning.plan import CONFIDENCE, PUBLISHED_REPEATS, verdict_looks
from repro.published.cases import Case, load_catalogue
from repro.published.figures import PrintedNumber
from repro.utils.sequential import Look, Looks
from repro.utils.stats import largest_trim, median, order_coverage

SEED = 20210512
TRIALS = 1000
NOISES = {
    "normal": lambda generator: generator.gauss(0, 1),
    "skewed": lambda generator: 1 - generator.expovariate(1),
    "heavy": lambda generator: generator.gauss(0, 1) / max(0.1, generator.random()) ** 0.5,
}
"""Deviations of a repeat, in units of the published noise; "skewed" has rare slow repeats."""
PLACES = (0.0, 0.5, 0.999, 1.001, 2.0)
"""How far the true ratio is from one, in tolerances: inside, and outside."""


@dataclass(frozen=True)
class Simulated:
    """Shares of benches, and the mean number of repeats."""

    false: float
    decided: float
    repeats: float


def fixed(repeats: int) -> Looks:
    """One look after so many repeats, which leaves the same error to the published figures as the looks of a bench."""
    return (Look(repeats, largest_trim(repeats, CONFIDENCE / order_coverage(PUBLISHED_REPEATS, 1))),)


def simulate(name: str, looks: Looks, noise: str, place: float, trials: int = TRIALS) -> Simulated:
    """Benches of one case whose true ratio is `place` tolerances above one."""
    case, generator = load_catalogue().case(name), random.Random(SEED)
    allowed = tolerance(case, load_catalogue())
    truth = "reproduced" if place < 1 else "faster"
    middle = median([NOISES[noise](generator) for _ in range(10_001)])

    def repeat(level: float) -> float:
        return level * (1 + allowed.noise * (NOISES[noise](generator) - middle))

    found = []
    for _ in range(trials):
        level = case.published.throughput * (1 + generator.uniform(-1, 1) * 1e-9)
        bench = _printed(case, [repeat(level) for _ in case.published.repeats])
        ratio, measured = 1 + place * allowed.value, []
        while len(measured) < looks[-1].repeats:
            measured.append(repeat(level * ratio))
            if len(measured) >= looks[0].repeats and enough(bench, measured, looks, allowed.value):
                break
        found.append((outcome(case_ratio(bench, measured, looks), allowed.value), len(measured)))
    reached = [each for each, _ in found if each in DECIDED]
    false = sum(each != truth for each in reached)
    return Simulated(false / trials, len(reached) / trials, sum(repeats for _, repeats in found) / trials)


def _printed(case: Case, repeats: list[float]) -> Case:
    """The case with other published repeats, printed with as many digits."""
    if not repeats:
        return case
    decimals = case.published.repeats[0].decimals
    printed = tuple(PrintedNumber(f"{value:.{decimals}f}") for value in repeats)
    figure = PrintedNumber(f"{median(printed):.{decimals}f}")
    return replace(case, published=replace(case.published, throughput=figure, repeats=printed))


def main() -> None:
    """Print a row for each case, noise and true ratio, with the stopping rule and with fixed repeats."""
    designs = {"looks": verdict_looks(), "fixed 7": fixed(7), "fixed 12": fixed(12)}
    print(f"{'case':22}{'noise':8}{'ratio':>7}", *(f"{each + ': false, decided, repeats':>34}" for each in designs))
    for name in ("DP_8x1x1_16_1536x16", "bert_1n8g_bs24"):
        for noise in NOISES:
            for place in PLACES:
                results = [simulate(name, looks, noise, place) for looks in designs.values()]
                cells = (f"{each.false:>18.2%}{each.decided:>9.1%}{each.repeats:>7.2f}" for each in results)
                print(f"{name:22}{noise:8}{place:>5.3g} t", *cells)


if __name__ == "__main__":
    main()

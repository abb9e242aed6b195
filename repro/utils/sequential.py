"""Looking at a median's interval more than once, at a stated confidence: looks, and the exact error of all together.

Whoever repeats until an interval suits errs more often than one interval says. So the looks are fixed before: after how
many repeats, and how many values are taken off each end of the sorted repeats. The number of repeats below the true
median is a random walk with steps of 0 or 1, whatever the distribution, and the median is missed at a look if the walk
is too near an edge there. The probability that this happens at any look is therefore known exactly, as in a group
sequential sign test (Jennison & Turnbull, Group Sequential Methods, 2000, chapters 2 and 15).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """After `repeats`, the interval goes from the `trim`-th smallest to the `trim`-th largest."""

    repeats: int
    trim: int


Looks = tuple[Look, ...]


def error(looks: Looks) -> float:
    """The probability that the interval of at least one look misses the median.

    It holds between looks too, where the interval has the trim of the last one: more values only widen it.
    """
    walk = {0: 1.0}
    done = 0
    for look in looks:
        for _ in range(look.repeats - done):
            walk = {below: (walk.get(below, 0) + walk.get(below - 1, 0)) / 2 for below in range(max(walk) + 2)}
        done = look.repeats
        walk = {below: p for below, p in walk.items() if look.trim <= below <= done - look.trim}
    return 1 - sum(walk.values())


def make_looks(most: int, allowed: float) -> Looks:
    """The looks up to `most` repeats that together miss with probability `allowed` at most.

    Each is as early as it can be, and takes one value more off each end than the one before; with the same trim a later
    look could decide nothing that an earlier one had not.
    """
    looks: Looks = ()
    for repeats in range(1, most + 1):
        trim = len(looks) + 1
        if repeats >= 2 * trim and error((*looks, Look(repeats, trim))) <= allowed:
            looks = (*looks, Look(repeats, trim))
    return looks


def trim_at(looks: Looks, repeats: int) -> int:
    """The trim of the last look reached after this many repeats; 0 before the first."""
    return max((look.trim for look in looks if look.repeats <= repeats), default=0)

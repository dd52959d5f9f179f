"""Is a difference between two groups of runs more than noise? An exact permutation test.

Runs are compared in blocks: what was run under the same conditions in both groups. If the groups do
not differ, any way of dealing a block's values into groups of these sizes is as likely as the one
that was measured. The p value is the share of the ways in which the means, averaged over the
blocks, lie at least as far apart (two-sided). Nothing is assumed about how values spread, which few
repetitions could not tell. Ernst, "Permutation Methods: A Basis for Exact Inference", Statistical
Science 19 (2004). Of many quantities some differ by chance: `holm` accounts for that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# A difference with a smaller p value is called real.
ALPHA = 0.05
# More ways than this are sampled, always the same ones.
MOST_WAYS = 20_000
# Resamples of the bootstrap, and the share of them that the interval holds.
RESAMPLES, COVERED = 2_000, 0.95
_SEED = 1

# Values of the two groups in one block.
Block = tuple[Sequence[float], Sequence[float]]
_Floats = npt.NDArray[np.float64]


def least_p(blocks: Sequence[tuple[int, int]]) -> float:
    """Return the p value of groups that do not overlap at all, of these sizes in each block.

    >>> least_p([(1, 1)]), least_p([(3, 3)]), round(least_p([(4, 4)]), 3), least_p([(1, 1)] * 6)
    (1.0, 0.1, 0.029, 0.03125)
    """
    # The lowest values in the one group, or in the other.
    return min(1.0, 2 / math.prod(math.comb(a + b, a) for a, b in blocks))


def p_value(blocks: Sequence[Block]) -> float:
    """Return the share of the ways to deal each block's values that part the means at least as far.

    >>> p_value([([1, 2, 3, 4], [11, 12, 13, 14])]) == least_p([(4, 4)])
    True
    >>> p_value([([1], [2]), ([11], [12]), ([21], [22]), ([31], [32]), ([41], [42]), ([51], [52])])
    0.03125
    >>> p_value([([1, 2, 3, 4], [1, 2, 3, 4])])
    1.0
    """
    ways = math.prod(math.comb(len(a) + len(b), len(a)) for a, b in blocks)
    dealt = _all_ways(blocks) if ways <= MOST_WAYS else _sampled_ways(blocks)
    measured = abs(sum(float(np.mean(b)) - float(np.mean(a)) for a, b in blocks))
    # Sums of the same values in another order differ in the last digits.
    largest = max(float(np.abs(values).max()) for block in blocks for values in block)
    return float(np.mean(np.abs(dealt) >= measured - 1e-9 * max(largest, 1e-300)))


def _apart(block: Block, first: npt.NDArray[np.int64]) -> _Floats:
    """Return by how much the means differ if `first` (one way per row) are the first group."""
    a, b = block
    values = np.array([*a, *b], float)
    sums = values[first].sum(axis=1)
    return np.asarray((values.sum() - sums) / len(b) - sums / len(a))


def _all_ways(blocks: Sequence[Block]) -> _Floats:
    total = np.zeros(1)
    for a, b in blocks:
        first = np.array(list(itertools.combinations(range(len(a) + len(b)), len(a))))
        total = np.add.outer(total, _apart((a, b), first)).ravel()
    return total


def _sampled_ways(blocks: Sequence[Block]) -> _Floats:
    """Return the measured way and others drawn at random."""
    random = np.random.default_rng(_SEED)
    total = np.zeros(MOST_WAYS)
    for a, b in blocks:
        drawn = [random.permutation(len(a) + len(b))[: len(a)] for _ in range(MOST_WAYS - 1)]
        total += _apart((a, b), np.array([np.arange(len(a)), *drawn]))
    return total


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for how many there are.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
    Statistics 6 (1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def interval(blocks: Sequence[Block]) -> tuple[float, float] | None:
    """Return where the difference of the means lies, by the bootstrap; None: too few runs.

    Blocks that have a single run on either side are drawn whole, as pairs; else each block's runs
    are drawn within their group (Efron and Tibshirani, An Introduction to the Bootstrap, 1993).
    """
    single = all(len(a) == len(b) == 1 for a, b in blocks)
    fewest = len(blocks) if single else min(min(len(a), len(b)) for a, b in blocks)
    if fewest < 3:
        return None
    random = np.random.default_rng(_SEED)
    if single:
        apart = np.array([b[0] - a[0] for a, b in blocks], float)
        drawn = random.choice(apart, (RESAMPLES, len(apart))).mean(axis=1)
    else:
        drawn = np.zeros(RESAMPLES)
        for a, b in blocks:
            for values, sign in ((a, -1), (b, 1)):
                picked = random.choice(np.array(values, float), (RESAMPLES, len(values)))
                drawn += sign * picked.mean(axis=1) / len(blocks)
    low, high = np.quantile(drawn, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return float(low), float(high)

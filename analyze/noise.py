"""Is a difference between two groups of repetitions more than noise? An exact permutation test.

If the groups do not differ, any way of dealing the same values into groups of these sizes is as
likely as the one that was measured. The p value is the share of the ways in which the means lie at
least as far apart (two-sided). Nothing is assumed about how values spread, which few repetitions
could not tell. Ernst, "Permutation Methods: A Basis for Exact Inference", Statistical Science 19
(2004).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

# A difference with a smaller p value is called real.
ALPHA = 0.05
# More ways than this are sampled, always the same ones.
MOST_WAYS = 20_000
_SEED = 1


def least_p(a: int, b: int) -> float:
    """Return the p value of groups of `a` and `b` values that do not overlap at all.

    >>> least_p(1, 1), least_p(3, 3), round(least_p(4, 4), 3)
    (1.0, 0.1, 0.029)
    """
    # The lowest values in the one group, or in the other.
    return 2 / math.comb(a + b, a)


def p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the share of the ways to deal the values that part the means at least as far.

    >>> p_value([1, 2, 3, 4], [11, 12, 13, 14]) == least_p(4, 4)
    True
    >>> p_value([1, 2, 3, 4], [1, 2, 3, 4])
    1.0
    """
    values = np.array([*a, *b], float)
    total, count = values.sum(), len(a)
    sums = values[_ways(len(values), count)].sum(axis=1)
    apart = np.abs(sums / count - (total - sums) / len(b))
    measured = abs(float(np.mean(a)) - float(np.mean(b)))
    # Sums of the same values in another order differ in the last digits.
    tolerance = 1e-9 * max(float(np.abs(values).max()), 1e-300)
    return float(np.mean(apart >= measured - tolerance))


def _ways(total: int, chosen: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Indices of the first group, one way per row; the measured one is among them."""
    if math.comb(total, chosen) <= MOST_WAYS:
        return np.array(list(itertools.combinations(range(total), chosen)))
    random = np.random.default_rng(_SEED)
    drawn = [random.permutation(total)[:chosen] for _ in range(MOST_WAYS - 1)]
    return np.array([np.arange(chosen), *drawn])
